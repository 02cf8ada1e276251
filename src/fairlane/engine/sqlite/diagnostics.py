"""Diagnostics: what `fairlane doctor` reports of a queue in a file."""

from __future__ import annotations

import grp
import os
import pwd
import re
import shutil
import stat
from pathlib import Path

import apsw

from fairlane.engine.protocol import Finding

from .file_checks import filesystem_type
from .queries import SCHEMA_VERSIONS, Execute, sql

FREE_BYTES_MIN = 2**30
LOG_BYTES_MAX = 2**28
CHECKED_BYTES_MAX = 2**30  # a larger file takes too long to be checked whole
SYNCHRONOUS_FULL = 2


def diagnose(execute: Execute, path: Path, schema: int) -> list[Finding]:
    """Return one finding for each thing that can be wrong with a file."""
    return [
        Finding("version", "fine", f"SQLite {apsw.sqlite_lib_version()}, schema version {schema}"),
        _durability(execute),
        Finding("clock", "fine", "this machine's own: there is no other to differ from"),
        _disk(path),
        _access(path),
        _room(path),
        _log(path),
        _indexes(execute),
        _pages(execute, path),
    ]


def _durability(execute: Execute) -> Finding:
    mode, synchronous = execute(sql.journal_mode).fetchone()[0], execute(sql.synchronous).fetchone()[0]
    settings = f"journal_mode={mode}, synchronous={synchronous}"
    if mode == "wal" and synchronous == SYNCHRONOUS_FULL:
        return Finding("durability", "fine", f"acknowledged after the data is on disk ({settings})")
    advice = "open the file with Fairlane alone, which sets both, and let no other program change them"
    return Finding("durability", "bad", f"an acknowledged document may be lost ({settings})", advice)


def _disk(path: Path) -> Finding:
    return Finding("disk", "fine", f"{path} is on a local disk ({filesystem_type(path)})")


def _access(path: Path) -> Finding:
    status = path.stat()
    owner, mode = _user_name(status.st_uid), stat.S_IMODE(status.st_mode)
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        advice = f"as {owner} or root: chmod 600 {path}, or 660 for a group that shares it"
        return Finding("access", "bad", f"every user of this machine can read the file (mode {mode:o})", advice)
    if mode & stat.S_IWGRP:
        owner += f" and the group {_group_name(status.st_gid)}"
    return Finding("access", "fine", f"only {owner} can read the file (mode {mode:o})")


def _user_name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def _group_name(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


def _room(path: Path) -> Finding:
    free = shutil.disk_usage(path.parent).free
    message = f"{free / 2**30:,.1f} GiB free beside a file of {path.stat().st_size / 2**20:,.1f} MiB"
    if free >= FREE_BYTES_MIN:
        return Finding("room", "fine", message)
    return Finding("room", "warning", message, "free space, or purge ended documents: a full disk accepts nothing")


def _log(path: Path) -> Finding:
    log = Path(f"{path}-wal")
    size = log.stat().st_size if os.path.exists(log) else 0
    message = f"{size / 2**20:,.1f} MiB not yet checkpointed into the file"
    if size <= LOG_BYTES_MAX:
        return Finding("log", "fine", message)
    advice = "a program keeps a read transaction open, so that the log cannot be checkpointed; find it with lsof and end it"
    return Finding("log", "warning", message, advice)


def _indexes(execute: Execute) -> Finding:
    indexes = set[str]()
    for verb, name in re.findall(r"\b(CREATE|DROP) INDEX (\w+)", "".join(SCHEMA_VERSIONS)):
        (indexes.add if verb == "CREATE" else indexes.discard)(name)
    missing = indexes - {name for (name,) in execute(sql.read_index_names).fetchall()}
    if not missing:
        return Finding("indexes", "fine", f"all {len(indexes)} exist")
    advice = "they were dropped: restore the file from a backup, or move the queue to a new file with fairlane move"
    return Finding("indexes", "bad", f"missing: {', '.join(sorted(missing))}", advice)


def _pages(execute: Execute, path: Path) -> Finding:
    if path.stat().st_size > CHECKED_BYTES_MAX:
        return Finding("pages", "fine", "not checked: the file is larger than 1 GiB; PRAGMA quick_check does it")
    (problem,) = execute(sql.quick_check).fetchone()
    if problem == "ok":
        return Finding("pages", "fine", "every page is whole")
    return Finding("pages", "bad", str(problem), "stop all programs, copy the file, and restore it from a backup")
