"""One attempt, as the caller sees it: pipes to its supervisor, its deadline, and how it ended.

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

ENDING_SECONDS_MAX = 10.0
REPORT_MAX = 65_536
FULL_SHARE = 0.8  # a process that is killed with this share of its memory in use has run out of memory


class Outcome(NamedTuple):
    """How an attempt ended: the report of its supervisor, and whether the caller ended it."""

    report: dict[str, Any]
    timed_out: TimedOut | None

    @property
    def is_reported(self) -> bool:
        """Whether the supervisor has reported that no process of the attempt is left."""
        return "status" in self.report


def run_attempt(spec: AttemptSpec, output: int | None = None) -> Response:
    """Run an attempt, with this output file, under a supervisor that is forked from this process."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()  # or the forks would print the buffered text once more
    with Channels(spec.limits, output) as channels:
        try:
            pid = os.fork()
        except OSError as error:
            raise no_resources(error) from error
        if pid == 0:
            code = 1
            try:
                supervise_once(spec, channels.supervisor_ends)
                code = 0
            finally:
                os._exit(code)
        try:
            outcome = channels.monitor()
        finally:
            channels.close_lifeline()
            reaper.wait_or_kill(pid, ENDING_SECONDS_MAX)
        return channels.conclude(outcome)


def no_resources(error: OSError) -> AttemptFailed:
    """The failure when the machine refuses another process, pipe or file in memory."""
    return Crashed(f"this machine has no room for another process: {error}")


class Channels:
    """The pipes, the response file and the output file of one attempt.

    `lifeline`: the supervisor ends the attempt when the caller's end is closed, by kill -9 too.
    `control`: the supervisor reports through it, and closes it when no process of the attempt is left.
    """

    def __init__(self, limits: ResourceLimits, output: int | None) -> None:
        self._limits = limits
        self._open: set[int] = set()
        try:
            supervisor_lifeline, self._lifeline = self._add(*os.pipe())
            self._control, supervisor_control = self._add(*os.pipe())
            (self._response,) = self._add(create_response_file(limits))
            (supervisor_response,) = self._add(os.dup(self._response))
            supervisor_output = () if output is None else self._add(os.dup(output))
        except OSError as error:
            self._close(*self._open)
            raise no_resources(error) from error
        self.supervisor_ends = (supervisor_lifeline, supervisor_control, supervisor_response, *supervisor_output)

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

    def monitor(self) -> Outcome:
        """Wait until the supervisor has reported or died; end the attempt when its time is over."""
        self._close(*self.supervisor_ends)  # the supervisor has its own by now
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        report = bytearray()
        timed_out: TimedOut | None = None
        deadline = time.monotonic() + self._limits.seconds_max
        while len(report) <= REPORT_MAX:
            if poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                block = os.read(self._control, REPORT_MAX)
                report += block
                if not block or b'"status"' in block:  # the last line of a report
                    break
            elif timed_out is None:
                timed_out = TimedOut(f"took longer than {self._limits.seconds_max:g} s")
                self.close_lifeline()
                deadline = time.monotonic() + ENDING_SECONDS_MAX
            else:
                break  # not even the supervisor responds
        lines = [json.loads(line) for line in bytes(report).splitlines()]
        return Outcome({key: value for line in lines for key, value in line.items()}, timed_out)

    def conclude(self, outcome: Outcome) -> Response:
        """Return the response, or raise the reason why there is none."""
        report = outcome.report
        if "layer" in report:
            raise LayerRefused(report["layer"], report["why"])
        if outcome.timed_out is not None:
            raise outcome.timed_out
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
    if report["exceeded"] == "processes":
        return LimitExceeded(f"had more than {limits.processes_max} processes at once")
    if report["exceeded"] == "memory sum":
        return LimitExceeded(f"its processes together need more memory than {limits.memory_sum_max:,} bytes")
    if report["exceeded"] == "memory" or report["resident"] >= limits.memory_max * FULL_SHARE:
        return LimitExceeded(f"needs more memory than {limits.memory_max:,} bytes ({by.name})")
    return Crashed(f"the process was killed by {by.name}")
