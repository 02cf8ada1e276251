"""Freezing and moving: a frozen queue begins nothing, running documents may end, rows can be packed and unpacked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from fairlane.core.document import Done, Failed, Submission
from fairlane.core.errors import StoreFrozen, Unknown
from fairlane.core.policy import KindLimit, Terms
from fairlane.engine import Engine, open_engine
from fairlane.engine.protocol import PROGRESS, DocumentFilter, Packed
from fairlane.engine.walk import walk_documents

from .conftest import Send, Take


def freeze(engine: Engine, why: str | None = "is being moved to a better store") -> None:
    assert engine.configure(replace(engine.rules(), frozen=why)) is not None


REFUSED_VERBS: dict[str, Callable[[Engine], object]] = {
    "check": lambda engine: engine.check("ada", 1000),
    "submit": lambda engine: engine.submit([Submission("new", "ada", "extract", "1")]),
    "claim": lambda engine: engine.claim("worker", 1, 1000),
    "cancel": lambda engine: engine.cancel(["ada-0"]),
    "retry": lambda engine: engine.retry("ada-0"),
    "purge": lambda engine: engine.purge(0, 10),
    "tune": lambda engine: engine.tune("ada", Terms(weight=2), 0),
    "reset": lambda engine: engine.reset("ada"),
    "forget": lambda engine: engine.forget("ada", 10),
}


@pytest.mark.parametrize("verb", REFUSED_VERBS)
def test_a_frozen_queue_begins_nothing_and_says_why(engine: Engine, send: Send, verb: str) -> None:
    send("ada", 2)
    freeze(engine)
    before = engine.pack(None, 10), engine.customers("", 10, now_ms=0), list(walk_documents(engine))
    with pytest.raises(StoreFrozen, match="this queue is being moved to a better store; nothing was changed"):
        REFUSED_VERBS[verb](engine)
    assert (
        engine.pack(None, 10),
        engine.customers("", 10, now_ms=0),
        list(walk_documents(engine)),
    ) == before


def test_what_runs_in_a_frozen_queue_may_end(engine: Engine, send: Send, take: Take) -> None:
    send("ada", 3)
    first, second, third = take(3)
    freeze(engine)
    assert engine.extend([first], 20_000, now_ms=1) == []
    assert engine.settle([(first, Done("1"))], now_ms=2) == []
    assert engine.settle([(first, Done("2"))], now_ms=2) == [first]
    assert engine.reclaim(10, now_ms=10_001) == 2
    assert {document.state for document in walk_documents(engine, DocumentFilter(customer="ada"))} == {
        "done",
        "ready",
    }
    assert second != third


def test_a_thawed_queue_goes_on(engine: Engine, send: Send, take: Take) -> None:
    send("ada")
    freeze(engine)
    freeze(engine, None)
    assert len(take(1)) == 1
    assert engine.rules().frozen is None


def test_a_refused_call_does_not_affect_the_next(engine: Engine, send: Send, take: Take) -> None:
    send("ada")
    (claim,) = take(1)
    freeze(engine)
    with pytest.raises(StoreFrozen):
        engine.check("bob", 1000)
    assert engine.settle([(claim, Done("1"))]) == []


def pages(engine: Engine, limit: int) -> list[Packed]:
    packed = [engine.pack(None, limit)]
    while packed[-1].cursor is not None:
        packed.append(engine.pack(packed[-1].cursor, limit))
    return packed


def everything(engine: Engine) -> Packed:
    """Return all pages as one."""
    whole = pages(engine, 3)
    return Packed(
        None,
        whole[0].queue,
        tuple(kind for page in whole for kind in page.kinds),
        tuple(customer for page in whole for customer in page.customers),
        tuple(document for page in whole for document in page.documents),
        tuple(lane for page in whole for lane in page.lanes),
        tuple(record for page in whole for record in page.records),
    )


def fill_queue(engine: Engine, send: Send, take: Take) -> None:
    """Fill a queue with a bit of everything."""
    send("ada", 5)
    send("bob", 30, at=5)
    send("bob", 1, at=6, key="once", digest="d", cost=2500)
    send("cy", 2, at=6, delay_ms=5000)
    claims = take(6, at=10)
    engine.settle([(claims[0], Done('{"pages":2}', 4000)), *((claim, Done()) for claim in claims[1:3])], now_ms=20)
    engine.cancel(["bob-20"], now_ms=21)
    engine.prioritize(["bob-30"], 2, "ola", now_ms=21)
    engine.limit_kind("extract", KindLimit(running=40, rate=5, burst=2.5), 0, now_ms=21)
    engine.tune("ada", Terms(weight=2, paused=True), 0, now_ms=22)
    engine.put_record("group", "a", "1")
    engine.put_record("group", "b", "2")
    engine.reclaim(10, now_ms=20_000)


def test_a_queue_comes_out_as_it_went_in(engine: Engine, url: str, send: Send, take: Take) -> None:
    fill_queue(engine, send, take)
    freeze(engine)
    packed = everything(engine)
    assert len(packed.documents) == 38
    reference = open_engine("memory://")
    reference.unpack(packed)
    assert everything(reference) == packed
    freeze(reference, None)
    freeze(engine, None)
    for at in range(20_001, 20_060):
        assert engine.claim("w", 1, 10**6, now_ms=at) == reference.claim("w", 1, 10**6, now_ms=at)
        assert engine.check("bob", 1000, now_ms=at) == reference.check("bob", 1000, now_ms=at)
    assert engine.customers("", 10, now_ms=30_000) == reference.customers("", 10, now_ms=30_000)


def test_what_was_packed_elsewhere_goes_on_here(engine: Engine, send: Send) -> None:
    source = open_engine("memory://")
    source.submit([Submission(f"a{n}", "ada", "extract", "1") for n in range(4)], now_ms=0)
    source.submit([Submission(f"b{n}", "bob", "scan", "1", key=f"k{n}", digest="d") for n in range(12)], now_ms=1)
    source.submit([Submission("late", "cy", "scan", "1", delay_ms=5000)], now_ms=2)
    claims = source.claim("w", 5, 1000, now_ms=3)
    source.settle([(claims[0], Done('{"pages":2}', 4000)), (claims[1], Failed("no"))], now_ms=4)
    source.tune("ada", Terms(weight=2, cap=1), 0, now_ms=5)
    source.tune("bob", Terms(paused=True), 0, now_ms=5)
    source.reclaim(10, now_ms=2000)
    freeze(source)
    send("dee", 2)  # the target's own feed is replaced
    engine.forget("dee", 10)
    engine.forget("dee", 10)
    freeze(engine)
    for page in pages(source, 3):
        engine.unpack(page)
        engine.unpack(page)
    assert everything(engine) == everything(source)
    last = source.changes(None, 100)[-1].number
    assert engine.changes(None, 100) == engine.changes(last, 100) == []
    with pytest.raises(Unknown, match="were purged"):
        engine.changes(last - 1, 100)
    for target in (source, engine):
        freeze(target, None)
        target.tune("bob", Terms(), 1, now_ms=2001)
    for at in range(2002, 2012):
        assert engine.claim("w", 2, 10**6, now_ms=3 * at) == source.claim("w", 2, 10**6, now_ms=3 * at)
        again = Submission(f"again-{at}", "bob", "scan", "1", key=f"k{at - 2002}", digest="d")
        assert engine.submit([again], now_ms=at) == source.submit([again], now_ms=at)
    assert engine.customers("", 10, now_ms=9000) == source.customers("", 10, now_ms=9000)
    assert list(walk_documents(engine)) == list(walk_documents(source))


def test_a_reader_of_the_feed_goes_on_in_the_new_store(engine: Engine, send: Send) -> None:
    send("ada", 3)
    freeze(engine)
    last = engine.changes(None, 100)[-1].number
    target = open_engine("memory://")
    target.unpack(everything(engine))
    assert target.changes(last, 100) == []
    freeze(target, None)
    assert [change.what for change in target.changes(last, 100)] == ["configured"]


def test_a_diagnosis_names_what_it_checked(engine: Engine) -> None:
    findings = engine.diagnose()
    assert "durability" in [finding.name for finding in findings]
    assert all(finding.message and (finding.level == "fine") == (finding.advice is None) for finding in findings)


def test_why_a_queue_is_frozen_may_be_said_in_any_words(engine: Engine) -> None:
    freeze(engine, "moved to żółw: 100 % done, 'so to say' {x}")
    with pytest.raises(StoreFrozen, match=r"this queue moved to żółw: 100 % done, 'so to say' \{x\}; nothing was changed"):
        engine.check("ada", 1000)


def test_what_was_reported_of_a_document_goes_with_it(engine: Engine, send: Send, take: Take) -> None:
    first, second, third = send("ada", 3)
    for id in (first, second, third):
        engine.put_record(PROGRESS, id, "0.5")
    engine.put_record("other", first, "1")
    engine.settle([(claim, Done()) for claim in take(1)], now_ms=1)
    while any(engine.purge(0, 10, now_ms=2)):
        pass
    assert [record.key for record in engine.records(PROGRESS, "", 10)] == [second, third]
    while engine.forget("ada", 1, now_ms=3):
        pass
    assert engine.records(PROGRESS, "", 10) == []
    assert engine.record(PROGRESS, second) is None
    assert [record[:2] for record in everything(engine).records] == [("other", first)]
    assert engine.record("other", first) is not None


def test_pages_of_any_size_hold_the_same(engine: Engine, send: Send, take: Take) -> None:
    for customer in range(230):  # more than one script reads at once
        send(f"c{customer}", 2, at=customer, kind=("scan", "extract")[customer % 2])
    take(7, at=300)
    engine.cancel([f"c{customer}-{2 * customer}" for customer in range(100, 180)], now_ms=301)
    engine.reclaim(10, now_ms=10**6)
    for key in ("a", "b"):
        engine.put_record("first", key, "1")
        engine.put_record("second", key, "2")
    freeze(engine)
    whole = everything(engine)
    assert (len(whole.customers), len(whole.documents), len(whole.records)) == (230, 460, 4)
    assert len(whole.lanes) >= 230
    for limit in (1, 50, 1000):
        packed = pages(engine, limit)
        for part in ("customers", "documents", "lanes", "records"):
            assert tuple(row for page in packed for row in getattr(page, part)) == getattr(whole, part)
