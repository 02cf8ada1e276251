"""Attacks on the limits: more memory, more files, more processes than an attempt may have."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
from dataclasses import replace
from threading import Thread

from fairlane import sandbox

from .attack import FILES, LIMITS, Attack, Outcome, Scene, call, unnoticed, worked

PROMISE = "limits"
PIECE = 10_000_000  # bytes
TOO_MUCH = 3  # times what an attempt may have
SHARE = 3 * LIMITS.memory_max // 4  # that each of several processes takes
HIGH = 10  # times the limits, where they are taken away
SIGNALS = 1000  # more than an attempt may have waiting
ALONE = replace(LIMITS, processes_max=1)


# -- memory


def _take_memory(scene: Scene) -> bool:
    taken = [bytearray(b"x" * PIECE) for _ in range(TOO_MUCH * LIMITS.memory_max // PIECE)]
    return scene.hold() and bool(taken)


def _take_memory_in_several(scene: Scene) -> bool:
    """Take three quarters of it in each of several processes, and stay."""
    ready, taken = os.pipe()
    for _ in range(LIMITS.processes_max - 1):
        if os.fork() == 0:
            kept = [bytearray(b"x" * PIECE) for _ in range(SHARE // PIECE)]
            os.write(taken, b"x" if kept else b"")
            while True:
                signal.pause()
    for _ in range(LIMITS.processes_max - 1):
        os.read(ready, 1)
    return scene.hold()


def _hide_memory(scene: Scene) -> bool:
    """Share memory with a process that never looks at it, and let go of it: nobody seems to have it, and it stays."""
    for _ in range(LIMITS.processes_max - 1):
        shared = mmap.mmap(-1, SHARE)
        for _ in range(SHARE // PIECE):
            shared.write(b"x" * PIECE)
        if os.fork() == 0:
            while True:
                signal.pause()
        shared.close()
    return scene.hold()


def _hide_memory_behind_an_end(scene: Scene) -> bool:
    """Have another thread take it when the first one has ended: what such a process has, the kernel does not show."""
    kept = [bytearray(b"x" * PIECE) for _ in range(SHARE // PIECE)]
    ready, taken = os.pipe()
    first_thread = ctypes.c_int(1)  # the kernel clears it when that ends

    def take() -> None:
        while first_thread.value:
            pass
        kept.extend(bytearray(b"x" * PIECE) for _ in range(SHARE // PIECE))
        os.write(taken, b"x")
        while True:
            signal.pause()

    if os.fork() == 0:
        kept.clear()
        call("set_tid_address", ctypes.byref(first_thread))
        Thread(target=take).start()
        call("exit", 0)
    os.read(ready, 1)
    return scene.hold() and bool(kept)


def _queue_signals(_: Scene) -> bool:
    """Send itself signals that it never receives: the kernel stores them, and counts them for the user."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
    for _number in range(SIGNALS):
        call("tgkill", os.getpid(), os.getpid(), signal.SIGRTMIN)
    return True


def _hold_up_the_kernel(_: Scene) -> bool:
    """Decide itself when the kernel gets a page that it waits for."""
    return call("userfaultfd", 1) > 0  # UFFD_USER_MODE_ONLY: for everybody


def _hide_memory_in_a_device(scene: Scene) -> bool:
    with open("/dev/zero", "r+b") as device:
        shared = mmap.mmap(device.fileno(), PIECE)
    shared.write(b"x" * PIECE)
    return scene.hold()


