"""Claiming: in dispatch order, with a lease, a new token and one more attempt counted."""

from __future__ import annotations

import threading

from fairlane.core.document import Claim, Done, Failed, Released, Retried, Submission
from fairlane.core.policy import Policy, Rules, Terms
from fairlane.engine import Engine
from fairlane.engine.protocol import DUE_MAX, DocumentFilter
from fairlane.engine.walk import walk_documents

from .conftest import Send, Take


def names(claims: list[Claim]) -> list[str]:
    return [claim.customer for claim in claims]


def test_the_lowest_priority_number_that_has_a_document_ready_is_served(engine: Engine, send: Send, take: Take) -> None:
    send("big", 30, at=0)
    send("small", 2, at=5)
    claims = take(8, at=10)
    assert [claim.priority for claim in claims] == [1, 1, 1, 1, 1, 2, 2, 3]
    assert names(claims)[:5] == ["big", "small", "big", "small", "big"]


def test_inside_one_priority_customers_take_turns_whoever_came_first(engine: Engine, send: Send, take: Take) -> None:
    engine.configure(Rules(Policy(thresholds=()), open_turn_every=0))
    send("early", 10, at=0)
    send("late", 10, at=9)
    assert names(take(8, at=10)) == ["early", "late"] * 4


def test_a_customer_of_weight_two_gets_two_turns_for_one(engine: Engine, send: Send, take: Take) -> None:
    engine.configure(Rules(Policy(thresholds=()), open_turn_every=0))
    engine.tune("heavy", Terms(weight=2), 0)
    send("heavy", 20)
    send("light", 20)
    claims = names(take(18))
    assert (claims.count("heavy"), claims.count("light")) == (12, 6)


def test_a_costly_document_pays_for_as_many_turns(engine: Engine, send: Send, take: Take) -> None:
    """Where turns are paid with documents."""
    engine.configure(Rules(Policy(thresholds=()), open_turn_every=0, turns="documents"))
    send("costly", 5, cost=3000)
    send("plain", 20)
    claims = names(take(12))
    assert (claims.count("costly"), claims.count("plain")) == (3, 9)


def test_one_dispatch_in_sixteen_goes_to_the_head_ready_longest(engine: Engine, send: Send, take: Take) -> None:
    send("big", 200, at=0)
    take(30, at=1)
    claims = []
    for n in range(34):
        send(f"newcomer-{n}", at=2 + n)
        claims += take(1, at=2 + n)
    assert {claim.turn for claim in claims if claim.is_open_turn} == {32, 48, 64}
    assert {claim.customer for claim in claims if claim.is_open_turn} == {"big"}
    assert {claim.priority for claim in claims if not claim.is_open_turn} == {1}


def test_dispatches_are_counted_a_document_once_for_each_set_of_kinds(engine: Engine, send: Send, take: Take) -> None:
    send("a", 20)
    send("b", 20)
    send("c", 20, kind="scan")
    assert [claim.turn for _ in range(5) for claim in take(4)] == list(range(1, 21))
    assert [claim.turn for claim in take(3, kinds={"extract": 1})] == [1, 2, 3]
    assert [claim.turn for claim in take(2, kinds={"extract": 1, "scan": 2})] == [1, 2]
    assert [claim.turn for claim in take(2, kinds={"scan": 5, "extract": 7})] == [3, 4]
    assert [claim.turn for claim in take(1)] == [21]


def test_strict_is_priority_then_number_without_open_turns(engine: Engine, send: Send, take: Take) -> None:
    engine.configure(Rules(dispatch="strict"))
    send("big", 30, at=0)
    send("small", 3, at=5)
    claims = take(33, at=9)
    assert [(claim.priority, claim.number) for claim in claims] == sorted((claim.priority, claim.number) for claim in claims)
    assert not any(claim.is_open_turn for claim in claims)


def test_a_change_of_dispatch_holds_from_the_next_claim(engine: Engine, send: Send, take: Take) -> None:
    engine.configure(Rules(Policy(thresholds=()), open_turn_every=0))
    send("a", 10)
    send("b", 10)
    assert names(take(4)) == ["a", "b", "a", "b"]
    engine.configure(Rules(Policy(thresholds=()), "strict", 0, 2))
    assert names(take(4)) == ["a"] * 4
    engine.configure(Rules(Policy(thresholds=()), "fair", 0, 3))
    assert sorted(names(take(2))) == ["a", "b"]


def test_under_strict_no_tag_of_before_counts(engine: Engine, send: Send, take: Take) -> None:
    engine.configure(Rules(Policy(thresholds=()), open_turn_every=0))
    send("a", 10)
    take(3)
    send("b", 10)  # starts from the clock, before a's next turn
    engine.configure(Rules(Policy(thresholds=()), "strict", 0, 2))
    assert names(take(4)) == ["a"] * 4


