"""`fairlane demo --serve`: the service with sample customers, and nothing of it left afterwards."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane import Client
from fairlane.demo import server as demo_server
from tests.api.running import until
from tests.worker.conftest import is_alive, process_tree

from .running import Terminal, run, start

ADDRESS = re.compile(r"Open (http://127\.0\.0\.1:\d+) in a browser")
KEY = re.compile(r"(admin|ada-law), sees [a-z ]+ (fl_\S+)")
FEW = ("--big", "12", "--small", "2", "--each", "2", "--paragraphs", "1")


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where temporary folders are made; nothing may be left in it."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    until(lambda: not list(folder.iterdir()), "the folder to be empty")


def test_it_says_where_and_with_which_key_feeds_itself_and_leaves_nothing(temporary: Path) -> None:
    with start("demo", "--serve", *FEW, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stdout is not None
        stdout = ""
        while "northwind:" not in stdout:
            stdout += (line := program.stdout.readline())
            assert line, program.communicate()
        (address,) = ADDRESS.findall(stdout)
        keys = dict(KEY.findall(stdout))
        with Client(address, keys["admin"]) as operator, Client(address, keys["ada-law"]) as light:
            until(lambda: operator.look("northwind").done > 0, "a document of the big customer to be done")
            assert light.me().customer == "ada-law"
            assert operator.rules().policy.reset_interval == demo_server.INTERVAL_SECONDS
        tree = process_tree(program.pid)
        assert len(tree) > 2
        program.send_signal(signal.SIGINT)
        rest, stderr = program.communicate(timeout=60)
    assert (program.returncode, stderr) == (0, "")
    assert rest.endswith("Stopped; everything was removed.\n")
    until(lambda: not any(map(is_alive, tree)), "every process to end")


def test_on_a_terminal_there_is_a_table(temporary: Path) -> None:
    with Terminal(120, 40, "demo", "--serve", *FEW) as shown:
        shown.wait_for(lambda text: re.search(r"northwind\s+-?\d", text))
        shown.wait_for(ADDRESS.search)
        os.kill(shown.program.pid, signal.SIGTERM)
        assert shown.wait() == 0
        assert "Stopped; everything was removed." in shown.shown


def test_a_port_that_is_taken_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as other:
        free = other.getsockname()[1]
        other.close()
        monkeypatch.setattr(demo_server, "PORTS", [taken.getsockname()[1], free])
        assert demo_server.free_port() == free
        monkeypatch.setattr(demo_server, "PORTS", [taken.getsockname()[1]])
        assert demo_server.free_port() == 0


def test_a_chosen_port_that_is_taken_is_reported(temporary: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = run("demo", "--serve", "--port", str(taken.getsockname()[1]), *FEW)
    assert (result.exit_code, "the server did not start: cannot listen on" in result.stderr) == (3, True), result.output


def test_killing_it_ends_the_server(tmp_path: Path) -> None:
    environment = {"TMPDIR": str(tmp_path)}
    with start("demo", "--serve", *FEW, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, environment=environment) as program:
        assert program.stdout is not None
        assert ADDRESS.search(program.stdout.readline())
        tree = process_tree(program.pid)
        program.kill()
        program.communicate()
    until(lambda: not any(map(is_alive, tree)), "every process to end")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("demo",), "FOLDER is missing: use `fairlane demo FOLDER`"),
        (("demo", "x", "--port", "1"), "use it together with --serve"),
        (("demo", "x", "--serve"), "--serve works without FOLDER"),
        (("demo", "--serve", "--json"), "--serve works without FOLDER and --json"),
        (("demo", "--serve", "--port", "-1"), "--port is -1"),
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    result = run(*arguments)
    assert (result.exit_code, message in result.stderr) == (2, True), result.output
