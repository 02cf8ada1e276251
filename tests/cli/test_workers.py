"""`fairlane workers`: who works on a queue, what runs where, and draining."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fairlane import Queue
from fairlane.queue.workers import GONE_MS, WORKERS, WorkerRecord

from .running import run, run_json


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/queue.db"


def register(queue: Queue, instance: str, name: str, **fields: object) -> None:
    """Write a record as a worker does."""
    engine = queue.engine
    now_ms = engine.now()
    record = WorkerRecord(name, "rack-7", 1, "0.1.0", engine.schema, ("ocr",), 4, now_ms, now_ms, "working", {}, drain=False)
    engine.put_record(WORKERS, instance, record._replace(**fields).encode())  # type: ignore[arg-type]


def test_without_workers_it_says_how_to_start_one(url: str) -> None:
    Queue(url).close()
    result = run("workers", "--url", url)
    assert result.output == "No worker is running; `fairlane work` or `fairlane serve` starts one.\n"
    assert run_json("workers", "--url", url) == [[]]


def test_it_shows_every_worker_and_what_runs_on_it(url: str) -> None:
    with Queue(url) as queue:
        id = queue.submit("ada", 1, kind="ocr").id
        queue.engine.claim("first", 1, 60_000, {"ocr": 3})
        register(queue, "a", "first", running={id: queue.engine.now() - 5000})
        register(queue, "b", "second", seen_ms=queue.engine.now() - GONE_MS - 1)
        register(queue, "c", "third", schema=queue.engine.schema - 1, version="0.0.9")
    output = run("workers", "--url", url).output
    for word in ("first", "working", "second", "gone", "rack-7", id, "ada", "ocr", "0.0.9 (old)"):
        assert word in output
    assert "third runs Fairlane 0.0.9, which knows an older schema than the store has: upgrade it." in output
    first, second, third = run_json("workers", "--url", url)[0]
    assert (first["name"], first["documents"][0]["id"], first["slots"]) == ("first", id, 4)
    assert (second["state"], third["is_outdated"]) == ("gone", True)


def test_it_drains_and_undrains(url: str) -> None:
    with Queue(url) as queue:
        register(queue, "a", "first")
        assert run("workers", "drain", "first", "--url", url).output == "first finishes what it has and claims no more.\n"
        assert queue.workers()[0].state == "draining"
        assert run_json("workers", "undrain", "first", "--url", url) == [
            {"worker": "first", "state": "working", "instances": ["a"]}
        ]
        assert queue.workers()[0].state == "working"


def test_it_waits_until_a_worker_has_drained_or_says_what_still_runs(url: str) -> None:
    with Queue(url) as queue:
        register(queue, "a", "first")
        result = run("workers", "drain", "first", "--wait", "0.1s", "--url", url)
        assert result.exit_code == 2
        assert "first has not drained within 0.1 s: 0 documents of it still running; it goes on draining" in result.output
        register(queue, "a", "first", drain=True, state="drained")
        assert run("workers", "drain", "first", "--wait", "1m", "--url", url).output == "first has drained.\n"


def test_mistakes_are_explained(url: str) -> None:
    Queue(url).close()
    result = run("workers", "drain", "nobody", "--url", url)
    assert (result.exit_code, result.output) == (2, "fairlane: there is no worker 'nobody'; `fairlane workers` lists them\n")
    result = run("workers", "--url", url, "drain", "first")
    assert result.exit_code == 2
    assert "--url stands after the command: fairlane workers drain NAME --url" in result.output
    assert json.loads(run("workers", "--json", "--url", url).output) == []


def test_status_names_kinds_that_no_worker_takes(url: str) -> None:
    with Queue(url) as queue:
        queue.submit("ada", 1, kind="fax")
        assert "No worker takes documents of kind 'fax': the oldest has waited for " in run("status", "--url", url).output
        assert "No worker takes documents of kind 'fax': " in run("workers", "--url", url).output
        register(queue, "a", "first", kinds=("fax",))
        assert "fax" not in run("status", "--url", url).output
        queue.drain_worker("first")
        assert (
            "All workers that take kind 'fax' are being drained: the oldest has waited for "
            in run("status", "--url", url).output
        )


def test_the_doctor_counts_workers_and_names_what_is_wrong_with_them(url: str) -> None:
    def found() -> tuple[str, str]:
        (finding,) = [row for row in run_json("doctor", "--url", url)[0] if row["name"] == "workers"]
        return finding["level"], finding["told"]

    with Queue(url) as queue:
        assert found() == ("fine", "none is running")
        register(queue, "a", "first")
        register(queue, "b", "second", drain=True)
        assert found() == ("fine", "1 draining, 1 working")
        queue.submit("ada", 1, kind="fax")
        assert found() == ("warning", "1 draining, 1 working; documents of kind 'fax' wait, and no worker takes them")
        register(queue, "b", "second", schema=0)
        assert found() == ("warning", "2 working; second knows only an older schema than the store has")
