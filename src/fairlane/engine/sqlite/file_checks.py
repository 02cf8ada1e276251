"""Checks before a file is opened: SQLite version, existence, folder, filesystem; and who may read it.

A file on a network filesystem is refused, because SQLite's locks do not hold there. So is an SQLite library with the WAL bug
(before 3.51.3) that corrupts a file which two connections write.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import apsw

from fairlane.core.errors import StoreError, StoreUnfit, Unknown
from fairlane.file_modes import FILE, SHARED_FILE, is_shared, mend

SQLITE_MIN = (3, 51, 3)
NETWORK_FILESYSTEMS = {
    "9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "fuse.ceph", "fuse.davfs", "fuse.glusterfs", "fuse.rclone",
    "fuse.s3fs", "fuse.sshfs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "orangefs", "smb2", "smb3",
    "smbfs", "vboxsf", "vmhgfs",
}  # fmt: skip

_OCTAL_ESCAPE = re.compile(r"\\([0-7]{3})")  # how mountinfo writes blanks


def filesystem_type(path: Path, mounts: str | None = None) -> str | None:
    """Return the type of the filesystem that a path is on, or None where the system does not say."""
    if mounts is None:
        try:
            mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            return None
    real_path = os.path.realpath(path)
    longest, filesystem = -1, None
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        mount_point = _OCTAL_ESCAPE.sub(lambda escape: chr(int(escape[1], 8)), left.split(" ")[4])
        is_above = mount_point == "/" or real_path == mount_point or real_path.startswith(mount_point.rstrip("/") + "/")
        if is_above and len(mount_point) >= longest:
            longest, filesystem = len(mount_point), right.split(" ", 1)[0]
    return filesystem


def close_to_others(path: Path) -> None:
    """Take a queue's file from other users, if they have access; a group that may write it shares it on purpose.

    SQLite gives the log and the shared memory that it makes the mode of the file. Those that exist already follow it here.
    """
    real_path = os.path.realpath(path)  # beside which SQLite keeps the others
    mend(SHARED_FILE if is_shared(real_path) else FILE, real_path, f"{real_path}-wal", f"{real_path}-shm")


def refuse_unfit(path: Path, create: bool, *, mounts: str | None = None, library: str | None = None) -> None:
    """Raise an error, before the file is touched, if it must not hold a queue."""
    version = library or apsw.sqlite_lib_version()
    if tuple(int(part) for part in version.split(".")) < SQLITE_MIN:
        raise StoreUnfit(
            f"this apsw carries SQLite {version}, which can corrupt a file that two processes write; install a newer one: "
            "pip install --upgrade apsw"
        )
    try:
        is_new, has_folder = not path.exists(), path.parent.is_dir()
    except PermissionError:
        raise StoreError(
            f"this user may not enter the folder of {path}; change its permissions, or give another path"
        ) from None
    if not create and is_new:
        raise Unknown(f"there is no queue at {path}; submit or check something first, or give another --url")
    if not has_folder:
        raise StoreError(f"the folder {path.parent} does not exist; create it, or give another path")
    filesystem = filesystem_type(path, mounts)
    if filesystem in NETWORK_FILESYSTEMS:
        raise StoreUnfit(
            f"{path} is on a network disk ({filesystem}), where SQLite's locks do not hold and documents would be lost; use a "
            "local disk"
        )
