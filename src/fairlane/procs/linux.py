"""What does the worker ask of the kernel that Python has no word for?

Laws:
- A process set to die with its parent checks afterwards that the parent is still there: it may have died just before.
- Only processes that are ours are signalled: children, and what was left to us as the nearest reaper.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

FOR_THE_WORKER = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # may be sent to all processes at once; it answers
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
KEPT_BYTES_MAX = 32 * 1024 * 1024
_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def die_with_parent(parent: int, by: signal.Signals = signal.SIGKILL) -> bool:
    """Get this signal when the parent dies, by kill -9 too; False if it is already gone."""
    _prctl(_PR_SET_PDEATHSIG, by)
    return os.getppid() == parent


def adopt_orphans() -> None:
    """Descendants whose parent ends become children of this process, whatever session they fled to."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def limit_memory(more_bytes: int) -> None:
    """No more address space than what is used now and that much more; no core files."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    wanted = pages * resource.getpagesize() + more_bytes
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_AS, (wanted, wanted))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def keep_freed_memory() -> None:
    """Large pieces that were freed are used again, not returned and got anew page by page; not every C library can do that."""
    change = getattr(_libc, "mallopt", None)
    if change is not None:
        for option in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD):
            change(option, KEPT_BYTES_MAX)


def resident_bytes_max() -> int:
    """The most memory that this process has had in use so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@contextlib.contextmanager
def signals_held_back() -> Iterator[None]:
    """Signals that are for the worker wait; a process that is started meanwhile holds them back until it lets them in."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, FOR_THE_WORKER)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def is_frozen(pid: int) -> bool:
    """Whether a process was stopped by a signal, or by a debugger."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] in (b"T", b"t")
    except OSError:
        return False


def children_of(parent: int) -> list[int]:
    """The living processes whose parent this is; not every kernel has a list of them, so all are asked."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                # the name in brackets may hold anything, blanks and brackets too
                state, its_parent = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()[:2]
                if int(its_parent) == parent and state != b"Z":
                    found.append(int(name))
    return found


def end_group(leader: int) -> None:
    """kill -9 for a process and its group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(leader, signal.SIGKILL)
