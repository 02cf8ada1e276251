"""Attempts by a fork server: a fresh Python that knows nothing of the caller, and one supervisor for many attempts."""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from fairlane import sandbox

from . import file_work
from .harness import (
    CALLERS,
    CAN_LOOK_INSIDE,
    HAS_NAMESPACES,
    NEEDS_SANDBOX,
    QUICK,
    Caller,
    begin_in_fork,
    call_in_fork,
    children_of,
    error_name,
    fork_server_of,
    has_mark,
    living,
    name_process,
    namespaces_of,
    parent_of,
    supervisors_of,
    wait_for,
    wait_for_file,
    wait_until_ended,
    wait_until_gone,
    write_mark,
)

BY_FORK_SERVER = [name for name, caller in CALLERS.items() if caller.has_fork_server]
pytestmark = NEEDS_SANDBOX
PLAIN = Caller(os.geteuid(), frozenset())
START_MAIN = "import sys; from fairlane.sandbox.fork_server import main; main(int(sys.argv[1]), sys.argv[2])"


class Started(NamedTuple):
    """A fork server that is a fresh Python, and the pid of its standby process."""

    fork_server: sandbox.SandboxForkServer
    standby: int

    def read(self, folder: Path, text: str) -> object:
        """Have the work read a file of this text."""
        path = folder / secrets.token_hex(4)
        path.write_text(text)
        return sandbox.run_in_fork_server(self.fork_server, (str(path),), QUICK, (path,)).value

    def supervisors(self) -> list[int]:
        return supervisors_of(self.standby)


@contextlib.contextmanager
def start() -> Iterator[Started]:
    before = children_of(os.getpid())
    fork_server = sandbox.SandboxForkServer.start(file_work.__name__)
    (standby,) = set(children_of(os.getpid())) - {*before}
    try:
        yield Started(fork_server, standby)
    finally:
        fork_server.close()
        os.waitpid(standby, 0)


@pytest.fixture
def started() -> Iterator[Started]:
    with start() as started:
        yield started


def test_nothing_of_the_caller_is_in_memory_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = f"password-{secrets.token_hex(16)}"
    monkeypatch.setenv("FAIRLANE_URL", f"postgresql://me:{secret}@example.org/queue")
    with start() as started:
        started.read(folder, "text")
        (supervisor,) = started.supervisors()
        assert secret.encode() not in writable_memory(supervisor)
        assert secret.encode() not in writable_memory(parent_of(supervisor)), "nor in the fork server"
        assert secret.encode() in writable_memory(os.getpid()), "else we looked in the wrong memory"


def writable_memory(pid: int) -> bytes:
    """Everything that a process can write to; its environment is in it."""
    content = bytearray()
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            start, _, end = line.split()[0].partition("-")
            if line.split()[1].startswith("rw"):
                with contextlib.suppress(OSError):
                    memory.seek(int(start, 16))
                    content += memory.read(int(end, 16) - int(start, 16))
    return bytes(content)


@CAN_LOOK_INSIDE
@pytest.mark.parametrize("name", BY_FORK_SERVER)
def test_attempts_of_one_supervisor_share_no_processes_folders_or_user(folder: Path, name: str) -> None:
    caller, mark = CALLERS[name], f"fl-{secrets.token_hex(4)}"

    def work(number: int) -> object:
        if os.fork() == 0:
            name_process(f"{mark}-{number}")
            write_mark()
            while True:
                signal.pause()  # left behind by each
        wait_for_file(folder / "go on" / str(number))
        return [os.getpid(), os.getuid(), error_name((folder / f"input {number - 1}").read_bytes)]

    def call() -> object:
        with fork_server_of(work) as (fork_server, standby):
            attempts = []
            for number in range(1, 4):
                readable = [folder / f"input {number}", folder / "go on"]
                with (folder / f"output {number}").open("wb") as output:
                    response = sandbox.run_in_fork_server(
                        fork_server, (number,), readable=readable, output=output.fileno(), without=caller.without
                    )
                attempts.append(response.value)
            (supervisor,) = supervisors_of(standby)
            layers = sandbox.require(caller.without).layers
            assert str(folder) not in Path(f"/proc/{supervisor}/mounts").read_text(), "nothing of an attempt is left"
            return [namespaces_of(supervisor), attempts, sorted(layers)]

    (folder / "go on").mkdir()
    for number in range(4):
        (folder / f"input {number}").touch()
    forked = begin_in_fork(caller, call)
    seen = []
    for number in range(1, 4):
        wait_for(partial(has_mark, folder / f"output {number}"), forked)
        (left_behind,) = living(f"{mark}-{number}")
        seen.append(namespaces_of(left_behind))
        (folder / "go on" / str(number)).touch()
    of_supervisor, attempts, layers = forked.result()
    assert [living(f"{mark}-{number}") for number in range(1, 4)] == [[], [], []]
    of_caller = namespaces_of("self")
    assert {error for _, _, error in attempts} == {"ENOENT" if "mount namespace" in layers else "EACCES"}
    if caller.user == 0:
        assert len({user for _, user, _ in attempts}) == 3
    if "process namespace" in layers:
        assert {pid for pid, _, _ in attempts} == {1}
        check_namespaces(seen, of_caller, of_supervisor)


