"""Taking over: a running claim changes hands, under a new token and with a lease of its own, and all else stays as it was."""

from __future__ import annotations

import threading

import pytest

from fairlane.core.document import Claim, Done, Failed, Outcome, Released, Retried, Submission
from fairlane.core.policy import KindLimit, Rules, Terms
from fairlane.engine import Engine, open_engine
from fairlane.engine.memory import MemoryEngine
from fairlane.engine.protocol import ATTEMPTS, ATTEMPTS_KEPT, Removed, attempt_key

from .conftest import Send, Take
from .test_frozen import everything, freeze
from .test_settle import OUTCOMES, bring_to, read_everything, state_of


def take_over(engine: Engine, claim: Claim, *, at: int = 1, lease_ms: int = 10_000, worker: str = "other") -> Claim:
    """Take over a claim that is not lost."""
    (taken,) = engine.take_over([(claim.id, claim.token)], worker, lease_ms, now_ms=at)
    assert taken is not None
    return taken


def test_whoever_takes_over_gets_the_claim_under_the_next_token(engine: Engine, send: Send, take: Take) -> None:
    send("ada", 3)
    claim = take(2, at=5)[1]
    before = engine.document(claim.id)
    assert take_over(engine, claim, at=7) == claim._replace(token=2, lease_ms=10_007, turn=0, is_open_turn=False)
    after = engine.document(claim.id)
    assert before is not None
    assert after == before._replace(token=2, worker="other", lease_ms=10_007)
    assert (after.claimed_ms, after.attempts) == (5, 1)


def test_the_feed_says_who_took_it_over(engine: Engine, send: Send, take: Take) -> None:
    (id,) = send("ada")
    (claim,) = take(at=1)
    engine.settle([(take_over(engine, claim, at=2), Done())], now_ms=3)
    assert [tuple(change)[1:] for change in engine.changes(1, 10)] == [
        (1, "claimed", "ada", id, 1, "worker"),
        (2, "taken_over", "ada", id, 2, "other"),
        (3, "done", "ada", id, 2, None),
    ]


@pytest.mark.parametrize("outcome", OUTCOMES, ids=repr)
def test_whoever_had_it_has_lost_it(engine: Engine, send: Send, take: Take, outcome: Outcome) -> None:
    send("ada")
    (claim,) = take()
    taken = take_over(engine, claim)
    before = read_everything(engine)
    assert engine.extend([claim], 90_000, now_ms=2) == [claim]
    assert engine.settle([(claim, outcome)], now_ms=2) == [claim]
    assert engine.take_over([(claim.id, claim.token)], "late", 90_000, now_ms=2) == [None]
    assert read_everything(engine) == before
    assert engine.extend([taken], 20_000, now_ms=3) == []
    assert engine.settle([(taken, outcome)], now_ms=4) == []


@pytest.mark.parametrize("state", ["delayed", "ready", "done", "failed", "cancelled"])
def test_only_what_runs_is_taken_over(engine: Engine, send: Send, take: Take, state: str) -> None:
    id, _ = bring_to(engine, send, take, state)  # type: ignore[arg-type]
    before = read_everything(engine)
    assert engine.take_over([(id, token) for token in (0, 1, 2)], "other", 1000, now_ms=1) == [None, None, None]
    assert read_everything(engine) == before


def test_another_token_or_an_unknown_document_is_refused(engine: Engine, send: Send, take: Take) -> None:
    (id,) = send("ada")
    take()
    before = read_everything(engine)
    assert engine.take_over([(id, 0), (id, 2), ("unknown", 1), (id, -1)], "other", 1000, now_ms=1) == [None] * 4
    assert engine.take_over([], "other", 1000, now_ms=1) == []
    assert read_everything(engine) == before


def test_what_came_back_is_not_taken_over_with_the_token_of_before(engine: Engine, send: Send, take: Take) -> None:
    send("ada")
    (late,) = take(at=0)
    engine.reclaim(10, now_ms=10_000)
    take(at=10_000)
    before = read_everything(engine)
    assert engine.take_over([(late.id, late.token)], "other", 1000, now_ms=10_001) == [None]
    assert read_everything(engine) == before


