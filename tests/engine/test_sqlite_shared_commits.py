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
from fairlane.engine.memory import MemoryEngine
from fairlane.engine.sqlite import SqliteEngine
from fairlane.engine.sqlite.group_commit import PendingOperation
from fairlane.engine.sqlite.pool import SqlitePool
from fairlane.engine.walk import walk_documents

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


def run_step(engine: Any, index: int, step: tuple[Any, ...]) -> Any:
    """Run one step of a program, at a time that follows from its index."""
    match step:
        case ("submit", number, customer, key, body, is_late):
            delay_ms = 1 if is_late else 0
            submission = Submission(f"{index}-{number}", customer, "extract", "{}", 1000, key, key and body, delay_ms)
            return engine.submit([submission], now_ms=NOW_MS + index)
        case ("cancel", number):
            return engine.cancel([f"{earlier}-{number}" for earlier in range(index)], now_ms=NOW_MS + index)
        case ("claim", number):
            return engine.claim("w", number, 0, now_ms=NOW_MS + index)
        case ("check", customer):
            return engine.check(customer, 1000, now_ms=NOW_MS + index)
        case ("reclaim",):
            return engine.reclaim(2, now_ms=NOW_MS + index)
        case ("purge",):
            return engine.purge(0, 3, now_ms=NOW_MS + index)
        case ("pause", customer):
            return engine.tune(customer, Terms(paused=True), 0, now_ms=NOW_MS + index)
        case ("reset", customer):
            return engine.reset(customer, now_ms=NOW_MS + index)
        case _:
            return engine.forget(step[1], 2, now_ms=NOW_MS + index)


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Mistake as mistake:
        return type(mistake), str(mistake)


class CollectingPool(SqlitePool):
    """Collects operations instead of running them, until `commit_all` runs them in one transaction."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.pending: list[PendingOperation[Any]] = []
        self.is_collecting = True

    def write(self, operation: Callable[[Any], Any]) -> Any:
        if not self.is_collecting:
            return super().write(operation)
        self.pending.append(PendingOperation(operation))
        return None

    def commit_all(self) -> list[Any]:
        self.is_collecting = False
        self.commit(self.pending)
        return [outcome(pending.result) for pending in self.pending]


class CollectingEngine(SqliteEngine):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._pool = self.pool = CollectingPool(path)


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
    expected = [outcome(lambda index=index, step=step: run_step(memory, index, step)) for index, step in enumerate(program)]  # type: ignore[misc]
    with tempfile.TemporaryDirectory() as folder:
        engine = CollectingEngine(Path(folder) / "queue.db")
        for index, step in enumerate(program):
            run_step(engine, index, step)
        assert engine.pool.commit_all() == expected
        assert list(walk_documents(engine)) == list(walk_documents(memory))
        assert engine.customers("", 9, now_ms=NOW_MS) == memory.customers("", 9, now_ms=NOW_MS)
        assert engine.changes(None, 100) == memory.changes(None, 100)
        assert engine.claim("w", 99, 0, now_ms=NOW_MS + 99) == memory.claim("w", 99, 0, now_ms=NOW_MS + 99)
        engine.close()
