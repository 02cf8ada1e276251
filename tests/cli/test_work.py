"""The command that works documents off: the built-in handler, and workers of modules."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from fairlane import Queue

from .running import run_json, run_program, start

TASKS = """
from fairlane import Worker
worker = Worker({url!r}, slots=3)
_private = Worker({url!r})

@worker.handler("count")
def count(document):
    return {{"length": len(document.payload)}}

@worker.handler("fail", attempts=1)
def fail(document):
    raise ValueError("no such page")
"""


@pytest.fixture
def tasks(tmp_path: Path, url: str) -> Path:
    """A folder with a module that has a worker."""
    (tmp_path / "tasks.py").write_text(TASKS.format(url=url))
    return tmp_path


def test_the_built_in_handler_reads_the_file_and_keeps_what_it_says(tmp_path: Path, url: str) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one two\nthree\n")
    (row,) = run_json("submit", "--customer", "acme", str(path), "--url", url)
    code, stdout, stderr = run_program("work", "--until-empty", "--url", url)
    assert (code, stderr) == (0, "")
    assert f"acme  {row['id']}  done after 0." in stdout
    assert stdout.endswith("stopped: 1 done\n")
    with Queue(url) as queue:
        result = queue.result(row["id"])
        assert result.pop("fairlane.results").keys() == {"text", "facts", "thumbnail"}
        assert result == {
            "size": 14, "sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "media_type": "text/plain",
            "unit": "page", "pages": 1, "characters": 14,
        }  # fmt: skip
        assert queue.text(row["id"]) == path.read_text()
        assert queue.facts(row["id"])["pages"] == [{"label": "", "start": 0, "end": 14, "ocr_confidence": None}]
        assert queue.thumbnail(row["id"]).startswith(b"\x89PNG")


def test_the_built_in_handler_reads_the_queues_own_copy_and_never_wrong_bytes(tmp_path: Path, url: str) -> None:
    paths = [tmp_path / name for name in ("whole.txt", "damaged.txt", "gone.txt")]
    for path in paths:
        path.write_text(f"this is {path.name}\n")
    rows = run_json("submit", "--customer", "acme", *map(str, paths), "--url", url, "--blobs", str(tmp_path / "files"))
    for path in paths:
        path.unlink()
    damaged, gone = (next((tmp_path / "files").rglob(f"{row['id']}/input")) for row in rows[1:])
    damaged.write_text("THIS is damaged.txt\n")
    gone.unlink()
    code, _, _ = run_program("work", "--until-empty", "--json", "--url", url, "--blobs", str(tmp_path / "files"))
    assert code == 0
    with Queue(url, blobs=str(tmp_path / "files")) as queue:
        assert queue.text(rows[0]["id"]) == "this is whole.txt\n"
        assert [queue.document(row["id"]).attempts for row in rows] == [1, 1, 3]  # what is missing may come back
        assert "are damaged: there should be 20 bytes" in str(queue.document(rows[1]["id"]).reason)
        reason = str(queue.document(rows[2]["id"]).reason)
        assert reason == "attempt 3 of 3 failed: StoreError: the queue's store or its files could not be used"
        assert f"are not in {tmp_path}/files" in str(queue.attempts(rows[2]["id"])[-1].traceback)  # where only operators see it


def test_what_cannot_be_read_fails_at_once_with_the_reason(tmp_path: Path, url: str) -> None:
    with Queue(url) as queue:
        missing = queue.submit("acme", {"path": f"{tmp_path}/gone.txt"}, kind="folder").id
        other = queue.submit("acme", {"path": "/etc/hostname"}, kind="extract").id
        code, stdout, _ = run_program("work", "--until-empty", "--json", "--url", url)
        assert code == 0
        assert (queue.document(missing).attempts, queue.document(other).attempts) == (1, 1)
        assert queue.document(missing).reason == f"there is no file {tmp_path}/gone.txt; it was moved, or its name is wrong"
        assert str(queue.document(other).reason).startswith("unsupported: the document has no file")
    events = [json.loads(line) for line in stdout.splitlines()]
    assert [event["event"] for event in events] == ["started", "unfinished", "unfinished", "stopping", "summary"]
    assert {event["outcome"] for event in events[1:3]} == {"failed"}
    assert (events[-1]["done"], events[-1]["failed"]) == (0, 2)


@pytest.mark.parametrize("name", ["tasks:worker", "tasks"])
def test_a_worker_of_a_module_in_this_folder(tasks: Path, url: str, name: str) -> None:
    with Queue(url) as queue:
        counted = queue.submit("acme", "four", kind="count").id
        failed = queue.submit("acme", kind="fail").id
        not_ours = queue.submit("acme").id
        code, stdout, stderr = run_program(
            "work", name, "--until-empty", "--slots", "1", cwd=tasks, environment={"PYTHONSAFEPATH": "1"}
        )
        assert (code, stderr) == (0, "")
        assert queue.result(counted) == {"length": 4}
        assert queue.document(not_ours).state == "ready"
    assert f"acme  {failed}  failed after 0.0" in stdout
    assert "ValueError: no such page" in stdout


LOUD = """
import logging
from fairlane import Worker
{configuration}
worker = Worker({url!r}, slots=1)
log = logging.getLogger("loud")

