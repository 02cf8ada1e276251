"""Documents on a Ray cluster: order, results, files, crashes, cancellation, time limits, actors with state."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlane import FairlaneError, Queue
from fairlane.contrib.ray import RayExecutor, actor_state
from fairlane.worker import Document, Fail
from tests.docs.snippets import snippet
from tests.worker.conftest import Bench, is_alive, until

pytestmark = pytest.mark.usefixtures("cluster")
Make = Callable[..., RayExecutor]
MODEL = """
import os

class Model:
    def __init__(self, weights):
        self.weights = weights

    def read(self, file):
        return f"{self.weights} {os.getpid()} {file.read().decode()}"
"""


@pytest.fixture
def make() -> Iterator[Make]:
    """Make an executor of two tasks, or another one; it is shut down after the test."""
    made: list[RayExecutor] = []

    def make(**options: Any) -> RayExecutor:
        made.append(RayExecutor(**(options or {"tasks": 2})))
        return made[-1]

    yield make
    for executor in made:
        executor.shutdown()


def note(folder: str, name: str) -> None:
    """Write the process's id into a file of that name."""
    partial = Path(folder, f".{name}")
    partial.write_text(str(os.getpid()))
    partial.rename(Path(folder, name))


def wait(document: Document) -> int:
    """Note the attempt, and wait until the test makes the file `gate`; the first attempt waits for ever."""
    note(document.payload, f"began-{document.attempt}")
    pause = threading.Event()
    while document.attempt == 1 or not Path(document.payload, "gate").exists():
        pause.wait(0.005)
    return document.attempt


def began(folder: Path, attempt: int = 1) -> int:
    """Wait for the beginning of an attempt; returns its process."""
    path = folder / f"began-{attempt}"
    until(path.exists, "the beginning")
    return int(path.read_text())


def ended(pid: int) -> None:
    until(lambda: not is_alive(pid), "the end of the handler's process")


def test_documents_run_in_fair_order_and_only_as_many_as_there_are_tasks(make: Make, bench: Bench, queue: Queue) -> None:
    flood = [receipt.id for receipt in queue.submit_many("flood", range(30))]
    light = queue.submit("light", "letter").id
    worker = bench.worker(executor=make(tasks=1), slots=None)
    worker.handler()(lambda document: os.getpid())
    assert worker.slots == 1
    assert bench.run(worker).done == 31
    order = [str(event.id) for event in bench.emitted("began")]
    assert set(order) == {*flood, light}
    assert order.index(light) < 5
    assert os.getpid() not in {queue.result(id) for id in (*flood, light)}


def test_a_handler_reads_its_file_and_writes_results_reports_and_sets_the_cost(
    make: Make, bench: Bench, queue: Queue, tmp_path: Path
) -> None:
    def handler(document: Document) -> dict[str, Any]:
        with document.open() as file:
            text = file.read().decode()
        document.cost = 3
        document.progress("read")
        note(document.payload, "began-1")
        pause = threading.Event()
        while not Path(document.payload, "gate").exists():
            pause.wait(0.005)
        return {"length": len(text), **document.put_results(text=text.upper())}

    id = queue.submit("acme", str(tmp_path), content=b"dear sir", kind="default").id
    worker = bench.worker(executor=make())
    worker.handler()(handler)
    stop = bench.start(worker)
    began(tmp_path)
    until(lambda: (report := queue.progress(id)) and report.progress == "read", "the report")
    (tmp_path / "gate").touch()
    until(lambda: queue.document(id).state == "done")
    stop()
    assert queue.text(id) == "DEAR SIR"
    result = queue.result(id)
    assert isinstance(result, dict)
    assert (result["length"], queue.document(id).cost) == (8, 3)


def test_what_a_handler_raises_is_kept_with_its_attempt(make: Make, bench: Bench, queue: Queue) -> None:
    def handler(document: Document) -> None:
        if document.payload == "fail":
            raise Fail("it has no pages")
        raise SystemExit("an unreadable page")

    failed, raised = queue.submit("acme", "fail").id, queue.submit("acme", "raise").id
    worker = bench.worker(executor=make())
    worker.handler(attempts=2)(handler)
    summary = bench.run(worker)
    assert (summary.failed, summary.retried) == (2, 1)
    assert queue.document(failed).reason == "it has no pages"
    assert str(queue.document(raised).reason).endswith("SystemExit: an unreadable page")
    assert "in handler\n" in str(queue.attempts(raised)[1].traceback)


