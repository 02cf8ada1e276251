"""The outbox alone: what is settled, what is lost, and that each is counted and reported once."""

from __future__ import annotations

import pytest

from fairlane import Queue
from fairlane.core.document import Claim, Done, Failed, Outcome, Released, Retried
from fairlane.worker import Event, Summary
from fairlane.worker.claims import ActiveClaim, Claims
from fairlane.worker.hooks import Hooks
from fairlane.worker.outbox import SETTLE_AT_ONCE, Outbox
from fairlane.worker.progress import ProgressStore
from fairlane.worker.store import Exchange

from .conftest import CLAIM


class Desk:
    """An outbox with claims, and the events that it emitted."""

    def __init__(self) -> None:
        self.claims = Claims(6000)
        self.events: list[Event] = []
        hooks = Hooks("worker")
        hooks.add("*", self.events.append)
        self.wakes = 0
        with Queue("memory://") as queue:
            self.outbox = Outbox(self.claims, ProgressStore(queue.engine), hooks, self.wake)

    def wake(self) -> None:
        self.wakes += 1

    def claim(self, count: int = 1, attempts: int = 1) -> list[ActiveClaim]:
        claims = [CLAIM._replace(id=str(number), attempts=attempts) for number in range(count)]
        return self.claims.add(claims, requested_at=100.0)

    def names(self) -> list[str]:
        return [event.name for event in self.events]


def settled(count: int, lost: list[Claim] | None = None, failure: str | None = None) -> Exchange:
    return Exchange(count, lost or [], 100.0, [], failure)


@pytest.mark.parametrize(
    ("outcome", "attempts", "name", "state"),
    [
        (Done("1"), 1, "finished", "done"),
        (Released(), 1, "finished", "released"),
        (Failed("bad"), 1, "unfinished", "failed"),
        (Retried(0, "bad"), 1, "unfinished", "retried"),
        (Retried(9, "early", counted=False), 3, "finished", "postponed"),
        (Retried(0, "bad"), 3, "unfinished", "failed"),
    ],
)
def test_a_settled_outcome_is_counted_and_reported(outcome: Outcome, attempts: int, name: str, state: str) -> None:
    desk = Desk()
    (active,) = desk.claim(attempts=attempts)
    desk.outbox.add(active, outcome)
    assert (desk.wakes, len(desk.outbox)) == (1, 1)
    assert desk.outbox.next_batch() == [(active.claim, outcome)]
    assert (len(desk.outbox), len(desk.claims)) == (1, 1)  # until the store has answered
    desk.outbox.confirm(settled(1))
    assert (len(desk.outbox), len(desk.claims)) == (0, 0)
    assert [(event.name, event.outcome) for event in desk.events] == [(name, state)]
    assert desk.outbox.summary() == Summary(**{state: 1})


def test_only_the_first_outcome_counts_and_none_of_a_lost_claim() -> None:
    desk = Desk()
    first, second = desk.claim(2)
    desk.outbox.add(first, Done("1"))
    desk.outbox.add(first, Failed("late"))
    assert desk.outbox.lose(second, "gone")
    desk.outbox.add(second, Done("2"))
    assert desk.outbox.next_batch() == [(first.claim, Done("1"))]


def test_a_batch_that_failed_is_sent_again_before_what_came_later() -> None:
    desk = Desk()
    actives = desk.claim(SETTLE_AT_ONCE + 2)
    for active in actives:
        desk.outbox.add(active, Released())
    assert len(desk.outbox.next_batch()) == SETTLE_AT_ONCE
    desk.outbox.confirm(settled(0, failure="busy"))
    assert desk.events == []
    batch = desk.outbox.next_batch()
    assert [claim.id for claim, _ in batch] == [active.claim.id for active in actives[:SETTLE_AT_ONCE]]
    desk.outbox.confirm(settled(SETTLE_AT_ONCE))
    assert [claim.id for claim, _ in desk.outbox.next_batch()] == [active.claim.id for active in actives[SETTLE_AT_ONCE:]]


def test_what_the_store_refuses_is_lost() -> None:
    desk = Desk()
    first, second = desk.claim(2)
    for active in (first, second):
        desk.outbox.add(active, Done(None))
    desk.outbox.next_batch()
    desk.outbox.confirm(settled(2, lost=[first.claim]))
    assert desk.names() == ["lost", "finished"]
    assert desk.outbox.summary() == Summary(done=1, lost=1)


def test_what_is_on_its_way_to_the_store_cannot_be_lost() -> None:
    desk = Desk()
    sent, waiting, running = desk.claim(3)
    desk.outbox.add(sent, Done(None))
    desk.outbox.next_batch()
    desk.outbox.add(waiting, Done(None))
    assert [desk.outbox.lose(active, "its lease ran out") for active in (sent, waiting, running)] == [False, True, True]
    assert [event.id for event in desk.events] == [waiting.claim.id, running.claim.id]
    desk.outbox.confirm(settled(1))
    assert desk.outbox.summary() == Summary(done=1, lost=2)
    assert (len(desk.outbox), len(desk.claims), desk.outbox.next_batch()) == (0, 0, [])
