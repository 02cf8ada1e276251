"""What workers publish themselves: retries, links, bodies of chords and tasks of tasks keep their priority, without a check."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from fairlane import Queue

from .running import Project

Lines = list[dict[str, Any]]
Run = Callable[[int, str], Lines]
SPENT = 11  # checks that a customer has had before: the next are of priority 6, 6, 7, 7, 8 …
PROGRAM = """
from celery import chain, chord, group
_, acme, other = sys.argv
"""
_customers = count(1)


@pytest.fixture
def customers(served: Project) -> tuple[str, str]:
    """A customer that has had some checks, and one that was never seen; no other test uses them."""
    number = next(_customers)
    with Queue(served.environment["TEST_STORE"]) as queue:
        for _ in range(SPENT):
            queue.check(f"acme {number}")
    return f"acme {number}", f"other {number}"


@pytest.fixture
def run(served: Project, customers: tuple[str, str]) -> Run:
    """Publish what a program says, and return what so many tasks wrote down, in the order in which they began."""

    def run(expected: int, program: str) -> Lines:
        before = len(served.records())
        served.publish(PROGRAM + program, *customers)
        lines = served.wait_for(before + expected)[before:]
        for line in lines:  # the broker's number is that of the mark
            if line["mark"] and line["mark"]["priority"]:
                assert line["number"] == served.broker.numbers[line["mark"]["priority"] - 1], line
        return lines

    return run


@pytest.fixture
def checks(served: Project, customers: tuple[str, str]) -> Callable[[], tuple[int, int]]:
    """Count the checks that the two customers have had in the test."""

    def checks() -> tuple[int, int]:
        with Queue(served.environment["TEST_STORE"]) as queue:
            had = {look.customer: 1 - int(look.counter) for look in queue.customers()}
        return had[customers[0]] - SPENT, had.get(customers[1], 0)

    return checks


Checks = Callable[[], tuple[int, int]]


def priorities(lines: Lines) -> list[int | None]:
    return [line["mark"] and line["mark"]["priority"] for line in lines]


@pytest.mark.parametrize("task", ["retried", "fails_at_first"])
def test_a_retry_keeps_its_priority_and_is_no_check(run: Run, checks: Checks, task: str) -> None:
    lines = run(3, f"{task}.delay(acme)")
    assert [line["retries"] for line in lines] == [0, 1, 2]
    assert priorities(lines) == [6, 6, 6]
    assert checks() == (1, 0)


def test_a_retry_of_a_priority_by_hand_keeps_it(run: Run, checks: Checks) -> None:
    lines = run(3, "retried.apply_async((acme,), priority=5)")
    assert [line["number"] for line in lines] == [5, 5, 5]
    assert checks() == (0, 0)


def test_links_of_a_chain_inherit(run: Run, checks: Checks) -> None:
    lines = run(4, "chain(work.s(acme), follow.s(), hand_over.s(acme), follow.s()).delay()")
    assert [line["name"] for line in lines] == ["work", "follow", "hand_over", "follow"]
    assert priorities(lines) == [6, 6, 6, 6]
    assert checks() == (1, 0)


def test_a_link_of_another_customer_is_a_check_of_that_one(run: Run, checks: Checks) -> None:
    lines = run(3, "chain(work.s(acme), hand_over.s(other), follow.s()).delay()")
    assert priorities(lines) == [6, 1, 1]
    assert checks() == (1, 1)


def test_a_link_with_a_priority_by_hand_keeps_it(run: Run, checks: Checks) -> None:
    lines = run(3, "chain(work.s(acme), follow.s().set(priority=5), follow.s()).delay()")
    assert [line["number"] for line in lines[1:]] == [5, 5]
    assert priorities(lines) == [6, None, None]
    assert checks() == (1, 0)


def test_the_body_of_a_chord_inherits_from_its_last_part(run: Run, checks: Checks) -> None:
    lines = run(4, "chord([work.s(acme) for _ in range(3)], follow.s()).delay()")
    assert sorted(line["mark"]["priority"] for line in lines[:3]) == [6, 6, 7]
    assert (lines[3]["name"], lines[3]["mark"]["priority"] in (6, 7)) == ("follow", True)
    assert checks() == (3, 0)


def test_each_part_of_a_group_is_a_check(run: Run, checks: Checks) -> None:
    lines = run(5, "group([*(work.s(acme) for _ in range(4)), work.s(other)]).delay()")
    assert sorted(line["mark"]["priority"] for line in lines) == [1, 6, 6, 7, 7]
    assert checks() == (4, 1)


def test_a_group_inside_a_chain_inherits(run: Run, checks: Checks) -> None:
    lines = run(4, "chain(work.s(acme), group(follow.s(), follow.s()), follow.s()).delay()")
    assert priorities(lines) == [6, 6, 6, 6]
    assert checks() == (1, 0)


def test_what_a_task_publishes_inherits_unless_it_is_for_another_customer(run: Run, checks: Checks) -> None:
    lines = run(5, "publishes.delay(acme, [acme, acme, other])")
    found = sorted((line["customer"] or "none", line["mark"]["priority"]) for line in lines[1:])
    names = sorted(line["mark"]["customer"] for line in lines[1:])
    assert [priority for _, priority in found] == [6, 6, 6, 1]  # two of acme, one of nobody, one of the other customer
    assert names == [lines[0]["customer"]] * 3 + [found[-1][0]]
    assert checks() == (1, 1)


def test_what_a_task_of_nobody_publishes_is_checked(run: Run, checks: Checks) -> None:
    lines = run(3, "publishes.delay(None, [acme])")
    assert priorities(lines) == [None, 6, None] or priorities(lines) == [None, None, 6]
    assert checks() == (1, 0)


def test_what_a_task_with_a_priority_by_hand_publishes_has_that_too(run: Run, checks: Checks) -> None:
    lines = run(3, "publishes.apply_async((acme, [acme]), priority=5)")
    assert [line["number"] for line in lines] == [5, 5, 5]
    assert checks() == (0, 0)


def test_a_task_in_place_of_another_inherits(run: Run, checks: Checks) -> None:
    lines = run(2, "replaces.delay(acme)")
    assert [line["name"] for line in lines] == ["replaces", "work"]
    assert priorities(lines) == [6, 6]
    assert checks() == (1, 0)


def test_callbacks_inherit_also_those_for_errors(run: Run, checks: Checks) -> None:
    lines = run(4, "work.apply_async((acme,), link=follow.s()); fails.apply_async((acme,), link_error=follow.si())")
    assert sorted(line["name"] for line in lines) == ["fails", "follow", "follow", "work"]
    assert priorities(lines) == [6, 6, 6, 6]
    assert checks() == (2, 0)


def test_a_countdown_is_checked_when_it_is_published(run: Run, checks: Checks) -> None:
    lines = run(3, "work.apply_async((acme, 'late'), countdown=0.5); work.delay(acme, 'soon'); work.delay(acme, 'soon')")
    assert sorted((line["label"], line["mark"]["priority"]) for line in lines) == [("late", 6), ("soon", 6), ("soon", 7)]
    assert checks() == (3, 0)
