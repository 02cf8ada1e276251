"""What handlers print, log and raise: passed on as it comes, with its document, and kept with the attempt."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlane import Fail, Queue, Retry, Worker
from fairlane.worker import Document, Summary
from fairlane.worker.output import LINES_AT_ONCE

from .conftest import Bench, until, yield_loop

log = logging.getLogger("tests.handlers")


def lines_of(bench: Bench, id: str) -> list[str]:
    return [event.value for event in bench.emitted("printed") if event.id == id]


def explode(document: Document) -> None:
    raise ValueError("page 7 has no text")


async def explode_later(document: Document) -> None:
    await asyncio.to_thread(explode, document)


@pytest.mark.parametrize("handler", [explode, explode_later])
def test_a_traceback_is_logged_at_error_and_kept_with_each_attempt(
    bench: Bench, queue: Queue, caplog: pytest.LogCaptureFixture, handler: Callable[[Document], Any]
) -> None:
    id = queue.submit("acme").id
    worker = bench.worker(name="tester")
    worker.handler("default", attempts=2)(handler)
    assert bench.run(worker) == Summary(failed=1, retried=1)
    records = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [vars(record)["fairlane_document"] for record in records] == [id, id]
    assert f"document {id} of acme: attempt 1 raised ValueError: page 7 has no text" in records[0].getMessage()
    assert 'raise ValueError("page 7 has no text")' in records[0].getMessage()
    attempts = queue.attempts(id)
    assert [(attempt.attempt, attempt.token, attempt.worker) for attempt in attempts] == [(1, 1, "tester"), (2, 2, "tester")]
    for attempt in attempts:
        assert attempt.reason == "ValueError: page 7 has no text"
        lines = str(attempt.traceback).splitlines()
        assert (lines[0], lines[-1]) == ("Traceback (most recent call last):", "ValueError: page 7 has no text")
        assert "fairlane/worker" not in str(attempt.traceback).partition("asyncio")[0], "our own frames say nothing"


@pytest.mark.parametrize("error", [Fail("no such page"), Retry(0, "not yet")])
def test_what_a_handler_raises_on_purpose_has_no_traceback(bench: Bench, queue: Queue, error: Exception) -> None:
    def handler(document: Document) -> None:
        raise error

    id = queue.submit("acme").id
    worker = bench.worker()
    worker.handler("default", attempts=1)(handler)
    assert bench.run(worker).failed == 1
    assert (bench.emitted("raised"), queue.attempts(id)) == ([], [])


def test_a_crash_in_native_code_leaves_a_traceback_too(bench: Bench, queue: Queue) -> None:
    def handler(document: Document) -> None:
        print("reading page 7")
        ctypes.string_at(0)

    id = queue.submit("acme").id
    worker = bench.worker()
    worker.handler("default", attempts=1)(handler)
    bench.run(worker)
    assert str(queue.document(id).reason).endswith("killed by SIGSEGV; last printed: reading page 7")
    (attempt,) = queue.attempts(id)
    assert attempt.output == "reading page 7"
    assert "in handler" in str(attempt.traceback)
    assert "in run_handler" not in str(attempt.traceback)


def test_lines_come_while_the_handler_runs(bench: Bench, queue: Queue, tmp_path: Path) -> None:
    def handler(document: Document) -> None:
        print("first")
        log.warning("second")
        until((tmp_path / "go").exists)

    id = queue.submit("acme").id
    worker = bench.worker()
    worker.handler("default")(handler)
    stop = bench.start(worker)
    until(lambda: lines_of(bench, id) == ["first"])
    assert queue.document(id).state == "running"
    (tmp_path / "go").touch()
    until(lambda: queue.document(id).state == "done")
    stop()


def test_every_log_record_of_a_child_reaches_the_logger_of_its_name_with_its_document(
    bench: Bench, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    def handler(document: Document) -> None:
        for n in range(1000):
            log.info("line %d of %s", n, document.payload, extra={"page": n, "customer": "the handler's own"})
        logging.getLogger("unheard.of.before").error("unknown")
        log.debug("too low")
        try:
            explode(document)
        except ValueError:
            log.exception("caught")

    ids = {queue.submit(name, name).id: name for name in ("ada", "bob")}
    worker = bench.worker()
    worker.handler("default")(handler)
    known = set(logging.root.manager.loggerDict)
    with caplog.at_level("INFO", "tests.handlers"):
        assert bench.run(worker).done == 2
    for id, name in ids.items():
        records = [record for record in caplog.records if vars(record).get("fairlane_document") == id]
        own = [record for record in records if record.name == "tests.handlers"]
        assert [record.getMessage() for record in own[:-1]] == [f"line {n} of {name}" for n in range(1000)]
        assert {vars(record)["fairlane_customer"] for record in records} == {name}
        first, last = own[0], own[-1]
        assert (vars(first)["page"], vars(first)["customer"], first.funcName) == (0, "the handler's own", "handler")
        assert (last.levelname, last.filename, last.process != os.getpid()) == ("ERROR", "test_handler_output.py", True)
        assert "page 7 has no text" in str(last.exc_text)
        assert [record.getMessage() for record in records if record.name == "unheard.of.before"] == ["unknown"]
    assert set(logging.root.manager.loggerDict) == known, "a logger for every name would be a leak"


def test_programs_forks_and_threads_of_a_handler_are_heard_too(bench: Bench, queue: Queue) -> None:
    def handler(document: Document) -> None:
        subprocess.run(["echo", "from a program"], check=True)
        subprocess.run(["echo", "by its handle"], check=True, stdout=sys.stdout)
        if (pid := os.fork()) == 0:
            print("from a fork")
            log.error("logged in a fork")
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(pid, 0)
        thread = threading.Thread(target=print, args=("from a thread",))
        thread.start()
        thread.join()
        sys.stdout.buffer.write(b"as bytes\n")
        print("without an end", end="")

    id = queue.submit("acme").id
    worker = bench.worker()
    worker.handler("default")(handler)
    assert bench.run(worker).done == 1
    assert set(lines_of(bench, id)) == {
        "from a program", "by its handle", "from a fork", "ERROR tests.handlers: logged in a fork", "from a thread",
        "as bytes", "without an end",
    }  # fmt: skip


def test_output_belongs_to_the_document_that_made_it(bench: Bench, queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    """Handlers on the loop run at the same time, and hooks that print are not output of a document."""
    met: list[str] = []

    async def handler(document: Document) -> None:
        met.append(document.id)
        while len(met) < 2:
            await yield_loop()
        print("hello", document.customer)
        document.progress(0.5)
        await asyncio.to_thread(print, "thread of", document.customer)
        log.warning("warned %s", document.customer)
        await asyncio.create_task(inner(document))

    async def inner(document: Document) -> None:
        print("task of", document.customer, file=sys.stderr)

    ids = {queue.submit(name).id: name for name in ("ada", "bob")}
    worker = bench.worker()
    worker.handler("default")(handler)
    worker.on("reported", lambda event: print("a hook"))
    before = sys.stdout, sys.stderr, logging.getLogRecordFactory()
    assert bench.run(worker).done == 2
    assert (sys.stdout, sys.stderr, logging.getLogRecordFactory()) == before
    for id, name in ids.items():
        assert lines_of(bench, id) == [f"hello {name}", f"thread of {name}", f"task of {name}"]
    assert capsys.readouterr().out == "a hook\na hook\n"


@pytest.mark.parametrize("is_async", [False, True])
def test_a_flood_is_dropped_counted_and_holds_up_no_other_document(bench: Bench, queue: Queue, is_async: bool) -> None:
    total = 20 * LINES_AT_ONCE

    def flood(document: Document) -> None:
        for n in range(total):
            print("line", n)

    async def flood_async(document: Document) -> None:
        flood(document)

    id = queue.submit("loud", kind="loud").id
    others = [receipt.id for receipt in queue.submit_many("quiet", range(20), kind="quiet")]
    worker = bench.worker()
    worker.handler("loud")(flood_async if is_async else flood)
    worker.handler("quiet")(lambda document: None)
    assert bench.run(worker).done == 21
    lines = lines_of(bench, id)
    assert LINES_AT_ONCE <= len(lines) < total
    assert lines[:3] == ["line 0", "line 1", "line 2"]
    assert sum(event.number or 0 for event in bench.emitted("dropped")) == total - len(lines)
    assert all(queue.document(other).state == "done" for other in others)


SCRIPT = """
import sys
from fairlane import Worker
worker = Worker(sys.argv[1])
worker.on("*", lambda event: None)  # as traces and metrics do

