"""Submitting: check, priority and insert are one step."""

from __future__ import annotations

import threading

import pytest

from fairlane.core.document import Done, Submission
from fairlane.core.errors import KeyConflict, Unknown
from fairlane.core.policy import Policy, Rules, Terms
from fairlane.engine import Engine
from fairlane.engine.walk import walk_documents

from .conftest import Send, Take

PRIORITIES = [1] * 3 + [2] * 2 + [3] * 2 + [4] * 2 + [5] * 2 + [6] * 2 + [7] * 2 + [8] * 6 + [9] * 9


def keyed(id: str, key: str, digest: str = "d", customer: str = "ada") -> Submission:
    return Submission(id, customer, "extract", "{}", key=key, digest=digest)


def test_the_nth_document_of_an_unbroken_run_gets_the_priority_of_the_list(engine: Engine) -> None:
    receipts = engine.submit([Submission(f"d{n}", "ada", "extract", "{}") for n in range(30)], now_ms=0)
    assert [receipt.priority for receipt in receipts] == PRIORITIES
    assert [receipt.counter for receipt in receipts] == [-n for n in range(30)]
    assert [receipt.number for receipt in receipts] == list(range(1, 31))


def test_a_batch_of_n_is_n_checks_in_order(engine: Engine) -> None:
    batch = engine.submit([Submission(f"a{n}", "ada", "extract", "{}") for n in range(25)], now_ms=7)
    singles = [engine.submit([Submission(f"b{n}", "bob", "extract", "{}")], now_ms=7)[0] for n in range(25)]
    assert [receipt.check._replace(customer="") for receipt in batch] == [
        receipt.check._replace(customer="") for receipt in singles
    ]


def test_worked_examples(engine: Engine) -> None:
    moments = (0, 1_000, 2_000, 3_000, 1_503_000, 3_003_001)
    checks = [engine.check("ada", 1000, now_ms=moment) for moment in moments]
    assert [(check.counter, check.priority) for check in checks] == [(0, 1), (-1, 1), (-2, 1), (-3, 2), (-4, 2), (0, 1)]


def test_under_sliding_the_counter_is_what_was_sent_within_the_last_interval(engine: Engine) -> None:
    engine.configure(Rules(Policy(reset_interval=16, reset="sliding")))
    moments = (0, 500, 1_000, 15_900, 16_000, 16_900, 17_000, 32_000, 33_000)
    expected = [0, -1, -2, -3, -2, -3, -3, -1, -1]
    assert [engine.check("ada", 1000, now_ms=moment).counter for moment in moments] == expected
    receipts = [engine.submit([Submission(f"d{moment}", "bob", "extract", "{}")], now_ms=moment)[0] for moment in moments]
    assert [receipt.counter for receipt in receipts] == expected
    assert engine.customer("bob", now_ms=33_000).standing.parts == ((32_000, 1000), (33_000, 1000))


def test_a_batch_under_sliding_is_as_many_checks_in_order(engine: Engine) -> None:
    engine.configure(Rules(Policy(reset="sliding")))
    batch = engine.submit([Submission(f"a{n}", "ada", "extract", "{}", cost=2500) for n in range(3)], now_ms=0)
    assert [receipt.check.counter_thousandths for receipt in batch] == [-1500, -4000, -6500]


def test_a_change_of_the_reset_rule_takes_customers_along(engine: Engine) -> None:
    for moment in range(5):
        engine.check("ada", 1000, now_ms=moment)
    engine.configure(Rules(Policy(reset="sliding")))
    assert engine.check("ada", 1000, now_ms=5).counter == -5
    assert engine.customer("ada", now_ms=5).standing.parts == ((0, 6000),)
    engine.configure(Rules(Policy(), version=2))
    assert engine.check("ada", 1000, now_ms=6).counter == -6
    assert engine.customer("ada", now_ms=6).standing.parts == ()


@pytest.mark.parametrize("size", [1, 3])
def test_a_clock_that_steps_back_neither_resets_nor_rewinds(engine: Engine, size: int) -> None:
    engine.check("ada", 1000, now_ms=9_000_000)
    engine.submit([Submission(f"d{n}", "ada", "extract", "{}") for n in range(size)], now_ms=1_000_000)
    standing = engine.customer("ada", now_ms=1_000_000).standing
    assert (standing.counter, standing.updated_ms, standing.resets) == (-1000 * size, 9_000_000, 1)
    engine.check("ada", 1000, now_ms=2_000_000)
    assert engine.customer("ada", now_ms=2_000_000).standing.updated_ms == 9_000_000


