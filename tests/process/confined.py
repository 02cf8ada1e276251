"""What the tests of the sandbox share: a caller that is forked, of any user, and a look at whether anything of it survived."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import secrets
import shutil
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from fairlane.process import sandbox
from fairlane.process.extract import Unreadable

NOBODY = 65534
QUICK = sandbox.Bounds(seconds_max=10, cpu_seconds_max=8, memory_max=300_000_000, file_max=20_000_000)
WITHOUT = {
    "all layers": frozenset[str](),
    "without namespaces": sandbox.NAMESPACES,
    "without landlock": frozenset({"landlock"}),
}
_SET_NAME, _SET_DUMPABLE = 15, 4
_libc = ctypes.CDLL(None)


class Caller(NamedTuple):
    """Who runs the sandbox, and with which layers."""

    user: int
    without: frozenset[str]


CALLERS = {
    f"{'root' if user == 0 else 'ordinary user'}, {name}": Caller(user, without)
    for user in ([0, NOBODY] if os.geteuid() == 0 else [os.geteuid()])
    for name, without in WITHOUT.items()
}


@contextlib.contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that every user can reach and write to."""
    folder = Path(tempfile.mkdtemp(prefix="fairlane-sandbox-"))
    folder.chmod(0o777)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def name_process(name: str) -> None:
    """A name that forks inherit, so that survivors can be found."""
    _libc.prctl(_SET_NAME, name.encode(), 0, 0, 0)


def become(user: int) -> None:
    """Another user, as if it had always been one."""
    if user != os.geteuid():
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
        _libc.prctl(_SET_DUMPABLE, 1, 0, 0, 0)


def living(name: str) -> list[int]:
    """The processes of this name that have not ended."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                head, _, rest = Path(f"/proc/{entry}/stat").read_bytes().rpartition(b")")
                if head.partition(b"(")[2] == name.encode() and rest.split()[0] != b"Z":
                    found.append(int(entry))
    return found


def gone(name: str, seconds: float = 20) -> bool:
    """Wait until no process has this name."""
    deadline = time.monotonic() + seconds
    while living(name):
        if time.monotonic() > deadline:
            return False
    return True


def forked(caller: Caller, call: Callable[[], object]) -> Any:
    """What a call gives in a fork of this user; nothing of it may survive, though it tried nothing to end what it started."""
    name = f"fl-{secrets.token_hex(4)}"
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(ours)
            name_process(name)
            become(caller.user)
            try:
                told = json.dumps([True, call(), [one for one in living(name) if one != os.getpid()]])
            except BaseException:  # noqa: BLE001 - told to the test
                told = json.dumps([False, traceback.format_exc(), []])
            with open(theirs, "w") as file:
                file.write(told)
        finally:
            os._exit(0)
    os.close(theirs)
    with open(ours) as file:
        said = file.read()
    os.waitpid(pid, 0)
    is_done, value, survivors = json.loads(said)
    assert is_done, value
    assert survivors == [], "alive when the caller had its answer"
    assert living(name) == []
    return value


def outcome(
    caller: Caller, work: Callable[[], object], scratch: Path, bounds: sandbox.Bounds = QUICK, readable: tuple[Path, ...] = ()
) -> Any:
    """`["value", …]` or `[code, detail]` of work in the sandbox."""

    def call() -> object:
        try:
            return ["value", sandbox.run(work, scratch, bounds, readable, without=caller.without)]
        except Unreadable as error:
            return [error.code, error.detail]

    return forked(caller, call)


def kill(pid: int) -> None:
    """kill -9, and wait."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
