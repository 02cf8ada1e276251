"""The supervisor: a process between the caller and the confined process, which ends everything that an attempt started.

Laws:
- It runs no parser and reads nothing that the confined process writes.
- When the caller dies or closes its end of the lifeline pipe, everything that the attempt started is killed.
- It reports how the attempt ended only after the last process of it has ended.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import select
import signal
import time
from collections.abc import Iterable, Sequence
from typing import NoReturn

from fairlane.procs import reaper, syscalls

from .confine import AttemptSpec, Confinement
from .errors import LayerRefused
from .namespaces import enter_new_namespaces
from .output import set_output
from .response import run_and_respond
from .watch import Watch

ENDING_SECONDS_MAX = 5.0
KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TESSDATA_PREFIX", "LD_LIBRARY_PATH", "OMP_THREAD_LIMIT")
BLOCKED_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def supervise_once(spec: AttemptSpec, ends: Sequence[int]) -> None:
    """Supervise one attempt, in a process forked for it alone; `ends` are the pipes and files that it gets from its caller."""
    detach(ends)
    try:
        enter_new_namespaces(spec.layers)
    except LayerRefused as refused:
        send_report(ends[1], layer=refused.layer, why=refused.why)
        return
    supervise(spec, ends)


def detach(file_descriptors: Iterable[int]) -> None:
    """Become a process that only these pipes or sockets connect to the caller."""
    os.setsid()  # kill -9 of the caller's process group must not kill the supervisor too
    syscalls.become_subreaper()
    faulthandler.disable()
    signal.set_wakeup_fd(-1)
    # Signals to the caller's processes are for the caller: its end closes the lifeline.
    signal.pthread_sigmask(signal.SIG_SETMASK, BLOCKED_SIGNALS)
    for number in (*BLOCKED_SIGNALS, signal.SIGCHLD, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)  # the confined process inherits this
    os.umask(0o077)
    for name in os.environ.keys() - KEPT_VARIABLES:  # it may contain URLs and passwords
        del os.environ[name]
    _close_all_but(file_descriptors)


def _close_all_but(file_descriptors: Iterable[int]) -> None:
    """Close every other file descriptor; stdin, stdout and stderr lead to /dev/null."""
    kept = {*file_descriptors}
    null = os.open(os.devnull, os.O_RDWR)
    for stream in {0, 1, 2} - kept:
        os.dup2(null, stream)
    for name in os.listdir("/proc/self/fd"):  # RLIMIT_NOFILE may be lower now than when they were opened
        descriptor = int(name)
        if descriptor > 2 and descriptor not in kept:
            with contextlib.suppress(OSError):  # the one that listed them is already closed
                os.close(descriptor)


def send_report(control: int, **report: object) -> None:
    """Send a line of JSON to the caller."""
    os.write(control, json.dumps(report).encode() + b"\n")


def supervise(spec: AttemptSpec, ends: Sequence[int], others: tuple[int, ...] = ()) -> None:
    """Fork the confined process, wait until it or the caller ends, kill what is left, and report. Closes the ends.

    `ends` are the lifeline, the control pipe, the response file and the output file, if there is one; `others` all other file
    descriptors of this process, which the confined process must not have.
    """
    lifeline, control, *files = ends
    supervisor_pipe, own_end = os.pipe()  # nothing is ever sent: its end of file says that the supervisor has died
    try:
        confinement = Confinement(spec, supervisor_pipe)
        try:
            pid = os.fork()
            if pid == 0:
                _run_confined(spec, confinement, control, files, (lifeline, own_end, *others))
            exceeded = _wait(pid, lifeline, spec, confinement)
            _, status, usage = os.wait4(pid, 0)
            if "process namespace" not in spec.layers:  # else the kernel has killed them with the first process
                reaper.end_strays(ENDING_SECONDS_MAX)
        finally:
            confinement.close()
        resident = max(0, usage.ru_maxrss * 1024 - confinement.resident_bytes)
        cpu_seconds = usage.ru_utime + usage.ru_stime
        send_report(control, status=status, cpu_seconds=cpu_seconds, resident=resident, exceeded=exceeded)
    except LayerRefused as refused:
        send_report(control, layer=refused.layer, why=refused.why)
    for descriptor in (*ends, supervisor_pipe, own_end):
        os.close(descriptor)


def _run_confined(
    spec: AttemptSpec, confinement: Confinement, control: int, files: Sequence[int], others: tuple[int, ...]
) -> NoReturn:
    """Run the work, in the confined fork."""
    try:
        for descriptor in others:
            os.close(descriptor)
        try:
            confinement.enter()
        except LayerRefused as refused:
            send_report(control, layer=refused.layer, why=refused.why)
            os._exit(1)
        os.close(control)  # the caller trusts what comes through it, so the work must not have it
        response, *output = files
        set_output(output[0] if output else None)
        run_and_respond(spec.work, response)
    finally:
        os._exit(1)


def _wait(pid: int, lifeline: int, spec: AttemptSpec, confinement: Confinement) -> str | None:
    """Wait for the confined process; kill it when the caller is gone, time is over, or the attempt has too much of something.

    Return what it had too much of, if that was the reason.
    """
    process = os.pidfd_open(pid)
    watch = Watch(process, spec.limits, confinement.address_space_max)
    poll = select.poll()
    poll.register(process, select.POLLIN)
    poll.register(lifeline, select.POLLIN)
    deadline = time.monotonic() + spec.limits.seconds_max + ENDING_SECONDS_MAX
    events: list[tuple[int, int]] = []
    exceeded = None
    while not events and exceeded is None and time.monotonic() < deadline:
        events = poll.poll(watch.seconds * 1000)
        if not events:
            exceeded = watch.check()
    if process not in [descriptor for descriptor, _ in events]:
        os.kill(pid, signal.SIGKILL)
    os.close(process)
    return exceeded
