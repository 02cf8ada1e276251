"""Operations that share a transaction leave what they would leave one after the other."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from fairlane.core.document import Submission
from fairlane.core.errors import Mistake
from fairlane.core.policy import Terms
from fairlane.engine import open_engine
from fairlane.engine.memory import MemoryEngine
from fairlane.engine.sqlite import SqliteEngine
from fairlane.engine.sqlite.group_commit import GroupCommit, Ticket

NUMBERS = st.integers(0, 2)
CUSTOMERS = st.sampled_from(("ada", "bob"))
KEYS = st.sampled_from((None, None, None, "k"))
STEPS = st.one_of(
    st.tuples(st.just("submit"), NUMBERS, CUSTOMERS, KEYS, st.sampled_from("xy"), st.sampled_from((False, False, True))),
    st.tuples(st.just("submit"), NUMBERS, st.just("ada"), st.none(), st.just("x"), st.just(False)),
    st.tuples(st.just("cancel"), NUMBERS),
    st.tuples(st.just("claim"), NUMBERS),
    st.tuples(st.just("check"), CUSTOMERS),
    st.tuples(st.just("reclaim")),
    st.tuples(st.just("purge")),
    st.tuples(st.just("pause"), CUSTOMERS),
    st.tuples(st.just("reset"), CUSTOMERS),
    st.tuples(st.just("forget"), CUSTOMERS),
)
NOW_MS = 1_000_000


def doing(engine: Any, at: int, step: tuple[Any, ...]) -> Any:
    """One step of a program, at its place in it."""
    match step:
        case ("submit", number, customer, key, body, is_late):
            one = Submission(f"{at}-{number}", customer, "extract", "{}", 1000, key, key and body, 1 if is_late else 0)
            return engine.submit([one], now_ms=NOW_MS + at)
        case ("cancel", number):
            return engine.cancel([f"{place}-{number}" for place in range(at)], now_ms=NOW_MS + at)
        case ("claim", number):
            return engine.claim("w", number, 0, now_ms=NOW_MS + at)
        case ("check", customer):
            return engine.check(customer, 1000, now_ms=NOW_MS + at)
        case ("reclaim",):
            return engine.reclaim(2, now_ms=NOW_MS + at)
        case ("purge",):
            return engine.purge(0, 3, now_ms=NOW_MS + at)
        case ("pause", customer):
            return engine.tune(customer, Terms(paused=True), 0, now_ms=NOW_MS + at)
        case ("reset", customer):
            return engine.reset(customer, now_ms=NOW_MS + at)
        case _:
            return engine.forget(step[1], 2, now_ms=NOW_MS + at)


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Mistake as mistake:
        return type(mistake), str(mistake)


class Collected:
    """Stands where the group commit is, and only collects what is to be done."""

    def __init__(self) -> None:
        self.tickets: list[Ticket[Any]] = []

    def run(self, operation: Callable[[Any], Any]) -> Any:
        self.tickets.append(Ticket(operation))


@settings(max_examples=200, deadline=None)
@example([("submit", 0, "ada", None, "x", False), ("submit", 1, "ada", None, "x", False), ("cancel", 1)])
@example([("submit", 0, "ada", None, "x", True), ("check", "ada"), ("claim", 2)])
@example([("submit", 0, "ada", "k", "x", False), ("submit", 1, "ada", "k", "x", False), ("submit", 1, "ada", "k", "y", False)])
@example(
    [("submit", 0, "ada", None, "x", False), ("claim", 1), ("reclaim",), ("cancel", 0), ("submit", 1, "ada", None, "x", True)]
)
@given(st.lists(STEPS, min_size=2, max_size=14))
def test_a_shared_transaction_is_as_one_after_the_other(program: list[tuple[Any, ...]]) -> None:
    memory = MemoryEngine()
    expected = [outcome(lambda at=at, step=step: doing(memory, at, step)) for at, step in enumerate(program)]  # type: ignore[misc]
    with tempfile.TemporaryDirectory() as folder:
        engine = open_engine(f"sqlite:///{Path(folder)}/queue.db")
        assert isinstance(engine, SqliteEngine)
        collected = engine._group = Collected()  # type: ignore[assignment]
        for at, step in enumerate(program):
            doing(engine, at, step)
        engine._commit(collected.tickets)
        engine._group = GroupCommit(engine._commit)
        assert [outcome(ticket.outcome) for ticket in collected.tickets] == expected
        assert engine.documents(None, None, None, 100) == memory.documents(None, None, None, 100)
        assert engine.customers("", 9, now_ms=NOW_MS) == memory.customers("", 9, now_ms=NOW_MS)
        assert engine.changes(None, 100) == memory.changes(None, 100)
        assert engine.claim("w", 99, 0, now_ms=NOW_MS + 99) == memory.claim("w", 99, 0, now_ms=NOW_MS + 99)
        engine.close()
