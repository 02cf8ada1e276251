"""Layers are tried, named and required; an attempt dies with whoever started it."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import re
import resource
import secrets
import signal
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fairlane import sandbox
from fairlane.core.errors import Mistake
from fairlane.procs import syscalls
from fairlane.sandbox.plan import LAYERS, PROMISES, Plan

from .harness import (
    CALLERS,
    CAN_LOOK_INSIDE,
    HAS_NAMESPACES,
    NEEDS_SANDBOX,
    QUICK,
    Caller,
    become,
    begin_in_fork,
    call_in_fork,
    children_of,
    error_name,
    has_mark,
    kill,
    living,
    name_process,
    namespaces_of,
    offered_layers,
    outcome,
    run,
    wait_for,
    wait_for_file,
    wait_until_gone,
    write_mark,
)

# CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, SETPCAP, NET_BIND_SERVICE, NET_RAW, SYS_CHROOT, MKNOD,
# AUDIT_WRITE, SETFCAP
CAPABILITIES_OF_DOCKER = 0xA80425FB


def test_every_layer_is_listed_with_its_reason() -> None:
    layers = sandbox.layers()
    assert [layer.name for layer in layers] == list(LAYERS)
    assert all(layer.detail for layer in layers)
    without = {layer.name: layer for layer in sandbox.layers(sandbox.NAMESPACES)}
    missing = sandbox.NAMESPACES | {"landlock"} - offered_layers(os.geteuid())
    assert {name for name, layer in without.items() if not layer.is_in_force} == missing
    assert without["mount namespace"].detail == "switched off"


@pytest.mark.parametrize("name", CALLERS)
def test_who_may_have_little_gives_no_more(name: str) -> None:
    """A limit of the caller's that is below the sandbox's own holds, and is no reason to refuse."""
    caller = CALLERS[name]

    def call() -> object:
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
        return run(caller, lambda: resource.getrlimit(resource.RLIMIT_NOFILE)).value

    assert call_in_fork(caller, call) == [40, 40]


def capabilities() -> int:
    match = re.search(r"CapPrm:\s*(\w+)", Path("/proc/self/status").read_text())
    assert match is not None
    return int(match[1], 16)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give away a right of it")
@pytest.mark.parametrize("kept", [0xFFFFFFFF & ~syscalls.CAP_DAC_READ_SEARCH, CAPABILITIES_OF_DOCKER])
@pytest.mark.parametrize("without", [frozenset[str](), sandbox.NAMESPACES])
def test_root_without_the_right_to_read_everything_reads_its_closed_files(
    tmp_path: Path, kept: int, without: frozenset[str]
) -> None:
    """As in most containers, whose root has no such right but may change its user."""
    path = tmp_path / "closed"
    path.write_text("content")
    for closed, mode in ((path, 0o600), (tmp_path, 0o700)):
        closed.chmod(mode)

    def work() -> list[object]:
        return [os.geteuid() != 0, path.read_text(), error_name(lambda: path.write_text("harm"))]

    def call() -> object:
        syscalls.keep_capabilities(capabilities() & kept)
        assert 0 != capabilities() == capabilities() & kept
        return sandbox.run(work, QUICK, [path], without=without | {"what was tried with more rights"}).value

    assert call_in_fork(Caller(0, frozenset()), call) == [True, "content", "EPERM"]


@pytest.mark.parametrize("name", CALLERS)
def test_nothing_is_open_but_streams_that_lead_nowhere_the_response_and_the_output(folder: Path, name: str) -> None:
    def work() -> list[str]:
        kinds = []
        for handle in range(1024):
            with contextlib.suppress(OSError):
                mode = os.fstat(handle).st_mode
                kinds.append("file" if stat.S_ISREG(mode) else "device" if stat.S_ISCHR(mode) else "else")
        return kinds

    open_files = ["device", "device", "device", "file"]
    assert outcome(CALLERS[name], work) == ["value", open_files]
    assert outcome(CALLERS[name], work, output=folder / "output") == ["value", [*open_files, "file"]]


@pytest.mark.parametrize("name", CALLERS)
def test_signals_do_what_they_do_in_any_program(name: str) -> None:
    def work() -> list[int]:
        ended = []
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM):
            child = os.fork()  # not ourselves: the first of a process namespace hears no signal that it does not wait for
            if child == 0:
                with contextlib.suppress(KeyboardInterrupt):
                    signal.raise_signal(number)
                os._exit(0)
            ended.append(os.waitpid(child, 0)[1])
        return ended

    assert outcome(CALLERS[name], work) == ["value", [15, 2, 1, 10, 12, 14]]


@pytest.mark.parametrize("name", CALLERS)
def test_an_attempt_is_as_nice_as_its_caller(name: str) -> None:
    def call() -> object:
        os.nice(5)
        return run(caller, lambda: os.getpriority(os.PRIO_PROCESS, 0)).value

    caller = CALLERS[name]
    assert call_in_fork(caller, call) == os.getpriority(os.PRIO_PROCESS, 0) + 5


@CAN_LOOK_INSIDE
@pytest.mark.parametrize("name", CALLERS)
def test_what_is_listed_is_in_force(folder: Path, name: str) -> None:
    """The same, checked from outside."""
    caller, mark = CALLERS[name], f"fl-{secrets.token_hex(4)}"
    kinds = {"network namespace": "net", "process namespace": "pid", "message namespace": "ipc", "name namespace": "uts"}
    kinds |= {"mount namespace": "mnt", "user namespace": "user"}

    def work() -> list[object]:
        name_process(mark)
        write_mark()
        wait_for_file(folder / "go on")
        return [os.getpid(), os.geteuid(), os.path.exists("/proc")]

    def call() -> object:
        in_force = {layer.name: layer.is_in_force for layer in sandbox.layers(caller.without)}
        return [in_force, run(caller, work, sandbox.ResourceLimits(), (folder,), folder / "output").value]

    forked = begin_in_fork(caller, call)
    wait_for(lambda: has_mark(folder / "output"), forked)
    (confined,) = living(mark)
    ours, theirs = namespaces_of("self"), namespaces_of(confined)
    status = Path(f"/proc/{confined}/status").read_text()
    (folder / "go on").touch()
    in_force, (pid, user, has_proc) = forked.result()
    assert {name: ours[kind] != theirs[kind] for name, kind in kinds.items()} == {name: in_force[name] for name in kinds}
    assert (pid == 1) == in_force["process namespace"]
    assert has_proc != in_force["mount namespace"]
    assert user != 0
    assert re.findall(r"^(?:NoNewPrivs|Seccomp):\s*(\d)", status, re.MULTILINE) == ["1", "2"]


@NEEDS_SANDBOX
@pytest.mark.parametrize(
    ("missing", "promise"),
    [
        ({"seccomp"}, "limits, no network, writes no file, reaches no other process"),
        ({"landlock", "mount namespace"}, "reads nothing else"),
        ({"limits"}, "limits"),
        ({"privileges"}, "limits"),
    ],
)
def test_a_promise_that_cannot_be_kept_is_a_mistake_before_anything_is_done(
    folder: Path, missing: set[str], promise: str
) -> None:
    with pytest.raises(Mistake) as caught:
        sandbox.run(lambda: (folder / "begun").write_text("x"), QUICK, without=frozenset(missing))
    message = str(caught.value)
    promises = message.partition("cannot keep what it promises: ")[2].partition("; missing is ")[0].split(", ")
    if "mount namespace" not in offered_layers(os.geteuid()):  # then more promises rest on seccomp
        promises = [name for name in promises if name in promise]
    assert promises == promise.split(", ")
    assert all(name in message for name in missing)
    assert "what to do: " in message
    assert list(folder.iterdir()) == []


def test_every_promise_has_a_way_without_namespaces() -> None:
    for alternatives in PROMISES.values():
        assert any(not alternative & sandbox.NAMESPACES for alternative in alternatives)
    assert Plan(frozenset(LAYERS) - sandbox.NAMESPACES, {}).broken_promises() is None


def forbid(number: int) -> None:
    """Have the kernel refuse a call from now on, as containers do."""
    lines = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050000 | errno.EPERM), (0x06, 0, 0, 0x7FFF0000)]
    syscalls.set_no_new_privileges()
    syscalls.load_seccomp_filter(b"".join(struct.pack("=HBBI", *line) for line in lines))


UNSHARE = 272 if platform.machine() == "x86_64" else 97


@NEEDS_SANDBOX
def test_a_layer_that_the_kernel_refuses_is_named_with_its_reason_and_the_others_carry_on() -> None:
    afresh = frozenset({"what was tried before"})

    def call() -> object:
        forbid(UNSHARE)
        layers = [[layer.name, layer.is_in_force, layer.detail] for layer in sandbox.layers(afresh)]
        return [layers, sandbox.run(lambda: "carried", QUICK, without=afresh).value]

    layers, value = call_in_fork(Caller(os.geteuid(), frozenset()), call)
    assert value == "carried"
    missing = {name: why for name, is_in_force, why in layers if not is_in_force}
    assert missing.keys() == sandbox.NAMESPACES
    assert "Operation not permitted" in missing["network namespace"]


@pytest.mark.skipif(
    "mount namespace" not in offered_layers(os.geteuid()), reason="this machine refuses namespaces from the start"
)
def test_a_layer_that_is_refused_after_it_was_tried_ends_the_attempt_before_it_begins(folder: Path) -> None:
    def call() -> str:
        sandbox.require()
        forbid(UNSHARE)
        try:
            sandbox.run(lambda: (folder / "begun").write_text("x"), QUICK)
        except Mistake as error:
            return str(error)
        return "begun"

    message = call_in_fork(Caller(os.geteuid(), frozenset()), call)
    assert "could not be put in force" in message
    assert "namespace ([Errno 1] Operation not permitted)" in message
    assert list(folder.iterdir()) == []


def test_another_system_is_refused_clearly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(Mistake, match="the sandbox needs Linux on x86_64 or aarch64"):
        sandbox.run(lambda: None)
    assert not any(layer.is_in_force for layer in sandbox.layers())


# -- death


def until(condition: Callable[[], object]) -> None:
    """Wait for a condition; fails after a minute, as when an attempt could not begin."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline


