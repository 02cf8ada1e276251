"""Is this file fit to hold a queue, and how is it opened?

A file on a network disk is refused: SQLite's locks do not hold there. So is an SQLite library with the WAL bug that can
corrupt a file two connections write to (before 3.51.3), a file that is something else, and a newer schema.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from fairlane.core.errors import StoreBusy, StoreError, StoreFull, StoreUnfit, Unknown
from fairlane.core.policy import Rules
from fairlane.engine.codec import encode_rules

from .queries import SCHEMA_VERSIONS, sql

_ESCAPED = re.compile(r"\\([0-7]{3})")  # how mountinfo writes blanks

APPLICATION_ID = 0x4661_6972  # "Fair"
SQLITE_OLDEST = (3, 51, 3)
BUSY_SECONDS = 30.0
CACHE_KIBIBYTES = 64 * 1024
WAL_PAGES = 4000  # checkpoint after that many; each is 4 KiB

NETWORK_DISKS = {
    "9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "fuse.ceph", "fuse.davfs", "fuse.glusterfs", "fuse.rclone",
    "fuse.s3fs", "fuse.sshfs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "orangefs", "smb2", "smb3",
    "smbfs", "vboxsf", "vmhgfs",
}  # fmt: skip


@contextmanager
def told_plainly(path: Path) -> Iterator[None]:
    """SQLite's errors as ours: what was wrong, where, what to do."""
    try:
        yield
    except apsw.BusyError as error:
        raise StoreBusy(
            f"{path} was held by others for more than {BUSY_SECONDS:g} s; try again, and look for a process that keeps a "
            "transaction open"
        ) from error
    except apsw.FullError as error:
        raise StoreFull(f"no room left to write {path}; nothing was changed: make room on its disk, then try again") from error
    except apsw.NotADBError as error:
        raise StoreUnfit(f"{path} is not an SQLite file; give another path") from error
    except apsw.CorruptError as error:
        raise StoreUnfit(f"{path} is damaged ({error}); stop using it and restore a backup") from error
    except (apsw.CantOpenError, apsw.ReadOnlyError, apsw.PermissionsError) as error:
        if path.is_dir():
            raise StoreUnfit(f"{path} is a folder, not the file of a queue; name a file in it") from error
        raise StoreError(
            f"{path} cannot be opened for writing ({error}); check that its folder exists and may be written"
        ) from error
    except apsw.IOError as error:
        raise StoreError(
            f"the disk under {path} failed ({error}); whether this call took effect is not known: check the disk, then look, "
            "or submit again with the same key"
        ) from error
    except apsw.Error as error:
        raise StoreError(f"{path}: {error}") from error


def disk_type(path: Path, mounts: str | None = None) -> str | None:
    """The type of the filesystem that a path is on, or None where the system does not tell."""
    if mounts is None:
        try:
            mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            return None
    real = os.path.realpath(path)
    best, found = -1, None
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        point = _ESCAPED.sub(lambda escaped: chr(int(escaped[1], 8)), left.split(" ")[4])
        holds = point == "/" or real == point or real.startswith(point.rstrip("/") + "/")
        if holds and len(point) >= best:
            best, found = len(point), right.split(" ", 1)[0]
    return found


def refuse_unfit(path: Path, create: bool, *, mounts: str | None = None, library: str | None = None) -> None:
    """Refuse what must not hold a queue, before it is touched."""
    version = library or apsw.sqlite_lib_version()
    if tuple(int(part) for part in version.split(".")) < SQLITE_OLDEST:
        raise StoreUnfit(
            f"this apsw carries SQLite {version}, which can corrupt a file that two processes write; install a newer one: "
            "pip install --upgrade apsw"
        )
    if not create and not path.exists():
        raise Unknown(f"there is no queue at {path}; submit or check something first, or give another --url")
    if not path.parent.is_dir():
        raise StoreError(f"the folder {path.parent} does not exist; create it, or give another path")
    kind = disk_type(path, mounts)
    if kind in NETWORK_DISKS:
        raise StoreUnfit(
            f"{path} is on a network disk ({kind}), where SQLite's locks do not hold and documents would be lost; use a "
            "local disk"
        )


def connect(path: Path) -> apsw.Connection:
    """A connection on which a commit returns after its data is on disk."""
    with told_plainly(path):
        connection = apsw.Connection(str(path))
        connection.set_busy_handler(_patience())
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)  # a plan does not depend on values, so none is made twice
        _version(connection, path)  # refuses somebody else's file before anything in it is changed
        _switch_to_wal(connection)
        connection.pragma("synchronous", "FULL")
        connection.pragma("cache_size", -CACHE_KIBIBYTES)
        connection.pragma("wal_autocheckpoint", WAL_PAGES)
        connection.pragma("temp_store", "MEMORY")
        return connection


def _patience() -> Callable[[int], bool]:
    """How to wait for the write lock: often and at random, so that no process starves; SQLite's own waits grow to 0.1 s."""
    deadline = 0.0

    def wait(attempt: int) -> bool:
        nonlocal deadline
        if attempt == 0:
            deadline = time.monotonic() + BUSY_SECONDS
        time.sleep(random.uniform(0.0002, 0.002))
        return time.monotonic() < deadline

    return wait


def _switch_to_wal(connection: apsw.Connection) -> None:
    """Many may open a new file at once; SQLite does not wait for this one lock, so we do."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.pragma("journal_mode", "WAL")
            return
        except apsw.BusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(random.uniform(0.001, 0.02))


def migrate(connection: apsw.Connection, path: Path) -> None:
    """Bring the file to the newest schema; whoever comes second finds it done."""
    with told_plainly(path):
        if _version(connection, path) == len(SCHEMA_VERSIONS):
            return
        connection.execute("BEGIN IMMEDIATE")
        try:
            for script in SCHEMA_VERSIONS[_version(connection, path) :]:
                connection.execute(script)
            connection.pragma("application_id", APPLICATION_ID)
            connection.pragma("user_version", len(SCHEMA_VERSIONS))
            if connection.execute(sql.rules_version).fetchone() == (None,):
                first = Rules()
                connection.execute(sql.add_rules, (first.version, 0, encode_rules(first)))
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def _version(connection: apsw.Connection, path: Path) -> int:
    """The schema's version; 0 for an empty file."""
    with connection:  # one snapshot: between two reads somebody else may have made a queue of an empty file
        application = connection.pragma("application_id")
        is_empty = connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone() is None
        version = connection.pragma("user_version")
    if application != APPLICATION_ID:
        if not is_empty:
            raise StoreUnfit(f"{path} is an SQLite file, but not a Fairlane queue; give another path")
        return 0
    if version > len(SCHEMA_VERSIONS):
        raise StoreUnfit(
            f"{path} has schema version {version}, made by a newer Fairlane; this one knows up to {len(SCHEMA_VERSIONS)}: "
            "upgrade Fairlane here too"
        )
    return int(version)
