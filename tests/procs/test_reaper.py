"""The reaper, in a forked subreaper of its own: what it ends, and what it leaves alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fairlane.procs import reaper, syscalls

SECONDS_MAX = 30.0


def in_subreaper(call: Callable[[], bool]) -> bool:
    """Run a call in a fork that inherits orphans; returns what the call returned."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            syscalls.become_subreaper()
            code = 0 if call() else 1
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1] == 0


def pausing() -> int:
    """Fork a process that waits for ever, deaf to every signal that can be ignored."""
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            signal.pause()
    return pid


def daemon() -> int:
    """Fork a process in a session of its own whose parent has ended."""
    reading, writing = os.pipe()
    parent = os.fork()
    if parent == 0:
        os.setsid()
        os.write(writing, str(pausing()).encode())
        os._exit(0)
    pid = int(os.read(reading, 20))
    os.waitpid(parent, 0)
    return pid


def has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


@pytest.mark.parametrize("stray", [pausing, daemon])
def test_strays_are_ended_and_reaped(stray: Callable[[], int]) -> None:
    def call() -> bool:
        pid = stray()
        assert reaper.children_of(os.getpid()) == [pid]
        reaper.end_strays(SECONDS_MAX)
        return not has_children()

    assert in_subreaper(call)


def test_a_stray_that_forks_without_end_is_ended() -> None:
    def call() -> bool:
        if os.fork() == 0:
            while True:
                if os.fork() > 0:
                    os._exit(0)  # its child, in its place, does the same
        reaper.end_strays(SECONDS_MAX)
        return not has_children()

    assert in_subreaper(call)


def test_a_stray_that_has_ended_is_reaped() -> None:
    def call() -> bool:
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert reaper.children_of(os.getpid()) == []
        reaper.end_strays(SECONDS_MAX)
        return not has_children()

    assert in_subreaper(call)


def test_kept_children_and_what_is_below_them_live_on() -> None:
    def call() -> bool:
        reading, writing = os.pipe()
        kept = os.fork()
        if kept == 0:
            os.write(writing, str(pausing()).encode())
            signal.pause()
        below = int(os.read(reading, 20))
        stray = pausing()
        reaper.end_strays(SECONDS_MAX, keep={kept})
        assert reaper.children_of(os.getpid()) == [kept]
        assert reaper.children_of(kept) == [below]
        assert stray not in reaper.children_of(os.getpid())
        reaper.end_strays(SECONDS_MAX)
        return not has_children()

    assert in_subreaper(call)


def test_a_group_is_killed_with_its_leader() -> None:
    def call() -> bool:
        reading, writing = os.pipe()
        leader = os.fork()
        if leader == 0:
            os.setsid()
            pausing()
            os.write(writing, b"1")
            signal.pause()
        os.read(reading, 1)
        reaper.kill_group(leader)
        statuses = [os.wait()[1], os.wait()[1]]
        return statuses == [signal.SIGKILL, signal.SIGKILL] and not has_children()

    assert in_subreaper(call)


def test_a_child_that_does_not_end_in_time_is_killed() -> None:
    def call() -> bool:
        reaper.wait_or_kill(pausing(), 0.0)
        return not has_children()

    assert in_subreaper(call)


def test_descendants_are_found_with_and_without_the_kernels_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    script = "import subprocess, sys; subprocess.run(['cat'])"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE) as child:
        deadline = time.monotonic() + 60
        while len(found := reaper.descendants_of(child.pid)) < 1:
            assert time.monotonic() < deadline
        assert child.pid in reaper.descendants_of(os.getpid())
        assert found < reaper.descendants_of(os.getpid())
        before = Path.read_text

        def without_lists(path: Path, *options: str) -> str:
            if path.name == "children":
                raise FileNotFoundError(path)
            return before(path, *options)

        monkeypatch.setattr(Path, "read_text", without_lists)
        assert reaper.descendants_of(child.pid) == found
        child.communicate()
    assert reaper.descendants_of(child.pid) == set()
