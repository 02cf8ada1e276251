"""Linux namespaces: one layer of the sandbox for each kind.

A supervisor moves into new namespaces and stays there; what it forks is in them too.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from fairlane.procs import syscalls

from .errors import LayerRefused


class Namespace(NamedTuple):
    """A kind of namespace: the flag of `unshare`, and its name in /proc/PID/ns."""

    flag: int
    proc_name: str

    def inode(self) -> int:
        """Identify the namespace of this kind that this process is in."""
        return os.stat(f"/proc/self/ns/{self.proc_name}").st_ino


NAMESPACE_KINDS = {  # by layer, in the order in which they must be entered
    "user namespace": Namespace(syscalls.CLONE_NEWUSER, "user"),  # the first: it gives the right to create the others
    "network namespace": Namespace(syscalls.CLONE_NEWNET, "net"),
    "process namespace": Namespace(syscalls.CLONE_NEWPID, "pid"),
    "message namespace": Namespace(syscalls.CLONE_NEWIPC, "ipc"),
    "name namespace": Namespace(syscalls.CLONE_NEWUTS, "uts"),
    "mount namespace": Namespace(syscalls.CLONE_NEWNS, "mnt"),
}
NAMESPACES = frozenset(NAMESPACE_KINDS)
NOT_IN_FORCE = "the kernel accepted it, but it is not in force"


def enter_new_namespaces(layers: frozenset[str]) -> None:
    """Move this process to new namespaces; the new process namespace holds only for what it forks next."""
    for layer, namespace in NAMESPACE_KINDS.items():
        if layer not in layers:
            continue
        try:
            before = namespace.inode()
            _enter_new(layer, namespace.flag)
            is_new = layer == "process namespace" or namespace.inode() != before  # this one holds only for forks
        except (OSError, ValueError) as error:
            raise LayerRefused(layer, str(error)) from error
        if not is_new:
            raise LayerRefused(layer, NOT_IN_FORCE)


def _enter_new(layer: str, flag: int) -> None:
    user, group = os.geteuid(), os.getegid()
    if layer == "mount namespace":
        syscalls.unshare_mounts()
        return
    syscalls.unshare(flag)
    if layer == "user namespace":
        for name, line in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            Path("/proc/self", name).write_text(line)
