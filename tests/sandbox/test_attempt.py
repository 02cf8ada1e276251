"""Work that does everything it must not do: each attempt ends with its reason, and does no harm."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import mmap
import os
import platform
import signal
import socket
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from fairlane import sandbox
from fairlane.core.errors import BadValue
from fairlane.procs import syscalls
from fairlane.sandbox import seccomp, supervisor

from .harness import CALLERS, QUICK, WITH_ALL_LAYERS, Caller, call_in_fork, error_name, outcome

_libc = ctypes.CDLL(None, use_errno=True)
INT_80 = b"\xb8\x14\x00\x00\x00\xcd\x80\xc3"  # mov eax, 20; int 0x80; ret: a call of another architecture


WITH_LANDLOCK = pytest.mark.parametrize(
    "caller", [name for name, caller in CALLERS.items() if "landlock" not in caller.without], indirect=True
)


def pause() -> None:
    while True:
        signal.pause()


# -- how it ends


def test_a_value_comes_back(caller: Caller, scratch: Path) -> None:
    value = {"text": "źdźbło", "many": [1, 2.5, None, True]}
    assert outcome(caller, lambda: value, scratch) == ["value", value]


def test_a_failure_travels_with_its_code_and_detail(caller: Caller, scratch: Path) -> None:
    def work() -> None:
        raise sandbox.WorkFailed("encrypted", "needs a password")

    assert outcome(caller, work, scratch) == ["encrypted", "needs a password"]


def test_an_error_of_our_own_is_a_crash(caller: Caller, scratch: Path) -> None:
    assert outcome(caller, lambda: 1 // 0, scratch) == ["crashed", "ZeroDivisionError: integer division or modulo by zero"]


def test_a_segfault_is_a_crash_that_names_its_signal(caller: Caller, scratch: Path) -> None:
    code, detail = outcome(caller, lambda: ctypes.string_at(0), scratch)
    assert (code, "SIGSEGV" in detail) == ("crashed", True)


@WITH_ALL_LAYERS
def test_a_crash_in_a_fork_of_a_large_process_is_not_taken_for_one_that_needed_memory(caller: Caller, scratch: Path) -> None:
    large = bytearray(b"x" * QUICK.memory_max)
    code, _ = outcome(caller, lambda: ctypes.string_at(0), scratch)
    assert (code, len(large)) == ("crashed", QUICK.memory_max)


def test_an_abort_is_a_crash(caller: Caller, scratch: Path) -> None:
    code, detail = outcome(caller, os.abort, scratch)
    assert (code, "SIG" in detail) == ("crashed", True)


@pytest.mark.parametrize("code", [0, 3])
def test_an_exit_without_a_response_is_a_crash(caller: Caller, scratch: Path, code: int) -> None:
    detail = "the process sent no response" if code == 0 else "the process ended with code 3"
    assert outcome(caller, lambda: os._exit(code), scratch) == ["crashed", detail]


@WITH_ALL_LAYERS
def test_a_loop_ends_with_its_processor_time(caller: Caller, scratch: Path) -> None:
    def work() -> None:
        while True:
            pass

    code, detail = outcome(caller, work, scratch, replace(QUICK, cpu_seconds_max=1, seconds_max=60))
    assert (code, "processor time" in detail) == ("timed_out", True)


def test_waiting_for_ever_ends_by_the_clock_even_if_signals_are_ignored(caller: Caller, scratch: Path) -> None:
    def work() -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        pause()

    assert outcome(caller, work, scratch, replace(QUICK, seconds_max=0.3)) == ["timed_out", "took longer than 0.3 s"]


@WITH_ALL_LAYERS
def test_memory_ends(caller: Caller, scratch: Path) -> None:
    def work() -> None:
        kept = []
        while True:
            kept.append(bytearray(10_000_000))

    assert outcome(caller, work, scratch)[0] == "too_large"


@WITH_ALL_LAYERS
def test_a_parser_that_dies_of_memory_is_too_large(caller: Caller, scratch: Path) -> None:
    def work() -> None:
        _libc.malloc.restype = ctypes.c_void_p
        while address := _libc.malloc(ctypes.c_size_t(1_000_000)):
            ctypes.memset(address, 1, 1_000_000)
        ctypes.string_at(0)

    code, detail = outcome(caller, work, scratch)
    assert (code, "SIGSEGV" in detail) == ("too_large", True)


def take_all_memory() -> None:
    """Allocate all address space, without touching it."""
    _libc.malloc.restype = ctypes.c_void_p
    for size in (1_000_000, 10_000):
        while _libc.malloc(ctypes.c_size_t(size)):
            pass


@WITH_ALL_LAYERS
def test_whoever_goes_on_without_memory_is_too_large(caller: Caller, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Python may do, which then loops where it handles exceptions."""

    def work() -> None:
        take_all_memory()
        while True:
            pass

    monkeypatch.setattr(supervisor, "MEMORY_CHECK_SECONDS", 0.05)
    code, detail = outcome(caller, work, scratch)
    assert (code, "needs more memory than 300,000,000 bytes" in detail) == ("too_large", True)


