"""Handlers: what they get, what their results mean, and which documents a worker takes."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial, wraps
from pathlib import Path
from typing import Any

import pytest

from fairlane import BadValue, Fail, Mistake, Queue, Retry, StoreUnreachable, Worker
from fairlane.worker import Document, Summary
from fairlane.worker.hooks import WorkerEvent

from .conftest import Bench, until, yield_loop

UNKEPT = [({1, 2}, "it must be JSON"), ("x" * 300_000, "at most 262,144 bytes"), (float("nan"), "it must be JSON")]


def both(bench: Bench, function: Any, **options: Any) -> Worker:
    """The same handler as `def` and as `async def`."""
    worker = bench.worker()

    async def on_loop(document: Document) -> Any:
        return function(document)

    worker.handler("child", **options)(function)
    worker.handler("loop", **options)(on_loop)
    return worker


@pytest.mark.parametrize("kind", ["child", "loop"])
def test_the_value_of_a_handler_is_the_result(bench: Bench, queue: Queue, kind: str) -> None:
    def handler(document: Document) -> Any:
        facts = [document.id, document.customer, document.kind, document.priority, document.attempt, document.attempts_max]
        return {"facts": facts, "payload": document.payload}

    id = queue.submit("acme", {"path": "ä.pdf"}, kind=kind).id
    assert bench.run(both(bench, handler, attempts=5)) == Summary(done=1)
    assert queue.result(id) == {"facts": [id, "acme", kind, 1, 1, 5], "payload": {"path": "ä.pdf"}}


def test_a_def_runs_in_a_child_and_an_async_def_in_the_worker(bench: Bench, queue: Queue) -> None:
    ids = [queue.submit("acme", kind=kind).id for kind in ("child", "loop")]
    bench.run(both(bench, lambda document: os.getpid()))
    in_child, on_loop = [queue.result(id) for id in ids]
    assert on_loop == os.getpid() != in_child


def test_a_child_is_used_again(bench: Bench, queue: Queue) -> None:
    ids = [receipt.id for receipt in queue.submit_many("acme", range(50))]
    worker = bench.worker(slots=1)
    worker.handler("default")(lambda document: os.getpid())
    bench.run(worker)
    assert len({queue.result(id) for id in ids}) == 1


@pytest.mark.parametrize("kind", ["child", "loop"])
def test_fail_ends_the_document_with_its_reason(bench: Bench, queue: Queue, kind: str) -> None:
    def handler(document: Document) -> None:
        raise Fail("not a PDF")

    id = queue.submit("acme", kind=kind).id
    assert bench.run(both(bench, handler)) == Summary(failed=1)
    assert (queue.document(id).state, queue.document(id).attempts, queue.document(id).reason) == ("failed", 1, "not a PDF")


@pytest.mark.parametrize("kind", ["child", "loop"])
def test_any_other_exception_costs_an_attempt_and_gives_the_reason(bench: Bench, queue: Queue, kind: str) -> None:
    def handler(document: Document) -> None:
        raise KeyError(f"page {document.attempt} \udcff\0")

    id = queue.submit("acme", kind=kind).id
    assert bench.run(both(bench, handler, attempts=2)) == Summary(failed=1, retried=1)
    reason = queue.document(id).reason
    assert reason is not None
    assert reason.startswith("attempt 2 of 2 failed: KeyError: 'page 2 ")


@pytest.mark.parametrize("kind", ["child", "loop"])
def test_where_a_store_is_stays_out_of_the_reason(bench: Bench, queue: Queue, kind: str) -> None:
    """Customers see reasons; operators see the traceback."""

    def handler(document: Document) -> None:
        raise StoreUnreachable("postgresql://db.internal/queue does not answer")

    id = queue.submit("acme", kind=kind).id
    bench.run(both(bench, handler, attempts=1))
    assert "StoreUnreachable: the queue's store or its files could not be used" in str(queue.document(id).reason)
    assert "db.internal" not in str(queue.document(id)) + str([change.reason for change in queue.changes()])
    assert "db.internal" in str(queue.attempts(id)[0].traceback)


@pytest.mark.parametrize("kind", ["child", "loop"])
def test_retry_asks_for_another_attempt_after_a_while(bench: Bench, queue: Queue, kind: str) -> None:
    def handler(document: Document) -> int:
        if document.attempt == 1:
            raise Retry(after=0.2)
        return document.attempt

    id = queue.submit("acme", kind=kind).id
    assert bench.run(both(bench, handler)) == Summary(done=1, retried=1)
    assert queue.result(id) == 2
    retried, claimed = [change.at for change in queue.changes() if change.event in ("retried", "claimed")][1:]
    assert claimed - retried >= timedelta(milliseconds=200)


@pytest.mark.parametrize("kind", ["child", "loop"])
def test_a_document_can_be_postponed_without_an_attempt_spent(
    bench: Bench, queue: Queue, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    def handler(document: Document) -> int:
        if document.token < 4:
            raise Retry(after=0.05, reason="429 of the archive", counted=False)
        return document.attempt

    id = queue.submit("acme", kind=kind).id
    assert bench.run(both(bench, handler, attempts=1)) == Summary(done=1, postponed=3)
    assert queue.result(id) == 1
    events = [(change.event, change.reason) for change in queue.changes() if change.document == id]
    assert events.count(("postponed", "429 of the archive")) == 3
    assert next((event.outcome, event.reason) for event in bench.emitted("finished")) == ("postponed", "429 of the archive")
    assert (bench.emitted("unfinished"), queue.attempts(id)) == ([], [])
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("kind", ["child", "loop"])
def test_leaving_costs_an_attempt_of_that_document(bench: Bench, queue: Queue, kind: str) -> None:
    def handler(document: Document) -> int:
        if document.attempt == 1:
            raise SystemExit(3)
        return document.attempt

    id = queue.submit("acme", kind=kind).id
    assert bench.run(both(bench, handler)) == Summary(done=1, retried=1)
    assert queue.result(id) == 2
    assert bench.emitted("unfinished")[0].reason == "SystemExit: 3"


@pytest.mark.parametrize("kind", ["child", "loop"])
@pytest.mark.parametrize(("value", "why"), UNKEPT, ids=["set", "large", "nan"])
def test_a_result_that_cannot_be_kept_fails_the_document(bench: Bench, queue: Queue, kind: str, value: Any, why: str) -> None:
    id = queue.submit("acme", kind=kind).id
    assert bench.run(both(bench, lambda document: value)) == Summary(failed=1)
    reason = queue.document(id).reason or ""
    assert "returned what cannot be kept" in reason
    assert why in reason


def test_large_payloads_and_results_travel_whole(bench: Bench, queue: Queue) -> None:
    texts = ["ß" * 100_000, "\udcff" * 40_000, "plain" * 50_000, "\\" * 120_000]
    ids = [queue.submit("acme", text).id for text in texts]
    worker = bench.worker()
    worker.handler("default")(lambda document: document.payload)
    assert bench.run(worker).done == len(texts)
    assert [queue.result(id) for id in ids] == texts


def test_a_cost_that_turned_out_otherwise_moves_the_counter(bench: Bench, queue: Queue) -> None:
    def handler(document: Document) -> None:
        document.cost = 5

    ids = [queue.submit("acme", kind=kind).id for kind in ("child", "loop")]
    bench.run(both(bench, handler))
    assert queue.look("acme").counter == -9  # -1, and four more for each
    assert [queue.document(id).cost for id in ids] == [5, 5]


def test_a_cost_out_of_range_fails_the_document(bench: Bench, queue: Queue) -> None:
    def handler(document: Document) -> None:
        document.cost = -1

    ids = [queue.submit("acme", kind=kind).id for kind in ("child", "loop")]
    assert bench.run(both(bench, handler)) == Summary(failed=2)
    assert all("document.cost is -1" in (queue.document(id).reason or "") for id in ids)


# -- progress and partial results ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["child", "loop"])
def test_progress_and_partial_results_are_seen_while_it_runs(bench: Bench, queue: Queue, kind: str, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    def report(document: Document) -> None:
        document.progress(0.5)
        document.partial({"pages": [1]})
        document.progress("page 2")

    def in_child(document: Document) -> int:
        report(document)
        until(gate.exists)
        return 7

    async def on_loop(document: Document) -> int:
        report(document)
        while not gate.exists():
            await yield_loop()
        return 7

    worker = bench.worker()
    worker.handler("child")(in_child)
    worker.handler("loop")(on_loop)
    id = queue.submit("acme", kind=kind).id
    stop = bench.start(worker)
    until(lambda: queue.progress(id) == (1, "page 2", {"pages": [1]}), "the report")
    gate.touch()
    until(lambda: queue.document(id).state == "done")
    stop()
    assert queue.progress(id) is None  # the result is there
    assert queue.engine.records("progress", "", 10) == []


def test_a_partial_result_of_a_failed_document_stays_until_it_is_purged(bench: Bench, queue: Queue) -> None:
    def handler(document: Document) -> None:
        document.partial([1, 2])
        raise Fail("page 3 is torn")

    id = queue.submit("acme").id
    worker = bench.worker()
    worker.handler("default")(handler)
    bench.run(worker)
    assert queue.progress(id) == (1, None, [1, 2])
    queue.purge(0)
    assert queue.engine.records("progress", "", 10) == []


def test_the_last_of_very_many_reports_is_kept(bench: Bench, queue: Queue) -> None:
    def handler(document: Document) -> None:
        for step in range(100_001):
            document.progress(step / 100_000)
        raise Fail("stop")

    id = queue.submit("acme").id
    worker = bench.worker()
    worker.handler("default")(handler)
    bench.run(worker)
    assert queue.progress(id) == (1, 1.0, None)
    assert len(bench.emitted("reported")) < 1000


@pytest.mark.parametrize("wrong", [2, -0.1, True, "x" * 201, None])
def test_progress_is_a_share_or_a_few_words(bench: Bench, queue: Queue, wrong: Any) -> None:
    worker = bench.worker()
    worker.handler("default", attempts=1)(lambda document: document.progress(wrong))
    id = queue.submit("acme").id
    assert bench.run(worker).failed == 1
    assert "BadValue: progress is" in (queue.document(id).reason or "")


# -- which documents -------------------------------------------------------------------------------------------------


def test_only_kinds_with_a_handler_are_taken(bench: Bench, queue: Queue) -> None:
    known, unknown = queue.submit("acme").id, queue.submit("acme", kind="scan").id
    worker = bench.worker()
    worker.handler("default")(lambda document: None)
    assert bench.run(worker) == Summary(done=1)
    assert queue.document(known).state == "done"
    assert (queue.document(unknown).state, queue.document(unknown).attempts) == ("ready", 0)


def test_a_kind_that_nobody_takes_is_named_when_the_queue_is_empty_for_the_worker(bench: Bench, queue: Queue) -> None:
    queue.submit("acme", kind="scan")
    queue.submit("acme", kind="scna")
    worker, events = bench.worker(), list[WorkerEvent]()
    worker.handler("scan")(lambda document: None)
    worker.on("unserved", events.append)
    assert bench.run(worker) == Summary(done=1)
    assert [event.kind for event in events] == ["scna"]
    assert events[0].reason == "documents of kind scna wait, and no worker takes them; this one takes scan"


def test_until_empty_waits_for_what_is_delayed_and_not_for_the_paused(bench: Bench, queue: Queue) -> None:
    queue.submit("acme", delay=0.3)
    queue.submit("lazy")
    queue.pause("lazy")
    worker = bench.worker()
    worker.handler("default")(lambda document: None)
    assert bench.run(worker) == Summary(done=1)


def test_a_queue_in_memory_is_shared_with_its_worker() -> None:
    queue = Queue("memory://")
    bench = Bench("memory://")
    ids = [queue.submit("acme", n, kind=kind).id for n in range(20) for kind in ("child", "loop")]
    worker = bench.worker(queue=queue, lease=1)
    worker.handler("child")(lambda document: document.payload + 1)

    @worker.handler("loop")
    async def on_loop(document: Document) -> Any:
        await yield_loop()
        return document.payload + 1

    assert bench.run(worker) == Summary(done=40)
    assert [queue.result(id) for id in ids] == [n + 1 for n in range(20) for _ in range(2)]


# -- bad values -------------------------------------------------------------------------------------------


def test_bad_values_are_refused_with_what_to_do(url: str) -> None:
    for options in ({"slots": 0}, {"slots": 1.5}, {"lease": 0.1}, {"grace": -1}, {"memory": 1}, {"backoff": 3}, {"name": ""}):
        with pytest.raises(BadValue, match=next(iter(options))):
            Worker(url, **options)
    with pytest.raises(BadValue, match=r"Worker\(queue\)"):
        Worker("memory://")
    with pytest.raises(BadValue, match="queue is 7"):
        Worker(7)  # type: ignore[arg-type]
    worker = Worker(url)
    refused: tuple[tuple[str, dict[str, Any]], ...] = (("", {}), ("default", {"attempts": 0}), ("default", {"timeout": 0}))
    for kind, options in refused:
        with pytest.raises(BadValue):
            worker.handler(kind, **options)(lambda document: None)
    with pytest.raises(BadValue, match="yields"):
        worker.handler("default")(lambda document: (yield))
    with pytest.raises(BadValue, match=r"write @worker.handler\(\) or"):
        worker.handler(lambda document: None)  # type: ignore[arg-type]
    number: Any = 7
    with pytest.raises(BadValue, match="function"):
        worker.handler("default")(number)
    worker.handler("default")(lambda document: None)
    with pytest.raises(BadValue, match="has no handler yet"):
        worker.handler("default")(lambda document: None)
    with pytest.raises(BadValue, match="one of started"):
        worker.on("nonsense", print)
    with pytest.raises(BadValue, match="after"):
        Retry(after=-1)
    with pytest.raises(BadValue, match="after is None; it must be a time with counted=False"):
        Retry(counted=False)
    with pytest.raises(BadValue, match="after is 0"):
        Retry(after=0, counted=False)
    with pytest.raises(BadValue, match="counted"):
        Retry(after=1, counted=0)  # type: ignore[arg-type]


class Tool:
    """Handlers that are methods, or objects that can be called."""

    def method(self, document: Document) -> None:
        """Take one document."""

    def __call__(self, document: Document, pages: int = 1) -> None:
        """Take one document, and what has a default."""


def logs(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def wrapper(*arguments: Any) -> Any:
        return function(*arguments, "log")

    return wrapper


@pytest.mark.parametrize(
    ("handler", "signature"),
    [
        (lambda: None, r"<lambda>\(\)"),
        (lambda document, context: None, r"<lambda>\(document, context\)"),
        (lambda document, *, pages: None, r"<lambda>\(document, \*, pages\)"),
        (lambda *, document: None, r"<lambda>\(\*, document\)"),
        (Tool.method, r"method\("),
    ],
)
def test_a_handler_that_cannot_be_called_with_one_document_is_refused(
    url: str, handler: Callable[..., Any], signature: str
) -> None:
    with pytest.raises(BadValue, match=f"handler is .{signature}.*can be called with one document"):
        Worker(url).handler("default")(handler)


@pytest.mark.parametrize(
    "handler",
    [
        lambda document, pages=1: None,
        lambda *documents: None,
        lambda document, **options: None,
        Tool().method,
        Tool(),
        partial(lambda pages, document: None, 7),
        logs(lambda document, log: None),
        print,
    ],
)
def test_a_handler_that_can_be_called_with_one_document_is_accepted(url: str, handler: Callable[..., Any]) -> None:
    Worker(url).handler("default")(handler)


def test_a_worker_without_handlers_says_so(url: str) -> None:
    with pytest.raises(Mistake, match="no handlers"):
        Worker(url).run()


def test_run_inside_a_loop_says_what_to_do(url: str) -> None:
    worker = Worker(url)
    worker.handler("default")(lambda document: None)

    async def inside() -> None:
        worker.run()

    with pytest.raises(Mistake, match="to_thread"):
        asyncio.run(inside())


def test_a_bad_url_is_refused_before_anything_starts() -> None:
    worker = Worker("mysql://nowhere")
    worker.handler("default")(lambda document: None)
    with pytest.raises(BadValue, match="mysql"):
        worker.run()


def test_a_worker_runs_once_at_a_time_and_again_afterwards(bench: Bench, queue: Queue) -> None:
    worker = bench.worker()
    worker.handler("default")(lambda document: None)
    stop = bench.start(worker)
    until(lambda: bench.emitted("started"))
    with pytest.raises(Mistake, match="already runs"):
        worker.run()
    stop()
    queue.submit("acme")
    assert bench.run(worker) == Summary(done=1)
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("fairlane")] == []


def test_a_stop_that_comes_early_is_remembered(bench: Bench, queue: Queue) -> None:
    id = queue.submit("acme").id
    worker = bench.worker()
    worker.handler("default")(lambda document: None)
    worker.stop()
    assert bench.run(worker, until_empty=False).lost == 0
    assert queue.document(id).state in ("ready", "done")
    assert bench.run(worker).failed == 0
    assert queue.document(id).state == "done"


def test_hooks_see_everything_in_order_and_do_no_harm(bench: Bench, queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    id = queue.submit("acme").id
    worker = bench.worker(name="tester")
    worker.handler("default")(lambda document: sys.stdout.write("Grüße\n"))

    @worker.on("finished")
    def broken(event: object) -> None:
        raise ValueError("a bad hook")

    with caplog.at_level("DEBUG", "fairlane.worker"):
        assert bench.run(worker).done == 1
    names = [event.name for event in bench.events]
    assert names == ["started", "claimed", "began", "printed", "finished", "stopping", "stopped"]
    finished = bench.emitted("finished")[0]
    assert (finished.worker, finished.id, finished.customer, finished.outcome) == ("tester", id, "acme", "done")
    assert bench.emitted("printed")[0].value == "Grüße"
    assert "a bad hook" in caplog.text
    assert f"document {id} of acme: done after" in caplog.text
