"""What other people wrote never reaches the terminal as it is, in any command: no escape, no second line, no reversed text.

Names of customers, kinds and keys may not hold control characters, but may hold letters that turn text around; reasons, files
and workers may hold anything.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from fairlane import Queue
from fairlane.api import auth
from fairlane.cli import main
from fairlane.console.people import make_person
from fairlane.console.sessions import SessionStore
from fairlane.core.document import Failed
from fairlane.queue.audit import Actor, note
from fairlane.queue.workers import WORKERS, WorkerRecord

from .running import Terminal, run_program

TURNED = "\u202e\u2066\u2028"  # allowed in names
ESCAPES = f"\x1b]0;title\x07\x1b[2J\x9b31m\r\nfake line{TURNED}"
CUSTOMER, KIND, KEY = f"acme{TURNED}", f"scan{TURNED}", f"key{TURNED}"
WORKER, FILE, REASON = f"worker{ESCAPES}", f"invoice{ESCAPES}.txt", f"reason{ESCAPES}"
COLOURS = re.compile(r"\x1b\[\d*m")  # of our own, on a terminal

Arguments = Callable[["Hostile"], list[list[str]]]


class Hostile:
    """A queue in which every text is hostile."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"sqlite:///{folder}/queue.db"
        with Queue(self.url) as queue:
            self.done = queue.submit(CUSTOMER, {"text": ESCAPES}, content=b"text", name=FILE, kind="extract", key=KEY).id
            self.failed = queue.submit(CUSTOMER, {"text": ESCAPES}, kind=KIND).id
            (claim,) = queue.engine.claim(WORKER, 1, 60_000, {KIND: 3})
            details = {"attempt": 1, "token": 1, "at": 1, "worker": WORKER, "seconds": 1, "reason": REASON,
                       "traceback": f"Traceback\n{ESCAPES}", "output": ESCAPES}  # fmt: skip
            queue.engine.settle([(claim, Failed(REASON, details=json.dumps(details)))])
            self.running = queue.submit(CUSTOMER, {"text": ESCAPES}, kind=KIND).id
            queue.engine.claim(WORKER, 1, 600_000, {KIND: 3})
            self.waiting = queue.submit(CUSTOMER, {"text": ESCAPES}, kind=KIND).id
            queue.tune(CUSTOMER, weight=2)
            now_ms = queue.engine.now()
            record = WorkerRecord(
                WORKER, f"host{ESCAPES}", 1, f"0.0.1{ESCAPES}", queue.engine.schema - 1, (KIND,), 4, now_ms, now_ms, "working",
                {self.running: now_ms}, drain=False,
            )  # fmt: skip
            queue.engine.put_record(WORKERS, "instance", record.encode())
            self.key = auth.create(queue.engine, customer=CUSTOMER, name=f"name{TURNED}")[1].id
            note(
                queue.engine, Actor("key", self.key, f"name{ESCAPES}", "operator", ESCAPES), "customer.pause", customer=CUSTOMER
            )
            self.person = make_person("https://login.example", "ada", "ada")._replace(
                name=f"person{ESCAPES}", customer=CUSTOMER
            )
            SessionStore(queue.engine).begin(self.person)


