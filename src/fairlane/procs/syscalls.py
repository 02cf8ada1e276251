"""What is asked of the kernel that Python has no word for?

Laws:
- Every call either did what was asked or raises an OSError; nothing is ignored here.
- Numbers of calls are those of x86_64 and aarch64; elsewhere there is no sandbox.
- What a fork does to itself is a `Step`, made before the fork with all that it needs: there, every line of Python copies pages.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
from collections.abc import Callable
from functools import cache, partial

MACHINES = ("x86_64", "aarch64")
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
CAPABILITY_READ = 1 << 2  # CAP_DAC_READ_SEARCH: read and enter, whatever the permissions say
_SET_PDEATHSIG, _SET_KEEPCAPS, _GET_SECCOMP, _SET_SECCOMP = 1, 8, 21, 22
_SET_CHILD_SUBREAPER, _SET_NO_NEW_PRIVS, _GET_NO_NEW_PRIVS = 36, 38, 39
_SECCOMP_FILTER = 2
_MS_BIND, _MS_REC, _MS_SLAVE = 4096, 16384, 1 << 19
_MNT_DETACH, _UMOUNT_NOFOLLOW = 2, 8
_RDONLY, _NOSUID, _NODEV, _NOEXEC = 1, 2, 4, 8
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_MOUNT_SETATTR = 442
_CAPABILITIES = struct.pack("=II", 0x20080522, 0)  # this version of them, of this process
_SIG_SETMASK, _NO_SIGNALS = 2, bytes(128)
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
_SLICE_NANOSECONDS = 100_000_000  # the most that Linux gives
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
_libc_with_lock = ctypes.PyDLL(None) if sys.platform == "linux" else None  # calls that Python's lock is held in
Step = Callable[[], int | None]


class _Program(ctypes.Structure):
    _fields_ = (("count", ctypes.c_ushort), ("code", ctypes.c_char_p))


def machine() -> str | None:
    """The processor's family, if the sandbox knows its calls."""
    found = platform.machine()
    return found if sys.platform == "linux" and found in MACHINES and sys.maxsize > 2**32 else None


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def do(step: Step) -> None:
    """Do what was made ready."""
    result = step()
    if result is not None:
        _checked(result)


def calling(number: int, *values: object) -> Callable[[], int]:
    """A call by its number; whole numbers are passed as long ones."""
    assert _libc is not None
    longs = (ctypes.c_long(one) if isinstance(one, int) else one for one in values)
    return partial(_libc.syscall, ctypes.c_long(number), *longs)


def call(number: int, *values: object) -> int:
    """The same, at once."""
    return _checked(calling(number, *values)())


def _setting(option: int, *values: object) -> Callable[[], int]:
    assert _libc is not None
    filled = [*values, *[0] * (4 - len(values))]
    return partial(_libc.prctl, option, *(ctypes.c_ulong(one) if isinstance(one, int) else one for one in filled))


def fork() -> int:
    """`os.fork` of a process with one thread, without what others have registered for forks: that touches, and so copies, 200
    pages to put right what only threads can have left wrong."""
    assert _libc_with_lock is not None
    return _checked(_libc_with_lock.fork())


@cache
def hearing_all_signals() -> Step:
    """Those that were held back are no longer."""
    assert _libc is not None
    return partial(_libc.sigprocmask, _SIG_SETMASK, _NO_SIGNALS, None)


def unshare(flag: int) -> None:
    """Leave a namespace for a new one."""
    assert _libc is not None
    _checked(_libc.unshare(flag))


def enter(namespace: int, kind: int) -> None:
    """Go into a namespace of this kind, by a handle to it."""
    assert _libc is not None
    _checked(_libc.setns(namespace, kind))


@cache
def dying_with_parent(signal_number: int) -> Step:
    """Get this signal when the parent dies; the caller checks afterwards that it is still there."""
    return _setting(_SET_PDEATHSIG, signal_number)


def adopt_orphans() -> None:
    """Descendants whose parent ends become children of this process."""
    do(_setting(_SET_CHILD_SUBREAPER, 1))


@cache
def forbidding_new_privileges() -> Step:
    """No program that is started gets more rights than this process has."""
    return _setting(_SET_NO_NEW_PRIVS, 1)


def has_no_new_privileges() -> bool:
    """Whether that is in force."""
    return _checked(_setting(_GET_NO_NEW_PRIVS)()) == 1


@cache
def filtering_calls(instructions: bytes) -> Step:
    """Put a filter over every later call, of this process and of all that it starts."""
    return _setting(_SET_SECCOMP, _SECCOMP_FILTER, ctypes.byref(_Program(len(instructions) // 8, instructions)))


def has_filter() -> bool:
    """Whether a filter is in force."""
    return _checked(_setting(_GET_SECCOMP)()) == _SECCOMP_FILTER


def becoming(user: int) -> list[Step]:
    """Be another user, without groups; capabilities stay until they are given away."""
    return [
        partial(os.setgroups, []),
        partial(os.setresgid, user, user, user),
        _setting(_SET_KEEPCAPS, 1),
        partial(os.setresuid, user, user, user),
    ]


@cache
def keeping_capabilities(wanted: int) -> Step:
    """Give every capability away but these; if they are not there to keep, all of them."""
    assert _libc is not None
    these = partial(_libc.capset, _CAPABILITIES, struct.pack("=6I", wanted, wanted, 0, 0, 0, 0))
    return partial(_one_or_other, these, partial(_libc.capset, _CAPABILITIES, bytes(24)))


def _one_or_other(one: Callable[[], int], other: Callable[[], int]) -> int:
    result = one()
    return result if result >= 0 else other()


def run_long_at_a_time() -> None:
    """Of processes that compute and wait for nothing, let each run for long before another has its turn, so that its caches
    stay warm: forks, too. Whoever asked for less at a time still goes before them. Linux before 6.12 does not listen."""
    policy = os.sched_getscheduler(0)
    if policy in (os.SCHED_OTHER, os.SCHED_BATCH):
        nice = os.getpriority(os.PRIO_PROCESS, 0)
        wanted = struct.pack("=IIQiIQQQII", 56, policy, 0, nice, 0, _SLICE_NANOSECONDS, 0, 0, 0, 0)
        call(_SCHED_SETATTR[os.uname().machine], 0, wanted, 0)


def leave_mounts() -> None:
    """Mount namespace of our own: what others mount from now on is seen here, what we change is not seen by them."""
    assert _libc is not None
    unshare(CLONE_NEWNS)
    _checked(_libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_SLAVE), None))


def write_only_in(folder: str) -> None:
    """In a mount namespace of our own: everything is read-only, but for this folder."""
    assert _libc is not None
    path = os.fsencode(folder)
    _checked(_libc.mount(path, path, None, ctypes.c_ulong(_MS_BIND), None))
    _set_mount(b"/", _AT_RECURSIVE, _RDONLY | _NOSUID, 0)
    _set_mount(path, 0, _NOSUID | _NODEV | _NOEXEC, _RDONLY)


def write_nowhere(folder: str) -> None:
    """Once nothing lives that needs it: that folder is read-only, too."""
    assert _libc is not None
    _checked(_libc.umount2(os.fsencode(folder), _MNT_DETACH | _UMOUNT_NOFOLLOW))


def _set_mount(path: bytes, flags: int, added: int, removed: int) -> None:
    attributes = (ctypes.c_uint64 * 4)(added, removed, 0, 0)
    call(_MOUNT_SETATTR, _AT_FDCWD, path, flags, ctypes.byref(attributes), ctypes.sizeof(attributes))
