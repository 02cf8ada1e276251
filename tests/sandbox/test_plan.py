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
from collections.abc import Callable
from pathlib import Path

import pytest

from fairlane import sandbox
from fairlane.core.errors import Mistake
from fairlane.procs import syscalls
from fairlane.sandbox import seccomp
from fairlane.sandbox.plan import LAYERS, PROMISES, Plan

from .confined import (
    CALLERS,
    QUICK,
    Caller,
    become,
    forked,
    gone,
    kill,
    living,
    name_process,
    outcome,
    run_of,
    scratch_of,
)


def test_every_layer_is_told_with_its_reason() -> None:
    told = sandbox.layers()
    assert [one.name for one in told] == list(LAYERS)
    assert all(one.told for one in told)
    without = {one.name: one for one in sandbox.layers(sandbox.NAMESPACES)}
    assert {name for name, one in without.items() if not one.is_in_force} == sandbox.NAMESPACES
    assert without["mount namespace"].told == "switched off"


@pytest.mark.parametrize("name", CALLERS)
def test_who_may_have_little_gives_no_more(place: Path, name: str) -> None:
    """A limit of the caller's that is below the sandbox's own holds, and is no reason to refuse."""
    caller = CALLERS[name]
    scratch = scratch_of(place, caller)

    def call() -> object:
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
        heard = run_of(caller)(lambda: resource.getrlimit(resource.RLIMIT_NOFILE), scratch, QUICK, without=caller.without)
        return heard.value

    assert forked(caller, call) == [40, 40]


def capabilities() -> int:
    told = re.search(r"CapPrm:\s*(\w+)", Path("/proc/self/status").read_text())
    assert told is not None
    return int(told[1], 16)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give away a right of it")
def test_root_without_the_right_to_read_everything_is_confined_too(place: Path) -> None:
    caller = Caller(0, frozenset())
    scratch = scratch_of(place, caller)

    def call() -> object:
        syscalls.keep_capabilities(capabilities() & 0xFFFFFFFF & ~syscalls.CAP_DAC_READ_SEARCH)
        assert capabilities() != 0
        assert not capabilities() & syscalls.CAP_DAC_READ_SEARCH
        return sandbox.run(lambda: os.geteuid() != 0, scratch, QUICK).value

    assert forked(caller, call) is True


@pytest.mark.parametrize("name", CALLERS)
def test_nothing_is_open_but_streams_that_lead_nowhere_and_the_way_to_answer(place: Path, name: str) -> None:
    def work() -> list[str]:
        found = []
        for handle in range(1024):
            with contextlib.suppress(OSError):
                mode = os.fstat(handle).st_mode
                found.append("file" if stat.S_ISREG(mode) else "device" if stat.S_ISCHR(mode) else "else")
        return found

    assert outcome(CALLERS[name], work, scratch_of(place, CALLERS[name])) == ["value", ["device", "device", "device", "file"]]


@pytest.mark.parametrize("name", CALLERS)
def test_signals_do_what_they_do_in_any_program(place: Path, name: str) -> None:
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

    told = outcome(CALLERS[name], work, scratch_of(place, CALLERS[name]))
    assert told == ["value", [15, 2, 1, 10, 12, 14]]


@pytest.mark.parametrize("name", CALLERS)
def test_an_attempt_is_as_nice_as_its_caller(place: Path, name: str) -> None:
    def call() -> object:
        os.nice(5)
        return run_of(caller)(lambda: os.getpriority(os.PRIO_PROCESS, 0), scratch, QUICK, without=caller.without).value

    caller = CALLERS[name]
    scratch = scratch_of(place, caller)
    assert forked(caller, call) == os.getpriority(os.PRIO_PROCESS, 0) + 5


@pytest.mark.parametrize("name", CALLERS)
def test_what_is_told_is_in_force(place: Path, name: str) -> None:
    """The same questions, asked from inside and in another way."""
    caller = CALLERS[name]
    kinds = {"network namespace": "net", "process namespace": "pid", "message namespace": "ipc", "name namespace": "uts"}
    kinds |= {"mount namespace": "mnt", "user namespace": "user"}

    def links() -> dict[str, str]:
        return {name: os.readlink(f"/proc/self/ns/{kind}") for name, kind in kinds.items()}

    def look() -> object:
        told = {one.name: one.is_in_force for one in sandbox.layers(caller.without)}
        scratch = place / "scratch"
        scratch.mkdir(exist_ok=True)
        return [
            told,
            links(),
            run_of(caller)(lambda: [links(), os.getpid(), os.geteuid()], scratch, QUICK, without=caller.without).value,
        ]

    told, ours, (theirs, pid, user) = forked(caller, look)
    assert {name: ours[name] != theirs[name] for name in kinds} == {name: told[name] for name in kinds}
    assert (pid == 1) == told["process namespace"]
    assert user != 0


@pytest.mark.parametrize(
    ("missing", "promise"),
    [
        ({"seccomp"}, "no network"),
        ({"landlock", "mount namespace"}, "no writes outside"),
        ({"limits"}, "limits"),
        ({"privileges"}, "limits"),
    ],
)
def test_a_promise_that_cannot_be_kept_is_a_mistake_before_anything_is_done(
    place: Path, missing: set[str], promise: str
) -> None:
    with pytest.raises(Mistake) as caught:
        sandbox.run(lambda: (place / "begun").write_text("x"), place, QUICK, without=frozenset(missing))
    told = str(caught.value)
    assert f"cannot be kept: {promise}; missing is " in told
    assert all(name in told for name in missing)
    assert "what to do: " in told
    assert list(place.iterdir()) == []


