"""Every recorded check made again: no false alarm, whatever a queue went through and whoever uses it meanwhile."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane import Queue
from fairlane.core.document import Claim, Done, Failed, Released, Retried
from fairlane.core.errors import RetriesSpent, StoreError
from fairlane.core.policy import Rules, Terms
from fairlane.engine import Engine
from fairlane.sim.verify import verify

from .shared import CUSTOMERS, START_MS, brief, thorough

who = st.sampled_from(CUSTOMERS[:3])
cost = st.sampled_from((1, 1, 1, 0.001, 2.5, 40))
corrections = st.sampled_from((None, None, 500, 1000, 3000, 90_000))
outcomes = st.one_of(
    st.builds(Done, st.none(), corrections),
    st.builds(Retried, st.just(0), st.just("later"), corrections),
    st.builds(Failed, st.just("corrupt"), corrections),
    st.builds(Released),
)
tunings = st.fixed_dictionaries(
    {},
    optional={
        "weight": st.sampled_from((1, 2, 0.5)),
        "reset": st.sampled_from((None, "idle", "sliding")),
        "thresholds": st.sampled_from((None, (-1, -2.5))),
        "reset_interval": st.sampled_from((None, 5)),
    },
)
rules = st.fixed_dictionaries(
    {},
    optional={
        "reset": st.sampled_from(("idle", "sliding")),
        "turns": st.sampled_from(("time", "documents")),
        "thresholds": st.sampled_from(((-2, -4, -6), (-1,), ())),
        "reset_interval": st.sampled_from((10, 1500)),
    },
)
kept = st.one_of(
    st.tuples(st.just("pass"), st.sampled_from((1, 999, 4000, 10_000, 10_001, 1_500_001, -3000))),
    st.tuples(st.just("submit"), who, cost),
    st.tuples(st.just("submit"), who, cost),
    st.tuples(st.just("submit_many"), who, st.integers(1, 12)),
    st.tuples(st.just("check"), who, cost),
    st.tuples(st.just("make_from"), st.integers(0, 20)),
    st.tuples(st.just("work"), st.integers(1, 4), outcomes),
    st.tuples(st.just("work"), st.integers(1, 4), outcomes),
    st.tuples(st.just("tune"), who, tunings),
    st.tuples(st.just("configure"), rules),
    st.tuples(st.just("reset"), who),
    st.tuples(st.just("cancel"), st.integers(0, 20)),
    st.tuples(st.just("fail"), st.integers(1, 3), corrections),
    st.tuples(st.just("retry"), st.integers(0, 20), st.sampled_from((True, True, False))),
)
erasing = st.one_of(
    st.tuples(st.just("forget"), who, st.sampled_from((2, 1000))),
    st.tuples(st.just("purge"), st.sampled_from((0, 5000, 60_000))),
)


class Program:
    """Steps on a queue, at given times."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.engine = queue.engine
        self.now_ms = START_MS
        self.ids: list[str] = []

    def step(self, step: tuple[Any, ...]) -> None:
        name, *arguments = step
        getattr(self, name)(*arguments)

    def together(self, steps: list[tuple[Any, ...]]) -> None:
        for step in steps:
            self.step(step)

    @property
    def now(self) -> float:
        return self.now_ms / 1000

    def pass_(self, by_ms: int) -> None:
        self.now_ms += by_ms

    def submit(self, customer: str, cost: float) -> None:
        self.ids.append(self.queue.submit(customer, cost=cost, now=self.now).id)

    def submit_many(self, customer: str, count: int) -> None:
        self.ids += [one.id for one in self.queue.submit_many(customer, range(count), now=self.now)]

    def check(self, customer: str, cost: float) -> None:
        self.queue.check(customer, cost=cost, now=self.now)

    def make_from(self, pick: int) -> None:
        source = self.engine.document(self.ids[pick % len(self.ids)]) if self.ids else None
        if source is not None:
            self.ids.append(self.queue.submit(source.customer, made_from=source.id, cost=2, now=self.now).id)

    def work(self, limit: int, outcome: Any) -> None:
        claims: list[Claim] = self.engine.claim("worker", limit, 10_000, now_ms=self.now_ms)
        self.engine.settle([(claim, outcome) for claim in claims], now_ms=self.now_ms + 1)

    def fail(self, limit: int, cost: int | None) -> None:
        self.work(limit, Failed("corrupt", cost))

    def retry(self, pick: int, as_customer: bool) -> None:
        failed = [document.id for document in self.queue.documents(state="failed")]
        if failed:
            with suppress(RetriesSpent):
                self.engine.retry(failed[pick % len(failed)], as_customer=as_customer, now_ms=self.now_ms)

    def tune(self, customer: str, changes: dict[str, Any]) -> None:
        self.queue.tune(customer, **changes)

    def configure(self, changes: dict[str, Any]) -> None:
        self.queue.configure(**changes)

    def reset(self, customer: str) -> None:
        self.queue.reset(customer)

    def cancel(self, pick: int) -> None:
        self.engine.cancel(self.ids[pick % len(self.ids) :][:1] if self.ids else [], now_ms=self.now_ms)

    def forget(self, customer: str, limit: int) -> None:
        while self.engine.forget(customer, limit, now_ms=self.now_ms) and limit > 2:
            pass

    def purge(self, age_ms: int) -> None:
        self.queue.purge(age_ms / 1000, now=self.now)


