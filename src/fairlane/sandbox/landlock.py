"""Landlock: the files that a process may open, enforced by the kernel without privileges.

Laws:
- All rights that this kernel's Landlock knows are restricted; what is not granted is denied.
- Nothing is granted but reading and executing: no file is written, made, moved or removed.
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
EXECUTE, READ_FILE, READ_DIR = 1 << 0, 1 << 2, 1 << 3
_RIGHTS_KNOWN = {1: 13, 2: 14, 3: 15, 4: 15}  # by version: how many file rights it knows; 16 from version 5 on
_FOR_FILES = EXECUTE | READ_FILE
NETWORK_SINCE, SCOPES_SINCE = 4, 6


class _RulesetAttributes(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scopes", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("rights", ctypes.c_uint64), ("handle", ctypes.c_int32))


def version() -> int:
    """Return this kernel's version of Landlock; OSError if it has none."""
    return syscalls.syscall(_CREATE, None, 0, _VERSION)


def create_rules(grants: Iterable[tuple[str, int]]) -> int:
    """Return a file descriptor of rules that grant these rights beneath these paths; missing paths are left out."""
    kernel = version()
    restricted = (1 << _RIGHTS_KNOWN.get(kernel, 16)) - 1
    network, scopes = 0b11 if kernel >= NETWORK_SINCE else 0, 0b11 if kernel >= SCOPES_SINCE else 0
    size = 24 if kernel >= SCOPES_SINCE else 16 if kernel >= NETWORK_SINCE else 8
    rules = syscalls.syscall(_CREATE, ctypes.byref(_RulesetAttributes(restricted, network, scopes)), size, 0)
    os.set_inheritable(rules, False)
    for path, rights in grants:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            _grant(rules, path, rights & restricted)
    return rules


def _grant(rules: int, path: str, rights: int) -> None:
    parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(parent).st_mode):
            rights &= _FOR_FILES
        syscalls.syscall(_ADD, rules, 1, ctypes.byref(_PathBeneath(rights, parent)), 0)
    finally:
        os.close(parent)


def restrict(rules: int) -> None:
    """Enforce the rules on this process and all that it starts."""
    syscalls.syscall(_RESTRICT, rules, 0)
