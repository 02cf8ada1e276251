"""Details of failed attempts: written with the settlement, deleted with the document, bounded; and documents put off."""

from __future__ import annotations

from fairlane.core.document import Claim, Done, Failed, Released, Retried
from fairlane.engine import Engine
from fairlane.engine.protocol import ATTEMPTS, ATTEMPTS_KEPT, attempt_key

from .conftest import Send, Take


def details_of(engine: Engine, id: str) -> dict[int, str]:
    """Return what is kept of a document's attempts, by token."""
    records = engine.records(ATTEMPTS, f"{id}:", 1000)
    return {int(record.key[-16:]): record.value for record in records if record.key.startswith(f"{id}:")}


def test_details_are_kept_with_the_attempt_that_made_them(engine: Engine, send: Send, take: Take) -> None:
    first, second, third = send("ada", 3)
    claims = take(3)
    outcomes = (Retried(0, "busy", details='{"n":1}'), Failed("bad", details='{"n":2}'), Retried(0, "quiet"))
    assert engine.settle(list(zip(claims, outcomes, strict=True))) == []
    assert (details_of(engine, first), details_of(engine, second), details_of(engine, third)) == (
        {1: '{"n":1}'},
        {1: '{"n":2}'},
        {},
    )
    again = next(claim for claim in take(2) if claim.id == first)
    engine.settle([(again, Failed("worse", details='{"n":"ż"}'))])
    assert details_of(engine, first) == {1: '{"n":1}', 2: '{"n":"ż"}'}
    engine.put_record("other", "key", "1")
    versions = [record.version for group in (ATTEMPTS, "other") for record in engine.records(group, "", 10)]
    assert len(set(versions)) == 4
    assert versions[-1] == max(versions)


def test_a_lost_claim_leaves_no_details(engine: Engine, send: Send, take: Take) -> None:
    (id,) = send("ada")
    (stale,) = take(at=0)
    engine.reclaim(1, now_ms=10_000)
    (claim,) = take(at=10_000)
    assert engine.settle([(stale, Failed("late", details='"late"'))], now_ms=10_001) == [stale]
    assert details_of(engine, id) == {}
    assert engine.settle([(claim, Failed("own", details='"own"')), (claim, Failed("twice", details='"twice"'))]) == [claim]
    assert details_of(engine, id) == {2: '"own"'}
    assert engine.settle([(stale, Failed("late", details='"late"'))]) == [stale]
    assert details_of(engine, id) == {2: '"own"'}


def test_only_the_newest_details_of_a_document_are_kept(engine: Engine, send: Send, take: Take) -> None:
    id, other = send("ada", 2)
    for n in range(1, ATTEMPTS_KEPT + 4):
        claim = next(claim for claim in take(2, at=n, kinds={"extract": 1000}) if claim.id == id)
        engine.settle([(claim, Retried(0, "busy", details=str(n)))], now_ms=n)
        engine.reclaim(1, now_ms=n)
    assert details_of(engine, id) == {n: str(n) for n in range(4, ATTEMPTS_KEPT + 4)}
    assert details_of(engine, other) == {}


def test_details_go_with_their_document(engine: Engine, send: Send, take: Take) -> None:
    purged, forgotten = send("ada")[0], send("bob")[0]
    neighbours = [send("eve")[0] for _ in range(2)]
    claims = {claim.id: claim for claim in take(4)}
    for id, claim in claims.items():
        outcome = Failed("r", details="1") if id == purged else Retried(0, "r", details="1")
        engine.settle([(claim, outcome)], now_ms=1)
    while any(engine.purge(0, 10, now_ms=2)):
        pass
    assert [id for id in claims if details_of(engine, id)] == [forgotten, *neighbours]
    while engine.forget("bob", 1, now_ms=3):
        pass
    assert [record.key for record in engine.records(ATTEMPTS, "", 10)] == [attempt_key(id, 1) for id in neighbours]


def test_a_postponed_document_comes_back_without_an_attempt_spent(engine: Engine, send: Send, take: Take) -> None:
    (id,) = send("ada", at=0)
    for n in range(5):
        (claim,) = take(at=n * 1000, kinds={"extract": 1})
        assert (claim.attempts, claim.token) == (1, n + 1)
        assert engine.settle([(claim, Retried(1000, "429 of the archive", counted=False))], now_ms=n * 1000) == []
        document = engine.document(id)
        assert document is not None
        assert (document.state, document.attempts, document.ready_ms) == ("delayed", 0, (n + 1) * 1000)
        assert take(at=n * 1000 + 999) == []
    last = engine.changes(None, 100)[-1]
    assert (last.what, last.note, last.token) == ("postponed", "429 of the archive", 5)
    assert engine.customer("ada").waiting == 1
    (claim,) = take(at=5000, kinds={"extract": 1})
    engine.settle([(claim, Retried(0, "broken"))], now_ms=5001)
    ended = engine.document(id)
    assert ended is not None
    assert (ended.state, ended.reason) == ("failed", "attempt 1 of 1 failed: broken")


def test_a_late_worker_cannot_postpone(engine: Engine, send: Send, take: Take) -> None:
    send("ada")
    (stale,) = take(at=0)
    engine.reclaim(1, now_ms=10_000)
    claim: Claim
    (claim,) = take(at=10_000)
    assert engine.settle([(stale, Retried(1000, "later", counted=False))], now_ms=10_001) == [stale]
    assert engine.settle([(claim, Done())], now_ms=10_002) == []
    assert engine.settle([(claim, Retried(1000, "later", counted=False)), (stale, Released())], now_ms=10_003) == [claim, stale]