COMMANDS: dict[str, Arguments] = {
    "advise": lambda queue: [["advise", queue.url]],
    "audit": lambda _: [["audit"], ["audit", "--customer", CUSTOMER], ["audit", "--who", ESCAPES]],
    "backup": lambda queue: [["backup", f"{queue.folder}/backup"]],
    "cancel": lambda queue: [
        ["cancel", "--customer", CUSTOMER, "--dry-run"], ["cancel", queue.running, queue.failed], ["cancel", ESCAPES],
    ],
    "check": lambda _: [["check", CUSTOMER], ["check", ESCAPES]],
    "doctor": lambda _: [["doctor"]],
    "documents": lambda _: [["documents"], ["documents", "--kind", KIND], ["documents", "--customer", ESCAPES]],
    "encrypt": lambda _: [["encrypt"], ["encrypt", "--new-key"]],
    "events": lambda _: [["events", "--after", "0"]],
    "explain": lambda queue: [["explain", id] for id in (queue.failed, queue.running, queue.waiting, CUSTOMER, ESCAPES)],
    "export": lambda queue: [["export", name, "--to", f"{queue.folder}/{ESCAPES}.tar.gz"] for name in (CUSTOMER, ESCAPES)],
    "forget": lambda _: [["forget", CUSTOMER]],  # not confirmed
    "keys": lambda queue: [
        ["keys", "list"], ["keys", "create", "--customer", CUSTOMER], ["keys", "create", "--operator", "--name", ESCAPES],
        ["keys", "revoke", queue.key], ["keys", "revoke", ESCAPES],
    ],
    "kind": lambda _: [["kind", KIND], ["kind", KIND, "--running-max", "1"], ["kind", ESCAPES]],
    "kinds": lambda _: [["kinds"]],
    "migrate": lambda _: [["migrate"]],
    "move": lambda queue: [["move", queue.url, f"sqlite:///{queue.folder}/{ESCAPES}/other.db"]],
    "pause": lambda _: [["pause", CUSTOMER]],
    "policy": lambda _: [["policy"]],
    "prioritize": lambda queue: [
        ["prioritize", queue.waiting, "--priority", "1"], ["prioritize", ESCAPES, "--priority", "1"],
        ["prioritize", "--kind", KIND, "--priority", "2", "--yes"], ["prioritize", queue.running, "--priority", "1"],
    ],
    "purge": lambda _: [["purge", "--older-than", "7d"]],
    "reset": lambda _: [["reset", CUSTOMER]],
    "restore": lambda queue: [["restore", f"{queue.folder}/{ESCAPES}"]],
    "result": lambda queue: [["result", queue.failed], ["result", ESCAPES]],
    "resume": lambda _: [["resume", CUSTOMER]],
    "retry": lambda queue: [["retry", "--reason", "reason", "--dry-run"], ["retry", queue.running], ["retry", queue.failed]],
    "sessions": lambda queue: [
        ["sessions", "list"], ["sessions", "revoke", queue.person.id], ["sessions", "revoke", ESCAPES],
    ],
    "show": lambda queue: [["show", id] for id in (queue.done, queue.failed, queue.running, ESCAPES)],
    "simulate": lambda queue: [["simulate", "--url", queue.url]],
    "status": lambda _: [["status"], ["status", CUSTOMER]],
    "submit": lambda queue: [
        ["submit", "--customer", CUSTOMER, f"{queue.folder}/{ESCAPES}.txt"], ["submit", "--customer", ESCAPES, __file__],
    ],
    "sweep": lambda _: [["sweep"]],
    "tune": lambda _: [["tune", CUSTOMER]],
    "vacuum": lambda _: [["vacuum"]],
    "verify": lambda _: [["verify"]],
    "workers": lambda _: [["workers"], ["workers", "drain", WORKER], ["workers", "undrain", WORKER]],
}  # fmt: skip
# These run on, and have tests of their own below, or print nothing that others wrote.
OTHERS = {"completion", "demo", "mcp", "process", "serve", "work"}


@pytest.fixture
def hostile(tmp_path: Path) -> Hostile:
    return Hostile(tmp_path)


def is_harmless(output: str) -> bool:
    return all(line.isprintable() for line in COLOURS.sub("", output).split("\n"))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_prints_nothing_that_moves_the_cursor(hostile: Hostile, name: str) -> None:
    for arguments in COMMANDS[name](hostile):
        runner = CliRunner(env={"FAIRLANE_URL": hostile.url, "COLUMNS": "300"})
        result = runner.invoke(
            main, arguments, prog_name="fairlane", color=True, input="n\n"
        )  # as a terminal: nothing is stripped
        assert result.exception is None or isinstance(result.exception, SystemExit), arguments
        assert result.output, arguments
        assert is_harmless(result.output), (arguments, result.output)
        assert not re.search(r"^fake line", result.output, re.MULTILINE), (arguments, result.output)


