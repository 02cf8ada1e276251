"""Benchmark of PostgreSQL beside a transaction that was left open: cycles a second before it, and after one and five minutes.

`python -m bench.open_transaction`. A cycle submits, claims and settles one document. An open transaction keeps the server from
removing old versions of rows, whether it only has a snapshot or has also written. The CPU time that the server needs for a
cycle is the figure to compare on a machine that others use too.
"""

from __future__ import annotations

import itertools
import threading
import time
from pathlib import Path
from typing import NamedTuple

import click
import psycopg
from psycopg import IsolationLevel

from fairlane import Queue
from fairlane.core.document import Done
from tests.servers.postgres import Server, find_programs

WINDOW_SECONDS = 10.0
KINDS = {"extract": 3}


class Rate(NamedTuple):
    """Cycles a second, and the server's CPU time for one."""

    cycles: float
    cpu_ms: float

    def __str__(self) -> str:
        return f"{self.cycles:.0f} cycles/s, {self.cpu_ms:.2f} ms CPU of the server each"


class Load:
    """Threads that submit, claim and settle; each counts its cycles."""

    def __init__(self, url: str, threads: int, customers: int) -> None:
        self.queue = Queue(url)
        self._customers = [f"customer-{number:03d}" for number in range(customers)]
        self._cycles = [0] * threads
        self._ends = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(threads)]
        for thread in self._threads:
            thread.start()

    def _run(self, number: int) -> None:
        customers = itertools.cycle(self._customers[number:] + self._customers[:number])
        while not self._ends.is_set():
            self.queue.submit(next(customers), {}, kind="extract")
            claims = self.queue.engine.claim("bench", 1, 600_000, KINDS)
            self.queue.engine.settle([(claim, Done()) for claim in claims])
            self._cycles[number] += len(claims)

    def rate(self, connection: psycopg.Connection[tuple[int]]) -> Rate:
        """Count for a while; return the rate."""
        cpu_ms, before, began = _cpu_ms(connection), sum(self._cycles), time.perf_counter()
        self._ends.wait(WINDOW_SECONDS)
        seconds, cycles = time.perf_counter() - began, sum(self._cycles) - before
        return Rate(cycles / seconds, (_cpu_ms(connection) - cpu_ms) / max(1, cycles))

    def end(self) -> None:
        """Stop the threads and close the queue."""
        self._ends.set()
        for thread in self._threads:
            thread.join()
        self.queue.close()


def _cpu_ms(connection: psycopg.Connection[tuple[int]]) -> float:
    """Return the CPU time that the server's processes for clients have used."""
    pids = connection.execute("SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend'").fetchall()
    return sum(int(Path(f"/proc/{pid}/schedstat").read_text(encoding="utf-8").split()[0]) for (pid,) in pids) / 1e6


@click.command()
@click.option("--threads", default=1, show_default=True)
@click.option("--customers", default=20, show_default=True)
@click.option("--seconds", multiple=True, type=float, default=(60.0, 300.0), show_default=True, help="When to measure.")
@click.option("--writes", is_flag=True, help="The open transaction has written a row, instead of REPEATABLE READ.")
def main(threads: int, customers: int, seconds: tuple[float, ...], writes: bool) -> None:
    """Measure cycles a second beside an open transaction."""
    with (
        Server(find_programs(), settings=()) as server,
        psycopg.connect(server.url) as holder,
        psycopg.connect(server.url, autocommit=True) as reader,
    ):
        load = Load(f"{server.url}?schema=bench", threads, customers)
        try:
            load.rate(reader)  # warms up
            before = load.rate(reader)
            click.echo(f"before: {before}")
            if writes:
                holder.execute("CREATE TEMPORARY TABLE left_open (id int)")
            else:
                holder.isolation_level = IsolationLevel.REPEATABLE_READ
                holder.execute("SELECT count(*) FROM bench.documents")
            began = time.monotonic()
            for moment in seconds:
                while time.monotonic() - began < moment - WINDOW_SECONDS:
                    load.rate(reader)
                after = load.rate(reader)
                click.echo(f"open for {moment:.0f} s: {after}; {after.cycles / before.cycles:.2f} of the rate before")
        finally:
            load.end()


if __name__ == "__main__":
    main()
