"""Is this file fit, and is there room? What `fairlane doctor` says of a queue in a file."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import apsw

from fairlane.engine.protocol import Finding

from .connection import disk_type
from .queries import SCHEMA_VERSIONS, Execute, sql

ROOM_LEAST = 2**30
LOG_MOST = 2**28
CHECKED_MOST = 2**30  # a larger file takes too long to be checked whole
FULL = 2  # synchronous = FULL


def diagnose(execute: Execute, path: Path) -> list[Finding]:
    """One finding for each thing that can be wrong with a file."""
    return [
        Finding("version", "fine", f"SQLite {apsw.sqlite_lib_version()}, schema {len(SCHEMA_VERSIONS)}"),
        _durability(execute),
        Finding("clock", "fine", "this machine's own: there is no other to differ from"),
        _disk(path),
        _room(path),
        _log(path),
        _indexes(execute),
        _pages(execute, path),
    ]


def _durability(execute: Execute) -> Finding:
    mode, synchronous = execute(sql.journal_mode).fetchone()[0], execute(sql.synchronous).fetchone()[0]
    told = f"journal_mode={mode}, synchronous={synchronous}"
    if mode == "wal" and synchronous == FULL:
        return Finding("durability", "fine", f"acknowledged after the data is on disk ({told})")
    advice = "open the file with Fairlane alone, which sets both, and let no other program change them"
    return Finding("durability", "bad", f"an acknowledged document may be lost ({told})", advice)


def _disk(path: Path) -> Finding:
    return Finding("disk", "fine", f"{path} is on a local disk ({disk_type(path)})")


def _room(path: Path) -> Finding:
    free = shutil.disk_usage(path.parent).free
    told = f"{free / 2**30:,.1f} GiB free beside a file of {path.stat().st_size / 2**20:,.1f} MiB"
    if free >= ROOM_LEAST:
        return Finding("room", "fine", told)
    return Finding("room", "warning", told, "make room, or purge what has ended: when the disk is full nothing is accepted")


def _log(path: Path) -> Finding:
    log = Path(f"{path}-wal")
    size = log.stat().st_size if os.path.exists(log) else 0
    told = f"{size / 2**20:,.1f} MiB not yet folded into the file"
    if size <= LOG_MOST:
        return Finding("log", "fine", told)
    advice = "a program keeps reading for too long, so that the log cannot be folded in; find it with lsof and end it"
    return Finding("log", "warning", told, advice)


def _indexes(execute: Execute) -> Finding:
    wanted = set(re.findall(r"CREATE INDEX (\w+)", "".join(SCHEMA_VERSIONS)))
    missing = wanted - {name for (name,) in execute(sql.index_names).fetchall()}
    if not missing:
        return Finding("indexes", "fine", f"all {len(wanted)} are there")
    advice = "somebody dropped them: restore the file from a backup, or move the queue to a new file with fairlane move"
    return Finding("indexes", "bad", f"missing: {', '.join(sorted(missing))}", advice)


def _pages(execute: Execute, path: Path) -> Finding:
    if path.stat().st_size > CHECKED_MOST:
        return Finding("pages", "fine", "not checked: the file is larger than 1 GiB; PRAGMA quick_check does it")
    (told,) = execute(sql.quick_check).fetchone()
    if told == "ok":
        return Finding("pages", "fine", "every page is whole")
    return Finding("pages", "bad", str(told), "stop all programs, copy the file, and restore it from a backup")