@pytest.mark.parametrize("options", [{"tasks": 1}, {"actors": 1}], ids=["task", "actor"])
def test_a_process_that_is_killed_costs_one_attempt(
    make: Make, bench: Bench, queue: Queue, tmp_path: Path, options: dict[str, int]
) -> None:
    id = queue.submit("acme", str(tmp_path)).id
    worker = bench.worker(executor=make(**options), slots=None)
    worker.handler(attempts=2)(wait)
    stop = bench.start(worker)
    os.kill(began(tmp_path), signal.SIGKILL)
    began(tmp_path, attempt=2)
    (tmp_path / "gate").touch()
    until(lambda: queue.document(id).state == "done")
    assert (stop().retried, queue.result(id)) == (1, 2)
    (attempt,) = queue.attempts(id)
    assert attempt.reason == "its process on the Ray cluster died"
    assert "ray.exceptions" in str(attempt.traceback)


@pytest.mark.parametrize("options", [{"tasks": 1}, {"actors": 1}], ids=["task", "actor"])
def test_a_cancelled_document_is_ended_with_its_process_and_its_slot_goes_on(
    make: Make, bench: Bench, queue: Queue, tmp_path: Path, options: dict[str, int]
) -> None:
    id = queue.submit("acme", str(tmp_path)).id
    worker = bench.worker(executor=make(**options), slots=None, lease=1)
    worker.handler()(wait)
    worker.handler("next")(lambda document: "next")
    stop = bench.start(worker)
    pid = began(tmp_path)
    queue.cancel(id)
    ended(pid)
    next_id = queue.submit("acme", kind="next").id
    until(lambda: queue.document(next_id).state == "done")
    summary = stop()
    assert (summary.lost, summary.done, queue.document(id).state) == (1, 1, "cancelled")


@pytest.mark.parametrize("options", [{"tasks": 1}, {"actors": 1}], ids=["task", "actor"])
def test_a_time_limit_ends_the_process(make: Make, bench: Bench, queue: Queue, tmp_path: Path, options: dict[str, int]) -> None:
    id = queue.submit("acme", str(tmp_path)).id
    worker = bench.worker(executor=make(**options), slots=None)
    worker.handler(attempts=1, timeout=0.2)(wait)
    assert bench.run(worker).failed == 1
    ended(began(tmp_path))
    assert str(queue.document(id).reason).endswith("it ran for more than its 0.2 seconds and was stopped")


def test_what_does_not_end_within_the_grace_period_is_released_and_ended(
    make: Make, bench: Bench, queue: Queue, tmp_path: Path
) -> None:
    id = queue.submit("acme", str(tmp_path)).id
    worker = bench.worker(executor=make(), grace=0)
    worker.handler()(wait)
    stop = bench.start(worker)
    pid = began(tmp_path)
    assert stop().released == 1
    ended(pid)
    assert (queue.document(id).state, queue.document(id).attempts) == ("ready", 0)


def test_an_actor_keeps_its_state_until_it_dies(make: Make, bench: Bench, queue: Queue, tmp_path: Path) -> None:
    def load() -> dict[str, int]:
        loads = len(list(tmp_path.glob("load-*"))) + 1
        note(str(tmp_path), f"load-{loads}")
        return {"load": loads, "thread": threading.get_ident(), "documents": 0}

    def handler(document: Document) -> list[int]:
        state = actor_state()
        assert threading.get_ident() == state["thread"]
        state["documents"] += 1
        if document.payload == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        return [state["load"], state["documents"]]

    worker = bench.worker(executor=make(actors=1, num_gpus=1, setup=load), slots=None, resources={"gpu": 1})
    worker.handler(attempts=1, needs={"gpu": 1})(handler)
    first = [receipt.id for receipt in queue.submit_many("acme", range(3))]
    bench.run(worker)
    assert [queue.result(id) for id in first] == [[1, 1], [1, 2], [1, 3]]
    crash = queue.submit("acme", "crash").id
    bench.run(worker)
    assert queue.document(crash).state == "failed"
    then = [receipt.id for receipt in queue.submit_many("acme", range(2))]
    bench.run(worker)
    assert [queue.result(id) for id in then] == [[2, 1], [2, 2]]
    os.kill(int((tmp_path / "load-2").read_text()), signal.SIGKILL)  # while it is idle
    last = queue.submit("acme", 7).id
    bench.run(worker)
    assert (queue.result(last), queue.document(last).attempts) == ([3, 1], 1)


