"""Steering a queue from a program: priorities by hand, limits of kinds, and a backlog that follows a table or a reset."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane import AsyncQueue, BadValue, Queue, Unknown, WrongState
from fairlane.core.document import Retried
from fairlane.core.errors import FairlaneError
from fairlane.queue import backlog, bulk
from fairlane.queue.audit import Actor, AuditFilter, cli_actor, walk_audit
from fairlane.queue.audited_queue import AuditedQueue
from fairlane.queue.bulk import all_steps

DESK = Actor("key", "fl_desk", "the desk", "operator", "10.0.0.7")


@pytest.fixture(params=["memory", "sqlite"])
def queue(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Queue]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/queue.db"
    with Queue(url, blobs=str(tmp_path / "files")) as queue:
        yield queue


@pytest.fixture
def audited(queue: Queue) -> AuditedQueue:
    return AuditedQueue(queue, DESK)


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "CHANGES_MAX", {"cancel": 3, "retry": 3, "prioritize": 3})
    monkeypatch.setattr(bulk, "COUNTED_MAX", 4)
    monkeypatch.setattr(backlog, "DOCUMENTS_MAX", 7)
    monkeypatch.setattr(backlog, "CUSTOMERS_MAX", 2)


def priorities(queue: Queue, customer: str) -> list[int]:
    """The priorities of a customer's waiting documents, in the order of submission."""
    return [document.priority for document in queue.documents(customer) if document.state in ("ready", "delayed")][::-1]


def send(queue: Queue, customer: str, count: int, **options: object) -> list[str]:
    return [receipt.id for receipt in queue.submit_many(customer, range(count), **options)]  # type: ignore[arg-type]


# -- by hand ---------------------------------------------------------------------------------------------------------


def test_a_waiting_document_is_served_next(queue: Queue) -> None:
    ids = send(queue, "acme", 40)
    queue.prioritize(ids[-1], 1)
    document = queue.document(ids[-1])
    assert (document.priority, document.set_by_hand) == (1, True)
    assert not queue.document(ids[0]).set_by_hand
    assert ids[-1] in {claim.id for claim in queue.engine.claim("worker", 4, 60_000)}


def test_the_feed_and_the_history_say_who_did_it(queue: Queue, audited: AuditedQueue) -> None:
    (id,) = send(queue, "acme", 1)
    audited.prioritize(id, 7)
    queue.prioritize(id, 2)
    assert [(entry.priority, entry.by) for entry in queue.history(id) if entry.event == "prioritized"] == [
        (7, "the desk"), (2, cli_actor().id),
    ]  # fmt: skip
    changes = [change for change in queue.changes() if change.event == "prioritized"]
    assert [(change.document, change.priority, change.by) for change in changes] == [
        (id, 7, "the desk"), (id, 2, cli_actor().id),
    ]  # fmt: skip


def test_only_waiting_documents_get_another_priority(queue: Queue) -> None:
    (id,) = send(queue, "acme", 1)
    (claim,) = queue.engine.claim("worker", 1, 60_000)
    with pytest.raises(WrongState, match=f"document {id} is running; only a waiting document can be given another priority"):
        queue.prioritize(id, 1)
    queue.engine.settle([(claim, Retried(after_ms=60_000))])
    queue.prioritize(id, 4)
    assert (queue.document(id).state, queue.document(id).priority) == ("delayed", 4)
    queue.cancel(id)
    with pytest.raises(WrongState, match="is cancelled"):
        queue.prioritize(id, 1)
    with pytest.raises(Unknown, match="there is no document nothing"):
        queue.prioritize("nothing", 1)


@pytest.mark.parametrize("priority", [0, 10, True, 1.0, "1", None])
def test_a_priority_is_a_number_from_1_to_9(queue: Queue, priority: object) -> None:
    (id,) = send(queue, "acme", 1)
    expected = r"it must be a whole number from 1 \(served first\) to 9 \(served last\)"
    with pytest.raises(BadValue, match=f"priority is .*; {expected}"):
        queue.prioritize(id, priority)  # type: ignore[arg-type]
    with pytest.raises(BadValue, match=f"priority is .*; {expected}"):
        queue.bulk("prioritize", customer="acme", priority=priority)  # type: ignore[arg-type]
    if priority is not None:
        with pytest.raises(BadValue, match=f"no_better_than is .*; {expected}"):
            queue.submit("acme", no_better_than=priority)  # type: ignore[arg-type]


