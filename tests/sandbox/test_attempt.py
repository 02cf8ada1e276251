"""Work that does everything it must not do: each attempt ends with its reason, and does no harm."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import mmap
import os
import platform
import re
import resource
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from fairlane import sandbox
from fairlane.sandbox import seccomp, watch

from .harness import (
    NOBODY_UID,
    QUICK,
    WITH_ALL_LAYERS,
    Caller,
    begin,
    error_name,
    has_mark,
    is_refused,
    outcome,
    wait_for,
    wait_for_file,
    wait_for_mark,
    write_mark,
)

_libc = ctypes.CDLL(None, use_errno=True)
CALLS_MAX = 600  # more than any kernel has
UNFILTERED = {
    335,
    336,
}  # on x86_64 only probes of the kernel call these; newer kernels do not filter them, and end other callers
INT_80 = b"\xb8\x14\x00\x00\x00\xcd\x80\xc3"  # mov eax, 20; int 0x80; ret: a call of another architecture


def pause() -> None:
    while True:
        signal.pause()


# -- how it ends


def test_a_value_comes_back(caller: Caller) -> None:
    value = {"text": "źdźbło", "many": [1, 2.5, None, True]}
    assert outcome(caller, lambda: value) == ["value", value]


def test_a_failure_travels_with_its_code_and_detail(caller: Caller) -> None:
    def work() -> None:
        raise sandbox.WorkFailed("encrypted", "needs a password")

    assert outcome(caller, work) == ["encrypted", "needs a password"]


def test_an_error_of_our_own_is_a_crash(caller: Caller) -> None:
    assert outcome(caller, lambda: 1 // 0) == ["crashed", "ZeroDivisionError: integer division or modulo by zero"]


def test_a_segfault_is_a_crash_that_names_its_signal(caller: Caller) -> None:
    code, detail = outcome(caller, lambda: ctypes.string_at(0))
    assert (code, "SIGSEGV" in detail) == ("crashed", True)


@WITH_ALL_LAYERS
def test_a_crash_in_a_fork_of_a_large_process_is_not_taken_for_one_that_needed_memory(caller: Caller) -> None:
    large = bytearray(b"x" * QUICK.memory_max)
    code, _ = outcome(caller, lambda: ctypes.string_at(0))
    assert (code, len(large)) == ("crashed", QUICK.memory_max)


def test_not_even_a_program_that_collects_them_gets_a_core_file(caller: Caller) -> None:
    """With a limit of 0 bytes the kernel still sends everything to such a program; with 1 it does not (core(5))."""
    most = 0 if resource.getrlimit(resource.RLIMIT_CORE)[1] == 0 else 1
    assert outcome(caller, lambda: resource.getrlimit(resource.RLIMIT_CORE)) == ["value", [most, most]]


def test_an_abort_is_a_crash(caller: Caller) -> None:
    code, detail = outcome(caller, os.abort)
    assert (code, "SIG" in detail) == ("crashed", True)


@pytest.mark.parametrize("code", [0, 3])
def test_an_exit_without_a_response_is_a_crash(caller: Caller, code: int) -> None:
    detail = "the process sent no response" if code == 0 else "the process ended with code 3"
    assert outcome(caller, lambda: os._exit(code)) == ["crashed", detail]


@WITH_ALL_LAYERS
def test_a_loop_ends_with_its_processor_time(caller: Caller) -> None:
    def work() -> None:
        while True:
            pass

    code, detail = outcome(caller, work, replace(QUICK, cpu_seconds_max=1, seconds_max=60))
    assert (code, "processor time" in detail) == ("timed_out", True)


def test_waiting_for_ever_ends_by_the_clock_even_if_signals_are_ignored(caller: Caller) -> None:
    def work() -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        pause()

    assert outcome(caller, work, replace(QUICK, seconds_max=0.3)) == ["timed_out", "took longer than 0.3 s"]


@WITH_ALL_LAYERS
def test_memory_ends(caller: Caller) -> None:
    def work() -> None:
        kept = []
        while True:
            kept.append(bytearray(10_000_000))

    assert outcome(caller, work)[0] == "too_large"


@WITH_ALL_LAYERS
def test_a_parser_that_dies_of_memory_is_too_large(caller: Caller) -> None:
    def work() -> None:
        _libc.malloc.restype = ctypes.c_void_p
        while address := _libc.malloc(ctypes.c_size_t(1_000_000)):
            ctypes.memset(address, 1, 1_000_000)
        ctypes.string_at(0)

    code, detail = outcome(caller, work)
    assert (code, "SIGSEGV" in detail) == ("too_large", True)


def take_all_memory() -> None:
    """Allocate all address space, without touching it."""
    _libc.malloc.restype = ctypes.c_void_p
    for size in (1_000_000, 10_000):
        while _libc.malloc(ctypes.c_size_t(size)):
            pass


@WITH_ALL_LAYERS
def test_whoever_goes_on_without_memory_is_too_large(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Python may do, which then loops where it handles exceptions."""

    def work() -> None:
        take_all_memory()
        while True:
            pass

    monkeypatch.setattr(watch, "FULL_SECONDS", 0.05)
    code, detail = outcome(caller, work)
    assert (code, "needs more memory than 300,000,000 bytes" in detail) == ("too_large", True)