def test_a_worker_gets_only_the_kinds_it_takes_and_others_are_left_untouched(engine: Engine, send: Send, take: Take) -> None:
    send("ada", 3, kind="scan")
    (fax,) = send("ada", kind="fax")
    assert [claim.id for claim in take(5, kinds={"fax": 1, "letter": 2})] == [fax]
    assert take(5, kinds={"fax": 1}) == []
    assert {document.state for document in walk_documents(engine) if document.kind == "scan"} == {"ready"}


def test_attempts_are_counted_at_the_claim_and_tokens_rise_by_one(engine: Engine, send: Send, take: Take) -> None:
    send("ada")
    seen = []
    for n in range(3):
        (claim,) = take(at=n, kinds={"extract": 9})
        seen.append((claim.attempts, claim.attempts_max, claim.token))
        engine.settle([(claim, Retried())], now_ms=n)
    assert seen == [(1, 9, 1), (2, 9, 2), (3, 9, 3)]


def test_a_release_gives_the_attempt_back_but_not_the_turn(engine: Engine, send: Send, take: Take) -> None:
    send("ada", 3)
    send("bob", 3)
    (first,) = take()
    engine.settle([(first, Released())])
    (second,) = take()
    assert second.customer == "bob"
    (again,) = take()
    assert (again.id, again.attempts, again.token) == (first.id, 1, 2)


def test_a_document_that_comes_back_rejoins_its_lane_by_submission_number(engine: Engine, send: Send, take: Take) -> None:
    ids = send("ada", 3)
    claims = take(2)
    engine.settle([(claims[0], Retried())], now_ms=5)
    assert [claim.id for claim in take(5, at=6)] == [ids[0], ids[2]]


def test_a_retry_waits_for_its_time_and_is_no_new_check(engine: Engine, send: Send, take: Take) -> None:
    send("ada", at=0)
    (claim,) = take(at=0)
    engine.settle([(claim, Retried(after_ms=700, reason="busy"))], now_ms=100)
    assert take(at=799) == []
    assert engine.customer("ada", now_ms=799).counter == 0
    (again,) = take(at=800)
    assert (again.id, again.attempts, again.priority) == (claim.id, 2, 1)


def test_a_cap_is_never_exceeded_and_others_are_served(engine: Engine, send: Send, take: Take) -> None:
    engine.tune("capped", Terms(cap=2), 0)
    send("capped", 5)
    send("other", 2)
    claims = take(10)
    assert names(claims).count("capped") == 2
    assert names(claims).count("other") == 2
    assert take(10) == []
    engine.settle([(claim, Done()) for claim in claims if claim.customer == "capped"][:1])
    assert names(take(10)) == ["capped"]


def test_a_cap_holds_across_priorities_and_kinds_in_one_claim(engine: Engine, send: Send, take: Take) -> None:
    engine.tune("capped", Terms(cap=3), 0)
    send("capped", 30)
    send("capped", 5, kind="scan")
    assert len(take(40)) == 3
    assert engine.customer("capped").running == 3