setattr(Program, "pass", Program.pass_)


@contextmanager
def programmed(name: str, steps: list[tuple[Any, ...]]) -> Iterator[Queue]:
    """A queue of an engine after a program."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Queue("memory://" if name == "memory" else f"sqlite:///{folder}/queue.db") as queue,
    ):
        program = Program(queue)
        for step in steps:
            program.step(step)
        yield queue


def checks_in(queue: Queue) -> int:
    changes = queue.engine.changes(None, 1_000_000)
    return sum(
        change.what in ("submitted", "checked") or (change.what == "revived" and change.note is not None) for change in changes
    )


engines = st.sampled_from(("memory", "memory", "sqlite"))


@thorough
@given(engines, st.lists(kept, max_size=40))
def test_a_queue_that_kept_everything_is_verified_wholly(name: str, steps: list[tuple[Any, ...]]) -> None:
    with programmed(name, steps) as queue:
        verdict = verify(queue)
        assert verdict.differences == ()
        assert (verdict.checks, verdict.skipped) == (checks_in(queue), 0)
        assert verdict.customers == len(list(queue.customers()))


@thorough
@given(engines, st.lists(st.one_of(kept, kept, kept, erasing), max_size=40))
def test_what_was_purged_or_erased_is_skipped_and_never_called_wrong(name: str, steps: list[tuple[Any, ...]]) -> None:
    with programmed(name, steps) as queue:
        verdict = verify(queue)
        assert verdict.differences == ()
        assert verdict.checks + verdict.skipped == checks_in(queue)
        assert verdict.customers <= len(list(queue.customers()))


def test_verifying_moves_nothing() -> None:
    with Queue("memory://") as queue:
        queue.submit_many("acme", range(5), now=1)
        before = list(queue.changes()), queue.engine.customers("", 9, now_ms=5000), list(queue.documents())
        verify(queue)
        assert (list(queue.changes()), queue.engine.customers("", 9, now_ms=5000), list(queue.documents())) == before


def test_a_purged_feed_is_followed_from_the_first_reset_on() -> None:
    with Queue("memory://") as queue:
        queue.submit_many("acme", range(4), now=0)
        queue.submit("bolt", now=0)
        queue.purge(10, now=100)
        queue.submit_many("acme", range(3), now=200)
        queue.submit("acme", now=2000)
        queue.submit_many("acme", range(2), now=2001)
        verdict = verify(queue)
        assert (verdict.checks, verdict.skipped, verdict.customers, verdict.differences) == (2, 4, 1, ())
        queue.reset("acme")
        queue.submit_many("acme", range(2), now=2002)
        assert verify(queue)[:2] == (4, 4)
        queue.reset("bolt")
        queue.submit_many("bolt", range(2), now=2002)
        assert verify(queue)[:3] == (6, 4, 2)


def test_rules_and_terms_of_before_a_purge_are_known_only_if_they_still_hold() -> None:
    with Queue("memory://") as queue:
        queue.configure(thresholds=(-1,))
        queue.engine.tune("acme", Terms(weight=2), 0, now_ms=0)
        queue.purge(0)
        for now in (9_000_000_000, 9_000_002_000, 9_000_002_001):
            queue.submit("acme", now=now)
        assert verify(queue)[:2] == (2, 1)
        queue.tune("acme", weight=3)
        assert verify(queue)[:2] == (0, 3)
        queue.submit("acme", now=9_000_009_000)
        queue.submit("acme", now=9_000_009_000)
        assert verify(queue)[:2] == (1, 4)
        queue.configure(thresholds=(-2,))
        assert verify(queue)[:2] == (0, 5)


class Crowded:
    """An engine that others use: before each of our reads they take a step."""

    def __init__(self, engine: Engine, program: Program, steps: list[tuple[Any, ...]]) -> None:
        self.engine, self.program, self.steps = engine, program, steps

    def __getattr__(self, verb: str) -> Any:
        if self.steps and verb in ("changes", "customer", "customers", "document", "rules"):
            self.program.step(self.steps.pop(0))
        return getattr(self.engine, verb)


def verify_in_a_crowd(queue: Queue, before: list[tuple[Any, ...]], meanwhile: list[tuple[Any, ...]]) -> int:
    """Returns how many customers were compared."""
    program = Program(Queue("memory://"))
    program.queue.engine = program.engine = queue.engine
    for step in before:
        program.step(step)
    queue.engine = cast(Engine, Crowded(queue.engine, program, meanwhile))
    verdict = verify(queue)
    assert verdict.differences == ()
    return verdict.customers


@thorough
@given(st.lists(kept, max_size=15), st.lists(kept, max_size=60))
def test_others_that_use_the_queue_meanwhile_raise_no_alarm(
    before: list[tuple[Any, ...]], meanwhile: list[tuple[Any, ...]]
) -> None:
    with Queue("memory://") as queue:
        known = {step[1] for step in before if step[0] in ("submit", "submit_many", "check")}
        assert verify_in_a_crowd(queue, before, meanwhile) >= len(known)


def test_a_customer_that_moves_meanwhile_is_compared_all_the_same() -> None:
    for reads in range(30):
        with Queue("memory://") as queue:
            steps: list[tuple[Any, ...]] = [("pass", 0)] * reads + [
                ("submit", "bob", 1),
                ("submit", "ada", 1),
                ("submit", "bob", 1),
            ]
            assert verify_in_a_crowd(queue, [("submit_many", "ada", 6), ("submit", "bob", 1)], steps) == 2


CORRECT: tuple[Any, ...] = ("work", 1, Done(None, 9000))
FLOOD: tuple[Any, ...] = ("submit_many", "ada", 6)
PURGED: list[tuple[Any, ...]] = [FLOOD, ("submit", "bob", 1), ("work", 4, Done()), ("pass", 5000), ("purge", 0)]


@pytest.mark.parametrize(
    ("before", "others"),
    [
        ([FLOOD], [CORRECT]),
        ([FLOOD], [CORRECT, FLOOD]),
        ([FLOOD], [CORRECT, ("forget", "ada", 2)]),
        ([FLOOD], [CORRECT, ("forget", "ada", 1000), FLOOD]),
        ([FLOOD, ("tune", "ada", {"weight": 2})], [("forget", "ada", 1000), FLOOD]),
        ([FLOOD], [("purge", 0), FLOOD]),
        ([FLOOD, ("submit", "bob", 1)], [("submit", "bob", 1), ("submit", "ada", 1), ("submit", "bob", 1)]),
        (PURGED, [("pass", 2_000_000), FLOOD, ("configure", {"thresholds": (-1,)}), FLOOD]),
        (PURGED, [("pass", 2_000_000), FLOOD, ("tune", "ada", {"weight": 0.5}), FLOOD]),
        ([*PURGED, ("pass", 2_000_000), FLOOD], [("configure", {"thresholds": (-1,)}), ("configure", {"reset": "sliding"})]),
        ([*PURGED, ("pass", 2_000_000), FLOOD], [("tune", "ada", {"weight": 0.5, "thresholds": (-1,)})]),
    ],
)
@pytest.mark.parametrize("at_once", [False, True])
def test_others_may_come_between_any_two_reads(
    before: list[tuple[Any, ...]], others: list[tuple[Any, ...]], at_once: bool
) -> None:
    for reads in range(30):
        with Queue("memory://") as queue, suppress(StoreError):
            meanwhile = [("together", others)] if at_once else others
            verify_in_a_crowd(queue, before, [("pass", 0)] * reads + list(meanwhile))


@thorough
@given(st.lists(kept, max_size=15), st.lists(st.one_of(kept, erasing), max_size=60))
def test_others_that_erase_meanwhile_raise_no_alarm(before: list[tuple[Any, ...]], meanwhile: list[tuple[Any, ...]]) -> None:
    with Queue("memory://") as queue, suppress(StoreError):  # the feed was purged where it is read: an error, not an alarm
        verify_in_a_crowd(queue, before, meanwhile)


@pytest.mark.parametrize("engine", ["memory", "sqlite"])
def test_threads_that_submit_meanwhile_raise_no_alarm(engine: str, tmp_path: Path) -> None:
    with Queue("memory://" if engine == "memory" else f"sqlite:///{tmp_path}/queue.db") as queue:
        queue.submit_many("acme", range(300))
        over, sent = Event(), Event()

        def submit(customer: str) -> None:
            while not over.is_set():
                queue.submit_many(customer, range(3))
                queue.submit("everybody")
                sent.set()

        threads = [Thread(target=submit, args=(customer,)) for customer in CUSTOMERS[:3]]
        for thread in threads:
            thread.start()
        try:
            assert sent.wait(10)
            verdicts = [verify(queue, lambda _: over.set() if checks_in(queue) > 3000 else None) for _ in range(3)]
        finally:
            over.set()
            for thread in threads:
                thread.join()
        assert [verdict.differences for verdict in verdicts] == [()] * 3
        assert verify(queue).checks == checks_in(queue)


@brief
@given(st.lists(kept, min_size=1, max_size=20))
def test_progress_adds_up_to_the_feed(steps: list[tuple[Any, ...]]) -> None:
    with programmed("memory", steps) as queue:
        counts: list[int] = []
        verify(queue, counts.append)
        assert sum(counts) == len(list(queue.changes()))


def test_rules_are_those_of_the_texts_until_they_are_changed() -> None:
    with Queue("memory://") as queue:
        assert queue.rules() == Rules()
        queue.submit_many("acme", range(30), now=0)
        queue.configure(thresholds=())
        queue.submit_many("acme", range(30), now=1)
        assert verify(queue) == (60, 0, 1, ())