def test_every_promise_has_a_way_without_namespaces() -> None:
    for ways in PROMISES.values():
        assert any(not way & sandbox.NAMESPACES for way in ways)
    assert Plan(frozenset(LAYERS) - sandbox.NAMESPACES, {}).broken() is None


def forbid(number: int) -> None:
    """Have the kernel refuse a call from now on, as containers do."""
    lines = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050000 | errno.EPERM), (0x06, 0, 0, 0x7FFF0000)]
    syscalls.set_no_new_privileges()
    syscalls.load_seccomp_filter(b"".join(struct.pack("=HBBI", *line) for line in lines))


UNSHARE = seccomp.FORBIDDEN["unshare"][0 if platform.machine() == "x86_64" else 1] or 0


def test_a_layer_that_the_kernel_refuses_is_named_with_its_reason_and_the_others_carry_on(place: Path) -> None:
    afresh = frozenset({"what was tried before"})

    def call() -> object:
        forbid(UNSHARE)
        told = [[one.name, one.is_in_force, one.told] for one in sandbox.layers(afresh)]
        return [told, sandbox.run(lambda: "carried", place, QUICK, without=afresh).value]

    told, value = forked(Caller(os.geteuid(), frozenset()), call)
    assert value == "carried"
    missing = {name: why for name, is_in_force, why in told if not is_in_force}
    assert missing.keys() == sandbox.NAMESPACES
    assert "Operation not permitted" in missing["network namespace"]


def test_a_layer_that_is_refused_after_it_was_tried_ends_the_attempt_before_it_begins(place: Path) -> None:
    def call() -> str:
        sandbox.require()
        forbid(UNSHARE)
        try:
            sandbox.run(lambda: (place / "begun").write_text("x"), place, QUICK)
        except Mistake as error:
            return str(error)
        return "begun"

    told = forked(Caller(os.geteuid(), frozenset()), call)
    assert "could not be put in force" in told
    assert "namespace ([Errno 1] Operation not permitted)" in told
    assert list(place.iterdir()) == []


def test_another_system_is_refused_clearly(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(Mistake, match="the sandbox needs Linux on x86_64 or aarch64"):
        sandbox.run(lambda: None, place)
    assert not any(one.is_in_force for one in sandbox.layers())


# -- death


def until(condition: Callable[[], object]) -> None:
    while not condition():
        pass


def attempting(caller: Caller, place: Path, name: str) -> None:
    """In a fork: an attempt that has a daemon, and never ends."""

    def work() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.fork() == 0:
            os.setsid()
            ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)  # PR_SET_PDEATHSIG: is refused
            Path("daemon").write_text("lives")
        while True:
            signal.pause()

    name_process(name)
    become(caller.user)
    scratch = place / "scratch"
    scratch.mkdir()
    run_of(caller)(work, scratch, sandbox.Bounds(seconds_max=300), without=caller.without)


@pytest.mark.parametrize("name", CALLERS)
@pytest.mark.parametrize("generations", [1, 2])
def test_nothing_survives_kill_9_of_the_caller_or_of_its_parent(place: Path, name: str, generations: int) -> None:
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
            attempting(CALLERS[name], place, mark)
        finally:
            os._exit(1)
    until((place / "scratch" / "daemon").exists)
    assert len(living(mark)) >= 4
    kill(pid)
    assert gone(mark)


@pytest.mark.parametrize("name", CALLERS)
def test_nothing_survives_kill_9_of_the_callers_group(place: Path, name: str) -> None:
    mark = f"fl-{secrets.token_hex(4)}"
    pid = os.fork()
    if pid == 0:
        try:
            os.setpgid(0, 0)
            attempting(CALLERS[name], place, mark)
        finally:
            os._exit(1)
    until((place / "scratch" / "daemon").exists)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert gone(mark)


def test_nothing_survives_kill_9_of_the_guard(place: Path) -> None:
    """Whoever kills it has the attempt on the caller's hands as a crash."""
    mark = f"fl-{secrets.token_hex(4)}"
    pid = os.fork()
    if pid == 0:
        try:
            attempting(CALLERS[next(iter(CALLERS))], place, mark)
        finally:
            os._exit(7)
    until((place / "scratch" / "daemon").exists)
    guards = [one for one in living(mark) if f"\nPPid:\t{pid}\n" in Path(f"/proc/{one}/status").read_text()]
    assert len(guards) == 1
    os.kill(guards[0], signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 7
    assert gone(mark)


def test_doctor_names_the_layers_in_force(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/queue.db"
    script = f"from fairlane import Queue; Queue({url!r}).submit('acme', 1)"
    subprocess.run([sys.executable, "-c", script], check=True)
    told = subprocess.run(
        [sys.executable, "-m", "fairlane.cli", "doctor", "--url", url], capture_output=True, text=True, check=False
    )
    for one in sandbox.layers():
        assert f"{'' if one.is_in_force else 'not in force: '}{one.name}: {one.told}" in told.stdout, told.stderr
