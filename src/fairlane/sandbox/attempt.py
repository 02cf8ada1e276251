"""One attempt, as the caller sees it: pipes to its supervisor, its deadline, its scratch folder, and how it ended.

Laws:
- The supervisor is trusted. The confined process is not: at most so many bytes of it are read, see `response`.
- The outcome is a `Response` or an `AttemptFailed`; `LayerRefused` if the attempt did not begin.
- When this returns, no process that the attempt started is left.
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
from types import TracebackType
from typing import Any, NamedTuple

from fairlane.procs import reaper

from .confine import AttemptSpec
from .errors import AttemptFailed, Crashed, LayerRefused, LimitExceeded, TimedOut
from .limits import ResourceLimits
from .response import Response, create_response_file, read_response
from .supervisor import supervise_once

SCRATCH_CHECK_SECONDS = 0.25
ENDING_SECONDS_MAX = 10.0
REPORT_MAX = 65_536
FULL_SHARE = 0.8  # a process that is killed with this share of its memory in use has run out of memory


class Outcome(NamedTuple):
    """How an attempt ended: the report of its supervisor, and why the caller ended it, if it did."""

    report: dict[str, Any]
    stopped_for: AttemptFailed | None

    @property
    def is_reported(self) -> bool:
        """Whether the supervisor has reported that no process of the attempt is left."""
        return "status" in self.report


def run_attempt(spec: AttemptSpec) -> Response:
    """Run an attempt under a supervisor that is forked from this process."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()  # or the forks would print the buffered text once more
    with Channels(spec.limits) as channels:
        try:
            pid = os.fork()
        except OSError as error:
            raise no_resources(error) from error
        if pid == 0:
            code = 1
            try:
                supervise_once(spec, *channels.supervisor_ends)
                code = 0
            finally:
                os._exit(code)
        try:
            outcome = channels.monitor(spec.scratch)
        finally:
            channels.close_lifeline()
            reaper.wait_or_kill(pid, ENDING_SECONDS_MAX)
        return channels.conclude(outcome)


def no_resources(error: OSError) -> AttemptFailed:
    """The failure when the machine refuses another process, pipe or file in memory."""
    return Crashed(f"this machine has no room for another process: {error}")


class Channels:
    """The pipes and the response file of one attempt.

    `lifeline`: the supervisor ends the attempt when the caller's end is closed, by kill -9 too.
    `control`: the supervisor reports through it, and closes it when no process of the attempt is left.
    """

    def __init__(self, limits: ResourceLimits) -> None:
        self._limits = limits
        self._open: set[int] = set()
        try:
            supervisor_lifeline, self._lifeline = self._add(*os.pipe())
            self._control, supervisor_control = self._add(*os.pipe())
            (self._response,) = self._add(create_response_file(limits))
            (supervisor_response,) = self._add(os.dup(self._response))
        except OSError as error:
            self._close(*self._open)
            raise no_resources(error) from error
        self.supervisor_ends = (supervisor_lifeline, supervisor_control, supervisor_response)

    def __enter__(self) -> Channels:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._close(*self._open)

    def _add(self, *descriptors: int) -> tuple[int, ...]:
        self._open.update(descriptors)
        return descriptors

    def _close(self, *descriptors: int) -> None:
        for descriptor in descriptors:
            if descriptor in self._open:
                self._open.remove(descriptor)
                os.close(descriptor)

    def close_lifeline(self) -> None:
        """Have the supervisor end the attempt."""
        self._close(self._lifeline)

    def monitor(self, scratch: str) -> Outcome:
        """Wait until the supervisor has reported or died; end the attempt if it exceeds its time or its scratch folder."""
        self._close(*self.supervisor_ends)  # the supervisor has its own by now
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        report = bytearray()
        stopped_for: AttemptFailed | None = None
        now = time.monotonic()
        deadline, next_check = now + self._limits.seconds_max, now + SCRATCH_CHECK_SECONDS
        while len(report) <= REPORT_MAX:
            if poll.poll(SCRATCH_CHECK_SECONDS * 1000):
                block = os.read(self._control, REPORT_MAX)
                report += block
                if not block or b'"status"' in block:  # the last line of a report
                    break
            now = time.monotonic()
            if now > deadline:
                if stopped_for is not None:
                    break  # not even the supervisor responds
                stopped_for = TimedOut(f"took longer than {self._limits.seconds_max:g} s")
            elif stopped_for is None and now >= next_check:
                next_check = now + SCRATCH_CHECK_SECONDS
                stopped_for = check_scratch(scratch, self._limits)
            if stopped_for is not None and self._lifeline in self._open:
                self.close_lifeline()
                deadline = now + ENDING_SECONDS_MAX
        lines = [json.loads(line) for line in bytes(report).splitlines()]
        return Outcome({key: value for line in lines for key, value in line.items()}, stopped_for)

    def conclude(self, outcome: Outcome) -> Response:
        """Return the response, or raise the reason why there is none."""
        report = outcome.report
        if "layer" in report:
            raise LayerRefused(report["layer"], report["why"])
        if outcome.stopped_for is not None:
            raise outcome.stopped_for
        if not outcome.is_reported:
            raise Crashed("its supervisor was killed")
        status = report["status"]
        if os.WIFSIGNALED(status):
            raise _killed(signal.Signals(os.WTERMSIG(status)), report, self._limits)
        if os.WEXITSTATUS(status) != 0:
            raise Crashed(f"the process ended with code {os.WEXITSTATUS(status)}")
        return read_response(self._response, self._limits)


def _killed(by: signal.Signals, report: dict[str, Any], limits: ResourceLimits) -> AttemptFailed:
    is_cpu_used = report["cpu_seconds"] > limits.cpu_seconds_max - 0.5
    if by == signal.SIGXCPU or (by == signal.SIGKILL and is_cpu_used):
        return TimedOut(f"took more than {limits.cpu_seconds_max} s of processor time")
    if report["was_full"] or report["resident"] >= limits.memory_max * FULL_SHARE:
        return LimitExceeded(f"needs more memory than {limits.memory_max:,} bytes ({by.name})")
    return Crashed(f"the process was killed by {by.name}")


def check_scratch(scratch: str, limits: ResourceLimits) -> LimitExceeded | None:
    """Return the failure if the scratch folder has too many files or bytes."""
    count = size = 0
    folders = [scratch]
    while folders:
        with contextlib.suppress(FileNotFoundError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    count += 1
                    size += status.st_blocks * 512
                    if stat.S_ISDIR(status.st_mode):
                        folders.append(entry.path)
                if count > limits.files_max:
                    return LimitExceeded(f"made more than {limits.files_max:,} files")
                if size > limits.scratch_max:
                    return LimitExceeded(f"wrote more than {limits.scratch_max:,} bytes")
    return None
