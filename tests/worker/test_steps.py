"""Steps and parts, as handlers see them: a document passes through kinds, is split and joined, and survives its workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from fairlane import BadValue, Fail, Queue, Split, Step, Worker, WrongState
from fairlane.core.document import ENDED, Claim, Continued, Done, Failed
from fairlane.worker.child import decode_outcome, encode_outcome
from fairlane.worker.document import ClaimedDocument, outcome_of_value

from .conftest import Bench, until

STEPS = ["read", "classify", "index"]


def add_steps(worker: Worker, fails: list[str] | None = None) -> None:
    """Three handlers; those that are named fail."""

    def step(kind: str, result: Any) -> None:
        @worker.handler(kind)
        def handle(document: Any) -> Any:
            if kind in (fails or []):
                raise Fail(f"no {kind}")
            return result(document)

    step("read", lambda document: {"text": document.payload["n"]})
    step("classify", lambda document: {"class": document.results["read"]["text"] * 2})
    step("index", lambda document: {"indexed": document.results["classify"]["class"], "before": sorted(document.results)})


@pytest.mark.parametrize("is_async", [False, True])
def test_a_document_passes_through_its_steps(bench: Bench, queue: Queue, is_async: bool) -> None:
    id = queue.submit("acme", {"n": 21}, steps=STEPS, key="k").id
    worker = bench.worker()
    if is_async:

        @worker.handler("read")
        async def read(document: Any) -> Any:
            return {"text": document.payload["n"]}

        @worker.handler("classify")
        async def classify(document: Any) -> Any:
            return {"class": document.results["read"]["text"] * 2}

        @worker.handler("index")
        async def index(document: Any) -> Any:
            return {"indexed": document.results["classify"]["class"], "before": sorted(document.results)}

    else:
        add_steps(worker)
    summary = bench.run(worker)
    assert (summary.done, summary.continued) == (1, 2)
    assert queue.result(id) == {"indexed": 42, "before": ["classify", "read"]}
    assert queue.steps(id) == [
        Step("read", "done", {"text": 21}), Step("classify", "done", {"class": 42}), Step("index", "done", None)
    ]  # fmt: skip
    assert (queue.look("acme").counter, queue.look("acme").done, queue.look("acme").documents) == (0, 1, 1)
    events = [entry.event for entry in queue.history(id)]
    assert events == ["submitted", "claimed", "continued", "claimed", "continued", "claimed", "done"]
    assert queue.payload(id) == {"n": 21}
    assert queue.submit("acme", {"n": 21}, steps=STEPS, key="k").repeated


def test_each_step_may_have_a_worker_of_its_own(bench: Bench, queue: Queue) -> None:
    id = queue.submit("acme", {"n": 1}, steps=STEPS).id
    for kind in STEPS:
        assert [step.state for step in queue.steps(id)].count("to come") == len(STEPS) - 1 - STEPS.index(kind)
        worker = bench.worker()

        @worker.handler(kind)
        def handle(document: Any) -> Any:
            return {"kinds": [*document.results, document.kind]}

        bench.run(worker)
    assert queue.result(id) == {"kinds": STEPS}


def test_a_failed_step_is_retried_and_nothing_before_it(bench: Bench, queue: Queue) -> None:
    id = queue.submit("acme", {"n": 3}, steps=STEPS).id
    worker = bench.worker()
    add_steps(worker, fails=["classify"])
    bench.run(worker)
    document = queue.document(id)
    assert (document.state, document.kind, document.reason) == ("failed", "classify", "no classify")
    assert [step.state for step in queue.steps(id)] == ["done", "failed", "to come"]
    queue.retry(id)
    again = bench.worker()
    add_steps(again)
    assert bench.run(again).continued == 1
    assert queue.result(id)["indexed"] == 6


def test_files_of_every_step_are_found(bench: Bench, queue: Queue) -> None:
    id = queue.submit("acme", content=b"a scan", name="scan.txt", steps=["extract", "index"]).id
    worker = bench.worker()

    @worker.handler("extract")
    def extract(document: Any) -> Any:
        with document.open() as file:
            return document.put_results(text=b"the text of " + file.read(), facts={"pages": 1})

    @worker.handler("index")
    def index(document: Any) -> Any:
        return {"files": sorted(document.results["extract"])}

    bench.run(worker)
    assert queue.text(id) == "the text of a scan"
    assert queue.facts(id) == {"pages": 1}
    assert queue.sweep(grace=0).removed == 0
    assert queue.text(id) == "the text of a scan"


def test_a_document_is_split_and_joined_in_order(bench: Bench, queue: Queue) -> None:
    id = queue.submit("acme", {"count": 5}, kind="report").id
    worker = bench.worker()

    @worker.handler("report")
    def report(document: Any) -> Any:
        if document.parts is None:
            return Split([{"n": n} for n in range(document.payload["count"])], kind="page")
        return {"joined": document.parts}

    @worker.handler("page")
    def page(document: Any) -> Any:
        return [document.part, document.payload["n"], document.results]

    bench.run(worker)
    assert queue.result(id) == {"joined": [[n + 1, n, {}] for n in range(5)]}
    document, parts = queue.document(id), queue.parts(id)
    assert (document.parts, document.parts_done) == (5, 5)
    assert [(part.whole, part.kind, part.state) for part in parts] == [(id, "page", "done")] * 5
    assert queue.look("acme").counter == 0


def test_a_part_that_fails_tells_its_reason_and_a_retry_does_what_is_missing(bench: Bench, queue: Queue) -> None:
    id = queue.submit("acme", {"bad": 3}, kind="report").id
    runs: list[int] = []

    def run(bad: int) -> None:
        worker = bench.worker(slots=1)

        @worker.handler("report")
        async def report(document: Any) -> Any:
            return Split(list(range(5))) if document.part is None and document.parts is None else await work(document)

        async def work(document: Any) -> Any:
            if document.parts is not None:
                return document.parts
            runs.append(document.payload)
            if document.payload == bad:
                raise Fail("corrupt: a page is torn")
            return document.payload

        bench.run(worker)

    run(bad=3)
    failed = queue.document(id)
    part = queue.parts(id)[3]
    assert (failed.state, failed.reason) == ("failed", f"its part {part.id} failed: corrupt: a page is torn")
    with pytest.raises(WrongState, match=f"is a part of {id}; retry that one"):
        queue.retry(part.id)
    queue.retry(id)
    run(bad=-1)
    assert queue.result(id) == [0, 1, 2, 3, 4]
    assert sorted(runs) == [0, 1, 2, 3, 3, 4]


def test_a_cancel_stops_the_parts_that_run(bench: Bench, queue: Queue) -> None:
    id = queue.submit("acme", None, kind="report").id
    worker = bench.worker(lease=1)

    @worker.handler("report")
    def report(document: Any) -> Any:
        if document.part is None:
            return Split([1, 2, 3])
        signal.pause()
        return None

    stop = bench.start(worker)
    until(lambda: sum(part.state == "running" for part in queue.parts(id)) == 2, "two parts")
    assert queue.cancel(id)
    until(lambda: len(bench.emitted("lost")) == 2, "the loss")
    stop()
    assert {part.state for part in queue.parts(id)} == {"cancelled"}


SCRIPT = """
    import os, sys
    from fairlane import Split, Worker

    worker = Worker(sys.argv[1], slots=2, lease=1)

    @worker.handler("report")
    def report(document):
        if document.part is not None:
            return document.payload
        if document.parts is None:
            return Split(list(range(12)))
        return {"sum": sum(document.parts)}

    @worker.handler("index")
    def index(document):
        return {"indexed": document.results["report"]["sum"]}

    worker.on("finished", lambda event: print("finished", flush=True))
    worker.run()
