"""Settling, leases, cancelling, retrying, purging, forgetting: a document ends exactly once."""

from __future__ import annotations

import pytest

from fairlane.core.document import ENDED, TRANSITIONS, Claim, Done, Failed, Outcome, Released, Retried, State, Totals
from fairlane.core.errors import Unknown
from fairlane.core.policy import KindLimit, Policy, Rules, Terms
from fairlane.engine import Engine
from fairlane.engine.protocol import DocumentFilter, Removed
from fairlane.engine.walk import walk_documents

from .conftest import Send, Take

DAY = 86_400_000


def state_of(engine: Engine, id: str) -> State | None:
    document = engine.document(id)
    return None if document is None else document.state


def read_everything(engine: Engine) -> tuple[object, ...]:
    """Return all that can be read, to assert that nothing of it was changed."""
    documents = list(walk_documents(engine))
    bodies = [engine.body(document.id) for document in documents]
    return documents, bodies, engine.customers("", 100, now_ms=0), engine.changes(None, 10_000), engine.rules()


def test_done_keeps_its_result(engine: Engine, send: Send, take: Take) -> None:
    (id,) = send("ada")
    (claim,) = take(at=5)
    assert engine.settle([(claim, Done('{"pages":3}'))], now_ms=7) == []
    document, body = engine.document(id), engine.body(id)
    assert document is not None
    assert body is not None
    assert (document.state, document.ended_ms, document.lease_ms, body.result) == ("done", 7, None, '{"pages":3}')


def test_failed_keeps_its_reason(engine: Engine, send: Send, take: Take) -> None:
    (id,) = send("ada")
    (claim,) = take()
    engine.settle([(claim, Failed("encrypted"))])
    document = engine.document(id)
    assert document is not None
    assert (document.state, document.reason) == ("failed", "encrypted")
    assert engine.customer("ada").failed == 1


def test_a_retry_with_no_attempts_left_fails(engine: Engine, send: Send, take: Take) -> None:
    (id,) = send("ada")
    for _ in range(2):
        (claim,) = take(kinds={"extract": 2})
        engine.settle([(claim, Retried(reason="busy"))])
    document = engine.document(id)
    assert document is not None
    assert (document.state, document.reason) == ("failed", "attempt 2 of 2 failed: busy")
    assert take(kinds={"extract": 2}) == []


OUTCOMES = [
    Done("1"),
    Retried(reason="r"),
    Retried(500),
    Retried(500, counted=False),
    Failed("f"),
    Released(),
    Done(cost=5000),
    Failed("f", cost=5000),
]


@pytest.mark.parametrize("outcome", OUTCOMES, ids=repr)
def test_settling_is_refused_without_any_change_when_the_lease_was_lost(
    engine: Engine, send: Send, take: Take, outcome: Outcome
) -> None:
    send("ada", at=0)
    (stale,) = take(at=0)
    assert engine.reclaim(10, now_ms=10_000) == 1
    before = read_everything(engine)
    assert engine.settle([(stale, outcome)], now_ms=10_001) == [stale]
    assert engine.extend([stale], 10_000, now_ms=10_001) == [stale]
    assert read_everything(engine) == before
    (fresh,) = take(at=10_002)
    before = read_everything(engine)
    assert engine.settle([(stale, outcome)], now_ms=10_003) == [stale]
    assert engine.extend([stale], 10_000, now_ms=10_003) == [stale]
    assert read_everything(engine) == before
    assert engine.settle([(fresh, outcome)], now_ms=10_004) == []


@pytest.mark.parametrize("outcome", OUTCOMES, ids=repr)
def test_a_claim_settles_once(engine: Engine, send: Send, take: Take, outcome: Outcome) -> None:
    send("ada")
    (claim,) = take()
    assert engine.settle([(claim, Done()), (claim, outcome)]) == [claim]
    before = read_everything(engine)
    assert engine.settle([(claim, outcome)]) == [claim]
    assert read_everything(engine) == before


def test_the_token_decides_not_the_workers_name(engine: Engine, send: Send, take: Take) -> None:
    send("ada", at=0)
    (stale,) = take(at=0, worker="same")
    engine.reclaim(10, now_ms=10_000)
    (fresh,) = take(at=10_000, worker="same")
    assert engine.settle([(stale, Done('"stale"'))], now_ms=10_001) == [stale]
    assert engine.settle([(fresh, Done('"fresh"'))], now_ms=10_001) == []
    body = engine.body(fresh.id)
    assert body is not None
    assert body.result == '"fresh"'


