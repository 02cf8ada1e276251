"""Query plans as tests: what a verb reads grows with its arguments, not with how much waits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import psycopg
import pytest

from fairlane.core.document import Claim, Done, Submission
from fairlane.core.policy import CustomerLimits, Terms
from fairlane.engine import Engine, open_engine
from fairlane.engine.postgres.queries import queries
from fairlane.engine.queries import Queries, read_sql
from tests.servers import postgres

SMALL, LARGE = (2_000, 200), (20_000, 2_000)  # documents, customers
COUNTS = """
SELECT relname, seq_scan, coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables
WHERE schemaname = %s
"""
HOT = {"customer_terms", "standings", "documents", "work", "endings", "lanes", "usuals", "changes"}


class SizedQueue(NamedTuple):
    """A queue of some size whose tables were never analysed, and a connection that planned while it was empty."""

    schema: str
    engine: Engine
    connection: psycopg.Connection[tuple[Any, ...]]
    sql: Queries


def make_queue(schema: str, documents: int, customers: int) -> SizedQueue:
    server = postgres.shared()
    engine = open_engine(f"{server.url}?schema={schema}")
    connection, sql = psycopg.connect(server.url), queries(schema)
    claim = ([1], ["d"], [1])
    calls = [(name, parameters) for name, parameters, _ in CALLS.values()]
    for name, parameters in [
        *calls,
        ("settle", (*claim, ["done"], None, None, None, None, None, None, 1)),
        ("extend", (*claim, 1000, 1)),
        ("take_over", (["d"], [1], "other", 1000, 1)),
    ]:
        connection.execute(sql.submit_one, ("d", "ada", "extract", "{}", 1000, None, None, 0, None, 2, 1, False))
        connection.execute(getattr(sql, name), parameters)
        connection.rollback()
    engine.tune("customer-00001", Terms(cap=3), 0, now_ms=0)
    engine.tune("customer-00008", Terms(limits=CustomerLimits(10**6, 10**6, 10**6, 10**12)), 0, now_ms=0)
    for first in range(0, documents, 2000):
        numbers = range(first, min(documents, first + 2000))
        engine.submit(
            [Submission(f"d{n}", f"customer-{n % customers:05d}", "scan" if n % 7 == 0 else "extract", "{}") for n in numbers],
            now_ms=1000,
        )
    engine.submit(
        [Submission(f"late{n}", "late", "extract", "{}", delay_ms=10**9) for n in range(documents // 10)], now_ms=1000
    )
    return SizedQueue(schema, engine, connection, sql)


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[SizedQueue, SizedQueue]]:
    pair = make_queue("plans_small", *SMALL), make_queue("plans_large", *LARGE)
    yield pair
    for queue in pair:
        queue.engine.close()
        queue.connection.rollback()
        queue.connection.execute(f"DROP SCHEMA {queue.schema} CASCADE")
        queue.connection.commit()
        queue.connection.close()


class Touched(NamedTuple):
    """What one call touched, as the server counted it."""

    rows: int
    scans: dict[str, int]  # tables that were read from end to end
    buffers: int


def count_touched(queue: SizedQueue, statement: str, parameters: Any) -> Touched:
    """Run a statement, count, roll back; the server counts up during a session, so the counts before are subtracted."""
    queue.connection.rollback()
    before = {name: counts for name, *counts in queue.connection.execute(COUNTS, (queue.schema,)).fetchall()}
    explained = queue.connection.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", parameters).fetchone()
    assert explained is not None
    plan = explained[0][0]["Plan"]
    after = queue.connection.execute(COUNTS, (queue.schema,)).fetchall()
    queue.connection.rollback()
    counts = {name: (scans - before[name][0], rows - before[name][1]) for name, scans, rows in after}
    scans = {name: count for name, (count, _) in counts.items() if name in HOT and count}
    return Touched(sum(rows for _, rows in counts.values()), scans, plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def claim_some(queue: SizedQueue, limit: int) -> list[Claim]:
    """Claim for good: the queue is large enough."""
    return queue.engine.claim("w", limit, 10**9, {"extract": 3}, now_ms=2000)


PAGE = {
    "customer": "customer-00007", "state": "ready", "kind": None, "reason": None, "since_ms": None, "until_ms": None,
    "before": 2000, "floor": None, "limit": 50, "inner_limit": 50, "examined": 99,
}  # fmt: skip
FILTERED = PAGE | {"floor": 1900, "inner_limit": None, "kind": "fax"}
CALLS: dict[str, tuple[str, Any, int]] = {
    "claim of 10": ("claim", ("w", 10, 1000, ["extract"], [3], 1000, 2000), 10),
    "claim of 50": ("claim", ("w", 50, 1000, ["extract"], [3], 1000, 2000), 50),
    "claim of 50 of all kinds": ("claim", ("w", 50, 1000, None, None, 1000, 2000), 2 * 50),
    "submit one": ("submit_one", ("new", "customer-00007", "extract", "{}", 1000, None, None, 0, None, 2, 2000, False), 1),
    "submit one with a key": (
        "submit_one",
        ("new", "customer-00007", "extract", "{}", 1000, "k", "d", 0, None, 2, 2000, False),
        1,
    ),
    "submit 50": (
        "submit",
        (
            [f"new{n}" for n in range(50)],
            ["customer-00007"],
            ["extract"],
            ["{}"] * 50,
            [1000],
            None,
            None,
            [0],
            None,
            None,
            None,
            None,
            2000,
            False,
        ),
        50,
    ),
    "submit one within a quota": (
        "submit_one",
        ("new", "customer-00008", "extract", "{}", 1000, None, None, 0, None, 2, 2000, False),
        1,
    ),
    "submit 50 out of another": (
        "submit",
        (
            [f"new{n}" for n in range(50)],
            ["customer-00008"],
            ["extract"],
            ["{}"] * 50,
            [1000],
            None,
            None,
            [0],
            None,
            ["d8"] * 50,
            None,
            None,
            2000,
            False,
        ),
        50,
    ),
    "retry": ("retry", ("d8", False, 2000), 1),
    "check": ("check", ("customer-00007", 1000, 2000), 1),
    "reclaim": ("reclaim", (50, 2000), 50),
    "cancel": ("cancel", ([f"d{n}" for n in range(150, 160)], 2000), 10),
    "purge": ("purge", (10**6, 50, 2000), 50),
    "limit a kind": ("limit_kind", ("scan", 0, 5, 1000, 1000, "{}", 2000), 1),
    "prioritize": ("prioritize", ([f"d{n}" for n in range(150, 160)], 9, '"ola"', 2000), 2 * 10),
    "reprioritize": ("reprioritize", ("customer-00007", 0, 5, False, 2000), 2 * 5),
    "recheck": ("reprioritize", ("customer-00007", 0, 5, True, 2000), 4 * 5),
    "tune": ("tune", ("customer-00009", 0, "{}", 2000, 5, False, *[None] * 8, 2000), 1),
    "one document": ("document", ("d7",), 1),
    "outlook": ("outlook", (2000, "d7"), 1),
    "body": ("body", ("d7",), 1),
    "totals": ("totals", (), 1),
    "kind": ("kind", ("scan",), 1),
    "kinds with a limit": ("kinds", ("", 10), 1),
    "kinds that wait": ("ready_kinds", ("", 10), 10),
    "changes": ("changes", (10, 50), 50),
    "customer": ("customer", (2000, "customer-00007"), 1),
    "customers": ("customers", (2000, "customer-00007", 10), 10),
    **{
        f"page: {page}": (page, PAGE | {"state": None}, 50)
        for page in ("documents", "documents_of_customer", "documents_unhappy")
    },
    **{
        f"filtered page: {page}": (page, FILTERED, 100)
        for page in ("documents", "documents_of_customer", "documents_at_work", "documents_done", "documents_unhappy")
    },
    **{
        f"floor: {floor}": (floor, PAGE, 100)
        for floor in ("floor_of_documents", "floor_of_customer", "floor_at_work", "floor_of_done", "floor_of_unhappy")
    },
}


@pytest.mark.parametrize("call", CALLS)
def test_what_a_verb_touches_does_not_grow_with_what_waits(both: tuple[SizedQueue, SizedQueue], call: str) -> None:
    name, parameters, size = CALLS[call]
    small, large = (count_touched(queue, getattr(queue.sql, name), parameters) for queue in both)
    assert large.scans.keys() <= (
        {"endings"} if call.startswith(("page", "filtered", "floor")) else set()
    )  # which is empty here
    assert large.rows <= 1.3 * small.rows + 20
    assert large.rows <= 12 * size + 60
    assert large.buffers <= 1.6 * small.buffers + 60  # trees are a level higher


def test_a_claim_touches_rows_in_proportion_to_its_batch(both: tuple[SizedQueue, SizedQueue]) -> None:
    _, large = both
    rows = [
        count_touched(large, large.sql.claim, ("w", limit, 1000, ["extract"], [3], 1000, 2000)).rows
        for limit in (10, 20, 40, 80)
    ]
    each = [(more - less) / count for less, more, count in zip(rows, rows[1:], (10, 20, 40), strict=False)]
    assert max(each) <= 1.5 * min(each)


def test_taking_over_touches_the_document_it_names(both: tuple[SizedQueue, SizedQueue]) -> None:
    counts = []
    for queue in both:
        (claim,) = claim_some(queue, 1)
        counts.append(count_touched(queue, queue.sql.take_over, ([claim.id], [claim.token], "other", 5000, 2000)))
    small, large = counts
    assert large.scans == {}
    assert large.rows <= 20
    assert large.buffers <= 1.6 * small.buffers + 60


def test_every_verb_that_locks_the_queue_gives_up_in_time_and_plans_once(both: tuple[SizedQueue, SizedQueue]) -> None:
    statements = read_sql("fairlane.engine.postgres", "queries.sql")
    rows = (
        both[0]
        .connection.execute(
            "SELECT proname, coalesce(proconfig, '{}') FROM pg_proc WHERE pronamespace = 'plans_small'::regnamespace "
            "AND prosrc LIKE '%%lock_queue()%%'"
        )
        .fetchall()
    )
    settings = {name: config for name, config in rows if f"fairlane.{name}(" in statements}
    del settings["keep_details"]  # it follows `settle`, which has the lock
    for name in [name for name in settings if name.startswith("unpack_")]:  # into a queue that nobody uses yet
        del settings[name]
    assert settings.keys() >= {"claim", "take_over", "settle"}
    for name, config in settings.items():
        assert {"lock_timeout=20s", "plan_cache_mode=force_generic_plan"} <= set(config), name


@pytest.mark.parametrize("verb", ["settle", "extend"])
def test_settling_and_extending_touch_what_they_name(both: tuple[SizedQueue, SizedQueue], verb: str) -> None:
    counts = []
    for queue in both:
        claims = claim_some(queue, 20)
        names = [claim.number for claim in claims], [claim.id for claim in claims], [claim.token for claim in claims]
        if verb == "settle":
            outcomes = (["done"] * 20, None, None, None, None, None, None)
            counts.append(count_touched(queue, queue.sql.settle, (*names, *outcomes, 2000)))
        else:
            counts.append(count_touched(queue, queue.sql.extend, (*names, 5000, 2000)))
    small, large = counts
    assert large.scans == {}
    assert large.rows <= 1.3 * small.rows + 20
    assert large.rows <= 12 * 20


def test_a_customer_at_its_cap_is_passed_over_without_being_read_again_and_again(both: tuple[SizedQueue, SizedQueue]) -> None:
    _, large = both
    before = count_touched(large, large.sql.claim, ("w", 10, 1000, ["extract"], [3], 1000, 2000)).rows
    large.engine.tune("customer-00002", Terms(paused=True), 0, now_ms=2000)
    large.engine.submit([Submission(f"blocked{n}", "customer-00002", "extract", "{}") for n in range(500)], now_ms=2000)
    after = count_touched(large, large.sql.claim, ("w", 10, 1000, ["extract"], [3], 1000, 2000)).rows
    assert after <= before + 10


def test_what_has_ended_leaves_the_hot_table(both: tuple[SizedQueue, SizedQueue]) -> None:
    small, _ = both
    claims = claim_some(small, 10)
    small.engine.settle([(claim, Done("1")) for claim in claims], now_ms=2000)
    counts = small.connection.execute(
        f"SELECT (SELECT count(*) FROM {small.schema}.work WHERE number = ANY (%s)), "
        f"(SELECT count(*) FROM {small.schema}.endings WHERE number = ANY (%s))",
        ([claim.number for claim in claims],) * 2,
    ).fetchone()
    assert counts == (0, 10)
    small.connection.rollback()


def test_tables_that_change_much_are_vacuumed_often_and_keep_room_for_updates(both: tuple[SizedQueue, SizedQueue]) -> None:
    small, _ = both
    rows = small.connection.execute(
        "SELECT relname, reloptions FROM pg_class WHERE relnamespace = %s::regnamespace AND relkind = 'r'", (small.schema,)
    ).fetchall()
    small.connection.rollback()
    options = {name: dict(option.split("=") for option in reloptions or ()) for name, reloptions in rows}
    for name in ("work", "lanes"):
        assert options[name]["autovacuum_vacuum_scale_factor"] == "0"
        assert int(options[name]["fillfactor"]) <= 70