@pytest.mark.parametrize("name", ["documents", "events", "explain", "keys", "sessions", "show", "status", "workers"])
def test_json_is_exact_and_holds_every_character_as_an_escape(hostile: Hostile, name: str) -> None:
    arguments = COMMANDS[name](hostile)[1 if name == "show" else 0]
    result = CliRunner(env={"FAIRLANE_URL": hostile.url}).invoke(main, [*arguments, "--json"], color=True)
    assert result.exit_code == 0, result.output
    assert result.output.isascii()
    assert is_harmless(result.output)
    values = json.dumps([json.loads(line) for line in result.output.splitlines()], ensure_ascii=False)
    shown = {"keys": f"name{TURNED}", "sessions": f"person{ESCAPES}", "workers": WORKER, "status": CUSTOMER}
    expected = shown.get(name, REASON)
    assert json.dumps(expected, ensure_ascii=False) in values


def test_what_a_worker_prints_about_documents_is_harmless(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/queue.db"
    (tmp_path / "tasks.py").write_text(
        "import logging, sys\nfrom fairlane import Worker, Fail\n"
        f"worker = Worker({url!r}, name={f'worker{TURNED}'!r})\n"
        "@worker.handler()\ndef handle(document):\n"
        f"    print({ESCAPES!r})\n    logging.getLogger({ESCAPES!r}).warning({ESCAPES!r})\n    raise Fail({REASON!r})\n"
    )
    with Queue(url) as queue:
        queue.submit(CUSTOMER, 1)
    code, stdout, stderr = run_program("work", "tasks:worker", "--until-empty", cwd=tmp_path)
    assert (code, "reason" in stdout, "WARNING" in stdout) == (0, True, True), stdout + stderr
    assert is_harmless(stdout)
    assert is_harmless(stderr)


def test_a_program_without_logging_prints_lines_of_handlers_harmlessly(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/queue.db"
    script = (
        f"from fairlane import Queue, Worker\nqueue, worker = Queue({url!r}), Worker({url!r})\nqueue.submit({CUSTOMER!r}, 1)\n"
        f"worker.handler()(lambda document: print({ESCAPES!r}))\nworker.run(until_empty=True)\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "acme" in ran.stdout
    assert is_harmless(ran.stdout)


def make_folder(folder: Path) -> Path:
    for customer in (f"acme{TURNED}", "other"):
        (folder / "inbox" / customer).mkdir(parents=True)
        (folder / "inbox" / customer / f"invoice\x1b]0;title\x07{TURNED}.txt").write_text("text")
        (folder / "inbox" / customer / f"broken\x1b[2J{TURNED}.pdf").write_bytes(b"%PDF-1.4 broken")
    return folder / "inbox"


def test_a_processed_folder_with_hostile_names_is_shown_harmlessly(tmp_path: Path) -> None:
    _, stdout, stderr = run_program("process", str(make_folder(tmp_path)))
    assert "invoice" in stdout
    assert "broken" in stderr
    assert is_harmless(stdout)
    assert is_harmless(stderr)


@pytest.mark.parametrize("command", ["process", "watch"])
def test_live_screens_show_nothing_hostile(tmp_path: Path, command: str) -> None:
    if command == "process":
        arguments = ["process", str(make_folder(tmp_path)), "--pace", "100ms"]
    else:
        arguments = ["status", "--watch", "--url", Hostile(tmp_path).url]
    with Terminal(120, 40, *arguments) as terminal:
        terminal.wait_for(lambda shown: "acme" in shown)
        if command == "process":
            terminal.wait()
        assert not [text for text in ("\x1b]0;", "\x07", "\x9b", *TURNED) if text in terminal.shown]
