"""What the tests of the sandbox share: callers of every kind, each in a fork, and a search for processes that survived."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import secrets
import select
import shutil
import signal
import socket
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fairlane import sandbox
from fairlane.sandbox.fork_server import main

from . import forked_work

NOBODY_UID = 65534
QUICK = sandbox.ResourceLimits(
    seconds_max=90, cpu_seconds_max=60, memory_max=300_000_000, memory_sum_max=400_000_000, output_max=20_000_000
)
WITHOUT = {
    "all layers": frozenset[str](),
    "without namespaces": sandbox.NAMESPACES,
    "without landlock": frozenset({"landlock"}),
}
_PR_SET_NAME, _PR_SET_DUMPABLE = 15, 4
_libc = ctypes.CDLL(None, use_errno=True)


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


def become(user: int) -> None:
    """Another user, as if it had always been one."""
    if user != os.geteuid():
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
        _libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)


# -- what this machine offers, found out without the code that is tested

ALWAYS_NEEDED = frozenset({"limits", "privileges", "user", "seccomp"})
_CLONE_NEWNS, _CLONE_NEWUSER = 0x20000, 0x10000000
_MS_REC_SLAVE = 16384 | 1 << 19
_LANDLOCK_CREATE, _MOUNT_CALLS = 444, (428, 429, 430, 431, 432, 442)  # on x86_64 and on aarch64


def _has_call(number: int) -> bool:
    return int(_libc.syscall(number, -1, 0, -1)) >= 0 or ctypes.get_errno() not in (errno.ENOSYS, errno.EPERM)


def _can_mount() -> bool:
    """Try it; this process is in other namespaces afterwards."""
    is_alone = os.geteuid() == 0 or _libc.unshare(_CLONE_NEWUSER) == 0
    is_alone = is_alone and _libc.unshare(_CLONE_NEWNS) == 0 and _libc.mount(None, b"/", None, _MS_REC_SLAVE, None) == 0
    return is_alone and all(map(_has_call, _MOUNT_CALLS))


@cache
def offered_layers(user: int) -> frozenset[str]:
    """The layers over files that this machine has for a user."""
    pid = os.fork()
    if pid == 0:
        code = 0
        try:
            become(user)
            code |= int(_libc.syscall(_LANDLOCK_CREATE, None, 0, 1) > 0)
            code |= 2 * _can_mount()
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return frozenset({"landlock"} if code & 1 else ()) | frozenset({"mount namespace"} if code & 2 else ())


def is_refused(user: int, without: frozenset[str]) -> bool:
    """Whether a promise cannot be kept without these layers; an ordinary user mounts only in a user namespace."""
    offered = offered_layers(user) - without
    has_mounts = "mount namespace" in offered and (user == 0 or "user namespace" not in without)
    return bool(without & ALWAYS_NEEDED) or not (has_mounts or "landlock" in offered)


def refusal(caller: Caller) -> str:
    """The reason for skipping what a caller cannot do here."""
    offered = ", ".join(sorted(offered_layers(caller.user))) or "neither Landlock nor a mount namespace"
    return f"this machine offers user {caller.user} {offered}: without {sorted(caller.without)} files are refused"


def skip_refused(items: Iterable[pytest.Item]) -> None:
    """Skip the tests of callers whose files this machine refuses."""
    for item in items:
        values = item.callspec.params.values() if hasattr(item, "callspec") else ()
        for caller in (CALLERS[value] for value in values if isinstance(value, str) and value in CALLERS):
            if is_refused(caller.user, caller.without):
                item.add_marker(pytest.mark.skip(reason=refusal(caller)))


@contextlib.contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that every user can reach and write to."""
    folder = Path(tempfile.mkdtemp(prefix="fairlane-sandbox-"))
    folder.chmod(0o777)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


NEEDS_SANDBOX = pytest.mark.skipif(is_refused(os.geteuid(), frozenset()), reason=refusal(Caller(os.geteuid(), frozenset())))


def _can_look_inside() -> bool:
    """Whether this process may see the namespaces of another user's process; root of a container may not."""
    ready, ours = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ours)
        with contextlib.suppress(OSError):
            become(NOBODY_UID)
        os.read(ready, 1)
        os._exit(0)
    try:
        while os.geteuid() == 0 and os.stat(f"/proc/{pid}").st_uid not in (NOBODY_UID,):
            pass
        os.stat(f"/proc/{pid}/ns/pid")
    except PermissionError:
        return False
    else:
        return True
    finally:
        os.close(ours)
        os.close(ready)
        os.waitpid(pid, 0)


