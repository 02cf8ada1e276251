"""A transaction left open in the database: the server keeps every old row version, and verbs do not walk past them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import IsolationLevel

from fairlane.core.document import Claim, Done, Retried, Submission
from fairlane.core.policy import Terms
from fairlane.engine import Engine, open_engine
from fairlane.engine.postgres import diagnostics
from fairlane.engine.postgres.queries import queries
from tests.servers import postgres

Connection = psycopg.Connection[tuple[Any, ...]]
SCHEMA = "left_open"
CYCLES = 150
KINDS = {"extract": 9}


@pytest.fixture(params=["snapshot", "row written"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """A queue in a schema of its own, beside an open transaction."""
    server = postgres.shared()
    engine = open_engine(f"{server.url}?schema={SCHEMA}")
    engine.tune("capped", Terms(cap=1), 0, now_ms=0)
    with psycopg.connect(server.url) as holder:
        if request.param == "snapshot":
            holder.isolation_level = IsolationLevel.REPEATABLE_READ
            holder.execute(f"SELECT count(*) FROM {SCHEMA}.documents")
        else:
            holder.execute("CREATE TEMPORARY TABLE written (id int)")
        yield engine
        holder.rollback()
    engine.close()
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA {SCHEMA} CASCADE")


def cycle(engine: Engine, number: int) -> None:
    """Submit, claim and settle three documents of one kind: one arrives and is retried, one has a customer with a cap."""
    now_ms = 1000 * number
    with psycopg.connect(postgres.shared().url) as connection:
        engine.within(connection).submit([Submission(f"arrived{number}", "ada", "extract", "{}")], now_ms=now_ms)  # type: ignore[attr-defined]
    engine.submit([Submission(f"d{number}", "ada", "extract", "{}")], now_ms=now_ms)
    engine.submit([Submission(f"c{number}", "capped", "extract", "{}")], now_ms=now_ms)
    first, *others = engine.claim("w", 9, 500, KINDS, now_ms=now_ms)
    engine.settle([(first, Retried(100, "later")), *((claim, Done()) for claim in others)], now_ms=now_ms)
    again = engine.claim("w", 9, 500, None, now_ms=now_ms + 200)
    engine.settle([(claim, Done()) for claim in again], now_ms=now_ms + 200)
    engine.reclaim(9, now_ms=now_ms + 300)


def buffers(connection: Connection, statement: str, parameters: tuple[Any, ...]) -> int:
    """Run a statement, return how many buffers it touched, roll back."""
    row = connection.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", parameters).fetchone()
    connection.rollback()
    assert row is not None
    return int(row[0][0]["Plan"]["Shared Hit Blocks"] + row[0][0]["Plan"]["Shared Read Blocks"])


def measure(engine: Engine, connection: Connection, number: int) -> dict[str, int]:
    """Count the buffers of every verb of a cycle, and of the reads of a waiting worker, after autovacuum has seen few rows."""
    now_ms = 1000 * number
    connection.autocommit = True
    connection.execute("VACUUM ANALYZE")
    connection.autocommit = False
    sql = queries(SCHEMA)
    submit = ("ada", "extract", "{}", 1000, None, None, 0, None, 2, now_ms, False)
    quota = f"UPDATE {SCHEMA}.customer_terms SET limits = ROW(9, 9, 1000000, 1000000000, 9)::{SCHEMA}.limits"
    for _ in range(2):  # once so that plans are made
        touched = {"submit": buffers(connection, sql.submit_one, ("probe", *submit))}
        connection.execute(quota)  # rolled back with the next measurement
        touched["submit within a quota"] = buffers(connection, sql.submit_one, ("probe", *submit))
        engine.submit([Submission(f"p{number}-{_}-{m}", "ada", "extract", "{}") for m in range(2)], now_ms=now_ms)
        touched["claim"] = buffers(connection, sql.claim, ("w", 1, 500, ["extract"], [9], 1000, now_ms))
        touched["claim of all kinds"] = buffers(connection, sql.claim, ("w", 1, 500, None, None, 1000, now_ms))
        claims: list[Claim] = engine.claim("w", 1, 500, KINDS, now_ms=now_ms)
        names = [claim.number for claim in claims], [claim.id for claim in claims], [claim.token for claim in claims]
        touched["settle"] = buffers(connection, sql.settle, (*names, ["done"], None, None, None, None, None, None, now_ms))
        engine.settle([(claim, Done()) for claim in claims], now_ms=now_ms)
        touched["reclaim"] = buffers(connection, sql.reclaim, (9, now_ms))
        touched["wait"] = buffers(connection, sql.is_work_ready, (["extract"],))
    return touched


def test_what_verbs_touch_does_not_grow_with_what_was_done_beside_an_open_transaction(engine: Engine) -> None:
    with psycopg.connect(postgres.shared().url) as connection:
        for number in range(1, 20):
            cycle(engine, number)
        before = measure(engine, connection, 20)
        for number in range(21, 21 + CYCLES):
            cycle(engine, number)
        after = measure(engine, connection, 21 + CYCLES)
    # Trees become a level higher, and bounds are raised now and then; walking past all old versions takes hundreds.
    assert {verb: count for verb, count in after.items() if count > 1.6 * before[verb] + 60} == {}


def test_documents_arrive_whenever_their_transactions_end(engine: Engine) -> None:
    """Senders that began before others, and were absorbed after them, or by themselves."""
    url = postgres.shared().url

    def submit(connection: Connection, id: str) -> None:
        engine.within(connection).submit([Submission(id, id, "extract", "{}")], now_ms=1)  # type: ignore[attr-defined]

    with psycopg.connect(url) as early, psycopg.connect(url) as late, psycopg.connect(url) as own:
        submit(early, "early")
        submit(own, "own-1")
        submit(late, "late")
        late.commit()
        assert [claim.id for claim in engine.claim("w", 9, 1000, now_ms=1)] == ["late"]
        early.commit()
        assert [claim.id for claim in engine.claim("w", 9, 1000, now_ms=1)] == ["early"]
        assert [claim.id for claim in engine.within(own).claim("w", 1, 1000, now_ms=1)] == ["own-1"]  # type: ignore[attr-defined]
        submit(own, "own-2")
        own.commit()
    assert [claim.id for claim in engine.claim("w", 9, 1000, now_ms=1)] == ["own-2"]
    assert [change.document for change in engine.changes(None, 99) if change.what == "submitted"] == [
        "late", "early", "own-1", "own-2",
    ]  # fmt: skip


def test_documents_that_arrived_before_a_backup_are_found_in_another_server(engine: Engine) -> None:
    """There, numbers of transactions begin anew: what is known of those that were over means nothing."""
    url = postgres.shared().url
    with psycopg.connect(url) as connection:
        engine.within(connection).submit([Submission("a", "ada", "extract", "{}")], now_ms=1)  # type: ignore[attr-defined]
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"UPDATE {SCHEMA}.counters SET arrivals_floor = '900000000'")
        connection.execute(f"UPDATE {SCHEMA}.arrivals SET xid = '900000000'")
        assert [claim.id for claim in engine.claim("w", 9, 1000, now_ms=1)] == ["a"]
        known = f"SELECT arrivals_floor <= pg_snapshot_xmax(pg_current_snapshot()), is_behind FROM {SCHEMA}.queue"
        assert connection.execute(known).fetchone() == (True, False)
    with psycopg.connect(url) as connection:
        engine.within(connection).submit([Submission("b", "ada", "extract", "{}")], now_ms=1)  # type: ignore[attr-defined]
    assert [claim.id for claim in engine.claim("w", 9, 1000, now_ms=1)] == ["b"]


def test_concurrent_senders_and_workers_lose_nothing_beside_an_open_transaction(engine: Engine) -> None:
    ended: list[str] = []

    def send(thread: int) -> None:
        for number in range(40):
            engine.submit([Submission(f"{thread}-{number}", f"c{number % 3}", "extract", "{}")])

    def work() -> None:
        while len(ended) < 120:
            claims = engine.claim("w", 3, 60_000, KINDS)
            assert engine.settle([(claim, Done()) for claim in claims]) == []
            ended.extend(claim.id for claim in claims)

    threads = [
        *(threading.Thread(target=send, args=(n,)) for n in range(3)),
        *(threading.Thread(target=work) for _ in range(2)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(ended) == sorted(f"{thread}-{number}" for thread in range(3) for number in range(40))


def test_doctor_names_a_session_that_keeps_a_transaction_open(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def finding() -> Any:
        return next(finding for finding in engine.diagnose() if finding.name == "open transactions")

    assert finding().level == "fine"
    monkeypatch.setattr(diagnostics, "OPEN_SECONDS_MAX", 0)
    with psycopg.connect(postgres.shared().url, application_name="forgotten") as left_open:
        left_open.isolation_level = IsolationLevel.REPEATABLE_READ
        left_open.execute("SELECT count(*) FROM pg_class")
        found = finding()
        assert found.level == "warning"
        assert (
            f"session {left_open.info.backend_pid} of user fairlane (forgotten), idle in transaction, open for" in found.message
        )
        assert "pg_terminate_backend" in found.advice
        left_open.rollback()
    assert "forgotten" not in finding().message
