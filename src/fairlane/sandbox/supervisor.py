"""Who sees to it that nothing of an attempt is left? The guard: a fork between the caller and the confined process.

Laws:
- It runs no parser and reads nothing that the confined process writes.
- When the caller is gone, or closes its end of the pipe `life`, everything the attempt started is ended.
- It reports how the attempt ended only when nothing of it lives any more.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from fairlane.procs import reaper, syscalls

from .confine import HELD_BACK, Refused, Room, behave, confine, leave_namespaces, memory_of
from .limits import Bounds

ENDING_SECONDS_MAX = 5.0
WATCH_SECONDS = 1.0
FULL_TIMES = 2  # looks, one after the other, at an attempt without memory, and it is ended
ENDED = b'{"status": %d, "cpu_seconds": %f, "resident": %d, "was_full": %d}\n'  # the last line that is told
ARENA = 1 << 20  # bytes that Python asks for at a time when it has none left


def keep_only(handles: Iterable[int]) -> None:
    """Close every handle but these; the three streams lead nowhere."""
    kept = {*handles}
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in {0, 1, 2} - kept:
        os.dup2(nowhere, stream)
    for name in os.listdir("/proc/self/fd"):  # not by a limit: it may have been higher when they were opened
        handle = int(name)
        if handle > 2 and handle not in kept:
            with contextlib.suppress(OSError):  # the list itself had one
                os.close(handle)


def tell(control: int, **told: object) -> None:
    """A line for the caller."""
    os.write(control, json.dumps(told).encode() + b"\n")


class Attempt(NamedTuple):
    """What is to be run, and within what."""

    layers: frozenset[str]
    work: Callable[[int], None]  # is given the handle that it answers through
    scratch: str
    readable: Sequence[str]
    bounds: Bounds


def guard(attempt: Attempt, life: int, control: int, answer: int) -> None:
    """In a fork of the caller: see to one attempt."""
    stand_apart((life, control, answer))
    try:
        leave_namespaces(attempt.layers)
    except Refused as refused:
        tell(control, layer=refused.layer, why=refused.why)
        return
    see_to(attempt, life, control, answer)


def stand_apart(handles: Iterable[int]) -> None:
    """Be a process that only its pipes end, and that nothing else leads to."""
    os.setsid()  # kill -9 of the caller's whole group must leave somebody who ends the rest
    syscalls.become_subreaper()
    behave()
    signal.pthread_sigmask(signal.SIG_SETMASK, HELD_BACK)  # whoever ends the caller ends us by that
    for number in (*HELD_BACK, signal.SIGCHLD, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)  # so the confined fork has them so
    keep_only(handles)


def see_to(attempt: Attempt, life: int, control: int, answer: int, others: tuple[int, ...] = ()) -> None:
    """Fork the confined process, wait until it or the caller has ended, end what is left, and report; closes the pipes.

    `others` are all handles that this process has besides: the fork must not.
    """
    living, sign = os.pipe()
    try:
        own = Room(attempt.layers, attempt.scratch, attempt.readable, attempt.bounds, living)
        try:
            pid = os.fork()
            if pid == 0:
                _confined(attempt, own, control, answer, (life, sign, *others))
            os.close(answer)
            was_full = _wait(pid, life, attempt.bounds.seconds_max + ENDING_SECONDS_MAX, own.addresses_max - ARENA)
            _, status, used = os.wait4(pid, 0)
            if "process namespace" not in attempt.layers:  # else the kernel has ended them with their first
                reaper.end_strays(ENDING_SECONDS_MAX)
        finally:
            own.leave()
        resident = max(0, used.ru_maxrss * 1024 - own.resident)  # what it took itself, above what it was forked with
        os.write(control, ENDED % (status, used.ru_utime + used.ru_stime, resident, was_full))
    except Refused as refused:
        os.close(answer)
        tell(control, layer=refused.layer, why=refused.why)
    for handle in (life, control, living, sign):  # as long as the last was open, we lived
        os.close(handle)


def _confined(attempt: Attempt, own: Room, control: int, answer: int, others: tuple[int, ...]) -> None:
    """In the confined fork; never returns."""
    try:
        for handle in others:
            os.close(handle)
        try:
            confine(own)
        except Refused as refused:
            tell(control, layer=refused.layer, why=refused.why)
            os._exit(1)
        os.close(control)  # from here on nothing that we say is believed
        attempt.work(answer)
    finally:
        os._exit(1)


def _wait(pid: int, life: int, seconds_max: float, full: int) -> bool:
    """Until it has ended, or the caller is gone, or has forgotten it, or its memory is full and stays so: was it that?

    Python without memory may loop for ever: to handle an exception, it may need a number, and to say that there is no memory
    for that is an exception.
    """
    handle = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    poll.register(life, select.POLLIN)
    ends_at = time.monotonic() + seconds_max
    found: list[tuple[int, int]] = []
    times_full = 0
    while times_full < FULL_TIMES and time.monotonic() < ends_at and not (found := poll.poll(WATCH_SECONDS * 1000)):
        times_full = times_full + 1 if _addresses_of(handle) > full else 0
    if handle not in [one for one, _ in found]:
        os.kill(pid, signal.SIGKILL)
    os.close(handle)
    return times_full == FULL_TIMES


def _addresses_of(handle: int) -> int:
    """How many bytes of addresses a process has in use, by its handle; 0 if it has ended, or may not be looked at."""
    with contextlib.suppress(OSError, IndexError):  # the last: what stands in for Linux may tell no number
        told = Path(f"/proc/self/fdinfo/{handle}").read_text()  # its number as /proc counts: here it may have another
        return memory_of(told.partition("Pid:")[2].split()[0])[0]
    return 0