def test_a_lost_claim_in_a_batch_does_not_hold_up_the_others(engine: Engine, send: Send, take: Take) -> None:
    ids = send("ada", 3)
    claims = take(3)
    engine.cancel([ids[1]])
    assert engine.settle([(claim, Done()) for claim in claims]) == [claims[1]]
    assert [state_of(engine, id) for id in ids] == ["done", "cancelled", "done"]


def test_a_claim_settles_after_its_lease_ended_if_it_was_not_reclaimed(engine: Engine, send: Send, take: Take) -> None:
    send("ada", at=0)
    (claim,) = take(at=0)
    assert engine.settle([(claim, Done())], now_ms=99_000) == []


def test_extend_lengthens_and_never_shortens(engine: Engine, send: Send, take: Take) -> None:
    send("ada", at=0)
    (claim,) = take(at=0)
    assert engine.extend([claim], 1_000, now_ms=1_000) == []
    assert engine.reclaim(10, now_ms=9_999) == 0
    assert engine.extend([claim], 10_000, now_ms=9_000) == []
    assert engine.reclaim(10, now_ms=18_999) == 0
    assert engine.reclaim(10, now_ms=19_000) == 1


def test_an_expired_lease_goes_back_until_attempts_are_spent(engine: Engine, send: Send, take: Take) -> None:
    (id,) = send("ada", at=0)
    take(at=0, kinds={"extract": 2})
    engine.reclaim(10, now_ms=10_000)
    assert state_of(engine, id) == "ready"
    take(at=10_000, kinds={"extract": 2})
    engine.reclaim(10, now_ms=20_000)
    document = engine.document(id)
    assert document is not None
    assert document.state == "failed"
    assert document.reason == "the worker stopped or died: its lease ran out on attempt 2 of 2"


def test_reclaim_is_bounded_and_idempotent(engine: Engine, send: Send, take: Take) -> None:
    send("ada", 5, at=0)
    take(5, at=0)
    assert [engine.reclaim(2, now_ms=10_000) for _ in range(4)] == [2, 2, 1, 0]
    assert engine.customer("ada").running == 0


def test_a_sweep_never_overwrites_what_a_worker_finished(engine: Engine, send: Send, take: Take) -> None:
    (id,) = send("ada", at=0)
    (claim,) = take(at=0)
    engine.settle([(claim, Done())], now_ms=10_500)
    assert engine.reclaim(10, now_ms=11_000) == 0
    assert state_of(engine, id) == "done"


def test_cancel_ends_waiting_and_running_and_the_next_extend_reports_it(engine: Engine, send: Send, take: Take) -> None:
    running, waiting, delayed = send("ada")[0], send("bob")[0], send("eve", delay_ms=99)[0]
    (claim,) = take(1)
    assert claim.id == running
    assert engine.cancel([waiting, running, delayed, "unknown", waiting]) == [waiting, running, delayed]
    assert {state_of(engine, id) for id in (running, waiting, delayed)} == {"cancelled"}
    assert engine.extend([claim], 1_000) == [claim]
    assert engine.settle([(claim, Done())]) == [claim]
    assert engine.cancel([waiting]) == []
    assert take(at=10**9) == []


def test_retry_of_a_failed_document_starts_afresh_without_a_check(engine: Engine, send: Send, take: Take) -> None:
    (id,) = send("ada", at=0)
    (claim,) = take(at=0, kinds={"extract": 1})
    engine.settle([(claim, Failed("corrupt"))], now_ms=1)
    before = engine.customer("ada", now_ms=2).standing
    assert engine.retry(id, now_ms=2)
    document = engine.document(id)
    assert document is not None
    assert (document.state, document.attempts, document.reason, document.ended_ms) == ("ready", 0, None, None)
    assert engine.customer("ada", now_ms=2).standing == before
    (again,) = take(at=2)
    assert (again.attempts, again.token) == (1, 2)
    assert engine.settle([(claim, Done())], now_ms=3) == [claim]


def test_a_cost_that_turns_out_otherwise_moves_the_counter_by_the_difference(engine: Engine, send: Send, take: Take) -> None:
    send("ada", 2, at=0)
    first, second = take(2, at=0)
    engine.settle([(first, Done(cost=4000))], now_ms=1)
    assert engine.customer("ada", now_ms=1).counter == -4
    assert engine.customer("ada", now_ms=1).standing.updated_ms == 0
    engine.check("ada", 1000, now_ms=1_500_001)
    engine.settle([(second, Done(cost=9000))], now_ms=1_500_002)
    assert engine.customer("ada", now_ms=1_500_002).counter == 0