@WITH_ALL_LAYERS
def test_whoever_has_memory_left_may_go_on(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    def work() -> int:
        kept = [bytearray(QUICK.memory_max - 20_000_000)]
        ends_at = time.process_time() + 0.5
        while time.process_time() < ends_at:
            pass
        return len(kept)

    monkeypatch.setattr(watch, "FULL_SECONDS", 0.05)
    assert outcome(caller, work) == ["value", 1]


# -- processes


def has_own_count(caller: Caller) -> bool:
    """Whether the kernel counts the processes of an attempt apart from the caller's others."""
    return caller.user == 0 or "user namespace" not in caller.without


def fork_until_refused() -> int:
    count = 0
    while True:
        try:
            if os.fork() == 0:
                pause()
        except BlockingIOError:
            return count
        count += 1


def test_a_fork_bomb_has_few_and_leaves_none(caller: Caller) -> None:
    def work() -> int:
        count = fork_until_refused()
        if not has_own_count(caller):  # it has more for a moment, until its supervisor has counted them
            pause()
        return count

    code, count = outcome(caller, work)
    if code == "value":
        assert has_own_count(caller)
        assert QUICK.processes_max - 1 <= count <= QUICK.processes_max + 1
    else:
        assert (code, count) == ("too_large", f"had more than {QUICK.processes_max} processes at once")


def test_a_fork_bomb_that_goes_on_ends(caller: Caller) -> None:
    def work() -> None:
        while True:
            with contextlib.suppress(BlockingIOError):
                os.fork()

    assert outcome(caller, work, replace(QUICK, seconds_max=0.5))[0] in ("timed_out", "too_large")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to start processes of another user")
def test_other_processes_of_the_same_user_are_no_reason_to_start_none(folder: Path) -> None:
    """Neither those that run when the attempt begins, nor those that start during it."""
    caller = Caller(NOBODY_UID, sandbox.NAMESPACES)
    before = [subprocess.Popen(["cat"], stdin=subprocess.PIPE, user=NOBODY_UID) for _ in range(20)]

    def work() -> list[int]:
        write_mark()
        wait_for_file(folder / "more")
        return [os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)[1] for _ in range(3)]

    limits = replace(QUICK, seconds_max=60, cpu_seconds_max=60)
    attempt = begin(caller, work, limits, (folder,), folder / "output")
    wait_for(lambda: has_mark(folder / "output"), attempt)
    later = [subprocess.Popen(["cat"], stdin=subprocess.PIPE, user=NOBODY_UID) for _ in range(40)]
    (folder / "more").touch()
    assert attempt.result() == ["value", [0, 0, 0]]
    for process in (*before, *later):
        process.communicate()


def test_a_daemon_ends_with_its_attempt(caller: Caller, folder: Path) -> None:
    def work() -> str:
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                write_mark()
                pause()
            os._exit(0)
        wait_for_mark()
        return "left"

    assert outcome(caller, work, output=folder / "output") == ["value", "left"]


# -- files


def test_the_input_can_be_read_and_not_written(caller: Caller, folder: Path) -> None:
    input_file = folder / "input"
    input_file.write_text("content")
    input_file.chmod(0o666)

    def work() -> list[str | None]:
        return [
            input_file.read_text(),
            error_name(lambda: input_file.write_text("harm")),
            error_name(lambda: input_file.unlink()),
        ]

    code, (content, *errors) = outcome(caller, work, readable=(input_file,))
    assert (code, content) == ("value", "content")
    assert None not in errors
    assert input_file.read_text() == "content"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, who can read everything")
def test_root_can_have_its_files_in_closed_folders(tmp_path: Path) -> None:
    input_file, output = tmp_path / "input", tmp_path / "output"
    input_file.write_text("content")
    for path, mode in ((input_file, 0o600), (tmp_path, 0o700)):
        path.chmod(mode)

    def work() -> str:
        write_mark()
        return input_file.read_text()

    all_without = (frozenset[str](), sandbox.NAMESPACES, frozenset({"landlock"}))
    for number, without in enumerate((layers for layers in all_without if not is_refused(0, layers)), start=1):
        assert outcome(Caller(0, without), work, readable=(input_file,), output=output) == ["value", "content"]
        assert has_mark(output, number)
    assert output.stat().st_uid == 0


