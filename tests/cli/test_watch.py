"""What stays on the screen: on a real terminal, in a pipe, and until Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from fairlane import Queue

from .running import Terminal, start


@pytest.fixture
def busy(url: str) -> str:
    with Queue(url) as queue:
        queue.submit_many("a customer with quite a long name, longer than there is room for", range(3))
        for number in range(40):
            queue.check(f"idle-{number:02}")
        queue.submit_many("busy", range(7))
    return url


def test_a_watched_status_changes_and_ends_quietly(busy: str) -> None:
    with Terminal(80, 24, "status", "--watch", "--url", busy) as terminal:
        terminal.wait_for(lambda shown: "busy " in shown and "The 16 busiest of 42 customers. Press Ctrl-C to stop." in shown)
        assert " a customer with quite a … " in terminal.shown
        before = len(terminal.shown)
        with Queue(busy) as queue:
            queue.submit_many("newcomer", range(9))
        terminal.wait_for(lambda shown: "newcomer" in shown[before:])
        frame = terminal.shown[terminal.shown.rindex("oldest") : terminal.shown.rindex("Press Ctrl-C to stop.")]
        assert len(frame.splitlines()) <= 22
        terminal.program.send_signal(signal.SIGINT)
        assert terminal.wait() == 0
        assert "Aborted" not in terminal.shown
        assert "Traceback" not in terminal.shown


def test_customers_can_be_told_apart_at_80_columns(url: str) -> None:
    with Queue(url) as queue:
        for number in range(1, 13):
            queue.submit_many(f"customer-{number:04d}", range(number))
    with Terminal(80, 24, "status", "--watch", "--url", url) as terminal:
        terminal.wait_for(lambda shown: "Press Ctrl-C to stop." in shown)
        assert all(f" customer-{number:04d} " in terminal.shown for number in range(1, 13))
        assert "oldest" in terminal.shown


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_in_a_narrow_terminal_no_figure_is_cut_and_every_part_has_the_names(url: str, columns: int) -> None:
    with Queue(url) as queue:
        queue.submit_many("northwind", range(1000))
    with Terminal(columns, 40, "status", "--url", url) as terminal:
        assert terminal.wait() == 0
    lines = [line for line in terminal.shown.splitlines() if "northwind" in line]
    parts = [line.split() for line in lines]
    table = terminal.shown.partition("No worker takes")[0]
    assert max(map(len, table.splitlines())) <= columns
    assert {part[0] for part in parts} == {"northwind"}
    assert [figure for part in parts for figure in part[1:]][:6] == ["-999", "9", "1000", "0", "0", "0"]
    assert (len(parts) > 1) == (columns < 80)


def test_many_policies_side_by_side_keep_the_names_of_their_rows() -> None:
    policies = (
        "fifo",
        "texts-strict",
        "texts",
        "texts-documents",
        "sliding",
        "sliding-documents",
        "round-robin",
        "fair-queueing",
    )
    with Terminal(80, 40, "simulate", "newcomers", *(word for one in policies for word in ("--policy", one))) as terminal:
        assert terminal.wait() == 0
    assert terminal.shown.count("light wait, p50") == 2
    assert all(one in terminal.shown for one in policies)


def test_one_customer_can_be_watched(busy: str) -> None:
    with Terminal(80, 24, "status", "busy", "--watch", "--url", busy) as terminal:
        terminal.wait_for(lambda shown: "Press Ctrl-C to stop." in shown)
        assert "idle" not in terminal.shown
        terminal.program.send_signal(signal.SIGINT)
        assert terminal.wait() == 0


def test_a_watched_status_in_json_is_an_array_a_line(busy: str) -> None:
    with start("status", "busy", "--watch", "--json", "--url", busy, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        first = json.loads(program.stdout.readline())
        with Queue(busy) as queue:
            queue.submit("busy")
        second = json.loads(program.stdout.readline())
        program.send_signal(signal.SIGINT)
    assert (first[0]["waiting"], second[0]["waiting"], program.returncode) == (7, 8, 0)


def test_a_watched_status_in_a_pipe_ends_with_the_pipe(busy: str) -> None:
    with start("status", "--watch", "--url", busy, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        line = next(line for line in program.stdout if "longer than there is room for" in line)
        program.stdout.close()
        stderr = program.stderr.read()
    assert "…" not in line
    assert (stderr, program.returncode) == ("", 1)


def test_a_watched_queue_without_customers_waits_for_them(url: str, tmp_path: Path) -> None:
    Queue(url).close()
    with Terminal(80, 24, "status", "--watch", "--url", url) as terminal:
        terminal.wait_for(lambda shown: "No customers yet" in shown)
        with Queue(url) as queue:
            queue.check("first")
        terminal.wait_for(lambda shown: "first" in shown)
        terminal.program.send_signal(signal.SIGINT)
        assert terminal.wait() == 0