@worker.handler("default")
def handler(document):
    print("sync says\\x1b[2J hello")

@worker.handler("other")
async def other(document):
    print("async says hello")

worker.run(until_empty=True)
"""


def test_a_program_without_logging_configuration_still_sees_what_is_printed(queue: Queue, url: str) -> None:
    ids = [queue.submit("acme", kind=kind).id for kind in ("default", "other")]
    done = subprocess.run([sys.executable, "-c", SCRIPT, url], capture_output=True, text=True, check=True, timeout=60)
    assert sorted(done.stdout.splitlines()) == [
        f"acme  {ids[0]}  sync says\ufffd[2J hello",
        f"acme  {ids[1]}  async says hello",
    ]


def test_a_thread_that_outlives_its_document_does_no_harm(bench: Bench, queue: Queue) -> None:
    threads: list[threading.Thread] = []

    def chatter() -> None:
        with contextlib.suppress(ValueError, OSError):
            for n in range(3000):
                print("chatter", n)

    def handler(document: Document) -> int:
        if not threads:
            threads.append(threading.Thread(target=chatter, daemon=True))
            threads[0].start()
        return os.getpid()

    ids = [receipt.id for receipt in queue.submit_many("acme", range(200))]
    worker = bench.worker(slots=1)
    worker.handler("default")(handler)
    assert bench.run(worker) == Summary(done=200)
    assert len({queue.result(id) for id in ids}) == 1


def test_two_workers_of_one_process_share_the_streams(bench: Bench, queue: Queue, url: str) -> None:
    async def handler(document: Document) -> None:
        print(document.kind)

    before = sys.stdout
    stops = []
    for kind in ("one", "two"):
        worker: Worker = bench.worker()
        worker.handler(kind)(handler)
        stops.append(bench.start(worker))
    ids = [queue.submit("acme", kind=kind).id for kind in ("one", "two")]
    until(lambda: all(queue.document(id).state == "done" for id in ids))
    stops[0]()
    assert sys.stdout is not before
    stops[1]()
    assert sys.stdout is before
    assert [lines_of(bench, id) for id in ids] == [["one"], ["two"]]
