"""What the tests of the sandbox share: a caller that is forked, of any user, and a look at whether anything of it survived."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import re
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
from fairlane.extract import Unreadable
from fairlane.sandbox.fork_server import main

from . import given

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
    """Who runs the sandbox, with which layers, and whether by a template."""

    user: int
    without: frozenset[str]
    has_template: bool = False


CALLERS = {
    f"{'root' if user == 0 else 'ordinary user'}, {name}{', by a template' * has_template}": Caller(user, without, has_template)
    for user in ([0, NOBODY] if os.geteuid() == 0 else [os.geteuid()])
    for name, without in WITHOUT.items()
    for has_template in ([False, True] if name != "without landlock" else [False])
}


WITH_ALL_LAYERS = pytest.mark.parametrize(  # for what rests on no layer: limits, clocks, how answers are read
    "caller", [name for name, one in CALLERS.items() if not one.without], indirect=True
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


def tried(call: Callable[..., object], *values: object) -> str | None:
    """The name of the error that a call ends with; none if it worked."""
    try:
        call(*values)
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return None


def outcome(
    caller: Caller, work: Callable[[], object], scratch: Path, bounds: sandbox.Bounds = QUICK, readable: tuple[Path, ...] = ()
) -> Any:
    """`["value", …]` or `[code, detail]` of work in the sandbox."""

    def call() -> object:
        try:
            return ["value", run_of(caller)(work, scratch, bounds, readable, without=caller.without).value]
        except Unreadable as error:
            return [error.code, error.detail]

    return forked(caller, call)


def scratch_of(place: Path, caller: Caller) -> Path:
    """A scratch folder that is this caller's."""
    scratch = place / "scratch"
    scratch.mkdir()
    os.chown(scratch, caller.user, caller.user)
    return scratch


def run_of(caller: Caller) -> Callable[..., sandbox.Heard]:
    """How this caller has work run."""
    return run_by_template if caller.has_template else sandbox.run


def run_by_template(
    work: Callable[[], object], scratch: Path, bounds: sandbox.Bounds, readable: Iterable[Path] = (), *, without: frozenset[str]
) -> sandbox.Heard:
    """As `sandbox.run`, by a template that is no fresh Python but a fork: so it knows any work, and any user can have one."""
    with template_of(work) as (template, pid):
        try:
            return sandbox.run_in(template, (), scratch, bounds, readable, without=without)
        finally:
            templates = children_of(pid)
            ours = {
                os.getpid(),
                pid,
                *templates,
                *(child for one in templates for child in children_of(one)),  # guards, and who forked one and now ends
                *(guard_of(line) for lines in template._idle.values() for line in lines),
            }
            name = Path("/proc/self/comm").read_text().strip()
            assert set(living(name)) <= ours, "alive when the caller had its answer"


@contextlib.contextmanager
def template_of(work: Callable[..., object]) -> Iterator[tuple[sandbox.Template, int]]:
    """A template for this work, and the pid of the process that stands behind it; both have ended afterwards."""
    given.CALLS[:] = [work]
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        try:
            ours.close()
            main(theirs.detach(), given.__name__)
        finally:
            os._exit(0)
    theirs.close()
    template = sandbox.Template(ours)
    try:
        yield template, pid
    finally:
        template.close()
        os.waitpid(pid, 0)


def children_of(parent: int) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if parent_of(int(name)) == parent:
                    found.append(int(name))
    return found


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])


def guard_of(line: Any) -> int:
    """The pid of the guard at the other end of a line."""
    return int(re.findall(r"^Pid:\t(\d+)$", Path(f"/proc/self/fdinfo/{line.process}").read_text(), re.MULTILINE)[0])


def kill(pid: int) -> None:
    """kill -9, and wait."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
