"""A PostgreSQL primary dies under load and its standby is promoted: with synchronous replication nothing acknowledged is lost.

Run as `python -m chaos.standby`. Submitters and claimers use a URL that names both servers. The link between the servers falls
silent for a moment, the primary is stopped as by a power failure, and the standby is promoted; everybody goes on there. With
`--asynchronous` the same run shows that the checks find what is lost then.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click
import psycopg

from fairlane import Queue
from tests.servers.postgres import Server, find_programs

from .checker import check_at_rest
from .history import read_clients
from .postgres import SCHEMA, Postgres
from .processes import Child
from .proxy import FaultyProxy
from .runs import Report, choose_seed, drain, figures_of, run_and_exit, stop_afterwards

SILENT_SECONDS = 1.0


@dataclass(frozen=True)
class Options:
    """The options of a run."""

    synchronous: bool = True
    seconds: float = 10.0  # before the failover, and after it
    seed: int = 1
    documents: int = 100_000  # more than are submitted in that time
    submitters: int = 2
    claimers: int = 3
    customers: int = 8


class Standby(Server):
    """A standby that copies a primary over a link."""

    def __init__(self, programs: Path, link: FaultyProxy) -> None:
        super().__init__(programs, settings=())
        self._link = link

    def __enter__(self) -> Standby:
        source = ("-h", "127.0.0.1", "-p", str(self._link.port), "-U", "fairlane")
        self._run("pg_basebackup", *source, "-D", str(self.folder / "data"), "-R", "-X", "stream", "-c", "fast")
        self.start()
        return self

    def promote(self) -> None:
        """Make it the primary."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("SELECT pg_promote(true, 60)")


class PostgresPair(Postgres):
    """A primary and its standby; after `fail` the standby is the primary."""

    def __init__(self, is_synchronous: bool) -> None:
        programs = find_programs()
        self._primary = Server(programs, settings=("wal_sender_timeout=0",)).__enter__()
        self._link = FaultyProxy(self._primary.port)
        self._standby = Standby(programs, self._link).__enter__()
        self._server = self._primary
        self.url = (
            f"postgresql://fairlane@127.0.0.1:{self._primary.port},127.0.0.1:{self._standby.port}/postgres"
            f"?schema={SCHEMA}&target_session_attrs=read-write"
        )
        if is_synchronous:
            with psycopg.connect(self._primary.url, autocommit=True) as connection:
                connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
                connection.execute("SELECT pg_reload_conf()")

    def close(self) -> None:
        """Stop both servers."""
        self._standby.__exit__()
        self._link.close()
        self._primary.__exit__()

    def fail(self) -> None:
        """Cut the standby off, let the primary die a moment later, and promote the standby."""
        self._link.freeze()
        time.sleep(SILENT_SECONDS)
        self._primary.stop("immediate")
        self._link.cut()
        self._standby.promote()
        self._server = self._standby


def run(options: Options, folder: Path, advance: Callable[[], None] = lambda: None) -> Report:
    """Run once in an empty folder."""
    servers = PostgresPair(options.synchronous)
    try:
        report = Report(options)
        Queue(servers.url).close()
        numbers = (options.seed, options.documents // options.submitters, options.customers)
        roles = ["submitter"] * options.submitters + ["claimer"] * options.claimers
        children = [Child(role, f"{role}-{number}", folder, numbers, url=servers.url) for number, role in enumerate(roles)]
        with stop_afterwards(children, folder, report):
            for child in children:
                child.wait_for_work()
            time.sleep(options.seconds)
            servers.fail()
            advance()
            time.sleep(options.seconds)
            advance()
        drain(servers.url)
        store, clients = servers.snapshot(), read_clients(child.log for child in children)
        report.wrong += check_at_rest(store, clients)
        report.figures = figures_of(store, clients)
        return report
    finally:
        servers.close()


@click.command()
@click.option("--synchronous/--asynchronous", default=Options.synchronous, show_default=True)
@click.option("--seconds", default=Options.seconds, show_default=True, help="Load before and after the failover.")
@click.option("--seed", type=int, help="Repeat the random choices of a run. Default: a new seed, which is shown.")
@click.option("--json", "is_json", is_flag=True, help="Print the report as JSON.")
def main(synchronous: bool, seconds: float, seed: int | None, is_json: bool) -> None:
    """A primary that dies, and a standby that is promoted."""
    options = Options(synchronous, seconds, choose_seed(seed))
    kind = "synchronous" if synchronous else "asynchronous"
    run_and_exit(f"{kind} standby, seed {options.seed}", 2, lambda folder, advance: run(options, folder, advance), is_json)


if __name__ == "__main__":
    main()
