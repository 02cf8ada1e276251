"""Group commit: callers share commits, and none of them waits for one that was interrupted."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fairlane.core.errors import StoreError
from fairlane.engine.sqlite.group_commit import INTERRUPTED, GroupCommit, PendingOperation


class Stage:
    """A commit that waits for the test, which so decides which caller arrives when."""

    def __init__(self) -> None:
        self.groups: list[int] = []
        self.entered = threading.Semaphore(0)
        self.may_go_on = threading.Semaphore(0)
        self.commits = GroupCommit(self._commit)
        self.served: list[str] = []
        self.threads: list[threading.Thread] = []

    def _commit(self, group: list[PendingOperation[Any]]) -> None:
        self.groups.append(len(group))
        self.entered.release()
        self.may_go_on.acquire()
        for pending in group:
            pending.succeed(None)

    def caller(self, name: str) -> None:
        """Start a thread with one operation, and return when it is waiting."""
        is_first, before = not self.groups, len(self.commits.waiting)

        def call() -> None:
            self.commits.run(lambda _: None)
            self.served.append(name)

        self.threads.append(threading.Thread(target=call, daemon=True))
        self.threads[-1].start()
        wait_until(lambda: bool(self.groups) if is_first else len(self.commits.waiting) > before)

    def finish(self, commits: int) -> None:
        for _ in range(commits):
            self.may_go_on.release()
        for thread in self.threads:
            thread.join(5)
            assert not thread.is_alive()


def wait_until(condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(5000):
        if condition():
            return
        pause.wait(0.001)
    raise AssertionError("it did not happen")


@contextmanager
def interrupt_when(condition: Callable[[], bool]) -> Iterator[None]:
    """Interrupt the main thread, as Ctrl-C would, once the condition holds."""

    def interrupt(*_: object) -> None:
        if condition():
            signal.setitimer(signal.ITIMER_REAL, 0)  # once: on a busy machine it would come again while the first is handled
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
    with interrupt_when(lambda: len(stage.commits.waiting) == 1):
        stage.commits.run(lambda _: None)
    assert stage.commits.waiting == []
    stage.finish(commits=2)
    stage.commits.run(lambda _: None)
    assert stage.groups == [1, 1]


def test_a_caller_interrupted_while_its_group_commits_holds_up_nobody_behind_it() -> None:
    stage = Stage()
    stage.caller("first")
    stage.entered.acquire()
    second = threading.Thread(target=stage.commits.run, args=(lambda _: None,))
    second.start()
    wait_until(lambda: len(stage.commits.waiting) == 1)
    behind = threading.Thread(target=stage.commits.run, args=(lambda _: None,))

    def start_the_rest() -> None:
        wait_until(lambda: len(stage.commits.waiting) == 2)  # the main thread has come
        behind.start()
        wait_until(lambda: len(stage.commits.waiting) == 3)
        stage.may_go_on.release()  # the first commit ends; the second takes all three and is held up

    starter = threading.Thread(target=start_the_rest)
    starter.start()
    with interrupt_when(lambda: stage.groups == [1, 3]):
        stage.commits.run(lambda _: None)
    stage.threads += [second, behind, starter]
    stage.finish(commits=1)
    assert stage.groups == [1, 3]


def test_a_leader_interrupted_while_it_waits_for_others_leaves_the_lead_to_them() -> None:
    stage = Stage()
    stage.commits.expected, stage.commits.gather_seconds = 5, 60.0
    with interrupt_when(lambda: stage.commits.is_gathering):
        stage.commits.run(lambda _: None)
    stage.commits.gather_seconds = 0.0
    stage.caller("later")
    stage.finish(commits=1)
    assert stage.served == ["later"]


def test_an_interrupt_of_the_leader_is_its_own_and_the_others_learn_that_the_outcome_is_unknown() -> None:
    stage = Stage()
    messages: list[str] = []
    stage.caller("first")
    stage.entered.acquire()

    def follow() -> None:
        with pytest.raises(StoreError) as caught:
            stage.commits.run(lambda _: None)
        messages.append(str(caught.value))

    follower = threading.Thread(target=follow, daemon=True)

    def start_the_follower() -> None:
        wait_until(lambda: len(stage.commits.waiting) == 1)  # the main thread has come, and will lead
        follower.start()
        wait_until(lambda: len(stage.commits.waiting) == 2)
        stage.may_go_on.release()

    starter = threading.Thread(target=start_the_follower, daemon=True)
    starter.start()
    with interrupt_when(lambda: stage.groups == [1, 2]):
        stage.commits.run(lambda _: None)
    stage.threads += [starter, follower]
    stage.finish(commits=0)
    assert messages == [INTERRUPTED]


def test_a_commit_that_breaks_leaves_the_next_one_working() -> None:
    def commit(group: list[PendingOperation[Any]]) -> None:
        raise SystemExit("broken")

    commits = GroupCommit(commit)
    for _ in range(2):
        with pytest.raises(SystemExit, match="broken"):
            commits.run(lambda _: None)
