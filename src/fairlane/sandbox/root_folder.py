"""The root folder of an attempt: a tree of mounts that has the files that it may open, and no others.

It is built in a mount namespace of the attempt's own, in a small file system in memory that lies over the root from then on.
It ends with the attempt.

Laws:
- What was the root before is not unmounted, because that waits for every processor (20 ms on a busy machine): no path leads
  there, nothing that is open does, and whoever is inside has no right to change its root, its namespace or its mounts.
- Every path in it is the same as outside, so that programs and messages need not translate.
- Everything is read-only, and there is no /proc.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Sequence

from fairlane.procs import syscalls

from .grants import Grant, Kind, Link

TREE_BYTES = 1 << 20  # folders and links that lead to the mounts
MOUNT_FLAGS: dict[Kind, int] = {
    "library": syscalls.MOUNT_RDONLY | syscalls.MOUNT_NOSUID,
    "device": syscalls.MOUNT_RDONLY | syscalls.MOUNT_NOSUID | syscalls.MOUNT_NOEXEC,
    "input": syscalls.MOUNT_RDONLY | syscalls.MOUNT_NOSUID | syscalls.MOUNT_NODEV | syscalls.MOUNT_NOEXEC,
}


def enter_root_folder(grants: Iterable[Grant], links: Sequence[Link]) -> None:
    """Move this process to a mount namespace of its own, whose root has nothing but these; it needs the right to mount."""
    syscalls.unshare(syscalls.CLONE_NEWNS)
    mounts = _clone_mounts(grants)
    tree = syscalls.new_tmpfs(TREE_BYTES)
    syscalls.attach_mount(tree, "/")
    os.fchdir(tree)
    umask = os.umask(0o022)  # others than this user must be able to enter the folders of the tree
    for path, mount in sorted(mounts.items()):  # a folder comes before what is inside it
        _make_mount_point(f".{path}", is_folder=stat.S_ISDIR(os.fstat(mount).st_mode))
        syscalls.attach_mount(mount, f".{path}")
        os.close(mount)
    for link in links:
        if not os.path.lexists(f".{link.path}"):
            os.makedirs(os.path.dirname(f".{link.path}"), exist_ok=True)
            os.symlink(link.target, f".{link.path}")
    os.umask(umask)
    syscalls.set_mount_flags(tree, syscalls.MOUNT_RDONLY, is_recursive=False)
    os.close(tree)
    os.chroot(".")
    os.chdir("/")


def _clone_mounts(grants: Iterable[Grant]) -> dict[str, int]:
    """Return a mount for each path, attached nowhere yet; paths that are missing or closed to this user are left out."""
    mounts = {}
    for grant in grants:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            mounts[grant.path] = syscalls.clone_mount(grant.path)
        if grant.path in mounts:
            syscalls.set_mount_flags(mounts[grant.path], MOUNT_FLAGS[grant.kind])
    return mounts


def _make_mount_point(path: str, is_folder: bool) -> None:
    if is_folder:
        os.makedirs(path, exist_ok=True)
    elif not os.path.lexists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o444))