def test_a_cap_under_many_threads_is_never_exceeded(engine: Engine, send: Send) -> None:
    engine.tune("capped", Terms(cap=3), 0)
    send("capped", 200)
    running, lock, highest = [0], threading.Lock(), [0]

    def work(name: str) -> None:
        for _ in range(30):
            claims = engine.claim(name, 2, 60_000)
            with lock:
                running[0] += len(claims)
                highest[0] = max(highest[0], running[0])
            with lock:
                running[0] -= len(claims)
                engine.settle([(claim, Done()) for claim in claims])

    threads = [threading.Thread(target=work, args=(f"w{n}",)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 1 <= highest[0] <= 3


def test_an_expired_lease_frees_the_cap_once_reclaimed(engine: Engine, send: Send, take: Take) -> None:
    engine.tune("capped", Terms(cap=1), 0)
    send("capped", 2, at=0)
    (claim,) = take(5, at=0)
    assert engine.reclaim(10, now_ms=9_999) == 0
    assert engine.reclaim(10, now_ms=10_000) == 1
    (again,) = take(5, at=10_000)
    assert again.id == claim.id


def test_a_paused_customer_is_passed_over_and_may_go_on_submitting(engine: Engine, send: Send, take: Take) -> None:
    send("paused", 2)
    engine.tune("paused", Terms(paused=True), 0)
    send("paused", 2)
    send("other")
    assert names(take(10)) == ["other"]
    engine.tune("paused", Terms(), 1)
    assert names(take(10)) == ["paused"] * 4


def test_after_a_pause_nobody_is_owed_more_than_one_turn(engine: Engine, send: Send, take: Take) -> None:
    engine.configure(Rules(Policy(thresholds=()), open_turn_every=0))
    send("away", 30)
    send("here", 100)
    engine.tune("away", Terms(paused=True), 0)
    take(50)
    engine.tune("away", Terms(), 1)
    owed, *turns = names(take(9))
    assert owed == "away"
    assert turns == ["away", "here"] * 4


def test_after_a_cancel_of_many_nobody_is_owed_more_than_one_turn(engine: Engine, send: Send, take: Take) -> None:
    engine.configure(Rules(Policy(thresholds=()), open_turn_every=0))
    ids = send("big", 2_000)
    send("other", 50)
    take(10)
    assert len(engine.cancel(ids)) == 2_000
    send("big", 20)
    turns = names(take(10))
    assert turns in (["big", "other"] * 5, ["other", "big"] * 5)


def test_an_empty_lane_remembers_what_it_owes(engine: Engine, send: Send, take: Take) -> None:
    """A customer that sends one document at a time cannot overtake one that has many waiting."""
    engine.configure(Rules(Policy(thresholds=()), open_turn_every=0))
    send("steady", 20)
    served = []
    for n in range(10):
        send("drip", at=n)
        served += names(take(1, at=n))
    assert abs(served.count("drip") - served.count("steady")) <= 1


def test_a_lane_that_ran_empty_comes_back_with_its_finish_tag(engine: Engine, send: Send, take: Take) -> None:
    engine.configure(Rules(Policy(thresholds=()), open_turn_every=0))
    send("steady", 20)
    for n in range(5):
        send("drip", at=n)
        assert names(take(2, at=n)) == ["steady", "drip"]


def test_the_clock_of_a_priority_never_moves_back(engine: Engine, send: Send, take: Take) -> None:
    """A kind that is served seldom stays behind the clock; serving it must not give newcomers a start in the past."""
    engine.configure(Rules(Policy(thresholds=()), open_turn_every=0))
    send("seldom", kind="scan")
    send("busy", 10)
    take(5, kinds={"extract": 1})
    take(1, kinds={"scan": 1})
    send("newcomer", 3)
    assert names(take(3)) == ["newcomer", "busy", "newcomer"]


def test_a_head_that_is_replaced_leaves_its_lane_as_it_was(engine: Engine, send: Send, take: Take) -> None:
    """A document that comes back before the head: the lane gained nothing, keeps its start tag and is counted once."""
    engine.configure(Rules(Policy(thresholds=()), open_turn_every=0, turns="documents"))
    send("ada", 3, cost=2000)
    send("bob", 3)
    (first,) = take(1)
    (late,) = send("late")
    engine.settle([(first, Released())])
    outlook = engine.outlook(late)
    assert outlook is not None
    assert outlook.ahead == 2  # one turn of each other lane
    assert names(take(4)) == ["bob", "late", "bob", "ada"]


def test_documents_of_one_millisecond_keep_their_order(engine: Engine, send: Send, take: Take) -> None:
    ids = send("ada", 3, at=0)
    assert [claim.id for claim in take(3, at=0)] == ids


def test_concurrent_claims_take_every_document_once(engine: Engine, send: Send) -> None:
    ids = send("ada", 100) + send("bob", 100)
    taken: list[str] = []

    def work(name: str) -> None:
        while claims := engine.claim(name, 7, 60_000):
            taken.extend(claim.id for claim in claims)

    threads = [threading.Thread(target=work, args=(f"w{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == sorted(ids)


def test_a_claim_readies_a_bounded_number_of_documents_that_are_due(engine: Engine, send: Send, take: Take) -> None:
    send("ada", DUE_MAX + 5, delay_ms=1)
    take(1, at=10)
    assert len(list(walk_documents(engine, DocumentFilter(state="delayed")))) == 5
    assert len(take(3 * DUE_MAX, at=10)) == DUE_MAX + 4


def test_a_claim_of_nothing_is_an_empty_list(engine: Engine, send: Send, take: Take) -> None:
    assert take() == []
    assert take(kinds={}) == []


def test_failed_documents_are_not_served_again(engine: Engine, send: Send, take: Take) -> None:
    send("ada")
    (claim,) = take()
    engine.settle([(claim, Failed("corrupt"))])
    assert take(at=10**9) == []


def test_kinds_that_a_paused_customer_was_the_first_to_send_compete_when_it_goes_on(engine: Engine) -> None:
    engine.tune("ada", Terms(paused=True), 0, now_ms=0)
    engine.submit([Submission(kind, "ada", kind, "1") for kind in ("scan", "ocr")], now_ms=0)
    assert engine.claim("w", 5, 1000, now_ms=1) == []
    engine.tune("ada", Terms(), 1, now_ms=2)
    assert sorted(claim.kind for claim in engine.claim("w", 5, 1000, now_ms=3)) == ["ocr", "scan"]
