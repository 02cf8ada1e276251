"""Limits of customers: what fits is taken, what does not changes nothing, and what is kept is counted exactly."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from fairlane.core.document import Done, Failed, Released, Submission
from fairlane.core.errors import LimitReached, QueueFull, QuotaFull, RetriesSpent, TooManyDescendants
from fairlane.core.policy import CustomerLimits, Terms
from fairlane.engine import Engine, open_engine
from fairlane.engine.protocol import DocumentFilter
from fairlane.engine.walk import walk_documents

from .conftest import Send, Take

PAYLOAD_BYTES = len('{"n":1}')


def limit(engine: Engine, **limits: int) -> None:
    """Limit everybody, and leave the other limits out."""
    engine.configure(replace(engine.rules(), limits=CustomerLimits(**limits)), now_ms=0)


def tune(engine: Engine, customer: str, **limits: int) -> None:
    engine.tune(customer, Terms(limits=CustomerLimits(**limits)), engine.customer(customer).terms_version, now_ms=0)


def observe(engine: Engine) -> Any:
    """Everything that a refused call could have changed."""
    return engine.customers("", 100, now_ms=0), list(walk_documents(engine)), engine.changes(None, 1000), engine.rules()


def refused(engine: Engine, error: type[LimitReached], submissions: list[Submission]) -> LimitReached:
    """Submit what does not fit: nothing changes."""
    before = observe(engine)
    with pytest.raises(error) as caught:
        engine.submit(submissions, now_ms=0)
    assert observe(engine) == before
    return caught.value


def submission(id: str, customer: str = "ada", **fields: Any) -> Submission:
    return Submission(id, customer, "extract", '{"n":1}', **fields)


# -- documents that wait -----------------------------------------------------------------------------------------------


def test_a_queue_has_limits_from_the_start(engine: Engine) -> None:
    assert engine.rules().limits == CustomerLimits(100_000, 10_000, None, None, 3)
    assert engine.customer("ada").limits == engine.rules().limits


def test_as_many_may_wait_as_the_limit_says_and_no_more(engine: Engine, send: Send, take: Take) -> None:
    limit(engine, waiting_max=5)
    send("ada", 3)
    error = refused(engine, QueueFull, [submission(f"x{n}") for n in range(3)])
    assert (error.limit, error.used, error.adding, error.most) == ("waiting_max", 3, 3, 5)
    assert str(error) == (
        "customer 'ada' has 3 of at most 5 documents waiting (waiting_max), so 3 more cannot be taken; submit again when some "
        "are done, or have an operator raise the limit"
    )
    send("ada", 2)
    refused(engine, QueueFull, [submission("y")])
    send("bob", 5)
    take(1)  # one of them runs: it does not wait
    assert engine.customer("ada").waiting == 4
    send("ada")
    refused(engine, QueueFull, [submission("z")])


def test_delayed_documents_wait_too_and_running_ones_come_back_whatever_the_limit(
    engine: Engine, send: Send, take: Take
) -> None:
    limit(engine, waiting_max=2)
    send("ada")
    send("ada", delay_ms=60_000)
    refused(engine, QueueFull, [submission("x")])
    (claim,) = take(9)
    send("ada")
    assert engine.settle([(claim, Released())], now_ms=0) == []  # nothing that was accepted is lost
    assert engine.customer("ada", now_ms=0).waiting == 3
    refused(engine, QueueFull, [submission("y")])


def test_all_of_a_batch_fit_or_none_and_only_new_documents_count(engine: Engine) -> None:
    limit(engine, waiting_max=3)
    (first,) = engine.submit([submission("a", key="k", digest="d")], now_ms=0)
    batch = [
        submission("b", key="k", digest="d"),
        submission("c", key="m", digest="d"),
        submission("d", key="m", digest="d"),
        submission("e"),
    ]
    receipts = engine.submit(batch, now_ms=0)  # a key that is known, and one that comes twice: two are new
    assert receipts[0] == first
    assert receipts[1] == receipts[2]
    assert engine.customer("ada").waiting == 3
    assert engine.submit([submission("f", key="k", digest="d")], now_ms=0) == [first]  # although no more may wait
    refused(engine, QueueFull, [submission("g", key="k", digest="d"), submission("h")])


def test_one_customer_at_its_limit_does_not_let_part_of_a_batch_in(engine: Engine) -> None:
    limit(engine, waiting_max=2)
    error = refused(engine, QueueFull, [submission("b", "bob"), submission("a1"), submission("a2"), submission("a3")])
    assert "'ada'" in str(error)
    assert engine.customers("", 9) == []


def test_a_customer_may_have_limits_of_its_own(engine: Engine, send: Send) -> None:
    limit(engine, waiting_max=2, documents_max=50)
    tune(engine, "ada", waiting_max=4, bytes_max=1000)
    assert engine.customer("ada").limits == CustomerLimits(4, None, 50, 1000)
    send("ada", 4)
    refused(engine, QueueFull, [submission("a")])
    send("bob", 2)
    refused(engine, QueueFull, [submission("b", "bob")])
    tune(engine, "ada")
    refused(engine, QueueFull, [submission("a")])
    limit(engine)
    send("ada", 9)
    tune(engine, "ada", waiting_max=0)  # nothing more is taken
    refused(engine, QueueFull, [submission("a")])


def test_a_lower_limit_removes_nothing(engine: Engine, send: Send, take: Take) -> None:
    send("ada", 6)
    limit(engine, waiting_max=2)
    refused(engine, QueueFull, [submission("a")])
    assert len(take(9)) == 6
    send("ada", 2)


def test_many_that_submit_at_once_do_not_exceed_the_limit(url: str, engine: Engine) -> None:
    """Exactly as many are taken as may wait, however the calls fall together."""
    limit(engine, waiting_max=25)
    engines = [engine, *([] if url == "memory://" else [open_engine(url) for _ in range(3)])]
    taken: list[str] = []

    def submit(thread: int) -> None:
        for number in range(20):
            batch = [submission(f"{thread}-{number}-{index}") for index in range(1 + number % 3)]
            with suppress(QueueFull):
                taken.extend(receipt.id for receipt in engines[thread % len(engines)].submit(batch))

    threads = [threading.Thread(target=submit, args=(thread,)) for thread in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert engine.customer("ada").waiting == len(taken) == 25
    assert {document.id for document in walk_documents(engine)} == set(taken)
    for other in engines[1:]:
        other.close()


# -- what comes out of documents ---------------------------------------------------------------------------------------


def inside(id: str, source: str, **fields: Any) -> Submission:
    return submission(id, parent=source, **fields)


def test_members_of_members_count_for_the_first_document(engine: Engine, send: Send) -> None:
    limit(engine, descendants_max=4)
    (root, other) = send("ada", 2)
    engine.submit([inside("a", root), inside("b", root)], now_ms=0)
    engine.submit([inside("aa", "a"), submission("made", made_from="b")], now_ms=0)
    error = refused(engine, TooManyDescendants, [inside("aaa", "aa")])
    assert (error.limit, error.used, error.adding, error.most) == ("descendants_max", 4, 1, 4)
    assert "1 more documents cannot come out of document aa: of its family" in str(error)
    refused(engine, TooManyDescendants, [submission("fine"), inside("no", root)])
    engine.submit([inside(f"o{n}", other) for n in range(4)], now_ms=0)  # another family
    refused(engine, TooManyDescendants, [inside("o5", "o0"), inside("c", "a")])


def test_what_comes_out_of_a_document_has_a_check_unless_it_is_made_from_it(engine: Engine, send: Send) -> None:
    (root,) = send("ada")
    receipts = engine.submit([inside("a", root), submission("b", made_from=root)], now_ms=0)
    assert [receipt.counter for receipt in receipts] == [-1, 0]
    assert engine.customer("ada").counter == -1


def test_a_family_is_counted_after_its_first_document_is_gone(engine: Engine, send: Send, take: Take) -> None:
    limit(engine, descendants_max=3)
    (root,) = send("ada")
    engine.submit([inside("a", root), inside("b", root)], now_ms=0)
    claim = next(claim for claim in take(9) if claim.id == root)
    engine.settle([(claim, Done())], now_ms=0)
    engine.purge(0, 100, now_ms=1)
    assert engine.document(root) is None
    engine.submit([inside("c", "a")], now_ms=1)
    refused(engine, TooManyDescendants, [inside("d", "b")])


def test_a_known_key_is_no_new_descendant(engine: Engine, send: Send) -> None:
    limit(engine, descendants_max=2)
    (root,) = send("ada")
    batch = [inside("a", root, key="1", digest="d"), inside("b", root, key="2", digest="d")]
    first = engine.submit(batch, now_ms=0)
    again = [repeated._replace(id=f"again-{repeated.id}") for repeated in batch]
    assert engine.submit(again, now_ms=0) == first
    refused(engine, TooManyDescendants, [*again, inside("c", root, key="3", digest="d")])


# -- what is kept ------------------------------------------------------------------------------------------------------


def kept(engine: Engine, customer: str = "ada") -> tuple[int, int]:
    """The counts of a customer, which must be those of its documents."""
    documents = list(walk_documents(engine, DocumentFilter(customer=customer)))
    stored = engine.customer(customer)
    assert (stored.documents, stored.bytes) == (len(documents), sum(document.bytes for document in documents))
    return stored.documents, stored.bytes


def test_what_a_customer_keeps_is_counted_through_the_life_of_its_documents(engine: Engine, send: Send, take: Take) -> None:
    send("ada", 2, file_bytes=1000)
    assert kept(engine) == (2, 2 * PAYLOAD_BYTES + 2000)
    first, second = take(2)
    engine.settle([(first, Done('"żółć"', None, 500)), (second, Failed("corrupt"))], now_ms=0)
    assert kept(engine) == (2, 2 * PAYLOAD_BYTES + 2000 + len('"żółć"'.encode()) + 500)
    stored = engine.document(first.id)
    assert stored is not None
    assert stored.bytes == PAYLOAD_BYTES + 1000 + 10 + 500
    engine.retry(second.id, now_ms=0)
    engine.purge(0, 100, now_ms=1)
    assert kept(engine) == (1, PAYLOAD_BYTES + 1000)
    assert engine.customer("ada").done == 1  # which counts what was purged, too
    engine.forget("ada", 100, now_ms=1)
    assert kept(engine) == (0, 0)


def test_a_quota_of_documents_counts_those_that_have_ended(engine: Engine, send: Send, take: Take) -> None:
    limit(engine, documents_max=3)
    send("ada", 3)
    engine.settle([(claim, Done()) for claim in take(3)], now_ms=0)
    error = refused(engine, QuotaFull, [submission("a")])
    assert (error.limit, error.used, error.adding, error.most) == ("documents_max", 3, 1, 3)
    engine.purge(0, 1, now_ms=1)
    while engine.purge(0, 1, now_ms=1).changes:
        pass
    engine.submit([submission("b")], now_ms=1)


def test_a_quota_of_bytes_counts_payloads_files_and_results(engine: Engine, send: Send, take: Take) -> None:
    limit(engine, bytes_max=1000)
    send("ada", file_bytes=900)
    error = refused(engine, QuotaFull, [submission("a", file_bytes=100)])
    assert (error.limit, error.used, error.adding, error.most) == ("bytes_max", 907, 107, 1000)
    send("ada", file_bytes=1000 - 907 - 7)  # exactly
    refused(engine, QuotaFull, [submission("b")])
    refused(engine, QuotaFull, [submission("big", "bob", file_bytes=994)])


def test_a_result_is_kept_beyond_the_quota_and_the_next_document_is_refused(engine: Engine, send: Send, take: Take) -> None:
    limit(engine, bytes_max=100)
    send("ada")
    (claim,) = take()
    assert engine.settle([(claim, Done('"' + 200 * "x" + '"', None, 5000))], now_ms=0) == []
    stored = engine.document(claim.id)
    assert stored is not None
    assert stored.state == "done"
    assert kept(engine) == (1, PAYLOAD_BYTES + 202 + 5000)
    refused(engine, QuotaFull, [submission("a")])


def test_a_batch_is_within_a_quota_as_a_whole_or_not_at_all(engine: Engine) -> None:
    limit(engine, documents_max=10, bytes_max=50)
    error = refused(engine, QuotaFull, [submission(f"a{n}") for n in range(8)])
    assert (error.limit, error.adding) == ("bytes_max", 56)
    engine.submit([submission(f"b{n}") for n in range(7)], now_ms=0)
    assert kept(engine) == (7, 49)


# -- retries by a customer ---------------------------------------------------------------------------------------------


def fail(engine: Engine, take: Take, count: int = 1, *, at: int = 0) -> list[str]:
    claims = take(count, at=at)
    engine.settle([(claim, Failed("corrupt")) for claim in claims], now_ms=at)
    return [claim.id for claim in claims]


def test_a_customer_that_retries_is_checked_as_for_a_new_document(engine: Engine, send: Send, take: Take) -> None:
    """At a counter of -60, a document went back to priority 1 as often as its customer liked."""
    send("ada", 61)
    (id,) = fail(engine, take)
    before = engine.document(id)
    assert before is not None
    assert (before.priority, before.check.counter) == (1, 0)
    assert engine.retry(id, as_customer=True, now_ms=7000)
    stored, customer = engine.document(id), engine.customer("ada", now_ms=7000)
    assert stored is not None
    assert (stored.state, stored.priority, stored.check.counter, stored.retries) == ("ready", 9, -61, 1)
    assert (stored.submitted_ms, stored.check.checked_ms, stored.ready_ms) == (0, 7000, 7000)
    assert (customer.counter, customer.standing.updated_ms, customer.waiting, customer.failed) == (-61, 7000, 61, 0)
    line = engine.changes(None, 1000)[-1]
    assert (line.what, line.document, line.at_ms) == ("revived", id, 7000)
    assert line.note == (
        '{"cost": 1000, "counter": -61000, "priority": 9, "policy": 1, "terms": 0, '
        '"before": {"counter": 0, "priority": 1, "policy": 1, "terms": 0}}'
    )


def test_a_retried_document_joins_the_lane_of_its_new_priority_by_its_number(engine: Engine, send: Send, take: Take) -> None:
    engine.configure(replace(engine.rules(), dispatch="strict"), now_ms=0)
    send("ada", 30)
    (id,) = fail(engine, take)
    assert engine.retry(id, as_customer=True, now_ms=0)
    claims = take(40)
    assert [claim.priority for claim in claims] == sorted(claim.priority for claim in claims)
    nines = [claim.number for claim in claims if claim.priority == 9]
    assert nines[0] == 1  # submitted before all of them
    assert nines == sorted(nines)


def test_an_operators_retry_keeps_the_priority_and_counts_for_nobody(engine: Engine, send: Send, take: Take) -> None:
    limit(engine, retries_max=0)
    send("ada", 61)
    (id,) = fail(engine, take)
    before = engine.customer("ada", now_ms=0)
    assert engine.retry(id, now_ms=5)
    stored = engine.document(id)
    assert stored is not None
    assert (stored.priority, stored.retries, stored.check.checked_ms) == (1, 0, 0)
    assert engine.customer("ada", now_ms=0).standing == before.standing
    assert engine.changes(None, 1000)[-1].note is None


def test_a_customer_may_retry_a_document_so_often(engine: Engine, send: Send, take: Take) -> None:
    limit(engine, retries_max=2)
    send("ada")
    for now in (0, 1):
        (id,) = fail(engine, take, at=now)
        assert engine.retry(id, as_customer=True, now_ms=now)
    (id,) = fail(engine, take, at=2)
    before = observe(engine)
    with pytest.raises(RetriesSpent) as caught:
        engine.retry(id, as_customer=True, now_ms=2)
    assert str(caught.value) == (
        f"document {id} was retried by its customer 2 times of at most 2 (retries_max); submit it again as a new document, or "
        "have an operator retry it"
    )
    assert observe(engine) == before
    assert engine.retry(id, now_ms=2)  # an operator


def test_a_retry_waits_and_is_refused_when_too_many_do(engine: Engine, send: Send, take: Take) -> None:
    limit(engine, waiting_max=2, documents_max=3)
    send("ada", 2)
    (id,) = fail(engine, take)
    send("ada")
    before = observe(engine)
    for as_customer in (True, False):
        with pytest.raises(QueueFull):
            engine.retry(id, as_customer=as_customer, now_ms=0)
    assert observe(engine) == before
    take()
    assert engine.retry(id, as_customer=True, now_ms=0)  # it is kept already: no quota is in its way
    refused(engine, QueueFull, [submission("x")])


def test_a_cost_that_is_corrected_after_a_retry_belongs_to_the_new_check(engine: Engine, send: Send, take: Take) -> None:
    engine.tune("ada", Terms(weight=2), 0, now_ms=0)
    send("ada", cost=4000)
    (id,) = fail(engine, take)
    engine.tune("ada", Terms(), 1, now_ms=0)
    assert engine.retry(id, as_customer=True, now_ms=0)
    assert engine.customer("ada").counter == -1 - 4  # half of 4 less the first step, then 4
    (claim,) = take()
    engine.settle([(claim, Done(cost=1000))], now_ms=0)
    assert engine.customer("ada").counter == -2


def test_a_document_that_inherited_its_priority_gets_a_check_when_its_customer_retries_it(
    engine: Engine, send: Send, take: Take
) -> None:
    (root,) = send("ada", at=0)
    engine.submit([submission("made", made_from=root)], now_ms=0)
    take()
    (id,) = fail(engine, take)
    assert id == "made"
    assert engine.retry(id, as_customer=True, now_ms=0)
    assert engine.customer("ada").counter == -1
    (claim,) = take()
    engine.settle([(claim, Done(cost=3000))], now_ms=0)
    assert engine.customer("ada").counter == -3


def test_what_is_kept_follows_a_document_to_its_new_lane(engine: Engine, send: Send, take: Take) -> None:
    send("ada", 30, file_bytes=50)
    (id,) = fail(engine, take)
    engine.retry(id, as_customer=True, now_ms=0)
    assert kept(engine) == (30, 30 * (PAYLOAD_BYTES + 50))
    engine.cancel([id], now_ms=0)
    engine.purge(0, 1000, now_ms=1)
    assert kept(engine) == (29, 29 * (PAYLOAD_BYTES + 50))