@worker.handler("loud", attempts=1)
def loud(document):
    for n in range(1000):
        log.info("line %d", n)
    log.debug("too low")
    print("printed \\x1b[31m")
    raise ValueError("in a child")

@worker.handler("late", attempts=1)
async def late(document):
    log.info("on the loop")
    print("printed there")
    raise ValueError("on the loop")
"""


@pytest.fixture
def loud(tmp_path: Path, url: str) -> Iterator[tuple[Path, list[str]]]:
    """A folder with a module that logs, prints and raises, and the ids of two documents for it."""
    (tmp_path / "loud.py").write_text(LOUD.format(url=url, configuration=""))
    with Queue(url) as queue:
        yield tmp_path, [queue.submit("acme", kind=kind).id for kind in ("loud", "late")]


def test_what_handlers_log_print_and_raise_is_printed_with_their_documents(loud: tuple[Path, list[str]]) -> None:
    folder, (first, second) = loud
    code, stdout, stderr = run_program("work", "loud", "--until-empty", cwd=folder)
    assert (code, stderr) == (0, "")
    lines = stdout.splitlines()
    assert [line for line in lines if "INFO loud: line" in line] == [f"acme  {first}  INFO loud: line {n}" for n in range(1000)]
    assert "too low" not in stdout
    for id, printed, raised in ((first, "printed \ufffd[31m", "in a child"), (second, "printed there", "on the loop")):
        assert f"acme  {id}  {printed}" in lines
        start = lines.index(f"acme  {id}  raised: ValueError: {raised}")
        assert lines[start + 1] == "    Traceback (most recent call last):"
        assert f"    ValueError: {raised}" in lines[start + 2 : start + 9]
    assert f"acme  {second}  INFO loud: on the loop" in lines


def test_a_reader_that_stalls_stops_no_worker(tmp_path: Path, url: str) -> None:
    """Without a thread for the output the worker would be silent, and be killed after half a lease."""
    (tmp_path / "flood.py").write_text(FLOOD.format(url=url))
    with Queue(url) as queue:
        loud = queue.submit_many("loud", range(12), kind="loud")
        with start("work", "flood", stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path) as program:
            for receipt in loud:
                assert queue.wait(receipt.id, timeout=60).state == "done"
            assert queue.wait(queue.submit("quiet", kind="quiet").id, timeout=60).state == "done"
            program.send_signal(signal.SIGTERM)
            stdout, _ = program.communicate(timeout=60)
    assert program.returncode == 0
    lines = stdout.splitlines()
    assert lines[-1] == "stopped: 13 done"
    assert any(line.endswith(" lines were dropped, as nobody read them in time") for line in lines)


FLOOD = """
from fairlane import Worker
worker = Worker({url!r}, slots=1, lease=2)

@worker.handler("loud")
def loud(document):
    for n in range(4000):
        print("x" * 150)

@worker.handler("quiet")
def quiet(document):
    pass
