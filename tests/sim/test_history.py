"""The history of a queue as a workload, and its rules as a policy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane import Queue
from fairlane.core.document import Claim, Done, Failed, Outcome, Released, Retried, Submission
from fairlane.core.errors import Mistake
from fairlane.core.policy import Policy, Rules, Terms
from fairlane.sim.contenders import Contender
from fairlane.sim.history import current_contender, load_history, read_feed
from fairlane.sim.replay import replay

from .shared import rows_of

START = 1_000_000


@pytest.fixture(params=["memory", "sqlite"])
def queue(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Queue]:
    with Queue("memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/queue.db") as queue:
        yield queue


class Hands:
    """A worker whose times are known; seconds from the start."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue

    def submit(self, customer: str, at: float, cost: float = 1) -> str:
        return self.queue.submit(customer, cost=cost, now=START + at).id

    def take(self, at: float, lease: float = 100_000) -> Claim:
        (claim,) = self.queue.engine.claim("worker", 1, round(lease * 1000), now_ms=round((START + at) * 1000))
        return claim

    def settle(self, claim: Claim, at: float, outcome: Outcome) -> None:
        assert self.queue.engine.settle([(claim, outcome)], now_ms=round((START + at) * 1000)) == []


@pytest.fixture
def hands(queue: Queue) -> Hands:
    return Hands(queue)


def ended_rows(queue: Queue) -> list[tuple[float, str, float]]:
    """(seconds from the start, customer, service) of the history."""
    return [
        (at_ms / 1000 - START, customer, took / 10**6) for at_ms, customer, took, _ in rows_of(load_history(queue).workload)
    ]


def test_documents_come_back_with_their_times(queue: Queue, hands: Hands) -> None:
    hands.submit("acme", 0)
    hands.submit("bolt", 1.5, cost=2.5)
    hands.submit("acme", 1.5)
    for start, end in ((10, 12.25), (20, 20), (30, 31)):
        hands.settle(hands.take(start), end, Done())
    assert ended_rows(queue) == [(0, "acme", 2.25), (1.5, "bolt", 0), (1.5, "acme", 1)]
    workload = load_history(queue).workload
    assert [row[3] for row in rows_of(workload)] == [1000, 2500, 1000]
    assert (workload.name, workload.notes) == (queue.url, ())


def test_a_cost_that_was_corrected_is_the_one_that_is_replayed(queue: Queue, hands: Hands) -> None:
    hands.submit("acme", 0)
    hands.settle(hands.take(1), 2, Done(cost=7000))
    assert rows_of(load_history(queue).workload)[0][3] == 7000


def test_all_attempts_of_a_document_are_added_up(queue: Queue, hands: Hands) -> None:
    hands.submit("acme", 0)
    hands.settle(hands.take(1), 3, Retried(0, "try later"))
    hands.settle(hands.take(10), 15, Released())
    hands.take(20, lease=8)
    assert queue.engine.reclaim(10, now_ms=(START + 30) * 1000) == 1
    hands.settle(hands.take(100), 150, Failed("corrupt"))
    assert ended_rows(queue) == [(0, "acme", 2 + 5 + 10 + 50)]


def test_what_has_not_ended_or_was_cancelled_is_left_out_with_a_note(queue: Queue, hands: Hands) -> None:
    hands.submit("done", 0)
    hands.settle(hands.take(1), 2, Done())
    hands.submit("running", 3)
    hands.take(4)
    id = hands.submit("cancelled while running", 5)
    hands.take(6)
    queue.cancel(id)
    queue.cancel(hands.submit("cancelled", 7))
    failed = hands.submit("revived", 8)
    hands.settle(hands.take(9), 10, Failed("corrupt"))
    queue.retry(failed)
    assert ended_rows(queue) == [(0, "done", 1)]
    assert load_history(queue).workload.notes == ("Documents left out, because they have not ended or were cancelled: 4.",)


def test_a_revived_document_that_ends_has_the_time_of_both_rounds(queue: Queue, hands: Hands) -> None:
    failed = hands.submit("acme", 0)
    hands.settle(hands.take(1), 2, Failed("corrupt"))
    queue.retry(failed)
    hands.settle(hands.take(10), 14, Done())
    assert ended_rows(queue) == [(0, "acme", 5)]


