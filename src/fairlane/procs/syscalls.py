"""System calls and process settings that Python's standard library does not offer.

Laws:
- Every call does what it says or raises an OSError; no failure is ignored here.
- The system call numbers are those of x86_64 and aarch64; other machines have no sandbox.
- A process that is set to die with its parent checks afterwards that the parent still lives: it may have died just before.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import resource
import signal
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

MACHINES = ("x86_64", "aarch64")
SHUTDOWN_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # sent to a whole process group; only the worker acts on them
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
CAP_DAC_OVERRIDE = 1 << 1  # read, write and enter files and folders whatever their permissions say
CAP_DAC_READ_SEARCH = 1 << 2  # the same, but not write; containers seldom give it
_PR_SET_PDEATHSIG, _PR_SET_KEEPCAPS, _PR_SET_SECCOMP = 1, 8, 22
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS, _PR_GET_NO_NEW_PRIVS = 36, 38, 39
_SECCOMP_MODE_FILTER = 2
_MS_REC, _MS_SLAVE = 16384, 1 << 19
MOUNT_RDONLY, MOUNT_NOSUID, MOUNT_NODEV, MOUNT_NOEXEC = 1, 2, 4, 8
_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE = -100, 0x1000, 0x8000
_OPEN_TREE, _MOVE_MOUNT, _FSOPEN, _FSCONFIG, _FSMOUNT, _MOUNT_SETATTR = 428, 429, 430, 431, 432, 442
_OPEN_TREE_CLONE, _MOVE_MOUNT_EMPTY_PATH, _FSOPEN_CLOEXEC, _FSMOUNT_CLOEXEC = 1, 4, 1, 1
_FSCONFIG_SET_STRING, _FSCONFIG_CMD_CREATE = 1, 6
_CAPABILITY_HEADER = struct.pack("=II", 0x20080522, 0)  # version 3, this process
_libc = ctypes.CDLL(None, use_errno=True)


class _SeccompProgram(ctypes.Structure):
    _fields_ = (("count", ctypes.c_ushort), ("code", ctypes.c_char_p))


def machine() -> str | None:
    """Name the processor, if the sandbox knows its system call numbers."""
    name = platform.machine()
    return name if sys.platform == "linux" and name in MACHINES and sys.maxsize > 2**32 else None


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def syscall(number: int, *values: object) -> int:
    """Make a system call by its number; integers are passed as C longs."""
    arguments = (ctypes.c_long(value) if isinstance(value, int) else value for value in values)
    return _check(_libc.syscall(ctypes.c_long(number), *arguments))


def _prctl(option: int, *values: object) -> int:
    padded = [*values, *[0] * (4 - len(values))]
    return _check(_libc.prctl(option, *(ctypes.c_ulong(value) if isinstance(value, int) else value for value in padded)))


# -- life and death of processes


def set_parent_death_signal(number: int) -> None:
    """Receive this signal when the parent dies; check afterwards that it still lives. A change of user clears the setting."""
    _prctl(_PR_SET_PDEATHSIG, number)


def die_with_parent(parent: int, number: signal.Signals = signal.SIGKILL) -> bool:
    """Receive this signal when the parent dies, by kill -9 too; False if it is already dead."""
    set_parent_death_signal(number)
    return os.getppid() == parent


def become_subreaper() -> None:
    """Become the parent of descendants whose own parent ends, whatever session they fled to."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


@contextlib.contextmanager
def shutdown_signals_blocked() -> Iterator[None]:
    """Block the shutdown signals; a process started meanwhile keeps them blocked until it unblocks them itself."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SHUTDOWN_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def is_stopped(pid: int) -> bool:
    """Whether a signal or a debugger has stopped a process."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] in (b"T", b"t")
    except OSError:
        return False


# -- memory


