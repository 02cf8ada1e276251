"""The audit log on the command line: every command that changes something is in it, and it is listed, searched and followed."""

from __future__ import annotations

import json
import os
import pwd
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane import Queue
from fairlane.api import auth
from fairlane.cli import main
from fairlane.console.sessions import SessionStore
from fairlane.core.document import Failed
from fairlane.encryption.keyring import KEYS_VARIABLE, new_key
from fairlane.queue.audit import Actor, AuditEntry, AuditFilter, begin, note, walk_audit
from fairlane.queue.workers import WORKERS, WorkerRecord
from tests.api.running import Server

from .running import run, run_json, start

USER = pwd.getpwuid(os.geteuid()).pw_name
ADA = Actor("key", "0123456789abcdef", "ada's laptop", "operator", "192.0.2.7")


@pytest.fixture
def queue(url: str) -> Iterator[Queue]:
    with Queue(url) as queue:
        yield queue


def entries(queue: Queue) -> list[AuditEntry]:
    return list(walk_audit(queue.engine, AuditFilter()))


# What a command does to a queue with a document that failed, one that runs, a worker and a key; `{folder}` and so on
# are filled in.
COMMANDS = {
    "customer.pause": "pause acme",
    "customer.resume": "resume acme",
    "customer.tune": "tune acme --weight 2",
    "customer.reset": "reset acme",
    "customer.forget": "forget acme --yes",
    "customer.export": "export acme --to {folder}/acme.tar",
    "policy.set": "policy --reset sliding",
    "policy.apply": "policy --apply-to-backlog",
    "kind.limit": "kind ocr --running-max 3",
    "document.prioritize": "prioritize {waiting} --priority 1",
    "documents.prioritize": "prioritize --customer acme --priority 1 --yes",
    "document.cancel": "cancel {running}",
    "document.retry": "retry {failed}",
    "documents.cancel": "cancel --customer acme --yes",
    "documents.retry": "retry --customer acme --yes",
    "queue.purge": "purge --older-than 0",
    "audit.purge": "purge --older-than 9999d --audit-older-than 0",
    "files.sweep": "sweep",
    "worker.drain": "workers drain w-1",
    "worker.undrain": "workers undrain w-1",
    "key.create": "keys create --customer acme",
    "key.rotate": "keys rotate {key}",
    "key.revoke": "keys revoke {key}",
    "session.revoke": "sessions revoke {key}",
    "queue.backup": "backup {folder}/backup",
    "queue.encrypt": "encrypt",
    "queue.migrate": "migrate",
    "queue.move": "move {url} sqlite:///{folder}/new.db",
    "queue.restore": "restore {folder}/backup",
}
# Commands that change nothing, or do the queue's own work: documents are their own record.
UNRECORDED = {
    "advise", "audit", "check", "completion", "demo", "doctor", "documents", "events", "explain", "kinds", "mcp", "process",
    "result", "serve", "show", "simulate", "status", "submit", "vacuum", "verify", "work",
}  # fmt: skip


def test_every_command_is_recorded_or_said_to_change_nothing() -> None:
    assert set(main.commands) == UNRECORDED | {command.split(" ")[0] for command in COMMANDS.values()}


@pytest.mark.parametrize("action", [action for action in COMMANDS if action != "queue.restore"])
def test_what_a_command_changes_is_recorded(queue: Queue, url: str, tmp_path: Path, action: str) -> None:
    failed, running = (queue.submit("acme", number).id for number in range(2))
    claims = queue.engine.claim("w", 2, 60_000)
    queue.engine.settle([(claim, Failed("no")) for claim in claims if claim.id == failed])
    waiting = queue.submit("acme", 2).id if "prioritize" in action else ""
    if action == "queue.move":
        queue.cancel(running)  # a move waits for what runs
    now_ms = queue.engine.now()
    worker = WorkerRecord("w-1", "host", 1, "1", 1, ("x",), 1, now_ms, now_ms, "working", {}, False)
    queue.engine.put_record(WORKERS, "instance", worker.encode())
    key = auth.create(queue.engine, customer="acme")[1].id
    SessionStore(queue.engine).begin(key)
    if action == "audit.purge":
        note(queue.engine, ADA, "customer.pause")
    names = {"folder": tmp_path, "failed": failed, "running": running, "waiting": waiting, "key": key, "url": url}
    arguments = [part.format(**names) for part in COMMANDS[action].split(" ")]
    location = [] if action == "queue.move" else ["--url", url]
    variables = {KEYS_VARIABLE: f"none,{new_key()}"} if action == "queue.encrypt" else {}  # its entry stays readable here
    result = run(*arguments, *location, **variables)
    assert result.exit_code == 0, result.output
    recorded = [entry for entry in entries(queue) if entry.action == action]
    assert [(entry.outcome, entry.who) for entry in recorded] == [("done", Actor("cli", USER, socket.gethostname()))]
    assert {entry.action for entry in entries(queue)} - {action} <= {"queue.purge", "customer.pause"}