def test_what_is_printed_goes_nowhere(caller: Caller, capfd: pytest.CaptureFixture[str]) -> None:
    def work() -> str:
        block = b"x" * 1_000_000
        for _ in range(1000):
            os.write(1, block)
            os.write(2, block)
        return "printed"

    assert outcome(caller, work) == ["value", "printed"]
    assert capfd.readouterr() == ("", "")


def test_the_output_file_is_written_to_and_read(caller: Caller, folder: Path) -> None:
    def work() -> str:
        with sandbox.output_file() as output:
            output.write(b"written")
            output.seek(0)
            return output.read().decode()

    assert outcome(caller, work, output=folder / "output") == ["value", "written"]
    assert (folder / "output").read_bytes() == b"written"


def test_without_an_output_file_nothing_is_written(caller: Caller) -> None:
    assert outcome(caller, write_mark) == ["crashed", "this attempt has no output file"]


@pytest.mark.parametrize("can_start", [False, True])
def test_the_output_file_has_an_end(caller: Caller, folder: Path, can_start: bool) -> None:
    """Exactly there, also for several processes together."""

    def work() -> None:
        if can_start:
            os.fork()
        with sandbox.output_file() as output:
            while True:
                output.write(b"x" * 1_000_000)

    limits = replace(QUICK, processes_max=2 if can_start else 1)
    code, detail = outcome(caller, work, limits, output=folder / "output")
    assert (code, "File too large" in detail) == ("too_large", True)
    assert (folder / "output").stat().st_size == QUICK.output_max


def test_an_output_file_smaller_than_a_response_has_an_end_too(caller: Caller, folder: Path) -> None:
    def work() -> None:
        with sandbox.output_file() as output:
            output.write(b"x" * 1001)

    limits = replace(QUICK, output_max=1000)
    assert outcome(caller, work, limits, output=folder / "output") == ["too_large", "wrote more than 1,000 bytes"]


# -- calls


def refusal(number: int) -> str:
    ctypes.set_errno(0)
    _libc.syscall(ctypes.c_long(number), *[ctypes.c_long(0)] * 6)
    return errno.errorcode.get(ctypes.get_errno(), "none")


@pytest.mark.parametrize("processes_max", [1, 4])
def test_every_call_that_is_not_allowed_is_refused(caller: Caller, processes_max: int) -> None:
    """Also those that a later kernel may add."""
    column = 0 if platform.machine() == "x86_64" else 1
    allowed = seccomp.ALLOWED | (seccomp.STARTING if processes_max > 1 else {})
    known = {numbers[column] for numbers in (*allowed.values(), *seccomp.SIGNALLING.values())} | UNFILTERED

    def work() -> dict[int, str]:
        return {number: refusal(number) for number in range(CALLS_MAX) if number not in known}

    code, errors = outcome(caller, work, replace(QUICK, processes_max=processes_max))
    assert code == "value", errors
    assert len(errors) > CALLS_MAX - 130
    expected = {str(number): "EPERM" if number < seccomp.NEWER else "ENOSYS" for number in range(CALLS_MAX)}
    assert {number: error for number, error in errors.items() if error != expected[number]} == {}


HEADERS = (Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), Path("/usr/include/asm-generic/unistd.h"))


@pytest.mark.parametrize("column", [0, 1], ids=["x86_64", "aarch64"])
def test_numbers_are_those_of_the_kernels_headers(column: int) -> None:
    if not HEADERS[column].exists():
        pytest.skip("the kernel's headers are not installed: linux-libc-dev")
    numbers = {name: int(value) for name, value in re.findall(r"__NR(?:3264)?_(\w+)\s+(\d+)", HEADERS[column].read_text())}
    aliases = {"newfstatat": "fstatat"} if column else {}
    calls = seccomp.ALLOWED | seccomp.STARTING | seccomp.SIGNALLING
    assert {name: pair[column] for name, pair in calls.items()} == {
        name: numbers.get(aliases.get(name, name)) for name in calls
    }


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the code is for x86_64")
def test_calls_of_another_architecture_end_it(caller: Caller) -> None:
    def work() -> int:
        flags, protection = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
        page = mmap.mmap(-1, 4096, flags, protection)
        page.write(INT_80)
        return int(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))())

    code, detail = outcome(caller, work)
    assert code == "crashed"
    assert "SIGSYS" in detail or "SIGSEGV" in detail  # the latter where the kernel has no such calls at all


def test_values_are_json(caller: Caller) -> None:
    assert outcome(caller, lambda: json)[0] == "crashed"
