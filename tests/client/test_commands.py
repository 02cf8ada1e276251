"""The commands, through a server: the same answers as on the store, and a sentence where that cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fairlane.cli import main
from fairlane.core.document import Failed
from fairlane.core.errors import BadValue, Mistake
from fairlane.settings import Settings, load_settings
from tests.api.running import Server
from tests.cli.running import run
from tests.privacy.archive import Exported

NEED_STORE = (
    "advise",
    "backup",
    "doctor",
    "encrypt",
    "forget",
    "keys",
    "migrate",
    "move",
    "process",
    "purge",
    "restore",
    "serve",
    "sessions",
    "simulate",
    "sweep",
    "vacuum",
    "verify",
    "work",
)
NO_QUEUE = ("completion", "demo")


def run_json(server: Server, *arguments: str, key: str | None = None) -> list[Any]:
    """What a command says in JSON, line by line."""
    result = run(*arguments, "--json", FAIRLANE_SERVER=server.address, FAIRLANE_KEY=key or server.operator)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_documents(server: Server, customer: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "b.txt").write_text("two")
    rows = run_json(server, "submit", "--customer", customer, str(tmp_path / "a.txt"), str(tmp_path / "b.txt"), "--cost", "2")
    assert [(row["priority"], row["counter"]) for row in rows] == [(1, -1), (2, -3)]
    assert server.queue.input(rows[0]["id"]).name == "a.txt"
    (why,) = run_json(server, "explain", rows[0]["id"])
    assert (why["id"], why["priority"], why["state"]) == (rows[0]["id"], 1, "ready")
    id = rows[0]["id"]
    assert run_json(server, "cancel", id) == [{"id": id, "cancelled": True, "state": "cancelled"}]
    assert run_json(server, "cancel", id) == [{"id": id, "cancelled": False, "state": "cancelled"}]
    result = run("retry", id, FAIRLANE_SERVER=server.address, FAIRLANE_KEY=server.operator)
    assert (result.exit_code, "nothing was retried" in result.stderr) == (2, True)


def test_looking_at_documents(server: Server, customer: str) -> None:
    id = server.queue.submit(customer, {"n": 1}, kind="looked at").id
    rows = run_json(server, "documents", "--customer", customer, "--kind", "looked at", "--since", "1h")
    assert [row["id"] for row in rows] == [id]
    assert run_json(server, "documents", "--customer", customer, "--until", "1h") == []
    (claim,) = server.queue.engine.claim("tester", 1, 60_000, {"looked at": 3})
    details = {
        "attempt": 1, "token": 1, "at": 0, "worker": "tester", "seconds": 1, "reason": "bad", "traceback": "T", "output": None,
    }  # fmt: skip
    server.queue.engine.settle([(claim, Failed("bad", details=json.dumps(details)))])
    (value,) = run_json(server, "show", id)
    assert [(entry["event"], entry["worker"]) for entry in value["history"]] == [
        ("submitted", None), ("started", "tester"), ("failed", None)
    ]  # fmt: skip
    assert value["failed_attempts"] == [details]
    assert value["steps"] == [{"kind": "looked at", "state": "failed", "result": None}]
    (own,) = run_json(server, "show", id, key=server.key(customer))
    assert (own["failed_attempts"], "tester" in json.dumps(own)) == ([], False)
    refused = run("events", FAIRLANE_SERVER=server.address, FAIRLANE_KEY=server.operator)
    assert (refused.exit_code, "add --follow" in refused.stderr) == (2, True)


def test_the_same_key_and_file_is_the_same_document(server: Server, customer: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    command = ("submit", "--customer", customer, "--key", "k", str(tmp_path / "a.txt"))
    assert run_json(server, *command) == run_json(server, *command)


def test_customers_and_rules(server: Server, customer: str) -> None:
    assert run_json(server, "check", customer)[0]["counter"] == 0
    assert run_json(server, "check", customer, "--cost", "3")[0]["counter"] == -3
    ((look,),) = run_json(server, "status", customer)
    assert (look["customer"], look["counter"]) == (customer, -3)
    assert customer in [row["customer"] for row in run_json(server, "status")[0]]
    assert run_json(server, "pause", customer) == [{"customer": customer, "paused": True, "waiting": 0}]
    assert run_json(server, "resume", customer) == [{"customer": customer, "paused": False, "waiting": 0}]
    assert run_json(server, "tune", customer, "--weight", "2", "--thresholds=-1,-2")[0]["thresholds"] == [-1, -2]
    assert run_json(server, "tune", customer, "--weight", "none", "--thresholds", "none")[0]["weight"] == 1
    assert run_json(server, "explain", customer)[0]["counter"] == -3
    assert run_json(server, "reset", customer) == [{"customer": customer, "counter_before": -3, "counter": 0}]
    before = run_json(server, "policy")[0]
    assert run_json(server, "policy", "--open-turn-every", "8")[0]["version"] == before["version"] + 1
    assert run_json(server, "policy", "--open-turn-every", "16")[0]["open_turn_every"] == 16
    result = run("explain", "nobody", FAIRLANE_SERVER=server.address, FAIRLANE_KEY=server.operator)
    assert (result.exit_code, "neither a document nor a customer" in result.stderr) == (2, True)
    assert "a server explains customers only to operators" in result.stderr


def test_a_customer_sees_itself(server: Server, customer: str) -> None:
    key = server.key(customer)
    run_json(server, "check", customer, key=key)
    assert [row["customer"] for row in run_json(server, "status", key=key)[0]] == [customer]
    assert [row["customer"] for row in run_json(server, "status", customer, key=key)[0]] == [customer]
    result = run("status", "other", FAIRLANE_SERVER=server.address, FAIRLANE_KEY=key)
    assert (result.exit_code, "may not read customer 'other'" in result.stderr) == (2, True)


def test_the_key_comes_from_a_file_or_the_environment_and_is_never_shown(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(server.operator + "\n")
    assert run("status", "--server", server.address, "--key-file", str(file)).exit_code == 0
    for content, message in (
        ("", "does not contain a key"),
        ("two words", "does not contain a key"),
        ("fl_wrong", "key that is in use"),
    ):
        file.write_text(content)
        result = run("status", "--server", server.address, "--key-file", str(file))
        assert (result.exit_code, message in result.stderr) == (2, True), result.output
        assert not content or content not in result.output
    result = run("status", "--server", server.address)
    assert (result.exit_code, "put it in FAIRLANE_KEY" in result.stderr) == (2, True)
    result = run("status", "--server", server.address, "--key-file", str(tmp_path / "none"))
    assert (result.exit_code, "there is no file" in result.stderr) == (2, True)


def test_what_a_server_cannot_do_is_said(server: Server, tmp_path: Path) -> None:
    server_option = ("--server", server.address)
    for arguments, message in (
        (("check", "acme", "--now", "1"), "which uses its own clock"),
        (("submit", "--customer", "acme", "--blobs", "x", __file__), "a server has its own setting for that"),
        (("status", "--url", "sqlite:///x"), "--url and --server cannot be used together"),
    ):
        result = run(*arguments, *server_option, FAIRLANE_KEY=server.operator)
        assert (result.exit_code, message in result.stderr) == (2, True), result.output


@pytest.mark.parametrize("arguments", [("purge", "--older-than", "1d"), ("doctor",), ("keys", "list"), ("work",), ("serve",),
                                       ("forget", "acme", "--yes"), ("sweep",), ("migrate",), ("verify",)])  # fmt: skip
def test_commands_that_need_the_store_say_so(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for said in (run(*arguments, "--server", "http://127.0.0.1:1"), run(*arguments, FAIRLANE_SERVER="http://127.0.0.1:1")):
        assert (said.exit_code, "needs the store itself" in said.stderr) == (2, True), said.output
    assert list(tmp_path.iterdir()) == []


def test_every_command_either_takes_a_server_or_is_known_not_to() -> None:
    for name, command in main.commands.items():
        has = any("--server" in option.opts and not getattr(option, "hidden", False) for option in command.params)
        assert has == (name not in NEED_STORE + NO_QUEUE), name


def test_customers_are_offered_while_typing(server: Server) -> None:
    server.queue.check("offered-1")
    words = {"COMP_WORDS": "fairlane pause off", "COMP_CWORD": "2", "_FAIRLANE_COMPLETE": "bash_complete"}
    result = run(FAIRLANE_SERVER=server.address, FAIRLANE_KEY=server.operator, **words)
    assert result.stdout.splitlines() == ["plain,offered-1"]


def test_the_first_place_that_names_a_store_or_a_server_decides(tmp_path: Path) -> None:
    both = {"FAIRLANE_URL": "sqlite:///e", "FAIRLANE_SERVER": "http://e"}
    assert load_settings(None, {}, tmp_path) == Settings("sqlite:///fairlane.db", None, None)
    assert load_settings("sqlite:///a", both, tmp_path) == Settings("sqlite:///a", None, None)
    assert load_settings(None, both, tmp_path, server="http://a") == Settings("", None, "http://a")
    assert load_settings(None, both, tmp_path) == Settings("sqlite:///e", None, "http://e")
    (tmp_path / "fairlane.toml").write_text('server = "http://f"\nblobs = "/f"')
    assert load_settings(None, {}, tmp_path) == Settings("", "/f", "http://f")
    assert load_settings(None, {"FAIRLANE_URL": "sqlite:///e"}, tmp_path) == Settings("sqlite:///e", "/f", None)
    with pytest.raises(Mistake, match="cannot be used together"):
        load_settings("sqlite:///a", {}, tmp_path, server="http://a")
    with pytest.raises(BadValue, match="FAIRLANE_SERVER"):
        load_settings(None, {"FAIRLANE_SERVER": ""}, tmp_path)


def test_export(server: Server, customer: str, tmp_path: Path) -> None:
    server.queue.submit(customer, content=b"bytes", name="a.txt")
    path = tmp_path / "all.tar"
    (row,) = run_json(server, "export", customer, "--to", str(path), key=server.admin)
    assert (row["file"], row["documents"], row["files"], row["bytes"]) == (str(path), 1, 1, path.stat().st_size)
    assert len(Exported(path).rows("documents")) == 1
    for name in ("all.tar.gz", "-"):
        result = run("export", customer, "--to", name, FAIRLANE_SERVER=server.address, FAIRLANE_KEY=server.admin)
        assert (result.exit_code, "through a server the name of a new file that ends with .tar" in result.stderr) == (2, True)


def test_steering(server: Server, customer: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    (receipt,) = run_json(server, "submit", "--customer", customer, str(tmp_path / "a.txt"), "--no-better-than", "6")
    assert receipt["priority"] == 6
    id = receipt["id"]
    assert run_json(server, "prioritize", id, "--priority", "2") == [{"id": id, "priority": 2}]
    (numbers,) = run_json(server, "prioritize", "--customer", customer, "--priority", "1", "--yes")
    assert (numbers["matched"], numbers["changed"]) == (1, 1)
    (kind,) = run_json(server, "kind", customer, "--running-max", "3", "--rate", "2")
    assert (kind["running_max"], kind["rate"], kind["version"]) == (3, 2, 1)
    assert kind in run_json(server, "kinds")[0]
    assert run_json(server, "tune", customer, "--apply-to-backlog")[0]["reprioritized"] == 0
    assert run_json(server, "policy", "--apply-to-backlog")[0]["reprioritized"] >= 0
    (data,) = run_json(server, "reset", customer, "--with-backlog")
    assert (data["counter"], data["reprioritized"]) == (0, 0)
    assert server.queue.document(id).priority == 1, "what was set by hand stays"
    refused = run("prioritize", id, "--priority", "1", FAIRLANE_SERVER=server.address, FAIRLANE_KEY=server.key(customer))
    assert refused.exit_code == 2
    server.queue.cancel(id)