@pytest.mark.usefixtures("small_steps")
def test_all_that_match_are_prioritized_in_small_steps(queue: Queue) -> None:
    scans = send(queue, "acme", 10, kind="scan")
    send(queue, "acme", 4, kind="ocr")
    send(queue, "bolt", 3, kind="scan", delay=3600)
    (running,) = queue.engine.claim("worker", 1, 60_000, {"scan": 1})
    counted = list(all_steps(lambda at: queue.bulk("prioritize", kind="scan", priority=1, cursor=at, dry_run=True), None))
    assert (sum(step.matched for step in counted), sum(step.changed for step in counted)) == (12, 0)
    (late,) = send(queue, "acme", 1, kind="scan")
    steps = list(all_steps(lambda at: queue.bulk("prioritize", kind="scan", priority=1, cursor=at), counted[0].start))
    assert sum(step.changed for step in steps) == 12
    assert max(step.changed for step in steps) == 3
    assert queue.document(running.id).set_by_hand is queue.document(late).set_by_hand is False
    assert {queue.document(id).priority for id in scans} == {1}
    assert priorities(queue, "bolt") == [1, 1, 1]
    again = list(all_steps(lambda at: queue.bulk("prioritize", kind="scan", priority=1, cursor=at), counted[0].start))
    assert sum(step.matched for step in again) == 0, "what was changed no longer matches"


def test_a_bulk_change_that_makes_no_sense_is_refused(queue: Queue) -> None:
    with pytest.raises(BadValue, match="state is 'running'; it must be ready or delayed: others cannot be prioritized"):
        queue.bulk("prioritize", state="running", priority=1)
    with pytest.raises(BadValue, match="a document with a reason has failed, and cannot be prioritized"):
        queue.bulk("prioritize", reason="timed_out", priority=1)
    with pytest.raises(BadValue, match="filter is 'empty'"):
        queue.bulk("prioritize", priority=1)
    with pytest.raises(BadValue, match="priority is 1; it must be left out, unless the action is prioritize"):
        queue.bulk("cancel", customer="acme", priority=1)


# -- no better than ---------------------------------------------------------------------------------------------------


def test_a_bulk_import_may_ask_for_a_later_priority(queue: Queue, tmp_path: Path) -> None:
    assert queue.submit("acme", no_better_than=7).priority == 7
    assert [receipt.priority for receipt in queue.submit_many("acme", [1, 2], no_better_than=5)] == [5, 5]
    (tmp_path / "a.txt").write_text("a")
    receipt = queue.submit("acme", path=tmp_path / "a.txt", no_better_than=3)
    assert (receipt.priority, receipt.counter) == (3, -3)
    assert queue.document(receipt.id).no_better_than == 3
    assert queue.submit("bolt").priority == 1
    made = queue.submit("acme", made_from=receipt.id)
    assert (made.priority, queue.document(made.id).no_better_than) == (3, 3)
    with pytest.raises(BadValue, match="no_better_than is 4; it must be left out beside made_from"):
        queue.submit("acme", made_from=receipt.id, no_better_than=4)


# -- kinds -----------------------------------------------------------------------------------------------------------


def test_a_kind_is_limited_for_all_workers_together(queue: Queue) -> None:
    send(queue, "acme", 6, kind="ocr")
    kind = queue.limit_kind("ocr", running_max=2)
    assert (kind.kind, kind.running_max, kind.rate, kind.burst, kind.version, kind.held_by) == ("ocr", 2, None, 1, 1, None)
    assert len(queue.engine.claim("worker", 5, 60_000)) == 2
    assert (queue.kind("ocr").running, queue.kind("ocr").held_by) == (2, "kind running")
    assert queue.limit_kind("ocr", running_max=3).version == 2
    assert len(queue.engine.claim("worker", 5, 60_000)) == 1
    kind = queue.limit_kind("ocr", running_max=None, rate=0.001, burst=2)
    assert len(queue.engine.claim("worker", 5, 60_000)) == 2
    assert queue.kind("ocr").held_by == "kind rate"
    assert queue.limit_kind("ocr", rate=None) == queue.kind("ocr")
    assert len(queue.engine.claim("worker", 5, 60_000)) == 1


def test_a_limit_that_stays_the_same_gets_no_new_version_and_no_full_bucket(queue: Queue) -> None:
    queue.limit_kind("ocr", rate=0.001)
    send(queue, "acme", 2, kind="ocr")
    assert len(queue.engine.claim("worker", 2, 60_000)) == 1
    assert queue.limit_kind("ocr", rate=0.001).version == 1
    assert queue.engine.claim("worker", 2, 60_000) == []