def test_actors_without_a_place_on_the_cluster_hold_up_nothing(make: Make, bench: Bench, queue: Queue) -> None:
    queue.submit_many("acme", range(6))
    worker = bench.worker(executor=make(actors=3, num_gpus=1), slots=None)  # there is one GPU
    worker.handler()(lambda document: None)
    assert bench.run(worker).done == 6


def test_a_setup_that_raises_stops_the_worker_and_costs_no_attempt(make: Make, bench: Bench, queue: Queue) -> None:
    def load() -> None:
        raise OSError("no weights here")

    id = queue.submit("acme").id
    worker = bench.worker(executor=make(actors=1, setup=load), slots=None)
    worker.handler()(lambda document: None)
    with pytest.raises(FairlaneError, match="Ray cannot run its handlers: OSError: no weights here"):
        bench.run(worker)
    assert (queue.document(id).state, queue.document(id).attempts) == ("ready", 0)


def test_a_handler_that_cannot_be_sent_stops_the_worker_too(make: Make, bench: Bench, queue: Queue) -> None:
    lock = threading.Lock()

    def handler(document: Document) -> None:
        with lock:
            return

    id = queue.submit("acme").id
    worker = bench.worker(executor=make())
    worker.handler()(handler)
    with pytest.raises(FairlaneError, match="Ray cannot run its handlers: "):
        bench.run(worker)
    assert queue.document(id).attempts == 0


def test_a_document_that_waits_for_the_cluster_has_its_time_limit_ahead_and_goes_back_at_the_end(
    make: Make, bench: Bench, queue: Queue, tmp_path: Path
) -> None:
    busy = queue.submit("acme", str(tmp_path), kind="busy").id
    worker = bench.worker(executor=make(tasks=2, num_gpus=1), grace=0, lease=1)  # there is one GPU
    worker.handler("busy")(wait)
    worker.handler("waiting", timeout=0.1, attempts=1)(lambda document: None)
    stop = bench.start(worker)
    pid = began(tmp_path)
    waiting = queue.submit("acme", kind="waiting").id
    first = until(lambda: queue.engine.document(waiting).lease_ms)  # type: ignore[union-attr]
    until(lambda: queue.engine.document(waiting).lease_ms > first, "a renewal")  # type: ignore[union-attr]
    assert stop().released == 2
    ended(pid)
    assert [queue.document(id).attempts for id in (busy, waiting)] == [0, 0]


def test_the_example_of_the_docs_joins_a_cluster_and_works_a_queue_off(
    cluster: str, tmp_path: Path, url: str, queue: Queue
) -> None:
    example = snippet("docs/ray.md", "from fairlane import Worker")
    for written, here in (("postgresql://fairlane@db/fairlane", url), ("s3://documents/fairlane", queue.files.location or "")):
        assert example.count(written) == 1
        example = example.replace(written, here)
    (tmp_path / "tasks.py").write_text(example)
    (tmp_path / "ocr_model.py").write_text(MODEL)
    ids = [queue.submit("acme", content=f"page {page}".encode(), kind="ocr").id for page in range(3)]
    command = [sys.executable, "-m", "fairlane", "work", "tasks:worker", "--until-empty"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | {"RAY_ADDRESS": cluster},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    texts = [str(queue.text(id)).split(" ", 2) for id in ids]
    assert [(weights, text) for weights, _, text in texts] == [("weights.pt", f"page {page}") for page in range(3)]
    assert len({pid for _, pid, _ in texts}) == 1  # the model was loaded once, as there is one GPU
    assert "stopped: 3 done" in done.stdout