def test_a_document_that_its_customer_retried_counts_as_two(queue: Queue, hands: Hands) -> None:
    """Its retry is a check, so a replay must move the counter once more."""
    failed = hands.submit("acme", 0, cost=3)
    hands.settle(hands.take(1), 2, Failed("corrupt"))
    queue.engine.retry(failed, as_customer=True, now_ms=(START + 5) * 1000)
    hands.settle(hands.take(10), 14, Done())
    assert ended_rows(queue) == [(0, "acme", 1), (5, "acme", 4)]
    again = replay(load_history(queue).workload, current_contender(queue), 1)
    assert list(again.priority) == [1, queue.document(failed).priority] == [1, 3]  # counters -2 and -5


def test_a_queue_without_anything_that_ended_is_reported(queue: Queue, hands: Hands) -> None:
    with pytest.raises(Mistake, match="has no document that was submitted and has ended since its feed begins"):
        load_history(queue)
    hands.submit("acme", 0)
    with pytest.raises(Mistake, match="nothing to replay"):
        load_history(queue)


def test_what_was_purged_is_not_there_and_the_rest_is(queue: Queue, hands: Hands) -> None:
    hands.submit("old", 0)
    hands.settle(hands.take(1), 2, Done())
    hands.submit("new", 1000)
    hands.settle(hands.take(1001), 1005, Done())
    queue.purge(500, now=START + 1005)
    assert ended_rows(queue) == [(1000, "new", 4)]


def test_the_feed_is_read_page_by_page_to_its_end(queue: Queue) -> None:
    queue.submit_many("acme", range(1100), now=START)
    queue.submit_many("acme", range(1100), now=START)
    assert [one.number for one in read_feed(queue)] == list(range(1, 2201))


def test_the_current_policy_is_that_of_the_queue_with_its_customers(queue: Queue, hands: Hands) -> None:
    queue.configure(reset_interval=600, thresholds=(-1, -3), reset="sliding", dispatch="strict", open_turn_every=9)
    queue.tune("acme", weight=2, cap=3)
    queue.tune("bolt", thresholds=(-7,))
    queue.submit("plain")
    expected = Rules(Policy(600, (-1, -3), "sliding"), "strict", 9, version=2)
    assert current_contender(queue) == Contender("current", expected, {"acme": Terms(2, 3), "bolt": Terms(thresholds=(-7,))})


def test_a_pause_of_now_does_not_keep_the_past_from_being_replayed(queue: Queue, hands: Hands) -> None:
    hands.submit("acme", 0)
    hands.settle(hands.take(1), 2, Done())
    queue.tune("acme", paused=True, weight=2)
    assert current_contender(queue).terms == {"acme": Terms(weight=2)}
    assert list(replay(load_history(queue).workload, current_contender(queue), 1).turn) == [1]


def test_priorities_of_the_replayed_history_are_those_of_the_queue(queue: Queue, hands: Hands) -> None:
    queue.configure(reset="sliding", thresholds=(-1, -2, -3))
    queue.tune("bolt", weight=2)
    for tick in range(40):
        hands.submit(("acme", "bolt", "acme")[tick % 3], tick * 7.5)
    for tick in range(40):
        hands.settle(hands.take(400 + tick), 401 + tick, Done())
    recorded = [(document.customer, document.priority) for document in list(queue.documents())[::-1]]
    again = replay(load_history(queue).workload, current_contender(queue), 2)
    assert recorded == [
        (again.workload.customers[who], priority) for who, priority in zip(again.workload.customer, again.priority, strict=True)
    ]


def test_priorities_that_were_set_or_limited_are_counted_in_a_note(queue: Queue, hands: Hands) -> None:
    for number, best in enumerate((None, None, 4)):
        submission = Submission(f"document-{number}", "acme", "default", "null", no_better_than=best)
        queue.engine.submit([submission], now_ms=START * 1000)
    queue.engine.prioritize(["document-1"], 7, "ada", now_ms=START * 1000)
    for _ in range(3):
        hands.settle(hands.take(1), 2, Done())
    (note,) = load_history(queue).workload.notes
    assert note == "Documents whose priority was set, or could be no better (here it follows the check): 2."
