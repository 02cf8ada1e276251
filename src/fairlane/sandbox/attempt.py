"""How is one attempt run in a confined process, and what is believed of what comes back?

Laws:
- The guard is believed. Of the confined process only this: at most so many bytes, JSON of a known form, and what goes with it.
- Out comes a value or an `Unreadable`; a layer that is missing is a `Mistake`, told before the file is touched.
- When this returns, nothing that the attempt started lives.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import stat
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from fairlane.extract.failure import CAN_RETRY, Unreadable
from fairlane.procs import reaper

from .limits import Bounds
from .response import Heard, new_answer, said
from .supervisor import Attempt, guard

WATCH_SECONDS = 0.25  # each look takes 0.5 ms from the documents that are read meanwhile
ENDING_SECONDS_MAX = 10.0
CONTROL_MAX = 65_536
BLOCK = 65_536
MEMORY_SHARE = 0.8  # of what it may have: whoever dies with more in use ran out of it


class Ending(NamedTuple):
    """How an attempt ended: what the guard told, what the confined process said, and why we ended it, if we did."""

    told: dict[str, Any]
    answer: bytes
    parts: tuple[bytes, ...]
    ended_for: Unreadable | None


def perform(attempt: Attempt) -> Ending:
    """Fork the guard, listen until everything has ended, and see to it that it does."""
    for printed in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            printed.flush()  # or the forks would print it once more
    with handles(attempt.bounds) as (ours, theirs):
        try:
            pid = os.fork()
        except OSError as error:
            raise no_room(error) from error
        if pid == 0:
            code = 1
            try:
                guard(attempt, *theirs)
                code = 0
            finally:
                os._exit(code)
        try:
            return listen(attempt.scratch, attempt.bounds, ours, theirs)
        finally:  # the guard ends when our end of `life` is closed
            reaper.wait_or_kill(pid, ENDING_SECONDS_MAX)


def no_room(error: OSError) -> Unreadable:
    """What a caller is told when the machine refuses another process, pipe or file in memory."""
    return Unreadable("crashed", f"this machine has no room for another process: {error}")


@contextlib.contextmanager
def handles(bounds: Bounds) -> Iterator[tuple[list[int], list[int]]]:
    """Our ends of `life`, `control` and `answer`, and theirs; all that is still in the lists is closed at the end."""
    ours: list[int] = []
    theirs: list[int] = []
    try:
        try:
            for is_ours_read in (False, True):
                reading, writing = os.pipe()
                ours.append(reading if is_ours_read else writing)
                theirs.append(writing if is_ours_read else reading)
            ours.append(new_answer(bounds))
            theirs.append(os.dup(ours[-1]))
        except OSError as error:
            raise no_room(error) from error
        yield ours, theirs
    finally:
        _close(ours)
        _close(theirs)


def _close(opened: list[int]) -> None:
    while opened:
        os.close(opened.pop())


def listen(scratch: str, bounds: Bounds, ours: list[int], theirs: list[int]) -> Ending:
    """Once the guard has its ends: let go of those, and of ours when it has reported and gone."""
    _close(theirs)
    listener = _Listener(scratch, bounds, *ours)
    ours.clear()
    try:
        return listener.listen()
    finally:
        listener.close()


class _Listener:
    """Our ends of what an attempt is heard and ended by, and what was told so far."""

    def __init__(self, scratch: str, bounds: Bounds, life: int, control: int, answer: int) -> None:
        self._scratch, self._bounds = scratch, bounds
        self._life, self._control, self._answer = life, control, answer
        self._told = bytearray()
        self._ended_for: Unreadable | None = None

    def listen(self) -> Ending:
        """Until the guard has reported, or is gone."""
        bounds = self._bounds
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        began = looked = time.monotonic()
        ends_at = began + bounds.seconds_max
        while True:
            if poll.poll(WATCH_SECONDS * 1000) and self._is_report_whole():
                break
            now = time.monotonic()
            if now > ends_at + (ENDING_SECONDS_MAX if self._ended_for else 0):
                if self._ended_for is not None:
                    break  # not even the guard answers
                self._end(Unreadable("timed_out", f"took longer than {bounds.seconds_max:g} s"))
                ends_at = now
            elif now - looked >= WATCH_SECONDS:
                looked = now
                if (excess := too_much_in(self._scratch, bounds)) is not None:
                    self._end(excess)
        lines = [json.loads(line) for line in bytes(self._told).splitlines()]
        told = {key: value for line in lines for key, value in line.items()}
        return Ending(told, *said(self._answer, bounds), self._ended_for)

    def _is_report_whole(self) -> bool:
        """Hear what is told: how the attempt ended comes last, and only if it began."""
        block = os.read(self._control, BLOCK)
        self._told += block
        return not block or b'"status"' in block or len(self._told) > CONTROL_MAX

    def _end(self, why: Unreadable) -> None:
        """Close our end of `life`: the guard ends everything."""
        self._ended_for = self._ended_for or why
        if self._life >= 0:
            os.close(self._life)
            self._life = -1

    def close(self) -> None:
        """Close all ends."""
        for handle in (self._life, self._control, self._answer):
            if handle >= 0:
                os.close(handle)


def too_much_in(scratch: str, bounds: Bounds) -> Unreadable | None:
    """Whether the scratch folder holds more than it may; looks no further than that."""
    count = size = 0
    folders = [scratch]
    while folders:
        with contextlib.suppress(FileNotFoundError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    found = entry.stat(follow_symlinks=False)
                    count += 1
                    size += found.st_blocks * 512
                    if stat.S_ISDIR(found.st_mode):
                        folders.append(entry.path)
                if count > bounds.files_max:
                    return Unreadable("too_large", f"made more than {bounds.files_max:,} files")
                if size > bounds.scratch_max:
                    return Unreadable("too_large", f"wrote more than {bounds.scratch_max:,} bytes")
    return None


def judged(ending: Ending, bounds: Bounds) -> Heard:
    """What was answered, or the reason why nothing was."""
    if ending.ended_for is not None:
        raise ending.ended_for
    status = ending.told.get("status")
    if not isinstance(status, int):
        raise Unreadable("crashed", "its guard was ended by somebody")
    if os.WIFSIGNALED(status):
        raise _killed(signal.Signals(os.WTERMSIG(status)), ending.told, bounds)
    if os.WEXITSTATUS(status) != 0:
        raise Unreadable("crashed", f"the process ended with code {os.WEXITSTATUS(status)}")
    try:
        answer = json.loads(ending.answer, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise Unreadable("crashed", "the process answered nothing" if not ending.answer else "the answer is garbage") from error
    if isinstance(answer, dict):
        if answer.keys() == {"value"}:
            return Heard(answer["value"], ending.parts)
        if answer.keys() == {"code", "detail"} and isinstance(answer["detail"], str) and answer["code"] in [*CAN_RETRY]:
            raise Unreadable(answer["code"], answer["detail"])
    raise Unreadable("crashed", "the answer is garbage")


def _killed(by: signal.Signals, told: dict[str, Any], bounds: Bounds) -> Unreadable:
    if by == signal.SIGXCPU or (by == signal.SIGKILL and told["cpu_seconds"] > bounds.cpu_seconds_max - 0.5):
        return Unreadable("timed_out", f"took more than {bounds.cpu_seconds_max} s of processor time")
    if told["was_full"] or told["resident"] >= bounds.memory_max * MEMORY_SHARE:
        return Unreadable("too_large", f"needs more memory than {bounds.memory_max:,} bytes ({by.name})")
    return Unreadable("crashed", f"the process was ended by {by.name}")


def _refuse_constant(name: str) -> object:
    raise ValueError(name)