def test_a_claim_is_taken_over_after_its_lease_ended_if_it_was_not_reclaimed(engine: Engine, send: Send, take: Take) -> None:
    send("ada")
    (claim,) = take(at=0)
    taken = take_over(engine, claim, at=99_000)
    assert engine.reclaim(10, now_ms=99_000) == 0
    assert engine.settle([(taken, Done())], now_ms=99_001) == []


@pytest.mark.parametrize("lease_ms", [0, 300, 60_000])
def test_the_lease_is_that_of_the_new_holder_shorter_or_longer(engine: Engine, send: Send, take: Take, lease_ms: int) -> None:
    (id,) = send("ada")
    (claim,) = take(at=0)
    assert engine.reclaim(10, now_ms=4_000) == 0
    take_over(engine, claim, at=5_000, lease_ms=lease_ms)
    assert engine.reclaim(10, now_ms=5_000 + lease_ms - 1) == 0
    assert engine.reclaim(10, now_ms=5_000 + lease_ms) == 1
    assert state_of(engine, id) == "ready"
    (again,) = take(at=70_000)
    assert (again.token, again.attempts) == (3, 2)


def test_a_lease_that_began_on_a_clock_that_had_stepped_back_is_reclaimed(engine: Engine, send: Send, take: Take) -> None:
    send("ada", 2)
    (claim,) = take(at=50_000)
    assert engine.reclaim(10, now_ms=59_999) == 0  # all leases end later
    take_over(engine, claim, at=20_000, lease_ms=1_000)
    assert engine.reclaim(10, now_ms=21_000) == 1


def test_it_may_be_taken_over_again(engine: Engine, send: Send, take: Take) -> None:
    send("ada")
    (claim,) = take()
    second = take_over(engine, claim)
    third = take_over(engine, second, worker="third")
    assert (third.token, third.attempts) == (3, 1)
    assert engine.settle([(second, Done()), (third, Done("3"))], now_ms=2) == [second]


def test_a_document_that_was_taken_over_can_be_cancelled(engine: Engine, send: Send, take: Take) -> None:
    (id,) = send("ada")
    taken = take_over(engine, take()[0])
    assert engine.cancel([id], now_ms=2) == [id]
    assert engine.extend([taken], 1000, now_ms=3) == [taken]
    assert engine.customer("ada").running == 0


def test_the_attempt_is_not_counted_again(engine: Engine, send: Send, take: Take) -> None:
    (id,) = send("ada")
    (claim,) = take(kinds={"extract": 1})
    taken = take_over(engine, claim)
    assert (taken.attempts, taken.attempts_max) == (1, 1)
    engine.settle([(taken, Retried(reason="busy"))], now_ms=2)
    document = engine.document(id)
    assert document is not None
    assert (document.state, document.reason) == ("failed", "attempt 1 of 1 failed: busy")


def test_caps_and_limits_count_it_once(engine: Engine, send: Send, take: Take) -> None:
    engine.limit_kind("extract", KindLimit(running=2, rate=1, burst=3), 0, now_ms=0)
    engine.tune("ada", Terms(cap=2), 0, now_ms=0)
    send("ada", 5)
    claims = take(5)
    before = engine.customers("", 9, now_ms=1), engine.kind("extract"), engine.totals()
    taken = [take_over(engine, claim) for claim in claims]
    assert (engine.customers("", 9, now_ms=1), engine.kind("extract"), engine.totals()) == before
    assert take(5, at=1) == []
    engine.settle([(claim, Done()) for claim in taken], now_ms=2)
    assert len(take(5, at=10_000)) == 2


