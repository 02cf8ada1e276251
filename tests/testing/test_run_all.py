"""`run_all`: handlers run inline, in dispatch order, by the engine's own rules and in virtual time."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import pytest

from fairlane import BadValue, Fail, Mistake, Queue, Retry, Worker
from fairlane.testing import MemoryQueue, assert_done, assert_failed, run_all, run_all_async
from fairlane.worker import Document, Event, Summary

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def queue() -> Iterator[MemoryQueue]:
    with MemoryQueue(START) as opened:
        yield opened


def send_mail(_: str) -> None:
    raise AssertionError("a test must not send mail")


def mail_once(document: Document) -> str:
    send_mail(document.customer)
    return "sent"


def test_a_handler_runs_in_this_process_and_thread_so_mocks_are_seen(queue: MemoryQueue) -> None:
    receipt = queue.submit("acme", {"page": 1})
    seen: list[Any] = []
    with mock.patch(f"{__name__}.send_mail", side_effect=lambda customer: seen.append(customer)):
        worker = Worker("sqlite:////nowhere/at-all.db")  # a worker's own queue is not opened
        worker.handler()(lambda document: [mail_once(document), os.getpid(), threading.get_ident()])
        summary = run_all(queue, worker)
    assert summary == Summary(done=1)
    assert seen == ["acme"]
    assert queue.result(receipt.id) == ["sent", os.getpid(), threading.get_ident()]


def test_documents_run_in_dispatch_order(queue: MemoryQueue) -> None:
    queue.submit_many("big", [None] * 5)
    queue.submit("small")
    order: list[str] = []
    run_all(queue, lambda document: order.append(f"{document.customer}{document.priority}"))
    assert order == ["big1", "small1", "big1", "big1", "big2", "big2"]


def test_time_stands_still_until_it_is_moved(queue: MemoryQueue) -> None:
    assert queue.now == START
    assert [queue.submit("acme").priority for _ in range(4)] == [1, 1, 1, 2]
    assert queue.advance(timedelta(minutes=25)) == START + timedelta(minutes=25)
    assert queue.submit("acme").counter == -4  # not more than the reset interval
    queue.advance(1500.001)
    assert queue.submit("acme").counter == 0
    with pytest.raises(BadValue, match="by is -1"):
        queue.advance(-1)


def test_delays_retries_and_postponements_happen_and_time_moves_as_needed(queue: MemoryQueue) -> None:
    ran: list[tuple[str, int, int]] = []

    def handle(document: Document) -> None:
        name = document.payload
        ran.append((name, document.attempt, round((queue.now - START).total_seconds())))
        if name == "flaky" and document.attempt == 1:
            raise ConnectionError("no route")
        if name == "asks" and document.attempt == 1:
            raise Retry(after=60, reason="busy")
        if name == "early" and (queue.now - START) < timedelta(hours=1):
            raise Retry(after=timedelta(minutes=40), counted=False)

    for name, delay in (("flaky", 0), ("asks", 0), ("early", 0), ("late", 86_400)):
        queue.submit(name, name, delay=delay)
    assert run_all(queue, handle) == Summary(done=4, retried=2, postponed=2)
    assert ran == [
        ("flaky", 1, 0), ("asks", 1, 0), ("early", 1, 0), ("flaky", 2, 2), ("asks", 2, 60), ("early", 1, 2400),
        ("early", 1, 4800), ("late", 1, 86_400),
    ]  # fmt: skip
    assert queue.now == START + timedelta(days=1)


def test_attempts_are_those_of_the_worker_and_a_spent_document_fails_with_its_traceback(queue: MemoryQueue) -> None:
    worker = Worker()

    @worker.handler("ocr", attempts=2)
    def read(document: Document) -> None:
        document.progress("page 1")
        raise ValueError(f"attempt {document.attempt}")

    id = queue.submit("acme", kind="ocr").id
    assert run_all(queue, worker) == Summary(retried=1, failed=1)
    assert assert_failed(queue, id, "ValueError: attempt 2").startswith("attempt 2 of 2")
    attempts = queue.attempts(id)
    assert [attempt.at for attempt in attempts] == [START, START + timedelta(seconds=2)]
    assert "raise ValueError" in str(attempts[0].traceback)
    progress = queue.progress(id)
    assert progress is not None
    assert progress.progress == "page 1"


def test_documents_made_from_others_run_too(queue: MemoryQueue) -> None:
    worker = Worker()

    @worker.handler("ocr")
    def read(document: Document) -> dict[str, str]:
        receipt = queue.submit(document.customer, {"text": "…"}, kind="classify", made_from=document.id)
        return {"next": receipt.id}

    @worker.handler("classify")
    async def classify(document: Document) -> str:
        await asyncio.to_thread(int)
        return f"an invoice of priority {document.priority}"

    queue.submit_many("acme", [None] * 22, kind="ocr")
    assert run_all(queue, worker).done == 44
    last = next(document.id for document in queue.documents("acme", kind="ocr"))
    assert assert_done(queue, queue.result(last)["next"]) == "an invoice of priority 9"
    assert queue.look("acme").counter == -21  # they were no checks


def test_files_and_results_are_stored(queue: MemoryQueue) -> None:
    def handle(document: Document) -> dict[str, Any]:
        with document.open() as file:
            return document.put_results(text=file.read().decode().upper())

    id = queue.submit("acme", content=b"invoice", name="a.txt", kind="default").id
    assert run_all(queue, handle).done == 1
    assert queue.text(id) == "INVOICE"


def test_what_cannot_run_is_left_and_time_does_not_move_for_it(queue: MemoryQueue) -> None:
    queue.pause("paused")
    queue.submit("paused", delay=60)
    queue.submit("acme", kind="other", delay=60)
    cancelled = queue.submit("acme", delay=60).id
    queue.cancel(cancelled)
    assert run_all(queue, lambda _: None) == Summary()
    assert queue.now == START


def test_limits_of_a_kind_hold_in_virtual_time(queue: MemoryQueue) -> None:
    queue.limit_kind("default", rate=0.1, burst=1)
    queue.submit_many("acme", [None] * 3)
    assert run_all(queue, lambda _: None).done == 3
    assert queue.now == START + timedelta(seconds=20)


def test_a_handler_that_takes_time_moves_the_queue(queue: MemoryQueue) -> None:
    worker, seconds = Worker(), []
    worker.handler()(lambda _: queue.advance(90).isoformat())
    worker.on("finished", lambda event: seconds.append(event.seconds))
    queue.submit("acme")
    run_all(queue, worker)
    assert seconds == [90]


def test_hooks_of_the_worker_are_called(queue: MemoryQueue) -> None:
    worker, events = Worker(), []

    @worker.on("*")
    def note(event: Event) -> None:
        events.append((event.name, event.outcome, event.attempt))

    @worker.handler(attempts=2)
    def handle(document: Document) -> None:
        document.progress(0.5)
        if document.attempt == 1:
            raise OSError

    queue.submit("acme")
    run_all(queue, worker)
    assert events == [
        ("claimed", None, None), ("began", None, 1), ("reported", None, 1), ("raised", None, 1), ("unfinished", "retried", 1),
        ("claimed", None, None), ("began", None, 2), ("reported", None, 2), ("finished", "done", 2),
    ]  # fmt: skip


def test_a_document_that_is_cancelled_while_it_runs_stays_cancelled(queue: MemoryQueue) -> None:
    id = queue.submit("acme").id
    assert run_all(queue, lambda document: queue.cancel(document.id)) == Summary(lost=1)
    assert queue.document(id).state == "cancelled"


def test_a_lease_that_ran_out_elsewhere_is_reclaimed(queue: MemoryQueue) -> None:
    queue.submit("acme")
    queue.engine.claim("a worker that died", 1, 30_000)
    assert run_all(queue, lambda _: None) == Summary()
    queue.advance(31)
    assert run_all(queue, lambda document: document.attempt) == Summary(done=1)


@pytest.mark.parametrize("error", [SystemExit(3), Fail("no"), RuntimeError("no")])
def test_whatever_a_handler_raises_costs_its_document_only(queue: MemoryQueue, error: BaseException) -> None:
    id = queue.submit("acme").id

    def handle(_: Document) -> None:
        raise error

    assert run_all(queue, handle).failed == 1
    assert queue.document(id).state == "failed"


@pytest.mark.parametrize("error", [KeyboardInterrupt, pytest.fail.Exception])
def test_what_ends_a_test_passes_and_the_document_goes_back(queue: MemoryQueue, error: type[BaseException]) -> None:
    id = queue.submit("acme").id

    def handle(_: Document) -> None:
        raise error("stop")

    with pytest.raises(error):
        run_all(queue, handle)
    assert (queue.document(id).state, queue.document(id).attempts) == ("ready", 0)


def test_errors_can_be_raised_where_the_test_is(queue: MemoryQueue) -> None:
    queue.submit("acme", "bug")

    def handle(document: Document) -> None:
        if document.attempt == 1:
            raise Retry(after=1)
        raise KeyError("total")

    with pytest.raises(KeyError, match="total"):
        run_all(queue, handle, raise_errors=True)


def test_what_would_go_on_for_ever_is_a_clear_error(queue: MemoryQueue) -> None:
    id = queue.submit("acme").id

    def postpone(_: Document) -> None:
        raise Retry(after=60, reason="the ledger is closed", counted=False)

    with pytest.raises(Mistake, match=f"ran 100 times.*{id} alone came back 100 times.*the ledger is closed.*runs_max"):
        run_all(queue, postpone, runs_max=100)
    assert queue.document(id).state == "ready"
    queue.cancel(id)
    queue.submit("acme")
    with pytest.raises(Mistake, match="one seems to submit the next"):
        run_all(queue, lambda document: queue.submit(document.customer).id, runs_max=50)


def test_as_many_runs_as_allowed_are_no_error(queue: MemoryQueue) -> None:
    queue.submit_many("acme", [None] * 5)
    assert run_all(queue, lambda _: None, runs_max=5).done == 5


def test_bad_arguments_are_refused(queue: MemoryQueue) -> None:
    with pytest.raises(Mistake, match="no handlers"):
        run_all(queue, Worker())
    with pytest.raises(BadValue, match=r"handlers is \{\}"):
        run_all(queue, {})
    with pytest.raises(BadValue, match="called with one document"):
        run_all(queue, lambda: None)  # type: ignore[misc, arg-type]
    with pytest.raises(BadValue, match="runs_max is 0"):
        run_all(queue, lambda _: None, runs_max=0)
    with Queue("memory://") as real, pytest.raises(BadValue, match=r"queue is .* a MemoryQueue"):
        run_all(real, lambda _: None)  # type: ignore[arg-type]


def test_async_handlers_inside_a_loop_are_awaited(queue: MemoryQueue) -> None:
    async def handle(document: Document) -> int:
        await asyncio.to_thread(int)
        return document.attempt

    async def test() -> tuple[Summary, Any]:
        with pytest.raises(Mistake, match="run_all_async"):
            run_all(queue, handle)
        async_queue = queue.as_async()
        receipt = await async_queue.submit("acme")
        summary = await run_all_async(queue, handle)
        ended = await async_queue.wait(receipt.id)
        result = await async_queue.result(ended.id)
        await async_queue.close()
        return summary, result

    assert asyncio.run(test()) == (Summary(done=1), 1)


def test_waiting_for_what_nobody_processes_is_an_error(queue: MemoryQueue) -> None:
    id = queue.submit("acme").id
    with pytest.raises(Mistake, match="call run_all"):
        queue.wait(id)
    assert queue.wait(id, timeout=5).state == "ready"
    assert queue.now == START + timedelta(seconds=5)
    run_all(queue, lambda _: None)
    assert queue.wait(id).state == "done"


def test_code_that_joins_a_transaction_can_be_tested(queue: MemoryQueue) -> None:
    id = queue.within(object()).submit("acme").id
    assert queue.document(id).customer == "acme"


def test_files_are_gone_when_the_queue_is_closed() -> None:
    queue = MemoryQueue()
    folder = queue.files.location
    assert folder is not None
    queue.submit("acme", content=b"x")
    assert os.listdir(folder)
    queue.close()
    assert not os.path.exists(folder)