"""


def test_with_json_every_line_of_output_is_an_object(loud: tuple[Path, list[str]]) -> None:
    folder, (first, second) = loud
    code, stdout, _ = run_program("work", "loud", "--until-empty", "--json", "--log-level", "debug", cwd=folder)
    assert code == 0
    events = [json.loads(line) for line in stdout.splitlines()]
    logged = [event for event in events if event["event"] == "logged" and event["logger"] == "loud"]
    assert [event["message"] for event in logged if event["id"] == first][-2:] == ["line 999", "too low"]
    assert [(event["level"], event["customer"]) for event in logged if event["id"] == second] == [("INFO", "acme")]
    assert {event["id"]: event["value"] for event in events if event["event"] == "printed"} == {
        first: "printed \x1b[31m",
        second: "printed there",
    }
    raised = {event["id"]: event["traceback"].splitlines()[-1] for event in events if event["event"] == "raised"}
    assert raised == {first: "ValueError: in a child", second: "ValueError: on the loop"}


def test_a_module_that_configures_logging_prints_its_records_itself(loud: tuple[Path, list[str]], url: str) -> None:
    folder, (first, second) = loud
    configuration = 'logging.basicConfig(level="INFO", format="%(fairlane_customer)s %(fairlane_document)s %(message)s")'
    (folder / "loud.py").write_text(LOUD.format(url=url, configuration=configuration))
    code, stdout, stderr = run_program("work", "loud", "--until-empty", cwd=folder)
    assert code == 0
    own = [f"acme {first} line {n}" for n in range(1000)]
    assert [line for line in stderr.splitlines() if first in line] == own
    assert f"acme {second} on the loop" in stderr.splitlines()
    assert "line 0" not in stdout
    assert f"acme  {first}  printed \ufffd[31m" in stdout.splitlines()


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        (None, "nowhere:worker", "there is no module nowhere in {cwd} or on Python's path"),
        (None, "nowhere.py:worker", "leave out .py, as in nowhere:worker"),
        (None, "tasks.py:worker", "leave out .py, as in tasks:worker"),
        (None, "tasks:other", "the module tasks has no other; its workers: tasks:worker"),
        (None, "tasks:count", "the module tasks has a count that is a function, not a Worker; its workers: tasks:worker"),
        ("import no_such", "mine:worker", "ModuleNotFoundError: No module named 'no_such' ({cwd}/mine.py, line 1)"),
        ("x = 1\nx / 0", "mine:worker", "cannot be imported: ZeroDivisionError: division by zero ({cwd}/mine.py, line 2)"),
        ("def", "mine:worker", "the module mine cannot be imported: invalid syntax ({cwd}/mine.py, line 1)"),
        ("raise SystemExit(0)", "mine", "the module mine cannot be imported: SystemExit: 0"),
        ("x = 1", "mine", "the module mine has no worker; define one there"),
        ("from tasks import worker\nsecond = worker", "mine", "has several workers; use one of mine:worker, mine:second"),
        ("from fairlane import Worker\nworker = Worker('sqlite:///x.db')", "mine", "this worker has no handlers"),
        (None, ":worker", "cannot be imported: ValueError: Empty module name"),
    ],
)  # fmt: skip
def test_a_worker_that_cannot_be_found_is_reported(tasks: Path, content: str | None, name: str, message: str) -> None:
    if content is not None:
        (tasks / "mine.py").write_text(content)
    code, stdout, stderr = run_program("work", name, cwd=tasks)
    assert (code, stdout) == (2, "")
    assert message.format(cwd=tasks) in stderr
    assert len(stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--slots", "0"), "slots is 0; it must be a whole number from 1 to"),
        (("tasks:worker", "--slots", "0"), "slots is 0"),
        (("tasks:worker", "--url", "sqlite:///other.db"), "the worker tasks:worker names its queue itself; leave --url out"),
        (("--url", "memory://"), "memory://"),
    ],
)
def test_options_that_cannot_be_are_reported(tasks: Path, arguments: tuple[str, ...], message: str) -> None:
    code, stdout, stderr = run_program("work", *arguments, cwd=tasks)
    assert (code, stdout, message in stderr) == (2, "", True), stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_in_good_order(url: str, number: int) -> None:
    with start("work", "--url", url, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stdout.readline().endswith(" is running; press Ctrl-C to stop it\n")
        program.send_signal(number)
        stdout, stderr = program.communicate(timeout=60)
    assert (program.returncode, stderr) == (0, "")
    assert stdout.splitlines()[-1] == "stopped: there was nothing to do"


def test_nobody_reads_any_more_and_it_stops(tmp_path: Path, url: str) -> None:
    with start("work", "--url", url, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        program.stdout.readline()
        program.stdout.close()
        with Queue(url) as queue:
            queue.submit("acme", {"path": os.fspath(tmp_path)}, kind="extract")
        assert program.wait(timeout=60) == 1
        assert program.stderr.read() == ""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def test_a_worker_serves_its_metrics(tasks: Path, url: str) -> None:
    with Queue(url) as queue:
        queue.submit("acme", "abc", kind="count")
        queue.submit("acme", "abc", kind="fail")
    port = free_port()
    options = ("--metrics-port", str(port), "--json")
    with start("work", *options, "tasks:worker", cwd=tasks, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stdout is not None
        seen = {json.loads(program.stdout.readline())["event"] for _ in range(4)}
        assert {"started", "finished", "unfinished"} <= seen
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=40) as answer:
            lines = answer.read().decode().splitlines()
        with pytest.raises(HTTPError, match="404"):
            urlopen(f"http://127.0.0.1:{port}/", timeout=40)
        program.send_signal(signal.SIGTERM)
        program.communicate()
    assert program.returncode == 0
    assert "fairlane_worker_slots 3.0" in lines
    assert "fairlane_worker_busy_slots 0.0" in lines
    assert "fairlane_worker_claimed_documents_total 2.0" in lines
    assert 'fairlane_worker_attempts_total{kind="count",outcome="done"} 1.0' in lines
    assert 'fairlane_worker_attempts_total{kind="fail",outcome="failed"} 1.0' in lines
    assert 'fairlane_worker_handle_seconds_count{kind="count"} 1.0' in lines


def test_a_metrics_port_that_is_taken_is_reported_before_the_worker_starts(tasks: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        code, stdout, stderr = run_program("work", "--metrics-port", str(port), "tasks:worker", cwd=tasks)
    assert (code, stdout) == (2, "")
    assert stderr == (
        f"fairlane: cannot listen on 127.0.0.1 port {port}: Address already in use; choose another --metrics-port\n"
    )