@WITH_ALL_LAYERS
def test_whoever_has_memory_left_may_go_on(caller: Caller, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def work() -> int:
        kept = [bytearray(QUICK.memory_max - 20_000_000)]
        ends_at = time.process_time() + 0.5
        while time.process_time() < ends_at:
            pass
        return len(kept)

    monkeypatch.setattr(supervisor, "MEMORY_CHECK_SECONDS", 0.05)
    assert outcome(caller, work, scratch) == ["value", 1]


# -- processes


def test_a_fork_bomb_has_few_and_leaves_none(caller: Caller, scratch: Path) -> None:
    def work() -> int:
        count = 0
        while True:
            try:
                if os.fork() == 0:
                    pause()
            except BlockingIOError:
                return count
            count += 1

    code, count = outcome(caller, work, scratch)
    assert code == "value"
    assert 0 < count <= QUICK.processes_max


def test_a_fork_bomb_that_goes_on_ends_by_the_clock(caller: Caller, scratch: Path) -> None:
    def work() -> None:
        while True:
            with contextlib.suppress(BlockingIOError):
                os.fork()

    assert outcome(caller, work, scratch, replace(QUICK, seconds_max=0.5))[0] == "timed_out"


def test_a_daemon_ends_with_its_attempt(caller: Caller, scratch: Path) -> None:
    def work() -> str:
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                (scratch / "daemon").write_text("lives")
                pause()
            os._exit(0)
        while not (scratch / "daemon").exists():
            pass
        return "left"

    assert outcome(caller, work, scratch) == ["value", "left"]


def test_nobody_else_is_signalled(caller: Caller, scratch: Path) -> None:
    victim = subprocess.Popen(["cat"], stdin=subprocess.PIPE, user=caller.user if os.geteuid() == 0 else None)

    def work() -> list[str | None]:
        targets = [victim.pid, -victim.pid]
        if "process namespace" in caller.without:
            targets.append(os.getppid())
        return [error_name(os.kill, target, signal.SIGKILL) for target in targets]

    try:
        code, errors = outcome(caller, work, scratch)
        assert code == "value"
        assert set(errors) <= {"EPERM", "ESRCH"}
        assert victim.poll() is None
    finally:
        victim.kill()
        victim.communicate()


def test_where_nothing_else_keeps_signals_from_others_the_filter_does() -> None:
    victim = subprocess.Popen(["cat"], stdin=subprocess.PIPE)

    def call() -> list[str | None]:
        syscalls.set_no_new_privileges()
        syscalls.load_seccomp_filter(seccomp.program(platform.machine(), False))
        return [error_name(os.kill, pid, signal.SIGKILL) for pid in (victim.pid, os.getppid())]

    try:
        assert call_in_fork(Caller(os.geteuid(), frozenset()), call) == ["EPERM", "EPERM"]
        assert victim.poll() is None
    finally:
        victim.kill()
        victim.communicate()


# -- network


def listeners(folder: Path) -> list[tuple[socket.socket, tuple[str, int] | str]]:
    """Listening sockets on this machine, of every kind."""
    listening: list[tuple[socket.socket, tuple[str, int] | str]] = []
    for family, address in (
        (socket.AF_INET, ("127.0.0.1", 0)),
        (socket.AF_INET6, ("::1", 0)),
        (socket.AF_UNIX, str(folder / "door")),
        (socket.AF_UNIX, f"\0{folder}"),
    ):
        door = socket.socket(family, socket.SOCK_STREAM)
        try:
            door.bind(address)
        except OSError:  # a machine without IPv6
            door.close()
            continue
        door.listen()
        door.setblocking(False)
        listening.append((door, door.getsockname()))
    (folder / "door").chmod(0o777)
    return listening


def connect(family: int, address: tuple[str, int] | str) -> None:
    socket.socket(family).connect(address)


def test_no_socket_of_any_kind_is_had_and_nobody_is_reached(caller: Caller, folder: Path, scratch: Path) -> None:
    doors = listeners(folder)

    def work() -> list[str | None]:
        kinds = (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW)
        families = (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK, socket.AF_PACKET, socket.AF_VSOCK)
        errors = [error_name(socket.socket, family, kind) for family in families for kind in kinds]
        errors += [error_name(connect, door.family, address) for door, address in doors]
        return [*errors, error_name(connect, socket.AF_INET, ("192.0.2.1", 80)), error_name(socket.socketpair)]

    code, errors = outcome(caller, work, scratch)
    assert (code, set(errors)) == ("value", {"EPERM"})
    for door, _ in doors:
        with pytest.raises(BlockingIOError):
            door.accept()
        door.close()


# -- files


def test_nothing_is_written_moved_or_changed_outside(caller: Caller, folder: Path, scratch: Path) -> None:
    outside, victim = folder / "outside", folder / "outside" / "victim"
    outside.mkdir()
    victim.write_text("whole")
    for path in (outside, victim):
        os.chown(path, caller.user, caller.user)
        path.chmod(0o777)
    (scratch / "link").symlink_to(victim)
    (scratch / "folder").symlink_to(outside)
    before = victim.stat()

    def work() -> list[str | None]:
        own = scratch / "own"
        own.write_text("mine")
        links = [victim, scratch / "link", scratch / "folder" / "new"]
        others = [Path(folder, "fairlane-harm") for folder in (outside, "/tmp", "/dev/shm", "/var/tmp", "/", "/root")]
        return [
            *(error_name(path.write_text, "harm") for path in (*links, *others)),
            error_name(os.open, victim, os.O_RDONLY | os.O_TRUNC),
            error_name(os.truncate, victim, 0),
            error_name(os.chmod, victim, 0),
            error_name(os.utime, victim, (1, 1)),
            error_name(os.setxattr, victim, "user.harm", b"1"),
            error_name(os.unlink, victim),
            error_name(os.rename, victim, scratch / "stolen"),
            error_name(os.rename, own, outside / "own"),
            error_name(os.link, victim, scratch / "linked"),
            error_name(os.link, own, outside / "linked"),
            error_name(os.mkdir, outside / "folder"),
            error_name(os.symlink, "x", outside / "symlink"),
            error_name(os.mkfifo, outside / "pipe"),
            error_name(os.mknod, scratch / "device", 0o600 | 0o060000, os.makedev(254, 0)),
        ]

    code, errors = outcome(caller, work, scratch)
    assert code == "value"
    assert None not in errors, errors
    after = victim.stat()
    assert victim.read_text() == "whole"
    assert (after.st_mode, after.st_mtime, after.st_nlink, os.listxattr(victim)) == (before.st_mode, before.st_mtime, 1, [])
    assert os.listdir(outside) == ["victim"]
    assert not [
        path for path in (Path("/tmp"), Path("/dev/shm"), Path("/var/tmp"), Path("/")) if (path / "fairlane-harm").exists()
    ]


def test_the_input_can_be_read_and_not_written(caller: Caller, folder: Path, scratch: Path) -> None:
    input_file = folder / "input"
    input_file.write_text("content")
    input_file.chmod(0o666)

    def work() -> list[str | None]:
        return [
            input_file.read_text(),
            error_name(lambda: input_file.write_text("harm")),
            error_name(lambda: input_file.unlink()),
        ]

    code, (content, *errors) = outcome(caller, work, scratch, readable=(input_file,))
    assert (code, content) == ("value", "content")
    assert None not in errors
    assert input_file.read_text() == "content"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, who can read everything")
def test_root_can_have_its_files_in_closed_folders(tmp_path: Path) -> None:
    input_file, scratch = tmp_path / "input", tmp_path / "scratch"
    input_file.write_text("content")
    scratch.mkdir()
    for path, mode in ((input_file, 0o600), (scratch, 0o700), (tmp_path, 0o700)):
        path.chmod(mode)

    def work() -> str:
        return input_file.read_text() + (scratch / "own").write_text("x") * "!"

    for without in (frozenset[str](), sandbox.NAMESPACES):
        assert outcome(Caller(0, without), work, scratch, readable=(input_file,)) == ["value", "content!"]
        (scratch / "own").unlink()
    assert scratch.stat().st_uid == 0


@WITH_LANDLOCK
def test_nothing_but_plain_files_is_made_in_the_scratch_folder(caller: Caller, scratch: Path) -> None:
    (scratch / "there").write_text("x")

    def work() -> list[str | None]:
        return [
            error_name(os.symlink, "/etc/passwd", "link"),
            error_name(os.mkdir, "folder"),
            error_name(os.mkfifo, "pipe"),
            error_name(os.rename, "there", "../outside"),
            error_name(Path("plain").write_text, "x"),
        ]

    code, (*errors, plain) = outcome(caller, work, scratch)
    assert (code, plain) == ("value", None)
    assert None not in errors


@WITH_LANDLOCK
def test_other_files_and_secrets_are_not_read(
    caller: Caller, folder: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = folder / "canary"
    canary.write_text("canary")
    (scratch / "link").symlink_to(canary)
    monkeypatch.setenv("FAIRLANE_URL", "postgresql://user:secret@host/database")

    def work() -> list[object]:
        paths = (canary, scratch / "link", Path("/etc/passwd"), Path("/proc/self/environ"), Path(f"/proc/{os.getpid()}/mem"))
        folders = (folder, "/", "/proc", "/tmp", "/root")
        return [
            os.environ.get("FAIRLANE_URL"),
            *(error_name(path.read_bytes) for path in paths),
            *(error_name(os.listdir, closed) for closed in folders),
        ]

    code, (url, *errors) = outcome(caller, work, scratch)
    assert (code, url, {*errors}) == ("value", None, {"EACCES"})


def test_what_is_printed_goes_nowhere(caller: Caller, scratch: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def work() -> str:
        block = b"x" * 1_000_000
        for _ in range(1000):
            os.write(1, block)
            os.write(2, block)
        return "printed"

    assert outcome(caller, work, scratch) == ["value", "printed"]
    assert capfd.readouterr() == ("", "")


def test_a_file_has_an_end(caller: Caller, scratch: Path) -> None:
    def work() -> None:
        with (scratch / "big").open("wb") as file:
            for _ in range(1000):
                file.write(b"x" * 1_000_000)

    assert outcome(caller, work, scratch)[0] == "too_large"
    assert (scratch / "big").stat().st_size <= QUICK.file_max


def test_many_large_files_have_an_end(caller: Caller, scratch: Path) -> None:
    def work() -> None:
        for number in range(1000):
            (scratch / str(number)).write_bytes(b"x" * 10_000_000)

    code, detail = outcome(caller, work, scratch, replace(QUICK, scratch_max=50_000_000))
    assert (code, "wrote more than" in detail) == ("too_large", True)


def test_a_million_files_have_an_end(caller: Caller, scratch: Path) -> None:
    def work() -> None:
        for number in range(1_000_000):
            (scratch / str(number)).touch()

    code, detail = outcome(caller, work, scratch, replace(QUICK, files_max=100))
    assert (code, "files" in detail) == ("too_large", True)


def test_files_are_counted_after_the_last_one_too(caller: Caller, scratch: Path) -> None:
    def work() -> None:
        for number in range(11):
            (scratch / str(number)).touch()

    assert outcome(caller, work, scratch, replace(QUICK, files_max=10))[0] == "too_large"


# -- calls


def test_every_forbidden_call_is_refused(caller: Caller, scratch: Path) -> None:
    column = 0 if platform.machine() == "x86_64" else 1

    def called(number: int, *values: int) -> int:
        ctypes.set_errno(0)
        _libc.syscall(ctypes.c_long(number), *(ctypes.c_long(value) for value in (*values, *[0] * (6 - len(values)))))
        return ctypes.get_errno()

    def work() -> dict[str, int]:
        errors = {
            name: called(numbers[column] or 0) for name, numbers in seccomp.FORBIDDEN.items() if numbers[column] is not None
        }
        errors |= {
            name: called(numbers[column] or 0) - errno.ENOSYS + errno.EPERM for name, numbers in seccomp.NOT_IMPLEMENTED.items()
        }
        clone = 56 if column == 0 else 220
        errors["clone"] = called(clone, 0x10000000 | signal.SIGCHLD)
        errors["prctl"] = called(157 if column == 0 else 167, 1, 0)
        errors["prlimit"] = called(302 if column == 0 else 261, 1)
        return errors

    code, errors = outcome(caller, work, scratch)
    assert code == "value"
    assert {name: error for name, error in errors.items() if error != errno.EPERM} == {}
    assert len(errors) > 80


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the code is for x86_64")
def test_calls_of_another_architecture_end_it(caller: Caller, scratch: Path) -> None:
    def work() -> int:
        page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(INT_80)
        return int(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))())

    code, detail = outcome(caller, work, scratch)
    assert code == "crashed"
    assert "SIGSYS" in detail or "SIGSEGV" in detail  # the latter where the kernel has no such calls at all


def test_scratch_must_be_a_folder(folder: Path) -> None:
    (folder / "file").write_text("x")
    with pytest.raises(BadValue, match=r"scratch is .*; it must be a folder"):
        sandbox.run(lambda: None, folder / "file")


def test_values_are_json(caller: Caller, scratch: Path) -> None:
    assert outcome(caller, lambda: json, scratch)[0] == "crashed"
