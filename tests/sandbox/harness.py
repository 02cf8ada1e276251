"""What the tests of the sandbox share: callers of every kind, each in a fork, and a search for processes that survived."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import secrets
import shutil
import signal
import socket
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fairlane import sandbox
from fairlane.sandbox.fork_server import main

from . import forked_work

NOBODY_UID = 65534
QUICK = sandbox.ResourceLimits(seconds_max=10, cpu_seconds_max=8, memory_max=300_000_000, file_max=20_000_000)
WITHOUT = {
    "all layers": frozenset[str](),
    "without namespaces": sandbox.NAMESPACES,
    "without landlock": frozenset({"landlock"}),
}
_PR_SET_NAME, _PR_SET_DUMPABLE = 15, 4
_libc = ctypes.CDLL(None)


class Caller(NamedTuple):
    """Who runs the sandbox, without which layers, and whether by a fork server."""

    user: int
    without: frozenset[str]
    has_fork_server: bool = False


CALLERS = {
    f"{'root' if user == 0 else 'ordinary user'}, {name}{', by a fork server' * has_fork_server}": Caller(
        user, without, has_fork_server
    )
    for user in ([0, NOBODY_UID] if os.geteuid() == 0 else [os.geteuid()])
    for name, without in WITHOUT.items()
    for has_fork_server in ([False, True] if name != "without landlock" else [False])
}


WITH_ALL_LAYERS = pytest.mark.parametrize(  # for what rests on no layer: limits, clocks, how responses are read
    "caller", [name for name, caller in CALLERS.items() if not caller.without], indirect=True
)


@contextlib.contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that every user can reach and write to."""
    folder = Path(tempfile.mkdtemp(prefix="fairlane-sandbox-"))
    folder.chmod(0o777)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def scratch_of(folder: Path, caller: Caller) -> Path:
    """A scratch folder that is this caller's."""
    scratch = folder / "scratch"
    scratch.mkdir()
    os.chown(scratch, caller.user, caller.user)
    return scratch


# -- processes


class Process(NamedTuple):
    """A process that has not ended."""

    name: bytes
    parent: int
    session: int


def processes() -> dict[int, Process]:
    """Every process but zombies, by pid."""
    living = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                head, _, rest = Path(f"/proc/{entry}/stat").read_bytes().rpartition(b")")
                state, parent, _, session = rest.split()[:4]
                if state != b"Z":
                    living[int(entry)] = Process(head.partition(b"(")[2], int(parent), int(session))
    return living


def living(name: str) -> list[int]:
    """The processes of this name that have not ended."""
    return [pid for pid, process in processes().items() if process.name == name.encode()]


def children_of(parent: int) -> list[int]:
    return [pid for pid, process in processes().items() if process.parent == parent]


def parent_of(pid: int) -> int:
    return processes()[pid].parent


def supervisors_of(standby: int) -> list[int]:
    """The supervisors that a fork server has forked, by the pid of its standby process, while no attempt runs."""
    table = processes()
    below, size = {standby}, 0
    while len(below) > size:
        size = len(below)
        below |= {pid for pid, process in table.items() if process.parent in below}
    detached = {pid for pid in below if table[pid].session != table[standby].session}
    # With a process namespace the supervisor is a fork of one that is about to exit.
    return sorted(detached - {table[pid].parent for pid in detached})


def wait_until_gone(name: str, seconds: float = 20) -> bool:
    """Wait until no process has this name."""
    deadline = time.monotonic() + seconds
    while living(name):
        if time.monotonic() > deadline:
            return False
    return True


def wait_until_ended(pid: int) -> None:
    """Wait until a process is gone or a zombie."""
    while pid in processes():
        pass


def name_process(name: str) -> None:
    """A name that forks inherit, so that survivors can be found."""
    _libc.prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def become(user: int) -> None:
    """Another user, as if it had always been one."""
    if user != os.geteuid():
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
        _libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)


def kill(pid: int) -> None:
    """kill -9, and wait."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def call_in_fork(caller: Caller, call: Callable[[], object]) -> Any:
    """Return what a call returns in a fork of this user; no process of it may survive, though nothing here ends them."""
    name = f"fl-{secrets.token_hex(4)}"
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(ours)
            name_process(name)
            become(caller.user)
            try:
                report = json.dumps([True, call(), [pid for pid in living(name) if pid != os.getpid()]])
            except BaseException:  # noqa: BLE001 - the test shows it
                report = json.dumps([False, traceback.format_exc(), []])
            with open(theirs, "w") as file:
                file.write(report)
        finally:
            os._exit(0)
    os.close(theirs)
    with open(ours) as file:
        received = file.read()
    os.waitpid(pid, 0)
    is_done, value, survivors = json.loads(received)
    assert is_done, value
    assert survivors == [], "alive when the caller had its response"
    assert living(name) == []
    return value


# -- attempts


def error_name(call: Callable[..., object], *values: object) -> str | None:
    """The name of the error that a call ends with; none if it worked."""
    try:
        call(*values)
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return None


def outcome(
    caller: Caller,
    work: Callable[[], object],
    scratch: Path,
    limits: sandbox.ResourceLimits = QUICK,
    readable: tuple[Path, ...] = (),
) -> Any:
    """`["value", …]` or `[code, detail]` of work in the sandbox."""

    def call() -> object:
        try:
            return ["value", runner_of(caller)(work, scratch, limits, readable, without=caller.without).value]
        except sandbox.AttemptFailed as failure:
            return [failure.code, failure.detail]

    return call_in_fork(caller, call)


def runner_of(caller: Caller) -> Callable[..., sandbox.Response]:
    """How this caller has work run."""
    return run_by_fork_server if caller.has_fork_server else sandbox.run


def run_by_fork_server(
    work: Callable[[], object],
    scratch: Path,
    limits: sandbox.ResourceLimits,
    readable: Iterable[Path] = (),
    *,
    without: frozenset[str],
) -> sandbox.Response:
    """As `sandbox.run`, by a fork server that is a fork of this process: so it knows any work, and any user can have one."""
    with fork_server_of(work) as (fork_server, standby):
        try:
            return sandbox.run_in_fork_server(fork_server, (), scratch, limits, readable, without=without)
        finally:
            table = processes()
            servers = {pid for pid, process in table.items() if process.parent == standby}
            forked = {pid for pid, process in table.items() if process.parent in servers}  # supervisors, and their parents
            ours = {os.getpid(), standby, *servers, *forked, *(pid for pid in table if table[pid].session in forked)}
            name = Path("/proc/self/comm").read_bytes().strip()
            survivors = {pid for pid, process in table.items() if process.name == name} - ours
            assert not survivors, "alive when the caller had its response"


@contextlib.contextmanager
def fork_server_of(work: Callable[..., object]) -> Iterator[tuple[sandbox.SandboxForkServer, int]]:
    """A fork server for this work, and the pid of its standby process; both have ended afterwards."""
    forked_work.CALLS[:] = [work]
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    standby = os.fork()
    if standby == 0:
        try:
            ours.close()
            main(theirs.detach(), forked_work.__name__)
        finally:
            os._exit(0)
    theirs.close()
    fork_server = sandbox.SandboxForkServer(ours)
    try:
        yield fork_server, standby
    finally:
        fork_server.close()
        os.waitpid(standby, 0)