CAN_LOOK_INSIDE = pytest.mark.skipif(
    not _can_look_inside(), reason="this machine does not let root look into processes of others"
)
HAS_NAMESPACES = pytest.mark.skipif(
    "mount namespace" not in offered_layers(os.geteuid()), reason="this machine refuses namespaces"
)


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


def wait_until_gone(name: str, seconds: float = 90) -> bool:
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


def kill(pid: int) -> None:
    """kill -9, and wait."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


class ForkedCall(NamedTuple):
    """A call that runs in a fork."""

    caller: Caller
    pid: int
    name: str  # of its processes
    report: int

    def has_ended(self) -> bool:
        """Whether it has reported, or died."""
        return select.select([self.report], [], [], 0)[0] != []

    def result(self) -> Any:
        """Wait until it has returned; no process of it may survive, though nothing here ends them."""
        with open(self.report) as file:
            received = file.read()
        os.waitpid(self.pid, 0)
        is_done, value, survivors = json.loads(received)
        if not is_done and is_refused(self.caller.user, self.caller.without):
            pytest.skip(refusal(self.caller))
        assert is_done, value
        assert survivors == [], "alive when the caller had its response"
        assert living(self.name) == []
        return value


def begin_in_fork(caller: Caller, call: Callable[[], object]) -> ForkedCall:
    """Make a call in a fork of this user."""
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
    return ForkedCall(caller, pid, name, ours)


def call_in_fork(caller: Caller, call: Callable[[], object]) -> Any:
    """Return what a call returns in a fork of this user; no process of it may survive."""
    return begin_in_fork(caller, call).result()


def wait_for(condition: Callable[[], object], forked: ForkedCall) -> None:
    """Wait until a condition holds, or the call has ended without it."""
    while not condition() and not forked.has_ended():
        pass


def wait_for_file(path: Path) -> None:
    """In an attempt: wait until a file is there."""
    while not path.exists():
        pass


NAMESPACE_FILES = ("pid", "mnt", "net", "ipc", "uts", "user")


def namespaces_of(process: object) -> dict[str, int]:
    return {kind: os.stat(f"/proc/{process}/ns/{kind}").st_ino for kind in NAMESPACE_FILES}


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
    limits: sandbox.ResourceLimits = QUICK,
    readable: tuple[Path, ...] = (),
    output: Path | None = None,
) -> Any:
    """`["value", …]` or `[code, detail]` of work in the sandbox; its output file may be a new file at a path."""
    return begin(caller, work, limits, readable, output).result()


def begin(
    caller: Caller,
    work: Callable[[], object],
    limits: sandbox.ResourceLimits = QUICK,
    readable: tuple[Path, ...] = (),
    output: Path | None = None,
) -> ForkedCall:
    """The same, while this process goes on."""

    def call() -> object:
        try:
            return ["value", run(caller, work, limits, readable, output).value]
        except sandbox.AttemptFailed as failure:
            return [failure.code, failure.detail]

    return begin_in_fork(caller, call)


def run(
    caller: Caller,
    work: Callable[[], object],
    limits: sandbox.ResourceLimits = QUICK,
    readable: Iterable[Path] = (),
    output: Path | None = None,
) -> sandbox.Response:
    """Run work as this caller does, in this process or by a fork server."""
    file = None if output is None else os.open(output, os.O_RDWR | os.O_CREAT)
    try:
        if not caller.has_fork_server:
            return sandbox.run(work, limits, readable, output=file, without=caller.without)
        with fork_server_of(work) as (fork_server, standby):
            try:
                return sandbox.run_in_fork_server(fork_server, (), limits, readable, output=file, without=caller.without)
            finally:
                assert not survivors_of(standby), "alive when the caller had its response"
    finally:
        if file is not None:
            os.close(file)


def survivors_of(standby: int) -> set[int]:
    """Processes of this process's name that belong neither to the fork server nor to its supervisors."""
    table = processes()
    servers = {pid for pid, process in table.items() if process.parent == standby}
    forked = {pid for pid, process in table.items() if process.parent in servers}  # supervisors, and their parents
    ours = {os.getpid(), standby, *servers, *forked, *(pid for pid in table if table[pid].session in forked)}
    name = Path("/proc/self/comm").read_bytes().strip()
    return {pid for pid, process in table.items() if process.name == name} - ours


def write_mark() -> None:
    """In an attempt: let the test know how far it is, by a byte in the output file."""
    with sandbox.output_file() as output:
        output.seek(0, os.SEEK_END)
        output.write(b"x")


def wait_for_mark() -> None:
    """In an attempt: wait until another process of it has written a mark."""
    with sandbox.output_file() as output:
        while output.seek(0, os.SEEK_END) == 0:
            pass


def has_mark(output: Path, count: int = 1) -> bool:
    """Whether an attempt has written so many marks."""
    return output.exists() and output.stat().st_size >= count


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
