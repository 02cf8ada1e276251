"""Callers that share commits: nobody waits for somebody who was interrupted."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fairlane.core.errors import StoreError
from fairlane.engine.sqlite.group_commit import INTERRUPTED, GroupCommit, Ticket


class Stage:
    """A commit that can be held up, so that a test decides who arrives when."""

    def __init__(self) -> None:
        self.groups: list[int] = []
        self.entered = threading.Semaphore(0)
        self.may_go_on = threading.Semaphore(0)
        self.commits = GroupCommit(self._commit)
        self.served: list[str] = []
        self.threads: list[threading.Thread] = []

    def _commit(self, group: list[Ticket[Any]]) -> None:
        self.groups.append(len(group))
        self.entered.release()
        self.may_go_on.acquire()
        for ticket in group:
            ticket.succeed(None)

    def caller(self, name: str) -> None:
        """A thread with one operation, waiting before this returns."""
        is_first, before = not self.groups, len(self.commits._waiting)

        def call() -> None:
            self.commits.run(lambda _: None)
            self.served.append(name)

        self.threads.append(threading.Thread(target=call, daemon=True))
        self.threads[-1].start()
        wait_until(lambda: bool(self.groups) if is_first else len(self.commits._waiting) > before)

    def finish(self, commits: int) -> None:
        for _ in range(commits):
            self.may_go_on.release()
        for thread in self.threads:
            thread.join(5)
            assert not thread.is_alive()


def wait_until(holds: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(5000):
        if holds():
            return
        pause.wait(0.001)
    raise AssertionError("it did not happen")


@contextmanager
def interrupted_when(holds: Callable[[], bool]) -> Iterator[None]:
    """Interrupt the main thread, as Ctrl-C would, once something holds."""

    def interrupt(*_: object) -> None:
        if holds():
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_who_arrives_during_a_commit_shares_the_next() -> None:
    stage = Stage()
    stage.caller("first")
    stage.entered.acquire()
    for name in ("a", "b", "c"):
        stage.caller(name)
    stage.finish(commits=2)
    assert stage.groups == [1, 3]
    assert sorted(stage.served) == ["a", "b", "c", "first"]


def test_a_caller_interrupted_before_its_group_forms_is_left_out() -> None:
    stage = Stage()
    stage.caller("first")
    stage.entered.acquire()
    with interrupted_when(lambda: len(stage.commits._waiting) == 1):
        stage.commits.run(lambda _: None)
    assert stage.commits._waiting == []
    stage.finish(commits=2)
    stage.commits.run(lambda _: None)
    assert stage.groups == [1, 1]


def test_a_caller_interrupted_while_its_group_commits_holds_up_nobody_behind_it() -> None:
    stage = Stage()
    stage.caller("first")
    stage.entered.acquire()
    second = threading.Thread(target=stage.commits.run, args=(lambda _: None,))
    second.start()
    wait_until(lambda: len(stage.commits._waiting) == 1)
    behind = threading.Thread(target=stage.commits.run, args=(lambda _: None,))

    def bring_the_rest() -> None:
        wait_until(lambda: len(stage.commits._waiting) == 2)  # the main thread has come
        behind.start()
        wait_until(lambda: len(stage.commits._waiting) == 3)
        stage.may_go_on.release()  # the first commit ends; the second takes all three and is held up

    bringing = threading.Thread(target=bring_the_rest)
    bringing.start()
    with interrupted_when(lambda: stage.groups == [1, 3]):
        stage.commits.run(lambda _: None)
    stage.threads += [second, behind, bringing]
    stage.finish(commits=1)
    assert stage.groups == [1, 3]


def test_a_leader_interrupted_while_it_waits_for_others_leaves_the_lead_to_them() -> None:
    stage = Stage()
    stage.commits._expected, stage.commits._patience_seconds = 5, 60.0
    with interrupted_when(lambda: stage.commits._is_gathering):
        stage.commits.run(lambda _: None)
    stage.commits._patience_seconds = 0.0
    stage.caller("later")
    stage.finish(commits=1)
    assert stage.served == ["later"]


def test_an_interrupt_of_the_leader_is_its_own_and_the_others_are_told_that_the_outcome_is_unknown() -> None:
    stage = Stage()
    told: list[str] = []
    stage.caller("first")
    stage.entered.acquire()

    def follow() -> None:
        with pytest.raises(StoreError) as caught:
            stage.commits.run(lambda _: None)
        told.append(str(caught.value))

    follower = threading.Thread(target=follow, daemon=True)

    def bring_the_follower() -> None:
        wait_until(lambda: len(stage.commits._waiting) == 1)  # the main thread has come, and will lead
        follower.start()
        wait_until(lambda: len(stage.commits._waiting) == 2)
        stage.may_go_on.release()

    bringing = threading.Thread(target=bring_the_follower, daemon=True)
    bringing.start()
    with interrupted_when(lambda: stage.groups == [1, 2]):
        stage.commits.run(lambda _: None)
    stage.threads += [bringing, follower]
    stage.finish(commits=0)
    assert told == [INTERRUPTED]


def test_a_commit_that_breaks_leaves_the_next_one_working() -> None:
    def commit(group: list[Ticket[Any]]) -> None:
        raise SystemExit("broken")

    commits = GroupCommit(commit)
    for _ in range(2):
        with pytest.raises(SystemExit, match="broken"):
            commits.run(lambda _: None)
