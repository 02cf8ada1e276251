"""`Worker(executor=…)`: `def` handlers on the standard library's threads and processes."""

from __future__ import annotations

import base64
import multiprocessing
import pickle
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from fairlane import BadValue, FairlaneError, Queue, Worker
from fairlane.core.document import Done
from fairlane.encryption.keyring import KEYS_VARIABLE, new_key
from fairlane.worker import Document

from .conftest import Bench, until
from .executor_handlers import crashes, describe, fails, waits


@pytest.fixture
def threads() -> Iterator[Executor]:
    with ThreadPoolExecutor(2) as executor:
        yield executor


@pytest.fixture
def processes() -> Iterator[Executor]:
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("forkserver")) as executor:
        yield executor


@pytest.fixture(params=["threads", "processes"])
def executor(request: pytest.FixtureRequest) -> Executor:
    found: Executor = request.getfixturevalue(request.param)
    return found


def test_handlers_see_and_do_what_they_do_in_children(executor: Executor, bench: Bench, queue: Queue, tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear sir")
    plain = queue.submit("acme", {"page": 7}).id
    filed = queue.submit("acme", path=tmp_path / "letter.txt", kind="default").id
    worker = bench.worker(executor=executor)
    worker.handler()(describe)
    assert bench.run(worker).done == 2
    seen = queue.result(plain)
    assert isinstance(seen, dict)
    assert (seen["payload"], seen["attempt"]) == ({"page": 7}, 1)
    assert queue.text(filed) == "DEAR SIR"
    assert queue.document(plain).cost == 2


def test_what_a_handler_raises_is_kept_with_its_attempt(executor: Executor, bench: Bench, queue: Queue) -> None:
    failed, raised = queue.submit("acme", "fail").id, queue.submit("acme", "raise").id
    worker = bench.worker(executor=executor)
    worker.handler(attempts=2)(fails)
    summary = bench.run(worker)
    assert (summary.failed, summary.retried) == (2, 1)
    assert queue.document(failed).reason == "it has no pages"
    assert str(queue.document(raised).reason).endswith("failed: ValueError: an unreadable page")
    assert [attempt.attempt for attempt in queue.attempts(raised)] == [1, 2]
    assert "in fails\n" in str(queue.attempts(raised)[0].traceback)


def test_only_as_many_are_claimed_as_there_are_slots(threads: Executor, bench: Bench, queue: Queue, tmp_path: Path) -> None:
    ids = [receipt.id for receipt in queue.submit_many("acme", [str(tmp_path)] * 5)]
    worker = bench.worker(executor=threads)
    worker.handler()(waits)
    stop = bench.start(worker)
    until(lambda: len(list(tmp_path.glob("began-*"))) == 2, "the start of two")
    assert [queue.document(id).state for id in ids] == ["running"] * 2 + ["ready"] * 3
    (tmp_path / "gate").touch()
    until(lambda: queue.look("acme").done == 5, "the end of all")
    assert stop().done == 5


def test_progress_of_a_thread_is_seen_while_it_runs(threads: Executor, bench: Bench, queue: Queue) -> None:
    go_on = threading.Event()

    def handler(document: Document) -> None:
        document.progress("page 3 of 9")
        go_on.wait()

    id = queue.submit("acme").id
    worker = bench.worker(executor=threads)
    worker.handler()(handler)
    stop = bench.start(worker)
    until(lambda: (report := queue.progress(id)) and report.progress == "page 3 of 9", "the report")
    go_on.set()
    until(lambda: queue.document(id).state == "done")
    stop()


def test_a_time_limit_begins_with_the_call_not_with_its_wait_for_a_thread(bench: Bench, queue: Queue) -> None:
    go_on, running = threading.Event(), threading.Barrier(2)

    def occupy() -> None:
        running.wait()
        go_on.wait()

    id = queue.submit("acme").id
    with ThreadPoolExecutor(1) as executor, ExitStack() as stack:
        stack.callback(go_on.set)
        executor.submit(occupy)
        running.wait()
        worker = bench.worker(executor=executor, slots=1, lease=1)
        worker.handler(timeout=0.3, attempts=1)(lambda document: "in time")
        stop = bench.start(worker)
        first = until(lambda: queue.engine.document(id).lease_ms)  # type: ignore[union-attr]
        until(lambda: queue.engine.document(id).lease_ms > first, "a renewal")  # type: ignore[union-attr]
        until(lambda: queue.engine.now() > first, "more than the time limit")
        go_on.set()
        until(lambda: queue.document(id).state == "done")
        stop()


def test_a_call_that_cannot_be_stopped_ends_its_document_and_keeps_its_slot(bench: Bench, queue: Queue, tmp_path: Path) -> None:
    slow, next_one = (queue.submit("acme", str(tmp_path), kind=kind).id for kind in ("slow", "quick"))
    with ThreadPoolExecutor(1) as executor, ExitStack() as stack:
        stack.callback((tmp_path / "gate").touch)
        worker = bench.worker(executor=executor, slots=1)
        worker.handler("slow", timeout=0.1, attempts=1)(waits)
        worker.handler("quick")(lambda document: None)
        stop = bench.start(worker)
        until(lambda: queue.document(slow).state == "failed")
        assert "ran for more than its 0.1 seconds" in str(queue.document(slow).reason)
        assert queue.document(next_one).state == "ready"
        (tmp_path / "gate").touch()
        until(lambda: queue.document(next_one).state == "done")
        summary = stop()
    assert (summary.failed, summary.done) == (1, 1)
    assert queue.document(slow).state == "failed"  # what it returned in the end came too late


def test_a_cancelled_document_stays_cancelled(threads: Executor, bench: Bench, queue: Queue, tmp_path: Path) -> None:
    id = queue.submit("acme", str(tmp_path)).id
    worker = bench.worker(executor=threads, lease=1)
    worker.handler()(waits)
    stop = bench.start(worker)
    until(lambda: list(tmp_path.glob("began-*")))
    queue.cancel(id)
    until(lambda: bench.emitted("lost"))
    (tmp_path / "gate").touch()
    assert stop().lost == 1
    assert queue.document(id).state == "cancelled"


def test_what_does_not_end_within_the_grace_period_is_released(
    threads: Executor, bench: Bench, queue: Queue, tmp_path: Path
) -> None:
    id = queue.submit("acme", str(tmp_path)).id
    worker = bench.worker(executor=threads, grace=0)
    worker.handler()(waits)
    stop = bench.start(worker)
    until(lambda: list(tmp_path.glob("began-*")))
    assert stop().released == 1
    assert (queue.document(id).state, queue.document(id).attempts) == ("ready", 0)
    (tmp_path / "gate").touch()  # for the thread, which the executor waits for


def test_a_dead_process_breaks_the_pool_and_stops_the_worker(processes: Executor, bench: Bench, queue: Queue) -> None:
    crashed, waiting = queue.submit("acme").id, queue.submit("acme", delay=3600).id
    worker = bench.worker(executor=processes)
    worker.handler(attempts=2)(crashes)
    with pytest.raises(FairlaneError, match="its executor broke \\(BrokenProcessPool: "):
        bench.run(worker, until_empty=False)
    assert (queue.document(crashed).state, queue.document(crashed).attempts) == ("ready", 1)
    with pytest.raises(FairlaneError, match="its executor takes no documents \\(BrokenProcessPool: "):
        bench.run(worker, until_empty=False)
    assert queue.document(crashed).attempts == 1  # it did not begin
    assert queue.document(waiting).attempts == 0


class ShutDown(ThreadPoolExecutor):
    """An executor of one thread that does not come to the call, and is shut down."""

    def __init__(self) -> None:
        super().__init__(1)
        self.go_on = threading.Event()
        super().submit(self.go_on.wait)

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future = super().submit(call, *args, **kwargs)
        self.shutdown(wait=False, cancel_futures=True)
        return future


def test_an_executor_that_is_shut_down_stops_the_worker_and_costs_no_attempt(bench: Bench, queue: Queue) -> None:
    id = queue.submit("acme").id
    executor = ShutDown()
    worker = bench.worker(executor=executor)
    worker.handler()(describe)
    try:
        with pytest.raises(FairlaneError, match="its executor was shut down"):
            bench.run(worker)
    finally:
        executor.go_on.set()
    assert (queue.document(id).state, queue.document(id).attempts) == ("ready", 0)


def test_a_call_that_cannot_be_sent_costs_an_attempt(processes: Executor, bench: Bench, queue: Queue) -> None:
    id = queue.submit("acme").id
    worker = bench.worker(executor=processes)
    worker.handler(attempts=1)(lambda document: None)  # cannot be pickled
    assert bench.run(worker).failed == 1
    assert "its executor lost it: " in str(queue.document(id).reason)
    assert "pickle" in str(queue.attempts(id)[0].traceback)


def test_async_handlers_stay_on_the_loop(threads: Executor, bench: Bench, queue: Queue) -> None:
    names: dict[str, str] = {}

    def in_thread(document: Document) -> None:
        names["def"] = threading.current_thread().name

    async def on_loop(document: Document) -> None:
        names["async def"] = threading.current_thread().name

    queue.submit("acme", kind="def")
    queue.submit("acme", kind="async")
    worker = bench.worker(executor=threads)
    worker.handler("def")(in_thread)
    worker.handler("async")(on_loop)
    assert bench.run(worker).done == 2
    assert names["def"].startswith("ThreadPoolExecutor")
    assert names["async def"] == threading.current_thread().name


def test_a_queue_in_memory_has_threads_too(threads: Executor, bench: Bench, tmp_path: Path) -> None:
    with Queue("memory://", blobs=str(tmp_path / "files")) as queue:
        id = queue.submit("acme", content=b"dear sir", kind="default").id
        worker = bench.worker(queue=queue, executor=threads)
        worker.handler()(describe)
        assert bench.run(worker).done == 1
        assert queue.text(id) == "DEAR SIR"


def test_without_storage_for_files_the_rest_works(bench: Bench) -> None:
    with Queue("memory://") as queue, ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("forkserver")) as executor:
        id = queue.submit("acme").id
        worker = bench.worker(queue=queue, executor=executor, slots=1)
        worker.handler()(describe)
        assert bench.run(worker).done == 1
        assert queue.document(id).state == "done"