"""


def test_workers_that_are_killed_lose_nothing_and_do_nothing_twice(queue: Queue, url: str, tmp_path: Path) -> None:
    script = tmp_path / "worker.py"
    script.write_text(textwrap.dedent(SCRIPT))
    ids = [queue.submit("acme", None, steps=["report", "index"]).id for _ in range(3)]
    for finished in (1, 4, 9, 3, 14, 200):  # then it is killed; the last one is let be
        with subprocess.Popen(
            [sys.executable, script, url], stdout=subprocess.PIPE, text=True, start_new_session=True
        ) as worker:
            assert worker.stdout is not None
            for _ in range(finished):
                if all(queue.document(id).state in ENDED for id in ids):
                    break
                worker.stdout.readline()
            os.killpg(worker.pid, signal.SIGKILL)
    assert [queue.document(id).state for id in ids] == ["done"] * 3
    assert [queue.result(id) for id in ids] == [{"indexed": 66}] * 3
    endings = [change.document for change in queue.changes() if change.event in ENDED]
    assert len(endings) == len(set(endings)) == 3 * 13
    assert queue.look("acme").waiting == queue.look("acme").running == 0


# -- bad values --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [[], "extract", ["a", "a"], ["a", ""], ["a"] * 21, {"a": 1}, ["a\n", "b"]])
def test_bad_steps_are_refused(queue: Queue, steps: Any) -> None:
    with pytest.raises(BadValue, match="steps"):
        queue.submit("acme", 1, steps=steps)


@pytest.mark.parametrize("slices", [0, -1, 1.5, True, "20", 10_001])
def test_bad_slices_are_refused(queue: Queue, slices: Any) -> None:
    with pytest.raises(BadValue, match="slices"):
        queue.submit("acme", content=b"x", slices=slices)


def test_steps_and_a_kind_must_agree_and_slices_need_a_file(queue: Queue) -> None:
    with pytest.raises(BadValue, match="begins as the first of them, 'a'"):
        queue.submit("acme", 1, kind="b", steps=["a", "b"])
    with pytest.raises(BadValue, match="it has no pages"):
        queue.submit("acme", 1, slices=5)
    with pytest.raises(BadValue, match=r"without the name 'fairlane\.pipeline'"):
        queue.submit("acme", {"fairlane.pipeline": {"parts": 3}})
    assert queue.submit("acme", 1, kind="a", steps=["a"]).priority == 1


@pytest.mark.parametrize("payloads", [[], "ab", range(1001), None, 5])
def test_a_split_has_one_to_a_thousand_parts(payloads: Any) -> None:
    with pytest.raises(BadValue, match="payloads"):
        Split(payloads)


def claimed(payload: str = "1") -> ClaimedDocument:
    return ClaimedDocument(Claim("id", 3, 1, "acme", "a", 1, payload, 1, 3, 0, 1, False), lambda _: None, lambda: None)  # type: ignore[arg-type,return-value]


def test_results_that_are_too_large_together_fail_the_document() -> None:
    pipeline = {"steps": ["x", "y", "a", "b"], "results": [["x", 1, "x" * 600_000], ["y", 2, "y" * 400_000]]}
    document = claimed(json.dumps({"fairlane.pipeline": pipeline, "payload": 1}))
    outcome = outcome_of_value(document, "z" * 200_000)
    assert isinstance(outcome, Failed)
    assert "at most 1,048,576; keep large content in files" in outcome.reason
    assert isinstance(outcome_of_value(document, "z"), Continued)


def test_parts_that_are_too_large_together_fail_the_document() -> None:
    outcome = outcome_of_value(claimed(), Split(["x" * 200_000] * 6))
    assert isinstance(outcome, Failed)
    assert "keep large content in files" in outcome.reason


def test_outcomes_come_back_from_a_child_as_they_were() -> None:
    split = outcome_of_value(claimed(), Split([1, {"n": 2}], kind="page", costs=[2, 3]))
    assert isinstance(split, Continued)
    assert [part.cost for part in split.parts] == [2000, 3000]
    for outcome in (split, Continued("b", "1", (), 500, 3), Done("1")):
        assert decode_outcome(json.loads(json.dumps(encode_outcome(outcome)))) == outcome