def test_a_restored_queue_says_so(queue: Queue, url: str, tmp_path: Path) -> None:
    assert run("backup", f"{tmp_path}/backup", "--url", url).exit_code == 0
    restored = f"sqlite:///{tmp_path}/restored.db"
    assert run("restore", f"{tmp_path}/backup", "--url", restored).exit_code == 0
    (entry, *_) = run_json("audit", "--url", restored)
    assert (entry["action"], entry["outcome"], entry["who"]["id"]) == ("queue.restore", "done", USER)


def test_entries_are_listed_and_found(queue: Queue, url: str) -> None:
    note(queue.engine, ADA, "customer.pause", customer="acme")
    run("tune", "bolt", "--cap", "3", "--url", url)
    assert [row["action"] for row in run_json("audit", "--url", url)] == ["customer.tune", "customer.pause"]
    assert [row["customer"] for row in run_json("audit", "--who", "ada's laptop", "--url", url)] == ["acme"]
    assert [row["customer"] for row in run_json("audit", "--who", USER, "--url", url)] == ["bolt"]
    assert [row["customer"] for row in run_json("audit", "--customer", "bolt", "--what", "customer", "--url", url)] == ["bolt"]
    assert run_json("audit", "--what", "key", "--url", url) == run_json("audit", "--until", "1h", "--url", url) == []
    assert len(run_json("audit", "--since", "1h", "--limit", "1", "--url", url)) == 1
    shown = run("audit", "--url", url).stdout.splitlines()
    assert shown[0].endswith(f'cli {USER} on {socket.gethostname()}  customer.tune  bolt  was {{"cap": null}}  is {{"cap": 3}}')
    assert 'operator 0123456789abcdef "ada\'s laptop" from 192.0.2.7  customer.pause  acme' in shown[1]


def test_what_others_wrote_cannot_move_the_cursor(queue: Queue, url: str) -> None:
    note(queue.engine, ADA._replace(name="\x1b[2Jada"), "customer.pause", customer="a\x1b[31m\nb")
    (line,) = run("audit", "--url", url).stdout.splitlines()
    assert "\x1b" not in line


def test_an_entry_that_was_not_completed_says_so(queue: Queue, url: str) -> None:
    begin(queue.engine, ADA, "customer.pause", customer="acme")
    assert "customer.pause  acme  begun" in run("audit", "--url", url).stdout


def test_the_log_is_followed_until_ctrl_c(queue: Queue, url: str) -> None:
    note(queue.engine, ADA, "customer.pause", customer="before")
    command = ("audit", "--follow", "--since", "1h", "--json", "--url", url)
    with start(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert json.loads(program.stdout.readline())["customer"] == "before"
        note(queue.engine, ADA, "customer.pause", customer="since")
        assert json.loads(program.stdout.readline())["customer"] == "since"
        program.send_signal(signal.SIGINT)
        _, stderr = program.communicate(timeout=60)
    assert (program.returncode, stderr) == (0, "")


def test_through_a_server_the_key_is_who(tmp_path: Path) -> None:
    server = Server(tmp_path)
    try:
        reached = {"FAIRLANE_SERVER": server.address, "FAIRLANE_KEY": server.admin}
        assert run("pause", "acme", **reached).exit_code == 0
        result = run("audit", "--json", **reached)
        (entry,) = map(json.loads, result.stdout.splitlines())
        assert (entry["action"], entry["who"]["kind"], entry["who"]["role"]) == ("customer.pause", "key", "admin")
        assert entry == json.loads(run("audit", "--json", "--url", server.url).stdout)
        refused = run("audit", **(reached | {"FAIRLANE_KEY": server.operator}))
        assert (refused.exit_code, "it takes an admin's key" in refused.stderr) == (2, True), refused.output
    finally:
        server.close()
