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
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

from fairlane.procs import reaper, syscalls

from .confine import AttemptSpec, Confinement, memory_usage
from .errors import LayerRefused
from .namespaces import enter_new_namespaces
from .response import run_and_respond

ENDING_SECONDS_MAX = 5.0
MEMORY_CHECK_SECONDS = 1.0
FULL_CHECKS_MAX = 2  # consecutive checks that find no address space left, before the attempt is killed
ARENA_BYTES = 1 << 20  # what Python asks for at a time when it needs memory
KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TESSDATA_PREFIX", "LD_LIBRARY_PATH", "OMP_THREAD_LIMIT")
BLOCKED_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def supervise_once(spec: AttemptSpec, lifeline: int, control: int, response: int) -> None:
    """Supervise one attempt, in a process forked for it alone."""
    detach((lifeline, control, response))
    try:
        enter_new_namespaces(spec.layers)
    except LayerRefused as refused:
        send_report(control, layer=refused.layer, why=refused.why)
        return
    supervise(spec, lifeline, control, response)


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


def supervise(spec: AttemptSpec, lifeline: int, control: int, response: int, others: tuple[int, ...] = ()) -> None:
    """Fork the confined process, wait until it or the caller ends, kill what is left, and report. Closes the pipes.

    `others` are all other file descriptors of this process, which the confined process must not have.
    """
    supervisor_pipe, own_end = os.pipe()  # nothing is ever sent: its end of file says that the supervisor has died
    try:
        confinement = Confinement(spec, supervisor_pipe)
        try:
            pid = os.fork()
            if pid == 0:
                _run_confined(spec, confinement, control, response, (lifeline, own_end, *others))
            os.close(response)
            full_at = confinement.address_space_max - ARENA_BYTES
            was_full = _wait(pid, lifeline, spec.limits.seconds_max + ENDING_SECONDS_MAX, full_at)
            _, status, usage = os.wait4(pid, 0)
            if "process namespace" not in spec.layers:  # else the kernel has killed them with the first process
                reaper.end_strays(ENDING_SECONDS_MAX)
        finally:
            confinement.close()
        resident = max(0, usage.ru_maxrss * 1024 - confinement.resident_bytes)
        cpu_seconds = usage.ru_utime + usage.ru_stime
        send_report(control, status=status, cpu_seconds=cpu_seconds, resident=resident, was_full=was_full)
    except LayerRefused as refused:
        os.close(response)
        send_report(control, layer=refused.layer, why=refused.why)
    for descriptor in (lifeline, control, supervisor_pipe, own_end):
        os.close(descriptor)


def _run_confined(
    spec: AttemptSpec, confinement: Confinement, control: int, response: int, others: tuple[int, ...]
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
        run_and_respond(spec.work, response)
    finally:
        os._exit(1)


def _wait(pid: int, lifeline: int, seconds_max: float, full_at: int) -> bool:
    """Wait for the confined process; kill it when the caller is gone, time is over, or its address space stays full.

    Return whether it was killed because its address space was full. Python may loop for ever then: to handle a MemoryError
    it may itself need memory.
    """
    process = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(process, select.POLLIN)
    poll.register(lifeline, select.POLLIN)
    deadline = time.monotonic() + seconds_max
    events: list[tuple[int, int]] = []
    full_checks = 0
    while full_checks < FULL_CHECKS_MAX and time.monotonic() < deadline and not events:
        events = poll.poll(MEMORY_CHECK_SECONDS * 1000)
        full_checks = full_checks + 1 if not events and _address_space(process) > full_at else 0
    if process not in [descriptor for descriptor, _ in events]:
        os.kill(pid, signal.SIGKILL)
    os.close(process)
    return full_checks == FULL_CHECKS_MAX


def _address_space(process: int) -> int:
    """Return the bytes of address space of a process, by its pidfd; 0 if it has ended or cannot be inspected."""
    with contextlib.suppress(OSError, IndexError, ValueError):  # the latter two: some kernels' stand-ins show no number
        info = Path(f"/proc/self/fdinfo/{process}").read_text()  # has its number in /proc, which may be another one here
        return memory_usage(info.partition("Pid:")[2].split()[0])[0]
    return 0