def test_a_corrected_cost_is_measured_with_the_weight_of_the_check(engine: Engine, send: Send, take: Take) -> None:
    engine.tune("ada", Terms(weight=2), 0)
    send("ada", 2, at=0)
    engine.tune("ada", Terms(weight=1), 1)
    claims = take(2, at=0)
    assert engine.customer("ada", now_ms=0).counter == -0.5
    engine.settle([(claims[1], Done(cost=3000))], now_ms=1)
    assert engine.customer("ada", now_ms=1).counter == -1.5


def test_purge_forgets_what_ended_long_enough_ago_and_nothing_else(engine: Engine, send: Send, take: Take) -> None:
    old, young, running = send("ada", 3, at=0)
    claims = take(3, at=0)
    engine.settle([(claims[0], Done("1"))], now_ms=1_000)
    engine.settle([(claims[1], Done())], now_ms=2_001)
    while any(engine.purge(0, 10, now_ms=2_000)):
        pass
    assert [state_of(engine, id) for id in (old, young, running)] == [None, "done", "running"]
    assert engine.body(old) is None
    assert engine.customer("ada").done == 2


def test_purge_returns_what_it_removed_oldest_first_so_that_their_files_can_go(engine: Engine, send: Send, take: Take) -> None:
    ada, bob = send("ada", 3, at=0), send("bob", 1, at=0)
    claims = {claim.id: claim for claim in take(4, at=0)}
    engine.settle([(claims[ada[0]], Released())], now_ms=1)
    (again,) = take(1, at=2)
    engine.settle([(claims[bob[0]], Done()), (again, Failed("no"))], now_ms=3)
    engine.cancel([ada[2]], now_ms=2)
    engine.cancel([ada[1]], now_ms=5)
    removed = []
    while any(purged := engine.purge(0, 2, now_ms=4)):
        assert len(purged.documents) <= 2
        removed += purged.documents
    ended_together = sorted([Removed(bob[0], "bob", 1), Removed(ada[0], "ada", 2)], key=lambda row: (ada + bob).index(row.id))
    assert removed == [Removed(ada[2], "ada", 1), *ended_together]


def test_forget_returns_what_it_erased_oldest_first(engine: Engine, send: Send, take: Take) -> None:
    ids = send("ada", 3)
    (claim,) = take(1)
    send("bob", 1)
    assert engine.forget("ada", 2) == [Removed(id, "ada", int(id == claim.id)) for id in ids[:2]]
    assert engine.forget("ada", 2) == [Removed(ids[2], "ada", 0)]
    assert engine.forget("ada", 2) == []


def test_a_purged_key_may_be_used_again(engine: Engine, send: Send) -> None:
    (first,) = send("ada", key="k", digest="d")
    engine.cancel([first], now_ms=0)
    while any(engine.purge(0, 10, now_ms=10)):
        pass
    (second,) = send("ada", key="k", digest="other")
    assert state_of(engine, second) == "ready"


def test_forget_erases_everything_that_names_the_customer(engine: Engine, send: Send, take: Take) -> None:
    send("ada", 4, key=None)
    send("bob", 1)
    claims = take(2)
    engine.put_record("settings", "a", "1")
    while engine.forget("ada", 3):
        pass
    assert [customer.id for customer in engine.customers("", 10)] == ["bob"]
    assert {document.customer for document in walk_documents(engine)} == {"bob"}
    assert {change.customer for change in engine.changes(None, 100)} == {"bob", None}
    lost = engine.settle([(claim, Done()) for claim in claims])
    assert {claim.customer for claim in lost} == {"ada"}
    assert [claim.customer for claim in take(10)] == [] if len(lost) == 1 else ["bob"]
    assert engine.customer("ada", now_ms=0).counter == 0


def test_forgetting_an_unknown_customer_does_nothing(engine: Engine) -> None:
    assert engine.forget("unknown", 10) == []
    assert engine.changes(None, 10) == []


REACH: dict[State, list[str]] = {
    "delayed": ["delayed"],
    "ready": [],
    "running": ["claim"],
    "done": ["claim", "done"],
    "failed": ["claim", "fail"],
    "cancelled": ["cancel"],
}


def bring_to(engine: Engine, send: Send, take: Take, state: State) -> tuple[str, Claim | None]:
    """A document in that state, and its claim if it ever had one."""
    (id,) = send("ada", at=0, delay_ms=100 if state == "delayed" else 0)
    claim = None
    for step in REACH[state]:
        if step == "claim":
            (claim,) = take(at=0)
        elif step == "cancel":
            engine.cancel([id], now_ms=0)
        elif claim is not None:
            engine.settle([(claim, Done() if step == "done" else Failed("f"))], now_ms=0)
    assert state_of(engine, id) == state
    return id, claim