def check_namespaces(seen: list[dict[str, int]], of_caller: dict[str, int], of_supervisor: dict[str, int]) -> None:
    """Each attempt has its own processes and mounts, and the other namespaces of its supervisor."""
    for kind, is_own in (("pid", True), ("mnt", True), ("net", False), ("ipc", False), ("uts", False)):
        inodes = {own[kind] for own in seen}
        assert of_caller[kind] not in inodes, kind
        assert (of_supervisor[kind] not in inodes) if is_own else (inodes == {of_supervisor[kind]}), kind


@pytest.mark.parametrize("name", BY_FORK_SERVER)
def test_an_attempt_that_was_ended_leaves_its_supervisor_ready(folder: Path, name: str) -> None:
    caller = CALLERS[name]

    def work(how: str) -> object:
        while how == "hang":
            signal.pause()
        if how == "crash":
            os.kill(os.getpid(), signal.SIGSEGV) if os.getpid() != 1 else os.abort()
        return how

    def call() -> object:
        values: list[object] = []
        with fork_server_of(work) as (fork_server, standby):
            for how in ("a", "hang", "b", "crash", "c"):
                limits = sandbox.ResourceLimits(seconds_max=0.3 if how == "hang" else 10)
                try:
                    response = sandbox.run_in_fork_server(fork_server, (how,), limits, without=caller.without)
                    values.append(response.value)
                except sandbox.AttemptFailed as failure:
                    values.append(failure.code)
            return [values, len(supervisors_of(standby))]

    assert call_in_fork(caller, call) == [["a", "timed_out", "b", "crashed", "c"], 1]


def test_a_supervisor_that_was_killed_is_replaced(folder: Path, started: Started) -> None:
    assert started.read(folder, "one") == "one"
    (supervisor,) = started.supervisors()
    os.kill(supervisor, signal.SIGKILL)
    wait_until_ended(supervisor)
    assert started.read(folder, "two") == "two"
    assert started.supervisors() != [supervisor]


def test_a_fork_server_that_was_killed_is_there_again(folder: Path, started: Started) -> None:
    servers = set()
    for _ in range(3):
        assert started.read(folder, "text") == "text"
        (supervisor,) = started.supervisors()
        server = parent_of(supervisor)
        servers.add(server)
        assert parent_of(server) == started.standby
        for pid in (server, supervisor):
            os.kill(pid, signal.SIGKILL)
            wait_until_ended(pid)
    assert len(servers) == 3


def test_a_supervisor_goes_on_when_its_fork_server_was_killed(folder: Path, started: Started) -> None:
    assert started.read(folder, "one") == "one"
    (supervisor,) = started.supervisors()
    server = parent_of(supervisor)
    os.kill(server, signal.SIGKILL)
    wait_until_ended(server)
    assert started.read(folder, "two") == "two"
    assert started.supervisors() == [supervisor]


