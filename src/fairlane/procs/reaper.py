"""Ending and reaping processes: children, their groups, and orphans that a subreaper inherited.

Laws:
- Only our own are signalled: children, their groups, and descendants.
- Strays are stopped before they are killed, so that none can fork meanwhile.
- Every wait has a deadline: a process that even SIGKILL does not end at once blocks nobody.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection, Iterable
from pathlib import Path

POLL_SECONDS = 0.001


def children_of(parent: int) -> list[int]:
    """List the living children of a process."""
    return [pid for pid, (state, its_parent) in _processes().items() if its_parent == parent and state != b"Z"]


def descendants_of(parent: int) -> set[int]:
    """List everything below a process, by the numbers in /proc; a process that starts or ends meanwhile may be missing."""
    below: set[int] = set()
    pending = [parent]
    try:
        while pending:
            pending = [child for pid in pending for child in _listed_children(pid)]
            below.update(pending)
    except _NoLists:
        return _below(parent, _processes(), keep=())
    return below


class _NoLists(Exception):
    """This kernel offers no lists of children (CONFIG_PROC_CHILDREN)."""


def _listed_children(parent: int) -> list[int]:
    children: list[int] = []
    with contextlib.suppress(OSError):  # it has ended meanwhile
        for task in os.listdir(f"/proc/{parent}/task"):
            try:
                children += map(int, Path(f"/proc/{parent}/task/{task}/children").read_text().split())
            except FileNotFoundError:
                if os.path.exists(f"/proc/{parent}/task/{task}"):
                    raise _NoLists from None
    return children


def _processes() -> dict[int, tuple[bytes, int]]:
    """Read the state and the parent of every process: not every kernel offers a list of children."""
    processes = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                # The name in brackets may contain anything, blanks and brackets too.
                state, parent = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()[:2]
                processes[int(name)] = state, int(parent)
    return processes


def kill_group(leader: int) -> None:
    """Send kill -9 to a process and its group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
    _signal([leader], signal.SIGKILL)


def wait_or_kill(pid: int, seconds_max: float) -> None:
    """Wait for a child to end and reap it; send kill -9 if it takes longer."""
    with contextlib.suppress(ChildProcessError):  # somebody else has reaped it
        if not _reap(pid, time.monotonic() + seconds_max):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def end_strays(seconds_max: float, keep: Collection[int] = ()) -> None:
    """End and reap every descendant except the children in `keep` and what is below them."""
    deadline = time.monotonic() + seconds_max
    while _has_children() and _descendants(keep) and time.monotonic() < deadline:
        stopped: set[int] = set()
        while running := _descendants(keep) - stopped:
            _signal(running, signal.SIGSTOP)
            stopped |= running
        _signal(stopped, signal.SIGKILL)
        for pid in stopped:
            with contextlib.suppress(ChildProcessError):  # a grandchild: ours once its parent has ended
                _reap(pid, deadline)


def _has_children() -> bool:
    """Tell whether this process has children, quickly: a search of /proc would slow down every attempt of the sandbox."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _descendants(keep: Collection[int]) -> set[int]:
    """List everything below this process, zombies too."""
    return _below(os.getpid(), _processes(), keep)


def _below(top: int, processes: dict[int, tuple[bytes, int]], keep: Collection[int]) -> set[int]:
    below, size = {top}, 0
    while len(below) > size:
        size = len(below)
        below |= {pid for pid, (_, parent) in processes.items() if parent in below and pid not in keep}
    return below - {top}


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _reap(pid: int, deadline: float) -> bool:
    """Wait for a child until the deadline; False if it still lives then."""
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True