def limit_address_space(more_bytes: int) -> None:
    """Allow so many bytes more than are mapped now, and no core files."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + more_bytes
    _, hard_limit = resource.getrlimit(resource.RLIMIT_AS)
    if hard_limit != resource.RLIM_INFINITY:
        limit = min(limit, hard_limit)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def sync_filesystem(folder: str) -> None:
    """Write everything on the file system of a folder to its disk: one wait for any number of files."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _check(_libc.syncfs(descriptor))
    finally:
        os.close(descriptor)


def resident_bytes_max() -> int:
    """Return the largest resident size this process has had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# -- privileges


def set_no_new_privileges() -> None:
    """Let no program that is started get more rights than this process has."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def has_no_new_privileges() -> bool:
    return _prctl(_PR_GET_NO_NEW_PRIVS) == 1


def load_seccomp_filter(instructions: bytes) -> None:
    """Filter every later system call of this process and of all that it starts."""
    program = _SeccompProgram(len(instructions) // 8, instructions)
    _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program))


def become_user(user: int) -> None:
    """Change user and group, drop all other groups, keep capabilities."""
    os.setgroups([])
    os.setresgid(user, user, user)
    _prctl(_PR_SET_KEEPCAPS, 1)
    os.setresuid(user, user, user)


def keep_capabilities(*masks: int) -> None:
    """Drop every capability but those of the first mask that this process has all of; all if there is none."""
    for mask in masks:
        if _libc.capset(_CAPABILITY_HEADER, struct.pack("=6I", mask, mask, 0, 0, 0, 0)) == 0:
            return
    _check(_libc.capset(_CAPABILITY_HEADER, bytes(24)))


# -- namespaces and mounts


def unshare(flag: int) -> None:
    """Move this process to a new namespace of this kind."""
    _check(_libc.unshare(flag))


def setns(namespace: int, flag: int) -> None:
    """Enter a namespace of this kind by its file descriptor."""
    _check(_libc.setns(namespace, flag))


def unshare_mounts() -> None:
    """Move to a new mount namespace: later mounts of others appear here, mounts made here stay here."""
    unshare(CLONE_NEWNS)
    _check(_libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_SLAVE), None))


def clone_mount(path: str) -> int:
    """Return a file descriptor of a copy of a file or folder with all mounts beneath it, which is mounted nowhere yet."""
    return syscall(_OPEN_TREE, _AT_FDCWD, os.fsencode(path), _OPEN_TREE_CLONE | _AT_RECURSIVE | os.O_CLOEXEC)


def new_tmpfs(size: int) -> int:
    """Return a file descriptor of a new file system in memory of so many bytes, which is mounted nowhere yet."""
    context = syscall(_FSOPEN, b"tmpfs", _FSOPEN_CLOEXEC)
    try:
        for key, value in ((b"size", b"%d" % size), (b"mode", b"755")):
            syscall(_FSCONFIG, context, _FSCONFIG_SET_STRING, key, value, 0)
        syscall(_FSCONFIG, context, _FSCONFIG_CMD_CREATE, None, None, 0)
        return syscall(_FSMOUNT, context, _FSMOUNT_CLOEXEC, MOUNT_NOSUID | MOUNT_NODEV | MOUNT_NOEXEC)
    finally:
        os.close(context)


def attach_mount(mount: int, path: str) -> None:
    """Mount what a file descriptor of `clone_mount` or `new_tmpfs` stands for at this path."""
    syscall(_MOVE_MOUNT, mount, b"", _AT_FDCWD, os.fsencode(path), _MOVE_MOUNT_EMPTY_PATH)


def set_mount_flags(mount: int, flags: int, is_recursive: bool = True) -> None:
    """Add flags (MOUNT_RDONLY and others) to a mount, by its file descriptor, and to all mounts beneath it."""
    attributes = (ctypes.c_uint64 * 4)(flags, 0, 0, 0)
    scope = _AT_EMPTY_PATH | (_AT_RECURSIVE if is_recursive else 0)
    syscall(_MOUNT_SETATTR, mount, b"", scope, ctypes.byref(attributes), ctypes.sizeof(attributes))