def _hide_memory_in_a_file(scene: Scene) -> bool:
    for _ in range(TOO_MUCH * LIMITS.memory_max // LIMITS.output_max):
        file = call("memfd_create", b"hidden", 0)
        for _ in range(LIMITS.output_max // PIECE):
            os.write(file, bytes(PIECE))
    return scene.hold()


def _hide_memory_in_a_segment(scene: Scene) -> bool:
    segments = [call("shmget", 0, SHARE, 0o1600) for _ in range(TOO_MUCH)]
    for segment in segments:
        address = call("shmat", segment, None, 0)
        ctypes.memset(address, 1, SHARE)
        call("shmdt", ctypes.c_void_p(address))
    for segment in segments:
        call("shmctl", segment, 0, None)
    return True


# -- files


def _write_much(scene: Scene) -> bool:
    with sandbox.output_file() as output:
        for _ in range(TOO_MUCH * LIMITS.output_max // PIECE):
            if output.write(bytes(PIECE)) < PIECE:
                return False
    return True


def _write_far_away(_: Scene) -> bool:
    with sandbox.output_file() as output:
        return os.pwrite(output.fileno(), b"x", TOO_MUCH * LIMITS.output_max) == 1


def _make_it_long(_: Scene) -> bool:
    with sandbox.output_file() as output:
        return output.truncate(TOO_MUCH * LIMITS.output_max) > LIMITS.output_max


def _reserve_room(_: Scene) -> bool:
    with sandbox.output_file() as output:
        call("fallocate", output.fileno(), 1, 0, TOO_MUCH * LIMITS.output_max)  # FALLOC_FL_KEEP_SIZE: by no limit of sizes
    return True


def _is_large(scene: Scene, _: Outcome) -> bool:
    status = scene.output.stat()
    return status.st_size > LIMITS.output_max or status.st_blocks * 512 > 2 * LIMITS.output_max  # file systems round up


def _write_without_a_name(scene: Scene) -> bool:
    """Write to a file that has never had a name, in a folder where anybody may."""
    file = os.open(scene.outside, os.O_TMPFILE | os.O_WRONLY)
    return os.write(file, bytes(PIECE)) == PIECE


def _write_without_a_name_any_more(scene: Scene) -> bool:
    path = scene.outside / "new"
    file = os.open(path, os.O_CREAT | os.O_WRONLY)
    path.unlink()
    return os.write(file, bytes(PIECE)) == PIECE


# -- processes


def _fork_many(scene: Scene) -> bool:
    for _ in range(TOO_MUCH * LIMITS.processes_max):
        if os.fork() == 0:
            while True:
                signal.pause()
    return scene.hold()


def _start_many_threads(scene: Scene) -> bool:
    for _ in range(TOO_MUCH * LIMITS.processes_max):
        Thread(target=signal.pause, daemon=True).start()
    return scene.hold()


def _fork_once(_: Scene) -> bool:
    if (child := os.fork()) == 0:
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def _start_program(_: Scene) -> None:
    with sandbox.output_file() as output:
        os.dup2(output.fileno(), 1)
    os.execv("/bin/echo", ["echo", "started"])


def _has_started(scene: Scene, _: Outcome) -> bool:
    return scene.output.read_bytes() == b"started\n"


MUCH_MEMORY = replace(LIMITS, memory_max=HIGH * LIMITS.memory_max, memory_sum_max=HIGH * LIMITS.memory_sum_max)
MUCH_ROOM = replace(LIMITS, output_max=HIGH * LIMITS.output_max)
MANY_PROCESSES = replace(MUCH_MEMORY, processes_max=HIGH * LIMITS.processes_max)
NO_WATCH = {"fairlane.sandbox.watch.Watch.check": lambda _: None}
MANY_SIGNALS = {"fairlane.sandbox.confine.SIGNALS_MAX": HIGH * SIGNALS}
UNLINK = ("unlink", "unlinkat")
_NONE: frozenset[str] = frozenset()
EXCEEDING = [
    Attack("take memory", PROMISE, _take_memory, unnoticed, _NONE, limits_without=MUCH_MEMORY),
    Attack("take memory in several", PROMISE, _take_memory_in_several, unnoticed, _NONE, limits_without=MUCH_MEMORY),
    Attack("hide memory that is shared", PROMISE, _hide_memory, unnoticed, _NONE, rules=("mmap",), patches=NO_WATCH),
    Attack("hide memory behind an end", PROMISE, _hide_memory_behind_an_end, unnoticed, _NONE, patches=NO_WATCH),
    Attack("queue signals", PROMISE, _queue_signals, worked, _NONE, ("tgkill",), patches=MANY_SIGNALS),
    Attack("hold up the kernel", PROMISE, _hold_up_the_kernel, worked, _NONE, ("userfaultfd",)),
    Attack("hide memory in a device", PROMISE, _hide_memory_in_a_device, unnoticed, FILES, rules=("openat",)),
    Attack("hide memory in a file", PROMISE, _hide_memory_in_a_file, unnoticed, _NONE, ("memfd_create",)),
    Attack(
        "hide memory in a segment", PROMISE, _hide_memory_in_a_segment, worked, _NONE, ("shmget", "shmat", "shmdt", "shmctl")
    ),
    Attack("write much", PROMISE, _write_much, _is_large, _NONE, limits_without=MUCH_ROOM),
    Attack("write far away", PROMISE, _write_far_away, _is_large, _NONE, limits_without=MUCH_ROOM),
    Attack("make a file long", PROMISE, _make_it_long, _is_large, _NONE, limits_without=MUCH_ROOM),
    Attack("reserve room", PROMISE, _reserve_room, _is_large, _NONE, ("fallocate",)),
    Attack("write to a file that never had a name", PROMISE, _write_without_a_name, worked, FILES, rules=("openat",)),
    Attack("write to a file without a name", PROMISE, _write_without_a_name_any_more, worked, FILES, UNLINK, ("openat",)),
    Attack("fork many processes", PROMISE, _fork_many, unnoticed, _NONE, limits_without=MANY_PROCESSES),
    Attack("start many threads", PROMISE, _start_many_threads, unnoticed, _NONE, limits_without=MANY_PROCESSES),
    Attack("fork where nothing is to start", PROMISE, _fork_once, worked, _NONE, limits=ALONE, limits_without=LIMITS),
    Attack("start a program where nothing is to", PROMISE, _start_program, _has_started, _NONE, limits=ALONE,
           limits_without=LIMITS),
]  # fmt: skip