@pytest.mark.parametrize("state", REACH)
@pytest.mark.parametrize(
    "verb", ["claim", "take_over", "done", "failed", "retry", "postpone", "release", "reclaim", "cancel", "revive"]
)
def test_only_the_listed_transitions_happen(engine: Engine, send: Send, take: Take, state: State, verb: str) -> None:
    id, claim = bring_to(engine, send, take, state)
    last_claim = claim or Claim(id, 1, 1, "ada", "extract", 1, "{}", 1, 3, 0, 1, False)
    settled: dict[str, Outcome] = {"done": Done(), "failed": Failed("f"), "retry": Retried(50), "release": Released(),
                                   "postpone": Retried(50, counted=False)}  # fmt: skip
    if verb in settled:
        engine.settle([(last_claim, settled[verb])], now_ms=50)
    elif verb == "claim":
        take(at=50)
    elif verb == "take_over":
        engine.take_over([(id, last_claim.token)], "other", 1000, now_ms=50)
    elif verb == "reclaim":
        engine.reclaim(10, now_ms=20_000)
    elif verb == "cancel":
        engine.cancel([id], now_ms=50)
    else:
        engine.retry(id, now_ms=50)
    event = {"claim": "claimed", "retry": "retried", "postpone": "postponed", "release": "released", "reclaim": "expired",
             "cancel": "cancelled", "revive": "revived", "take_over": "taken_over"}.get(verb, verb)  # fmt: skip
    sources, targets = TRANSITIONS[event]  # type: ignore[index]
    if (state, verb) in (("cancelled", "revive"), ("delayed", "failed")):
        sources = ()  # only a part is revived so, and only a whole fails so
    after = state_of(engine, id)
    assert after in targets if state in sources else after == state
    if state in ENDED and verb != "revive":
        assert after == state


def test_changes_are_fed_in_the_order_of_commits_and_resume(engine: Engine, send: Send, take: Take) -> None:
    (id,) = send("ada", at=1)
    (claim,) = take(at=2)
    engine.settle([(claim, Retried(reason="busy"))], now_ms=3)
    engine.cancel([id], now_ms=4)
    feed = engine.changes(None, 100)
    assert [(change.number, change.at_ms, change.what, change.document) for change in feed] == [
        (1, 1, "submitted", id),
        (2, 2, "claimed", id),
        (3, 3, "retried", id),
        (4, 4, "cancelled", id),
    ]
    assert [change.note for change in feed] == [None, "worker", "busy", None]
    assert engine.changes(2, 1) == [feed[2]]
    assert engine.changes(4, 10) == []


def test_a_feed_that_was_purged_says_so_instead_of_skipping(engine: Engine, send: Send) -> None:
    send("ada", 3, at=1)
    send("ada", 1, at=5)
    engine.purge(4, 100, now_ms=5)
    with pytest.raises(Unknown, match="changes up to 3 were purged"):
        engine.changes(2, 10)
    assert [change.number for change in engine.changes(None, 10)] == [4]
    assert [change.number for change in engine.changes(3, 10)] == [4]


def test_a_purge_of_the_feed_stops_at_the_first_line_that_is_too_young(engine: Engine, send: Send) -> None:
    send("ada", at=1)
    send("ada", at=9)
    send("ada", at=2)  # the clock stepped back
    assert engine.purge(0, 100, now_ms=5).changes == 1
    assert [change.number for change in engine.changes(None, 10)] == [2, 3]


def test_numbers_of_changes_and_documents_are_never_used_again(engine: Engine, send: Send) -> None:
    ids = send("ada", 3)
    engine.cancel(ids, now_ms=0)
    while any(engine.purge(0, 100, now_ms=10)):
        pass
    send("ada")
    assert next(walk_documents(engine)).number == 4
    assert engine.changes(None, 10)[0].number == 7


def test_records_are_kept_by_group_and_change_only_from_the_version_that_was_seen(engine: Engine) -> None:
    first = engine.put_record("keys", "b", "1")
    assert first is not None
    assert engine.put_record("keys", "a", "2") == first + 1
    engine.put_record("webhooks", "a", "9")
    assert [(record.key, record.value) for record in engine.records("keys", "", 10)] == [("a", "2"), ("b", "1")]
    assert [record.key for record in engine.records("keys", "a", 10)] == ["b"]
    assert engine.put_record("keys", "b", "x", version=99) is None
    assert engine.put_record("keys", "b", "y", version=first) == first + 3
    assert engine.put_record("keys", "new", "z", version=1) is None
    assert engine.put_record("keys", "new", "z", version=0) == first + 4
    assert engine.put_record("keys", "b", None, version=first + 3) == 0
    assert engine.record("keys", "b") is None


