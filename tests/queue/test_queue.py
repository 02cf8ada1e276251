"""The verbs of `Queue`: arguments are validated, and an error names the argument and its value."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane import AsyncQueue, BadValue, Change, KeyConflict, Queue, Unknown, WrongState
from fairlane.core.document import Done, Failed, Retried
from fairlane.core.policy import Reset, Turns
from fairlane.queue import new_ids
from fairlane.queue.explain import format_range


@pytest.fixture(params=["memory", "sqlite"])
def queue(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Queue]:
    with Queue("memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/queue.db") as queue:
        yield queue


def serve(queue: Queue, outcome: Any = None) -> None:
    for claim in queue.engine.claim("worker-1", 1, 10_000):
        queue.engine.settle([(claim, outcome or Done('{"pages":2}'))])


def test_the_worked_examples_of_the_rules(queue: Queue) -> None:
    moments = (0, 1, 2, 3, 1503, 3003.001)
    receipts = [queue.submit("acme", {"n": 1}, now=moment) for moment in moments]
    assert [(receipt.counter, receipt.priority) for receipt in receipts] == [(0, 1), (-1, 1), (-2, 1), (-3, 2), (-4, 2), (0, 1)]
    checks = [queue.check("other", now=moment) for moment in moments]
    assert [(check.counter, check.priority) for check in checks] == [(0, 1), (-1, 1), (-2, 1), (-3, 2), (-4, 2), (0, 1)]


def test_a_metronome_sinks_under_idle_and_does_not_under_sliding(queue: Queue) -> None:
    seen = {}
    for reset in get_args(Reset):
        queue.configure(reset=reset)
        seen[reset] = [queue.check(reset, now=1200 * n).priority for n in range(72)]
    assert seen["idle"].index(9) == 21
    assert set(seen["sliding"]) == {1}


def test_counters_are_shown_as_whole_numbers_when_they_are(queue: Queue) -> None:
    queue.check("acme", now=0)
    whole, half = queue.check("acme", now=0).counter, queue.check("acme", cost=0.5, now=0).counter
    assert (whole, type(whole), half) == (-1, int, -1.5)


def test_submit_many_is_as_many_checks_in_one_commit(queue: Queue) -> None:
    receipts = queue.submit_many("acme", [{"n": n} for n in range(5)], now=1)
    assert [receipt.counter for receipt in receipts] == [0, -1, -2, -3, -4]
    assert queue.submit_many("acme", []) == []
    assert [queue.payload(receipt.id) for receipt in receipts] == [{"n": n} for n in range(5)]


def test_a_key_returns_the_first_receipt_and_another_body_is_an_error(queue: Queue) -> None:
    first = queue.submit("acme", {"a": 1, "b": [2]}, key="inv-17", now=0)
    assert queue.submit("acme", {"b": [2], "a": 1}, key="inv-17", now=9) == first._replace(repeated=True)
    for payload, kind in (({"a": 1}, "extract"), ({"a": 1, "b": [2]}, "other"), ({"a": True, "b": [2]}, "extract")):
        with pytest.raises(KeyConflict, match="'inv-17'"):
            queue.submit("acme", payload, kind=kind, key="inv-17", now=9)
    assert queue.look("acme").waiting == 1
    receipts = queue.submit_many("acme", [1, 2], keys=["one", "two"], now=9)
    again = queue.submit_many("acme", [1, 2], keys=["one", "two"], now=10)
    assert again == [receipt._replace(repeated=True) for receipt in receipts]


def test_a_look_shows_where_a_customer_stands_and_moves_nothing(queue: Queue) -> None:
    queue.submit_many("acme", range(4), now=100)
    queue.engine.claim("w", 1, 10_000, now_ms=101_000)
    expected = ("acme", -3, 2, 3, 1, 0, 0, 0, timedelta(seconds=1499), timedelta(seconds=1), False, 4, 4, 100_000, None, None)
    assert tuple(queue.look("acme", now=101)) == expected
    assert tuple(queue.look("acme", now=101)) == expected
    assert [look.customer for look in queue.customers()] == ["acme"]


def test_explain_is_a_sentence_and_its_facts(queue: Queue) -> None:
    queue.submit_many("big", range(30), now=1000)
    receipt = queue.submit("small", now=1000)
    explanation = queue.explain(receipt.id, now=1000)
    assert (
        explanation.facts["priority"],
        explanation.facts["counter"],
        explanation.facts["ahead"],
        explanation.facts["expected_in"],
    ) == (1, 0, 1, None)
    assert "Priority 1, because small's counter stood at 0" in str(explanation)
    assert "About 1 document is ahead of it; no worker takes documents of kind 'default', so when" in str(explanation)
    queue.engine.claim("worker-1", 10, 60_000, now_ms=1_001_000)
    last = next(queue.documents("big", "ready"))
    explanation = queue.explain(last.id, now=1003)
    low, likely, high = (explanation.facts[name] for name in ("expected_in_low", "expected_in", "expected_in_high"))
    assert 0 < low < 21 * 2 / 10 < likely < high
    expected = f"About 20 documents are ahead of it; it will probably start {format_range(low, high)}."
    assert expected in explanation.sentence
    queue.pause("big")
    paused = queue.explain(last.id, now=1003)
    assert "About 20 documents are ahead of it; big is paused, so when it starts cannot be said." in paused.sentence
    assert paused.facts["expected_in"] is None
    assert "It is running on worker-1, attempt 1 of 3." in queue.explain(receipt.id).sentence


def test_an_explanation_for_a_customer_names_neither_workers_nor_stores(queue: Queue) -> None:
    running, waiting = queue.submit("acme", 1).id, queue.submit("acme", 2).id
    queue.engine.claim("host-7-worker", 1, 60_000)
    queue.engine.configure(replace(queue.rules(), frozen="is being moved to postgresql://db.internal/queue"))
    assert "db.internal" in queue.explain(waiting).sentence
    assert "host-7" in queue.explain(running).sentence
    shown_to_customers = [queue.explain(id, for_customer=True) for id in (running, waiting)]
    assert "It is running on a worker, attempt 1 of 3." in shown_to_customers[0].sentence
    assert "the queue is being moved to another store, so when it starts cannot be said" in shown_to_customers[1].sentence
    assert not any(
        name in f"{shown.sentence} {shown.facts}" for name in ("db.internal", "host-7") for shown in shown_to_customers
    )


def test_explain_shows_how_it_ended(queue: Queue) -> None:
    receipt = queue.submit("acme")
    serve(queue, Failed("encrypted"))
    assert queue.explain(receipt.id).sentence.endswith("It is failed: encrypted.")
    delayed = queue.submit("acme", delay=3600)
    assert "held back for another 60 minutes" in queue.explain(delayed.id).sentence
    assert queue.explain(delayed.id).facts["delayed_by"] is None


def test_explain_says_what_delayed_it(queue: Queue) -> None:
    receipt = queue.submit("acme")
    serve(queue, Retried(3_600_000, "429 of the archive", counted=False))
    explanation = queue.explain(receipt.id)
    assert "Its handler postponed it without using up an attempt: 429 of the archive. It is held back" in explanation.sentence
    assert (explanation.facts["delayed_by"], explanation.facts["delayed_because"]) == ("postponed", "429 of the archive")
    receipt = queue.submit("acme")
    serve(queue, Retried(3_600_000, "no answer"))
    assert "Attempt 1 of 3 failed: no answer. It is held back" in queue.explain(receipt.id).sentence


def test_a_result_is_there_when_the_document_is_done(queue: Queue) -> None:
    receipt = queue.submit("acme", {"path": "a.pdf"})
    with pytest.raises(WrongState, match=f"{receipt.id} has no result: it is ready"):
        queue.result(receipt.id)
    serve(queue)
    assert queue.result(receipt.id) == {"pages": 2}


def test_cancel_and_retry_say_what_they_did(queue: Queue) -> None:
    receipt = queue.submit("acme")
    assert queue.cancel(receipt.id) is True
    assert queue.cancel(receipt.id) is False
    with pytest.raises(WrongState, match="is cancelled; only a failed one can be retried"):
        queue.retry(receipt.id)
    failed = queue.submit("acme")
    serve(queue, Failed("corrupt"))
    queue.retry(failed.id)
    assert queue.document(failed.id).state == "ready"


@pytest.mark.parametrize("verb", ["document", "payload", "result", "explain", "cancel", "retry"])
def test_a_document_nobody_knows_is_named(queue: Queue, verb: str) -> None:
    with pytest.raises(Unknown, match="there is no document d-404; it was never submitted here, or it was purged"):
        getattr(queue, verb)("d-404")


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("submit", {"customer": ""}, "customer is ''; it must be text of 1 to 200 characters"),
    ("submit", {"customer": "x" * 201}, "customer is 'xxx"),
    ("submit", {"customer": "a\nb"}, r"customer is 'a\\nb'"),
    ("submit", {"customer": "\ud800"}, "lone surrogates"),
    ("submit", {"customer": 7}, "customer is 7"),
    ("submit", {"customer": None}, "customer is None"),
    ("submit", {"customer": "a", "kind": ""}, "kind is ''"),
    ("submit", {"customer": "a", "key": ""}, "key is ''"),
    ("submit", {"customer": "a", "cost": 0}, "cost is 0"),
    ("submit", {"customer": "a", "cost": 10_001}, "cost is 10001; it must be a number from 0.001 to 10,000"),
    ("submit", {"customer": "a", "cost": 0.0001}, "cost is 0.0001"),
    ("submit", {"customer": "a", "cost": 1.00051}, "whole thousandths"),
    ("submit", {"customer": "a", "cost": True}, "cost is True"),
    ("submit", {"customer": "a", "cost": float("nan")}, "cost is nan"),
    ("submit", {"customer": "a", "delay": -1}, "delay is -1"),
    ("submit", {"customer": "a", "now": float("inf")}, "now is inf"),
    ("submit", {"customer": "a", "now": "noon"}, "now is 'noon'"),
    ("submit", {"customer": "a", "now": -1}, "now is -1"),
    ("submit", {"customer": "a", "payload": b"bytes"}, "payload is b'bytes'; it must be JSON"),
    ("submit", {"customer": "a", "payload": {"x": float("nan")}}, "payload is"),
    ("submit", {"customer": "a", "payload": "x" * 262_144}, "262,146 bytes of JSON.*at most 262,144 bytes"),
    ("submit", {"customer": "a", "payload": {1, 2}}, "must be JSON"),
    ("submit_many", {"customer": "a", "payloads": [1], "keys": ["a", "b"]}, "keys is 'a list of 2'"),
    ("submit_many", {"customer": "a", "payloads": range(100_001)}, "at most 100,000 long; submit them in parts"),
    ("submit_many", {"customer": "a", "payloads": 5}, "payloads is 5; it must be a list of payloads"),
    ("submit_many", {"customer": "a", "payloads": "abc"}, "payloads is 'abc'"),
    ("changes", {"after": "x"}, "after is 'x'"),
    ("changes", {"after": -3}, "after is -3"),
    ("changes", {"limit": 0}, "limit is 0"),
    ("configure", {"dispatch": ""}, "dispatch is ''"),
    ("check", {"customer": ""}, "customer is ''"),
    ("look", {"customer": "\x7f"}, "customer is"),
    ("document", {"id": ""}, "document id is ''"),
    ("tune", {"customer": "a", "weight": 0}, "weight is 0; it must be a number from 0.01 to 100"),
    ("tune", {"customer": "a", "cap": 0}, "cap is 0"),
    ("tune", {"customer": "a", "cap": 1.5}, "cap is 1.5"),
    ("tune", {"customer": "a", "reset": "never"}, "reset is 'never'; it must be one of idle, sliding"),
    ("tune", {"customer": "a", "paused": "yes"}, "paused is 'yes'"),
    ("configure", {"reset_interval": 0}, "reset_interval is 0; it must be a number of seconds from 0.001"),
    ("configure", {"thresholds": (-2, -2)}, "thresholds is .*strictly falling"),
    ("configure", {"thresholds": (1,)}, "thresholds is 1"),
    ("configure", {"dispatch": "lottery"}, "dispatch is 'lottery'; it must be one of fair, strict"),
    ("configure", {"open_turn_every": -1}, "open_turn_every is -1"),
    ("configure", {"turns": "pages"}, "turns is 'pages'; it must be one of time, documents"),
    ("purge", {"older_than": -1}, "older_than is -1"),
    ("forget", {"customer": ""}, "customer is ''"),
]


@pytest.mark.parametrize(("verb", "arguments", "message"), WRONG, ids=lambda value: str(value)[:40])
def test_a_wrong_value_is_refused_by_name_and_nothing_happens(verb: str, arguments: dict[str, Any], message: str) -> None:
    queue = Queue("memory://")
    with pytest.raises(BadValue, match=message):
        getattr(queue, verb)(**arguments)
    assert list(queue.changes()) == []
    assert list(queue.customers()) == []


@pytest.mark.parametrize(("wrong", "message"), [({"state": "redy"}, "state is 'redy'"), ({"customer": ""}, "customer is ''")])
def test_a_wrong_filter_is_refused_instead_of_finding_nothing(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(BadValue, match=message):
        list(Queue("memory://").documents(**wrong))


def test_a_key_works_with_any_payload_that_is_accepted(queue: Queue) -> None:
    first = queue.submit("acme", {1: 1, "b": 2}, key="k")
    assert queue.submit("acme", {"1": 1, "b": 2}, key="k") == first._replace(repeated=True)


def test_a_payload_nested_too_deep_is_refused_however_deep(queue: Queue) -> None:
    for depth in (101, 5_000, 200_000):
        deep: Any = 1
        for _ in range(depth):
            deep = [deep]
        with pytest.raises(BadValue, match="payload"):
            queue.submit("acme", deep)
    wide = [{"a": [n]} for n in range(1000)]
    assert queue.payload(queue.submit("acme", wide).id) == wide


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(JSON)
def test_any_json_comes_back_as_it_was(payload: Any) -> None:
    queue = Queue("memory://")
    assert queue.payload(queue.submit("acme", payload).id) == payload


def test_a_lone_surrogate_in_a_payload_comes_back_from_disk(tmp_path: Path) -> None:
    with Queue(f"sqlite:///{tmp_path}/queue.db") as queue:
        assert queue.payload(queue.submit("acme", {"name": "a\ud800b\x00"}).id) == {"name": "a\ud800b\x00"}


def test_tuning_changes_what_is_named_and_keeps_the_rest(queue: Queue) -> None:
    queue.tune("acme", weight=2, cap=3)
    queue.pause("acme")
    assert queue.terms("acme") == queue.tune("acme")
    assert (queue.terms("acme").weight, queue.terms("acme").cap, queue.terms("acme").paused) == (2, 3, True)
    queue.resume("acme")
    assert queue.tune("acme", cap=None).cap is None
    assert queue.look("acme").paused is False
    version = queue.engine.customer("acme").terms_version
    queue.tune("acme", weight=2)
    assert queue.engine.customer("acme").terms_version == version


def test_tuning_from_many_threads_loses_nothing(queue: Queue) -> None:
    def tune(**terms: Any) -> None:
        for _ in range(10):
            queue.tune("acme", **terms)

    threads = [threading.Thread(target=tune, kwargs=terms) for terms in ({"weight": 2}, {"cap": 5}, {"paused": True})]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    terms = queue.terms("acme")
    assert (terms.weight, terms.cap, terms.paused) == (2, 5, True)


def test_rules_live_in_the_store_with_a_version(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/queue.db"
    with Queue(url) as first, Queue(url) as second:
        assert first.configure(reset="sliding", reset_interval=60).version == 2
        assert second.rules().policy.reset == "sliding"
        assert second.configure(reset="sliding").version == 2
        second.check("acme", now=0)
        second.configure(thresholds=(-1,), open_turn_every=0)
        assert first.rules().version == 3
        assert first.rules().policy.reset_interval == 60


def test_purge_and_forget_say_how_many(queue: Queue) -> None:
    ids = [receipt.id for receipt in queue.submit_many("acme", range(1200))]
    for id in ids[:5]:
        queue.cancel(id)
    assert queue.purge(older_than=3600) == 0
    assert queue.purge(older_than=0) == 5
    assert queue.forget("acme").documents == 1195
    assert list(queue.customers()) == []
    assert queue.forget("acme").documents == 0


def test_long_lists_come_in_pages_without_gaps(queue: Queue) -> None:
    ids = [receipt.id for receipt in queue.submit_many("acme", range(2100))]
    assert [document.id for document in queue.documents()] == ids[::-1]
    assert [document.id for document in queue.documents("acme", "ready")] == ids[::-1]
    assert [change.document for change in queue.changes()] == ids
    assert list(queue.documents("nobody")) == []


def test_reset_by_an_operator(queue: Queue) -> None:
    queue.submit_many("acme", range(25))
    queue.reset("acme")
    assert queue.check("acme").priority == 1


def test_ids_are_uuids_of_version_7_in_the_order_of_time() -> None:
    ids = [*new_ids(30), *(new_ids(1)[0] for _ in range(20))]
    assert {uuid.UUID(id).version for id in ids} == {7}
    assert {uuid.UUID(id).variant for id in ids} == {uuid.RFC_4122}
    assert len(set(ids)) == 50
    stamps = [id[:13] for id in ids]
    assert stamps == sorted(stamps)


def test_the_same_verbs_awaited(tmp_path: Path) -> None:
    async def use() -> None:
        async with AsyncQueue(f"sqlite:///{tmp_path}/queue.db") as queue:
            receipts = await asyncio.gather(*(queue.submit("acme", {"n": n}) for n in range(40)))
            assert sorted(receipt.counter for receipt in receipts) == list(range(-39, 1))
            assert (await queue.look("acme")).waiting == 40
            assert (await queue.check("acme")).counter == -40
            assert len([document async for document in queue.documents("acme")]) == 40
            assert [look.customer async for look in queue.customers()] == ["acme"]
            assert [change.number async for change in queue.changes(limit=3)] == [1, 2, 3]
            assert await queue.cancel(receipts[0].id)
            assert "cancelled" in str(await queue.explain(receipts[0].id))
            with pytest.raises(BadValue, match="customer is ''"):
                await queue.submit("")

    asyncio.run(use())


def test_values_are_in_human_units(queue: Queue) -> None:
    start = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
    receipt = queue.submit("acme", cost=2.5, delay=timedelta(minutes=5), now=start)
    assert (receipt.counter, receipt.submitted_at, receipt.repeated) == (-1.5, start, False)
    document = queue.document(receipt.id)
    assert (document.cost, document.counter, document.submitted_at) == (2.5, -1.5, start)
    assert (document.ready_at, document.ended_at, document.is_ended) == (start + timedelta(minutes=5), None, False)
    assert queue.check("acme", now=start.timestamp() + 1).checked_at == start + timedelta(seconds=1)
    assert queue.look("acme", now=start + timedelta(seconds=2)).resets_in == timedelta(seconds=1499)
    assert next(queue.changes()) == Change(1, "submitted", start, "acme", receipt.id)
    assert queue.tune("acme", reset_interval=timedelta(minutes=1)).reset_interval == 60
    assert queue.configure(reset_interval=timedelta(hours=1)).policy.reset_interval == 3600
    for value in (receipt, document, queue.look("acme"), next(queue.changes())):
        assert not [name for name in dir(value) if name.endswith(("_ms", "_thousandths"))]


def test_a_datetime_without_a_time_zone_is_refused(queue: Queue) -> None:
    with pytest.raises(BadValue, match="a datetime with a time zone"):
        queue.submit("acme", now=datetime(2026, 3, 1))


def test_a_moment_beyond_the_calendar_is_shown_as_its_end(queue: Queue) -> None:
    receipt = queue.submit("acme", now=2**53 / 1000 - 1)
    assert receipt.submitted_at is not None
    assert receipt.submitted_at.year == 9999


def test_a_reason_in_the_feed_is_for_people(queue: Queue) -> None:
    queue.check("acme")
    queue.submit("acme")
    serve(queue, Failed("encrypted"))
    assert [(change.event, change.reason) for change in queue.changes()] == [
        ("checked", None), ("submitted", None), ("claimed", None), ("failed", "encrypted"),
    ]  # fmt: skip
    assert [change.event for change in queue.changes(after=1, limit=2)] == ["submitted", "claimed"]


def test_wait_returns_when_it_has_ended_and_after_the_timeout_as_it_is(queue: Queue) -> None:
    id = queue.submit("acme").id
    assert queue.wait(id, timeout=timedelta(milliseconds=20)).state == "ready"
    assert queue.wait(id, timeout=0).state == "ready"
    ended: list[str] = []
    waiting = threading.Thread(target=lambda: ended.append(queue.wait(id).state))
    waiting.start()
    serve(queue)
    waiting.join(timeout=40)
    assert ended == ["done"]
    with pytest.raises(Unknown, match="there is no document d-404"):
        queue.wait("d-404", timeout=1)
    with pytest.raises(BadValue, match="timeout is -1"):
        queue.wait(id, timeout=-1)


def test_many_waits_need_no_thread_each(tmp_path: Path) -> None:
    async def use() -> None:
        async with AsyncQueue(f"sqlite:///{tmp_path}/queue.db", threads=1) as queue:
            ids = [receipt.id for receipt in await queue.submit_many("acme", range(5))]
            waits = [asyncio.create_task(queue.wait(id, timeout=40)) for id in ids]
            for id in ids:
                assert await queue.cancel(id)
            assert [document.state for document in await asyncio.gather(*waits)] == ["cancelled"] * 5

    asyncio.run(use())


def test_both_queues_have_the_same_verbs() -> None:
    def verbs(kind: type) -> set[str]:
        return {name for name, _ in inspect.getmembers(kind, callable) if not name.startswith("_")}

    assert verbs(Queue) == verbs(AsyncQueue)


def test_every_verb_says_what_it_does() -> None:
    for name, verb in inspect.getmembers(Queue, inspect.isfunction):
        assert name.startswith("_") or re.match(r"[A-Z].+\.", inspect.getdoc(verb) or ""), name


def served_one_by_one(queue: Queue, documents: int) -> list[str]:
    """Serve documents, each of which takes its payload's seconds; return whose they were."""
    now_ms, served = 1_000_000, []
    for _ in range(documents):
        (claim,) = queue.engine.claim("worker", 1, 10**9, now_ms=now_ms)
        now_ms += 1000 * json.loads(claim.payload)
        queue.engine.settle([(claim, Done())], now_ms=now_ms)
        served.append(claim.customer)
    return served


@pytest.mark.parametrize(("turns", "shares"), [("time", (100, 10)), ("documents", (55, 55))])
def test_customers_share_the_workers_time_or_their_documents(queue: Queue, turns: Turns, shares: tuple[int, int]) -> None:
    rules = queue.configure(turns=turns, thresholds=(), open_turn_every=0)
    assert queue.rules() == rules
    queue.submit_many("short", [1] * 120, now=1000)
    queue.submit_many("long", [10] * 120, now=1000)
    served = served_one_by_one(queue, 110)
    assert served.count("short") == pytest.approx(shares[0], abs=1)
    assert served.count("long") == pytest.approx(shares[1], abs=1)
