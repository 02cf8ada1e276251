"""Steering: a later priority on request, priorities set by hand, and a backlog that follows a new table or a reset."""

from __future__ import annotations

import json

from fairlane.core.document import Done, Retried, Submission
from fairlane.core.policy import Policy, Rules
from fairlane.engine import Engine
from fairlane.engine.protocol import DocumentFilter
from fairlane.engine.walk import walk_documents

from .conftest import Send, Take

PRIORITIES = [1] * 3 + [2] * 2 + [3] * 2 + [4] * 2 + [5] * 2 + [6] * 2 + [7] * 2 + [8] * 6 + [9] * 79


def test_a_document_may_ask_for_a_later_priority_and_the_counter_moves(engine: Engine, send: Send, take: Take) -> None:
    (receipt,) = engine.submit([Submission("a", "ada", "extract", "1", no_better_than=7)], now_ms=0)
    assert (receipt.priority, receipt.counter) == (7, 0)
    (receipt,) = engine.submit([Submission("b", "ada", "extract", "1")], now_ms=0)
    assert (receipt.priority, receipt.counter) == (1, -1)
    send("ada", 30)
    (receipt,) = engine.submit([Submission("c", "ada", "extract", "1", no_better_than=2)], now_ms=0)
    assert receipt.priority == 9
    document = engine.document("a")
    assert document is not None
    assert (document.priority, document.no_better_than, document.check.priority) == (7, 7, 7)


def test_an_operator_sets_the_priority_of_waiting_documents_by_hand(engine: Engine, send: Send, take: Take) -> None:
    ids = send("ada", 40)
    send("bob", 3)
    assert engine.prioritize([ids[39], ids[30], "unknown"], 1, "ola", now_ms=5) == [ids[39], ids[30]]
    document = engine.document(ids[39])
    assert document is not None
    assert (document.priority, document.is_set_by_hand, document.check.priority) == (1, True, 9)
    last = engine.changes(None, 1000)[-1]
    assert (last.what, last.document) == ("prioritized", ids[30])
    assert json.loads(last.note or "") == {"from": 9, "to": 1, "by": "ola"}
    claims = take(8)
    assert [claim.id for claim in claims if claim.customer == "ada"] == [*ids[:3], ids[30], ids[39]]
    assert {claim.priority for claim in claims} == {1}
    assert engine.prioritize([claims[0].id], 9, "ola", now_ms=6) == []  # it runs


def test_a_delayed_document_joins_the_lane_of_the_priority_that_was_set(engine: Engine, send: Send, take: Take) -> None:
    (id,) = send("ada", delay_ms=500)
    assert engine.prioritize([id], 6, "ola", now_ms=1) == [id]
    (claim,) = take(at=500)
    assert (claim.id, claim.priority) == (id, 6)


def test_a_late_worker_does_not_hold_up_others_when_its_document_waits_with_another_priority(
    engine: Engine, send: Send, take: Take
) -> None:
    send("ada", 2)
    late, fresh = take(2)
    engine.settle([(late, Retried(500))], now_ms=1)
    assert engine.prioritize([late.id], 9, "ola", now_ms=2) == [late.id]  # where its customer never had a document
    assert engine.settle([(late, Done()), (fresh, Done())], now_ms=3) == [late]
    assert [document.state for id in (late.id, fresh.id) if (document := engine.document(id))] == ["delayed", "done"]


def test_what_was_set_by_hand_stays_until_it_is_set_again(engine: Engine, send: Send, take: Take) -> None:
    ids = send("ada", 3)
    engine.prioritize(ids[:2], 5, "ola", now_ms=1)
    (claim,) = engine.claim("w", 1, 1000, now_ms=1)
    assert claim.id == ids[2]
    (claim,) = engine.claim("w", 1, 1000, now_ms=1)
    engine.settle([(claim, Retried())], now_ms=2)
    engine.reprioritize("ada", 0, 100, recheck=False, now_ms=3)
    engine.reprioritize("ada", 0, 100, recheck=True, now_ms=3)
    document = engine.document(ids[0])
    assert document is not None
    assert (document.priority, document.is_set_by_hand) == (5, True)
    engine.prioritize(ids[:1], 2, "ola", now_ms=4)
    document = engine.document(ids[0])
    assert document is not None
    assert document.priority == 2


def test_a_change_of_the_table_is_applied_to_the_backlog_step_by_step(engine: Engine, send: Send, take: Take) -> None:
    ids = send("ada", 30)
    send("bob", 3)
    engine.submit([Submission("late", "ada", "extract", "1", no_better_than=4)], now_ms=0)
    engine.configure(Rules(Policy(thresholds=(-20,))))
    first = engine.reprioritize("ada", 0, 20, recheck=False, now_ms=1)
    assert (first.changed, first.next) == (17, engine.document(ids[19]).number)  # type: ignore[union-attr]
    second = engine.reprioritize("ada", first.next or 0, 20, recheck=False, now_ms=1)
    assert second.next is None
    priorities = [document.priority for document in walk_documents(engine, DocumentFilter(customer="ada"))]
    assert priorities == [4] + [2] * 9 + [1] * 21
    assert engine.reprioritize("nobody", 0, 20, recheck=False, now_ms=1).next is None
    assert len([claim for claim in take(40) if claim.priority == 1]) == 24


def test_a_reset_takes_the_backlog_along(engine: Engine, send: Send, take: Take) -> None:
    """Each waiting document is checked again in submission order, as if it came now."""
    ids = send("ada", 30, at=0)
    taken = take(5, at=1)
    engine.reset("ada", now_ms=10)
    step = engine.reprioritize("ada", 0, 100, recheck=True, now_ms=10)
    assert step.next is None
    waiting = list(walk_documents(engine, DocumentFilter(customer="ada", state="ready")))[::-1]
    assert len(waiting) == 25
    assert [document.check.counter for document in waiting] == [-n for n in range(25)]
    assert [document.priority for document in waiting[:4]] == [1, 1, 1, 2]
    assert {document.check.checked_ms for document in waiting} == {10}
    assert engine.customer("ada", now_ms=10).counter == -24
    assert step.changed == sum(document.priority != before for document, before in zip(waiting, PRIORITIES[5:30], strict=True))
    assert {claim.id for claim in taken} == set(ids[:5])
    assert [change.what for change in engine.changes(None, 1000)].count("rechecked") == 25