@pytest.mark.parametrize("outcome", [Done("1"), Done(cost=5000), Failed("f"), Retried(500, "r"), Released()], ids=repr)
def test_its_time_counts_from_the_claim(engine: Engine, send: Send, outcome: Outcome) -> None:
    """Whatever is kept after the settlement is what it would be if the claim had never changed hands."""
    reference = MemoryEngine()
    for each, is_taken_over in ((engine, True), (reference, False)):
        each.configure(Rules(open_turn_every=0, version=each.rules().version), now_ms=0)
        each.submit([Submission(f"a{n}", "ada", "extract", "{}") for n in range(4)], now_ms=0)
        each.submit([Submission("b", "bob", "extract", "{}")], now_ms=0)
        (claim,) = each.claim("worker", 1, 10_000, now_ms=100)
        held = take_over(each, claim, at=7_000) if is_taken_over else claim
        assert each.settle([(held, outcome)], now_ms=9_100) == []
    freeze(engine)
    freeze(reference)
    ours, theirs = everything(engine), everything(reference)
    assert theirs.customers[0].usual == 9_000_000
    assert (ours.customers, ours.lanes) == (theirs.customers, theirs.lanes)
    assert ours.queue is not None
    assert theirs.queue is not None
    assert ours.queue._replace(last_change=0) == theirs.queue._replace(last_change=0)
    assert [document.snapshot._replace(token=0, worker=None) for document in ours.documents] == [
        document.snapshot._replace(token=0, worker=None) for document in theirs.documents
    ]


def test_what_runs_in_a_frozen_queue_may_change_hands(engine: Engine, send: Send, take: Take) -> None:
    send("ada")
    (claim,) = take()
    freeze(engine)
    assert engine.settle([(take_over(engine, claim), Done())], now_ms=2) == []


def test_details_of_attempts_are_kept_and_removed_under_the_token_that_settled(engine: Engine, send: Send, take: Take) -> None:
    (id,) = send("ada")
    for at in range(7):
        (claim,) = take(at=at, kinds={"extract": 9})
        engine.settle([(take_over(engine, claim, at=at), Retried(reason="r", details=f"{at}"))], now_ms=at)
    newest = 14
    assert [record.key for record in engine.records(ATTEMPTS, "", 99)] == [
        attempt_key(id, token) for token in range(newest - ATTEMPTS_KEPT + 2, newest + 1, 2)
    ]
    engine.cancel([id], now_ms=8)
    removed = []
    while any(purged := engine.purge(0, 10, now_ms=9)):
        removed += purged.documents
    assert removed == [Removed(id, "ada", newest)]
    assert engine.records(ATTEMPTS, "", 99) == []


def test_claims_are_taken_over_in_order_and_the_lost_ones_are_left_out(engine: Engine, send: Send, take: Take) -> None:
    send("ada", 4)
    first, second, third, fourth = take(4)
    assert engine.cancel([second.id], now_ms=1) == [second.id]
    handed = [(claim.id, claim.token) for claim in (third, second, first, third)] + [(first.id, 2)]
    taken = engine.take_over(handed, "other", 10_000, now_ms=2)
    assert [claim and (claim.id, claim.token) for claim in taken] == [
        (third.id, 2), None, (first.id, 2), None, (first.id, 3),
    ]  # fmt: skip
    assert [(change.document, change.token) for change in engine.changes(9, 10)] == [
        (third.id, 2),
        (first.id, 2),
        (first.id, 3),
    ]
    assert engine.settle([(claim, Done()) for claim in (taken[0], taken[4], fourth) if claim], now_ms=3) == []


def test_of_two_that_take_it_over_at_once_one_gets_it(engine: Engine, url: str, send: Send, take: Take) -> None:
    """As when a message is delivered twice: eight workers, each with connections of its own where the store allows it."""
    send("ada", 25)
    claims = take(25)
    won: dict[str, list[Claim]] = {}
    engines = [engine if url == "memory://" else open_engine(url) for _ in range(4)]
    barrier = threading.Barrier(8)

    def work(name: str, own: Engine) -> None:
        barrier.wait()
        handed = [(claim.id, claim.token) for claim in claims]
        taken = [each for n in range(0, 25, 5) for each in own.take_over(handed[n : n + 5], name, 60_000, now_ms=1)]
        won[name] = [claim for claim in taken if claim is not None]

    threads = [threading.Thread(target=work, args=(f"w{n}", engines[n % 4])) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(claim.id for taken in won.values() for claim in taken) == sorted(claim.id for claim in claims)
    for name, taken in won.items():
        documents = [engine.document(claim.id) for claim in taken]
        assert {(document.worker, document.token) for document in documents if document} <= {(name, 2)}
        assert engine.settle([(claim, Done()) for claim in taken], now_ms=2) == []
    assert [change.what for change in engine.changes(50, 100)] == ["taken_over"] * 25 + ["done"] * 25
    for own in engines:
        if own is not engine:
            own.close()