def test_rules_and_terms_change_only_from_the_version_that_was_seen(engine: Engine) -> None:
    assert engine.rules().version == 1
    made = engine.configure(Rules(Policy(reset="sliding"), turns="documents"))
    assert made is not None
    assert (made.version, engine.rules()) == (2, made)
    assert engine.configure(Rules()) is None
    terms = engine.customer("ada").terms
    assert engine.tune("ada", terms, 0) == 1
    assert engine.tune("ada", terms, 0) is None
    assert engine.tune("ada", terms, 1) == 2


def test_an_operators_reset_makes_the_customer_as_never_seen(engine: Engine, send: Send) -> None:
    send("ada", 25, at=0)
    engine.reset("ada", now_ms=1)
    customer = engine.customer("ada", now_ms=1)
    assert (customer.counter, customer.next_priority, customer.waiting, customer.standing.updated_ms) == (0, 1, 25, None)
    assert engine.check("ada", 1000, now_ms=2).counter == 0


def test_an_outlook_says_about_how_many_are_ahead(engine: Engine, send: Send, take: Take) -> None:
    send("big", 30, at=DAY)
    (id,) = send("small", at=DAY)
    outlook = engine.outlook(id, now_ms=DAY + 1_000)
    assert outlook is not None
    assert (outlook.now_ms, outlook.priority, outlook.ahead, outlook.hold) == (DAY + 1_000, 1, 1, None)
    claims = take(10, at=DAY + 2_000)
    outlook = engine.outlook(next(walk_documents(engine, DocumentFilter(customer="big", state="ready"))).id, now_ms=DAY + 4_000)
    assert outlook is not None
    assert (outlook.priority, outlook.ahead, outlook.totals) == (9, 20, engine.totals())
    assert engine.outlook(claims[0].id) is None
    assert engine.outlook("unknown") is None


def test_an_outlook_says_what_holds_a_document_back(engine: Engine, send: Send, take: Take) -> None:
    ids = send("ada", 4, at=0)

    def hold(now_ms: int = 0) -> str | None:
        outlook = engine.outlook(ids[3], now_ms=now_ms)
        assert outlook is not None
        return outlook.hold

    assert hold() is None
    engine.limit_kind("extract", KindLimit(running=2, rate=2), 0, now_ms=0)
    take(1, at=0)
    assert (hold(), hold(499), hold(500)) == ("kind rate", "kind rate", None)
    take(1, at=500)
    assert (hold(999), hold(1000)) == ("kind rate", "kind running")
    engine.tune("ada", Terms(cap=2), 0)
    assert hold(1000) == "cap"
    engine.tune("ada", Terms(cap=2, paused=True), 1)
    assert hold(1000) == "paused"


def test_totals_count_what_was_taken_after_it_had_waited_and_the_time_while_something_waited(
    engine: Engine, send: Send, take: Take
) -> None:
    assert engine.totals() == Totals(0, (0,) * 9, (0,) * 9)
    send("ada", 5, at=1_000)
    assert engine.totals().ready == (3, 2, 0, 0, 0, 0, 0, 0, 0)
    take(1, at=1_000)  # at once: it has not waited
    assert engine.totals() == Totals(0, (0,) * 9, (2, 2, 0, 0, 0, 0, 0, 0, 0))
    take(1, at=1_300)
    take(5, at=1_500)
    assert engine.totals() == Totals(500, (2, 2, 0, 0, 0, 0, 0, 0, 0), (0,) * 9)
    take(1, at=9_000)
    send("bob", at=9_500)
    take(1, at=9_600)  # nothing waited in between but for these
    assert engine.totals() == Totals(600, (3, 2, 0, 0, 0, 0, 0, 0, 0), (0,) * 9)
    take(1, at=100)  # a clock that steps back
    assert engine.totals().busy_ms == 600


def test_what_cannot_be_taken_does_not_wait(engine: Engine, send: Send, take: Take) -> None:
    engine.tune("ada", Terms(paused=True), 0)
    send("ada", 2, at=0)
    take(1, at=5_000)
    assert engine.totals() == Totals(0, (0,) * 9, (2, *(0,) * 8))


def test_wait_returns_at_once_when_something_is_ready_and_false_when_nothing_comes(engine: Engine, send: Send) -> None:
    assert engine.wait(0.01) is False
    send("ada")
    assert engine.wait(5) is True
    assert engine.wait(0.01, ["fax"]) is False
    assert engine.wait(5, ["fax", "extract"]) is True