def run_for_ever(caller: Caller, folder: Path, name: str) -> None:
    """In a fork: an attempt that has a daemon, and never ends."""

    def work() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.fork() == 0:
            os.setsid()
            ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)  # PR_SET_PDEATHSIG: is refused
            write_mark()
        while True:
            signal.pause()

    name_process(name)
    become(caller.user)
    run(caller, work, sandbox.ResourceLimits(seconds_max=300), output=folder / "output")


@pytest.mark.parametrize("name", CALLERS)
@pytest.mark.parametrize("generations", [1, 2])
def test_nothing_survives_kill_9_of_the_caller_or_of_its_parent(folder: Path, name: str, generations: int) -> None:
    mark = f"fl-{secrets.token_hex(4)}"
    pid = os.fork()
    if pid == 0:
        try:
            name_process(mark)
            if generations == 2 and os.fork():
                signal.pause()
            if generations == 2:
                become(CALLERS[name].user)
                syscalls.set_parent_death_signal(signal.SIGKILL)
            run_for_ever(CALLERS[name], folder, mark)
        finally:
            os._exit(1)
    until(lambda: has_mark(folder / "output"))
    assert len(living(mark)) >= 4
    kill(pid)
    assert wait_until_gone(mark)


@pytest.mark.parametrize("name", CALLERS)
def test_nothing_survives_kill_9_of_the_callers_group(folder: Path, name: str) -> None:
    mark = f"fl-{secrets.token_hex(4)}"
    pid = os.fork()
    if pid == 0:
        try:
            os.setpgid(0, 0)
            run_for_ever(CALLERS[name], folder, mark)
        finally:
            os._exit(1)
    until(lambda: has_mark(folder / "output"))
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert wait_until_gone(mark)


@HAS_NAMESPACES
def test_nothing_survives_kill_9_of_the_supervisor(folder: Path) -> None:
    """For the caller the attempt has crashed."""
    mark = f"fl-{secrets.token_hex(4)}"
    pid = os.fork()
    if pid == 0:
        try:
            run_for_ever(CALLERS[next(iter(CALLERS))], folder, mark)
        finally:
            os._exit(7)
    until(lambda: has_mark(folder / "output"))
    (supervisor,) = children_of(pid)
    os.kill(supervisor, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 7
    assert wait_until_gone(mark)


def test_doctor_names_the_layers_in_force(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/queue.db"
    script = f"from fairlane import Queue; Queue({url!r}).submit('acme', 1)"
    subprocess.run([sys.executable, "-c", script], check=True)
    doctor = subprocess.run(
        [sys.executable, "-m", "fairlane.cli", "doctor", "--url", url], capture_output=True, text=True, check=False
    )
    for layer in sandbox.layers():
        line = f"{'' if layer.is_in_force else 'not in force: '}{layer.name}: {layer.detail}"
        assert line in doctor.stdout, doctor.stderr