def test_every_check_that_made_a_document_can_be_read_back_from_it(engine: Engine, send: Send) -> None:
    send("ada", 4, at=1_000)
    engine.tune("ada", Terms(weight=2), 0)
    engine.configure(Rules(Policy(reset_interval=60)))
    (id,) = send("ada", at=2_000)
    document = engine.document(id)
    assert document is not None
    check = document.check
    assert (check.checked_ms, check.counter, check.priority) == (2_000, -3.5, 2)
    assert (check.policy_version, check.terms_version) == (2, 1)


def test_a_known_key_returns_the_first_receipt_and_moves_nothing(engine: Engine) -> None:
    (first,) = engine.submit([keyed("one", "k")], now_ms=0)
    engine.submit([keyed("other", "k2")], now_ms=1)
    before = engine.customer("ada", now_ms=2), engine.changes(None, 100)
    (again,) = engine.submit([keyed("two", "k")], now_ms=2)
    assert again == first
    assert (engine.customer("ada", now_ms=2), engine.changes(None, 100)) == before
    assert engine.document("two") is None


def test_a_key_is_still_known_after_its_document_ended(engine: Engine, take: Take) -> None:
    (first,) = engine.submit([keyed("one", "k")], now_ms=0)
    engine.cancel(["one"])
    assert engine.submit([keyed("two", "k")], now_ms=9) == [first]


def test_a_key_belongs_to_its_customer_alone(engine: Engine) -> None:
    engine.submit([keyed("one", "k"), keyed("two", "k", digest="other", customer="bob")], now_ms=0)
    assert engine.document("two") is not None


def test_the_same_key_with_another_body_is_refused_and_nothing_of_the_batch_happens(engine: Engine) -> None:
    engine.submit([keyed("one", "k")], now_ms=0)
    before = engine.customers("", 10, now_ms=5), engine.changes(None, 100)
    with pytest.raises(KeyConflict, match="'k' of customer 'ada' already belongs to document one"):
        engine.submit([Submission("two", "bob", "extract", "{}"), keyed("three", "k", digest="other")], now_ms=5)
    assert (engine.customers("", 10, now_ms=5), engine.changes(None, 100)) == before
    assert engine.document("two") is None


def test_a_key_twice_in_one_batch_is_one_document(engine: Engine) -> None:
    first, second = engine.submit([keyed("one", "k"), keyed("two", "k")], now_ms=0)
    assert first == second
    assert engine.customer("ada", now_ms=0).waiting == 1


def test_a_key_twice_in_one_batch_with_two_bodies_is_refused_whole(engine: Engine) -> None:
    with pytest.raises(KeyConflict):
        engine.submit([keyed("one", "k"), keyed("two", "k", digest="other")], now_ms=0)
    assert engine.customers("", 10) == []


