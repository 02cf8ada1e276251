"""Which files may a process open? A set of rules for Landlock, the kernel's own list for unprivileged processes.

Laws:
- Whatever this kernel's Landlock can govern is governed; what is not granted is denied.
- Writing is granted beneath the scratch folder only: plain files, no folders, links or devices, nothing moved in or out.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
from collections.abc import Iterable

from fairlane.procs import syscalls

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_VERSION = 1
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, REMOVE_FILE = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 5
MAKE_REG, TRUNCATE = 1 << 8, 1 << 14
_RIGHTS_KNOWN = {1: 13, 2: 14, 3: 15, 4: 15}  # by version: how many rights over files it knows; 16 from 5 on
_FOR_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE
READ = EXECUTE | READ_FILE | READ_DIR
SCRATCH = READ_FILE | READ_DIR | WRITE_FILE | REMOVE_FILE | MAKE_REG | TRUNCATE
DEVICE = READ_FILE | WRITE_FILE
NETWORK_SINCE, SCOPES_SINCE = 4, 6


class _Rules(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scopes", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("rights", ctypes.c_uint64), ("handle", ctypes.c_int32))


def version() -> int:
    """Which Landlock this kernel has; raises OSError if it has none."""
    return syscalls.syscall(_CREATE, None, 0, _VERSION)


def rules(granted: Iterable[tuple[str, int]]) -> int:
    """A handle to rules that grant these rights beneath these paths; paths that are not there are left out."""
    known = version()
    governed = (1 << _RIGHTS_KNOWN.get(known, 16)) - 1
    whole = _Rules(governed, 0b11 if known >= NETWORK_SINCE else 0, 0b11 if known >= SCOPES_SINCE else 0)
    size = 24 if known >= SCOPES_SINCE else 16 if known >= NETWORK_SINCE else 8
    handle = syscalls.syscall(_CREATE, ctypes.byref(whole), size, 0)
    os.set_inheritable(handle, False)
    for path, rights in granted:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            _grant(handle, path, rights & governed)
    return handle


def _grant(rules: int, path: str, rights: int) -> None:
    beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(beneath).st_mode):
            rights &= _FOR_FILES
        syscalls.syscall(_ADD, rules, 1, ctypes.byref(_Beneath(rights, beneath)), 0)
    finally:
        os.close(beneath)


def restrict(rules: int) -> None:
    """Put the rules over this process and all that it starts."""
    syscalls.syscall(_RESTRICT, rules, 0)