def test_without_any_of_its_processes_the_fork_server_is_gone(folder: Path, started: Started) -> None:
    assert started.read(folder, "one") == "one"
    (supervisor,) = started.supervisors()
    server = parent_of(supervisor)
    for pid in (started.standby, server, supervisor):
        os.kill(pid, signal.SIGKILL)
        wait_until_ended(pid)
    with pytest.raises(sandbox.ForkServerGone):
        started.read(folder, "two")


def test_a_fork_of_the_caller_has_a_supervisor_of_its_own(folder: Path, started: Started) -> None:
    assert started.read(folder, "one") == "one"
    (ours,) = started.supervisors()
    text, supervisors = call_in_fork(PLAIN, lambda: [started.read(folder, "two"), started.supervisors()])
    assert text == "two"
    (theirs,) = {*supervisors} - {ours}
    wait_until_ended(theirs)  # with its caller
    assert started.read(folder, "three") == "three"
    assert started.supervisors() == [ours]


CALLER = """
import sys
from pathlib import Path
from tests.sandbox.test_fork_server import start
with start() as started:
    started.read(Path(sys.argv[1]), "text")
    print(*started.supervisors(), flush=True)
    sys.stdin.read()
"""


def test_fork_server_and_supervisor_end_with_a_caller_that_got_kill_9(folder: Path) -> None:
    command = [sys.executable, "-c", CALLER, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as caller:
        assert caller.stdout is not None
        supervisor = int(caller.stdout.readline())
        server = parent_of(supervisor)
        standby = parent_of(server)
        caller.kill()
    for pid in (supervisor, server, standby):
        wait_until_ended(pid)


@pytest.mark.parametrize("victim", ["caller", pytest.param("supervisor", marks=HAS_NAMESPACES), "fork server"])
def test_nothing_of_an_attempt_survives_kill_9_of_anybody(folder: Path, victim: str) -> None:
    mark = f"fl-{secrets.token_hex(4)}"
    output = folder / "output"

    def work() -> None:
        if os.fork() == 0:
            os.setsid()
            write_mark()
        while True:
            signal.pause()

    caller = os.fork()
    if caller == 0:
        try:
            name_process(mark)
            with fork_server_of(work) as (fork_server, standby):
                (folder / "standby").write_text(str(standby))
                limits = sandbox.ResourceLimits(seconds_max=300)
                sandbox.run_in_fork_server(fork_server, (), limits, output=os.open(output, os.O_RDWR | os.O_CREAT))
        except sandbox.Crashed:
            os._exit(7)
        finally:
            os._exit(1)
    while not has_mark(output):
        pass
    (server,) = children_of(int((folder / "standby").read_text()))
    (supervisor,) = [pid for pid in children_of(server) if children_of(pid)]
    os.kill({"caller": caller, "supervisor": supervisor, "fork server": server}[victim], signal.SIGKILL)
    if victim == "fork server":  # the attempt goes on: its supervisor and its caller live
        wait_until_ended(server)
        assert {supervisor, caller} <= {*living(mark)}
        os.kill(caller, signal.SIGKILL)
    assert wait_until_gone(mark)
    _, status = os.waitpid(caller, 0)
    assert os.waitstatus_to_exitcode(status) == (7 if victim == "supervisor" else -signal.SIGKILL)


def test_every_thread_has_a_supervisor(folder: Path, started: Started) -> None:
    texts = [f"number {number}" for number in range(9)]
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(lambda text: started.read(folder, text), texts)) == texts
    assert 1 <= len(started.supervisors()) <= 3


def test_a_fork_server_that_cannot_load_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(sandbox.ForkServerGone, match="could not start"):
        sandbox.SandboxForkServer.start("fairlane.folders.there_is_none")
    assert "there_is_none" in capfd.readouterr().err


@pytest.mark.parametrize("is_ready", [False, True])
def test_a_fork_server_whose_caller_has_gone_ends_silently(is_ready: bool) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-c", START_MAIN, str(theirs.fileno()), file_work.__name__]
    with theirs, ours:
        server = subprocess.Popen(command, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE, text=True)
        if is_ready:  # but the caller has not read that
            select.select([ours], [], [])
    assert server.communicate(timeout=60)[1] == ""
    assert server.returncode == 0