class Pickling(ThreadPoolExecutor):
    """An executor that keeps what another process would get."""

    slots = 1
    sent = b""

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.sent = pickle.dumps(call)
        return super().submit(call, *args, **kwargs)


def test_neither_the_url_of_the_store_nor_a_key_crosses(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = new_key()
    monkeypatch.setenv(KEYS_VARIABLE, key)
    url, blobs = f"sqlite:///{tmp_path}/store/queue.db", tmp_path / "files"
    (tmp_path / "store").mkdir()
    with Queue(url, blobs=str(blobs)) as queue, Pickling(1) as executor:
        id = queue.submit("acme", content=b"dear sir", kind="default").id
        worker = bench.worker(queue=queue, executor=executor, slots=None)
        worker.handler()(describe)
        assert bench.run(worker).done == 1
        assert str(blobs).encode() in executor.sent
        assert not [secret for secret in (url, "queue.db", key) if secret.encode() in executor.sent]
        assert base64.b64decode(key) not in executor.sent
        answer = pickle.loads(executor.sent)()  # elsewhere, with the key of that environment
        assert isinstance(answer.outcome, Done)
        assert queue.text(id) == "DEAR SIR"


class WithSlots(ThreadPoolExecutor):
    """An executor that says how many calls it runs at once."""

    slots = 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"executor": "threads"}, "one of concurrent.futures, a RayExecutor, or another object with submit"),
        ({"executor": ThreadPoolExecutor(8)}, "as many as the executor has threads or processes"),
        ({"executor": WithSlots(3), "slots": 4}, "at most 3, as the executor runs that many at once"),
        ({"executor": ThreadPoolExecutor(8), "slots": 0}, "a whole number from 1 to 256"),
    ],
)
def test_wrong_values_are_refused_with_what_to_do(url: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(BadValue, match=words):
        Worker(url, **options)


def test_slots_are_those_of_the_executor(url: str) -> None:
    executor = WithSlots(3)
    assert Worker(url, executor=executor).slots == 3
    assert Worker(url, executor=executor, slots=2).slots == 2
    assert Worker(url).slots == 4
