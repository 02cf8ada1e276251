"""A PostgreSQL server that fails as after a power failure, and a snapshot of its records."""

from __future__ import annotations

import time
from typing import Any

import psycopg
from psycopg import IsolationLevel

from fairlane.core.document import ChangeRow
from tests.servers.postgres import Server, find_programs

from .history import Customer, Document, Kind, Lane, Priority, Ready, StoreSnapshot

SCHEMA = "chaos"


class Postgres:
    """A PostgreSQL server for `chaos.servers`."""

    def __init__(self) -> None:
        self._server = Server(find_programs(), settings=()).__enter__()  # with all syncs
        self.url = f"{self._server.url}?schema={SCHEMA}"
        self.upstream = self._server.folder / f".s.PGSQL.{self._server.port}"

    def url_through(self, host: str, port: int) -> str:
        """Return the URL of the same queue by way of a proxy."""
        return f"postgresql://fairlane@{host}:{port}/postgres?schema={SCHEMA}"

    def close(self) -> None:
        """Stop the server and remove its folder."""
        self._server.__exit__()

    def fail(self) -> None:
        """Stop immediately, without a checkpoint; the start then recovers from the write-ahead log."""
        self._server.stop("immediate")
        self._server.start()

    def rest(self) -> None:
        """Wait until no call is under way; the callers are frozen."""
        with psycopg.connect(self._server.url, autocommit=True) as connection:
            statement = (
                "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND state <> 'idle' "
                "AND pid <> pg_backend_pid()"
            )
            while connection.execute(statement).fetchone() != (0,):
                time.sleep(0.005)

    def snapshot(self) -> StoreSnapshot:
        """Read everything in one transaction, after merging pending arrivals."""
        with psycopg.connect(self._server.url, autocommit=True) as connection:
            connection.execute(f"SELECT {SCHEMA}.settle_arrivals()")
        with psycopg.connect(self._server.url) as connection:
            connection.isolation_level = IsolationLevel.REPEATABLE_READ

            def rows(statement: str) -> list[tuple[Any, ...]]:
                return connection.execute(statement.replace("@", f"{SCHEMA}.")).fetchall()

            return StoreSnapshot(
                [Document(*row) for row in rows(
                    "SELECT s.number, s.id, s.customer, s.kind, s.state, s.priority, s.counter, s.checked_ms, s.key, "
                    "s.ready_ms, s.attempts, s.attempts_max, s.token, e.result, s.whole, s.parts_left FROM @snapshots AS s "
                    "LEFT JOIN @endings AS e ON e.number = s.number ORDER BY s.number"
                )],
                [Customer(*row) for row in rows(
                    "SELECT c.id, c.counter, c.updated_ms, sum(l.waiting)::bigint, sum(l.running)::bigint, "
                    "sum(l.done)::bigint, sum(l.failed)::bigint, sum(l.cancelled)::bigint "
                    "FROM @customers AS c LEFT JOIN @lanes AS l ON l.customer = c.number GROUP BY c.id, c.counter, c.updated_ms"
                )],
                [Lane(*row) for row in rows(
                    "SELECT c.id, l.kind, l.priority, l.head, l.ready_ms, l.start, l.cross_tag, "
                    "CASE WHEN l.start IS NOT NULL THEN 1 END FROM @lanes AS l "
                    "JOIN @customers AS c ON c.number = l.customer"
                )],
                [Ready(*row) for row in rows(
                    "SELECT c.id, w.kind, w.priority, w.number, w.ready_ms FROM @work AS w "
                    "JOIN @customers AS c ON c.number = w.customer WHERE w.state = 'ready'"
                )],
                [Priority(*row) for row in rows(
                    "SELECT p, ready[p], lanes[p] FROM @queue CROSS JOIN generate_series(1, 9) AS p"
                )],
                [ChangeRow(*row) for row in rows(
                    "SELECT f.number, f.at_ms, f.what, c.id, d.id, f.token, f.note FROM @changes AS f "
                    "LEFT JOIN @customers AS c ON c.number = f.customer LEFT JOIN @documents AS d ON d.number = f.document "
                    "ORDER BY f.number"
                )],
                int(rows(
                    "SELECT coalesce(sum(number), 0) FROM (SELECT DISTINCT ON (digest) number FROM @dispatches "
                    "ORDER BY digest, revision DESC) AS newest"
                )[0][0]),
                self._integrity(rows),
                [
                    Kind(kind, tuple(clocks), _known(firsts[:4]), _known(firsts[4:]))
                    for kind, clocks, *firsts in rows(
                        "SELECT DISTINCT ON (kind) kind, clocks, first_priority, first_start, first_cross, first_head, "
                        "oldest_ms, oldest_head FROM @kinds ORDER BY kind, revision DESC"
                    )
                ],
            )  # fmt: skip

    @staticmethod
    def _integrity(rows: Any) -> str:
        """Check that every document is in exactly one of the tables work and endings."""
        ((both,),) = rows("SELECT count(*) FROM @work AS w JOIN @endings AS e ON e.number = w.number")
        ((neither,),) = rows(
            "SELECT count(*) FROM @documents AS d WHERE NOT EXISTS (SELECT FROM @work AS w WHERE w.number = d.number) "
            "AND NOT EXISTS (SELECT FROM @endings AS e WHERE e.number = d.number)"
        )
        return "ok" if both == neither == 0 else f"{both} documents are in work and in endings, {neither} in neither"


def _known(values: list[int | None]) -> tuple[int, ...] | None:
    return tuple(value for value in values if value is not None) or None