def test_kinds_are_listed_that_have_a_limit_or_documents(queue: Queue) -> None:
    queue.limit_kind("ocr", running_max=2)
    queue.limit_kind("fax", running_max=2)
    queue.limit_kind("fax", running_max=None)
    send(queue, "acme", 2, kind="scan")
    assert [(kind.kind, kind.running_max, kind.version) for kind in queue.kinds()] == [
        ("fax", None, 2), ("ocr", 2, 1), ("scan", None, 0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("option", "value"), [("running_max", 0), ("running_max", 1.5), ("rate", 0), ("rate", -1), ("burst", 0.5), ("burst", None)]
)
def test_a_bad_limit_is_refused(queue: Queue, option: str, value: object) -> None:
    with pytest.raises(BadValue, match=f"{option.removesuffix('_max')}.* is {value}"):
        queue.limit_kind("ocr", **{option: value})  # type: ignore[arg-type]
    assert list(queue.kinds()) == []


# -- the backlog -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_steps")
def test_a_new_table_is_applied_to_the_backlog_of_all(queue: Queue) -> None:
    for customer in ("acme", "bolt", "cyan", "dune", "echo"):
        send(queue, customer, 16)
    by_hand = next(iter(queue.documents("cyan"))).id
    queue.prioritize(by_hand, 9)
    queue.configure(thresholds=(-10,))
    assert max(priorities(queue, "acme")) == 8
    progress: list[int] = []
    changed = queue.apply_table(on_progress=lambda what, done, total: progress.append(done))
    expected = [1] * 11 + [2] * 5
    for customer in ("acme", "bolt", "dune", "echo"):
        assert priorities(queue, customer) == expected
    assert priorities(queue, "cyan") == [*expected[:-1], 9]
    assert (changed, progress[-1]) == (13 * 5 - 1, 13 * 5 - 1)
    assert len(progress) > 10, "it goes in small steps"
    assert queue.apply_table() == 0


def test_a_table_is_applied_to_one_customer_alone(queue: Queue) -> None:
    send(queue, "acme", 5)
    send(queue, "bolt", 5)
    queue.tune("acme", thresholds=(-1,))
    assert queue.apply_table("acme") == 1
    assert (priorities(queue, "acme"), priorities(queue, "bolt")) == ([1, 1, 2, 2, 2], [1, 1, 1, 2, 2])


@pytest.mark.usefixtures("small_steps")
def test_a_reset_takes_the_backlog_along_if_it_is_asked_to(queue: Queue) -> None:
    send(queue, "acme", 30)
    queue.engine.claim("worker", 10, 60_000)
    before = priorities(queue, "acme")
    assert queue.reset("acme") == 0
    assert priorities(queue, "acme") == before
    changed = queue.reset("acme", with_backlog=True)
    after = priorities(queue, "acme")
    assert after == [1] * 3 + [2] * 2 + [3] * 2 + [4] * 2 + [5] * 2 + [6] * 2 + [7] * 2 + [8] * 5
    assert changed == sum(one != other for one, other in zip(before, after, strict=True))
    assert queue.look("acme").counter == -19


def test_a_walk_ends_however_fast_others_come(queue: Queue, small_steps: None, monkeypatch: pytest.MonkeyPatch) -> None:
    send(queue, "acme", 20)
    engine, steps = queue.engine, 0
    reprioritize = engine.reprioritize

    def and_more_come(*args: object, **options: object) -> object:
        nonlocal steps
        steps += 1
        assert steps < 10, "it would never end"
        send(queue, "acme", 7)
        return reprioritize(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(engine, "reprioritize", and_more_come, raising=False)
    queue.reset("acme", with_backlog=True)
    assert steps == 3


@pytest.mark.parametrize("cursor", ["", "x", "1", "1:", "-1:2:", "1:2x:acme"])
def test_a_cursor_that_no_step_gave_is_refused(queue: Queue, cursor: str) -> None:
    with pytest.raises(BadValue, match=r"cursor is .*; it must be what a step gave as next"):
        backlog.table_step(queue.engine, None, cursor)


# -- audited -----------------------------------------------------------------------------------------------------------


def test_what_an_operator_steers_is_in_the_audit_log(queue: Queue, audited: AuditedQueue) -> None:
    ids = send(queue, "acme", 5)
    audited.prioritize(ids[0], 3)
    audited.bulk("prioritize", customer="acme", priority=2)
    audited.bulk("prioritize", customer="acme", priority=1, dry_run=True)
    audited.limit_kind("ocr", running_max=3, rate=10)
    audited.limit_kind("ocr")
    audited.apply_table()
    audited.reset("acme", with_backlog=True)
    with pytest.raises(FairlaneError):
        audited.prioritize(ids[0], 12)
    entries = list(walk_audit(queue.engine, AuditFilter()))[::-1]
    assert [(entry.action, entry.target, entry.before, entry.after, entry.outcome) for entry in entries] == [
        ("document.prioritize", ids[0], {"priority": 1}, {"priority": 3}, "done"),
        ("documents.prioritize", None, {"filter": {"customer": "acme"}},
         {"matched": 5, "changed": 5, "refused": 0, "priority": 2}, "done"),
        ("kind.limit", "ocr", {"running_max": None, "rate": None, "burst": 1},
         {"running_max": 3, "rate": 10, "burst": 1}, "done"),
        ("policy.apply", None, None, {"reprioritized": 0}, "done"),
        ("customer.reset", "acme", {"counter": -4}, {"counter": -4, "reprioritized": 0}, "done"),
        ("document.prioritize", ids[0], {"priority": 2}, None, "failed"),
    ]  # fmt: skip
    assert {entry.who for entry in entries} == {DESK}


def test_the_async_queue_steers_too(tmp_path: Path) -> None:
    async def steer() -> tuple[int, list[str]]:
        async with AsyncQueue(f"sqlite:///{tmp_path}/queue.db") as queue:
            receipt = await queue.submit("acme", no_better_than=6)
            await queue.prioritize(receipt.id, 2)
            await queue.limit_kind("ocr", running_max=1)
            await queue.apply_table()
            await queue.reset("acme", with_backlog=True)
            return (await queue.document(receipt.id)).priority, [kind.kind async for kind in queue.kinds()]

    assert asyncio.run(steer()) == (2, ["default", "ocr"])


# -- explanations ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hold", "sentence"),
    [
        ("paused", "acme is paused, so when it starts cannot be said."),
        ("cap", "as many documents of acme run as its cap allows, so when it starts cannot be said."),
        ("kind running", "as many documents of kind 'ocr' run as its limit allows, so when it starts cannot be said."),
        ("kind rate", "documents of kind 'ocr' start as often as its limit allows, so when it starts cannot be said."),
    ],
)
def test_an_explanation_names_what_holds_a_document_back(queue: Queue, hold: str, sentence: str) -> None:
    send(queue, "acme", 1, kind="ocr")
    (id,) = send(queue, "acme", 1, kind="ocr")
    queue.limit_kind("ocr", running_max=1 if hold == "kind running" else None, rate=0.001 if hold == "kind rate" else None)
    queue.tune("acme", cap=1 if hold == "cap" else None)
    queue.engine.claim("worker", 1, 60_000)
    queue.tune("acme", paused=hold == "paused")
    for for_customer in (False, True):
        explanation = queue.explain(id, for_customer=for_customer)
        assert explanation.sentence.endswith(sentence)
        assert (explanation.facts["held_by"], explanation.facts["expected_in"]) == (hold, None)
    queue.limit_kind("ocr", running_max=None, rate=None)
    queue.tune("acme", cap=None, paused=False)
    assert queue.explain(id).facts["held_by"] is None


def test_an_explanation_says_where_the_priority_comes_from(queue: Queue) -> None:
    id = queue.submit("acme", no_better_than=4).id
    assert queue.explain(id).sentence.startswith(
        "Priority 4, because it was submitted to be no better than that; acme's counter stood at 0 then."
    )
    queue.prioritize(id, 2)
    explanation = queue.explain(id, for_customer=True)
    assert explanation.sentence.startswith(
        "Priority 2, set by an operator; acme's counter stood at 0 when it was submitted, for 4."
    )
    names = ("priority", "checked_priority", "set_by_hand", "no_better_than")
    assert [explanation.facts[name] for name in names] == [2, 4, True, 4]
    ids = send(queue, "bolt", 5)
    queue.configure(thresholds=(-1,))
    queue.apply_table()
    assert queue.explain(ids[2]).sentence.startswith("Priority 2 by the table that holds now; bolt's counter stood at -2")