def test_the_same_key_a_thousand_times_at_once_is_one_document(engine: Engine) -> None:
    receipts: list[object] = []

    def send(thread: int) -> None:
        for n in range(50):
            receipts.extend(engine.submit([keyed(f"{thread}-{n}", "k")], now_ms=0))

    threads = [threading.Thread(target=send, args=(thread,)) for thread in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(receipts) == 1000
    assert len(set(receipts)) == 1
    assert engine.customer("ada").waiting == 1


def test_many_producers_leave_the_counter_where_one_would(engine: Engine) -> None:
    counters: list[int | float] = []

    def send(thread: int) -> None:
        for n in range(60):
            (receipt,) = engine.submit([Submission(f"{thread}-{n}", "ada", "extract", "{}")])
            counters.append(receipt.counter)

    threads = [threading.Thread(target=send, args=(thread,)) for thread in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(counters, reverse=True) == [-n for n in range(600)]


def test_a_document_made_by_a_worker_out_of_another_one_inherits_its_priority_and_is_not_checked(
    engine: Engine, send: Send, take: Take
) -> None:
    ids = send("ada", 9, at=0)
    before = engine.customer("ada", now_ms=500).standing
    made = Submission("page", "ada", "extract", "{}", made_from=ids[8])
    (receipt,) = engine.submit([made], now_ms=500)
    assert (receipt.priority, receipt.counter, receipt.check.checked_ms) == (4, -8, 500)
    assert engine.customer("ada", now_ms=500).standing == before
    assert engine.changes(None, 100)[-1].note == ids[8]
    (claim,) = [claim for claim in take(10, at=500) if claim.id == "page"]
    engine.settle([(claim, Done(cost=9000))], now_ms=501)
    assert engine.customer("ada", now_ms=501).standing == before


@pytest.mark.parametrize("customer", ["ada", "bob"])
def test_a_document_cannot_be_made_from_one_that_its_customer_does_not_have(engine: Engine, send: Send, customer: str) -> None:
    (id,) = send("ada", at=0)
    source = id if customer == "bob" else "nowhere"
    before = engine.changes(None, 100)
    with pytest.raises(Unknown, match=f"no document {source} of customer '{customer}'"):
        engine.submit([Submission("x", "eve", "extract", "{}"), Submission("y", customer, "extract", "{}", made_from=source)])
    assert engine.changes(None, 100) == before


def test_a_delayed_document_is_checked_at_submission_and_served_when_due(engine: Engine, send: Send, take: Take) -> None:
    (late,) = send("ada", at=0, delay_ms=5_000)
    (soon,) = send("ada", at=1)
    document = engine.document(late)
    assert document is not None
    assert (document.state, document.check.checked_ms, document.ready_ms) == ("delayed", 0, 5_000)
    assert engine.customer("ada", now_ms=1).waiting == 2
    assert [claim.id for claim in take(5, at=4_999)] == [soon]
    assert [claim.id for claim in take(5, at=5_000)] == [late]


def test_a_delayed_document_joins_its_lane_by_submission_number(engine: Engine, send: Send, take: Take) -> None:
    (late,) = send("ada", at=0, delay_ms=5_000)
    (soon,) = send("ada", at=1)
    assert [claim.id for claim in take(5, at=6_000)] == [late, soon]


def test_customer_ids_come_back_unchanged(engine: Engine) -> None:
    odd = [
        " ",
        "a" * 200,
        "Å",
        "A\u030a",
        "'; DROP TABLE documents; --",
        "{x}",
        "*",
        "../../etc",
        "\u202eabc",
        "🦊",
        "__proto__",
    ]
    engine.submit([Submission(f"d{n}", customer, "extract", "{}") for n, customer in enumerate(odd)], now_ms=0)
    assert [customer.id for customer in engine.customers("", 100)] == sorted(odd)
    assert {document.customer for document in walk_documents(engine)} == set(odd)


def test_payload_and_result_come_back_as_they_were(engine: Engine, take: Take) -> None:
    payload = '{"path":"faktura żółw.pdf","n":123456789012345678901234567890,"s":"\\u0000"}'
    engine.submit([Submission("one", "ada", "extract", payload)], now_ms=0)
    (claim,) = take()
    body = engine.body("one")
    assert claim.payload == payload
    assert body is not None
    assert (body.payload, body.result) == (payload, None)


def test_reading_is_not_a_check(engine: Engine, send: Send) -> None:
    (id,) = send("ada", at=0)
    before = engine.changes(None, 100)
    for _ in range(5):
        engine.customer("ada", now_ms=10)
        engine.customers("", 10, now_ms=10)
        engine.document(id)
        engine.outlook(id, now_ms=10)
    assert engine.changes(None, 100) == before
    assert engine.check("ada", 1000, now_ms=10).counter == -1


def test_reading_a_customer_shows_the_stored_counter_and_the_priority_a_check_now_would_give(
    engine: Engine, send: Send
) -> None:
    send("ada", 22, at=0)
    customer = engine.customer("ada", now_ms=1_500_000)
    assert (customer.counter, customer.next_priority, customer.resets_in_ms) == (-21, 9, 0)
    customer = engine.customer("ada", now_ms=1_500_001)
    assert (customer.counter, customer.next_priority) == (-21, 1)


def test_a_customer_never_seen_reads_as_before_its_first_check(engine: Engine) -> None:
    customer = engine.customer("unknown", now_ms=0)
    assert (customer.counter, customer.next_priority, customer.waiting, customer.terms_version) == (0, 1, 0, 0)
    assert engine.customers("", 10) == []


@pytest.mark.parametrize("reset", ["idle", "sliding"])
def test_agreement_holds_at_the_bounds(engine: Engine, reset: str) -> None:
    """The floor of the counter times the longest interval exceeds 64 bits; the figures must not."""
    engine.configure(Rules(Policy(reset_interval=2_592_000, reset=reset)))  # type: ignore[arg-type]
    engine.tune("ada", Terms(weight=0.01), 0)
    for n in range(1001):
        check = engine.check("ada", 10_000_000, now_ms=1_000 + n)
    assert check.counter_thousandths == -(10**12)
    assert engine.check("ada", 1, now_ms=2_000 + 1_296_000_001).counter_thousandths == -(10**12)
    assert all(sent <= 10**12 for _, sent in engine.customer("ada", now_ms=0).standing.parts)
