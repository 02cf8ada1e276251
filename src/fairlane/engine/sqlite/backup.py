"""Backup of a queue in a file: a copy of it as it is at one moment, made while others write, and the fence of a restored copy.

Laws:
- Nobody waits for a copy: it is read in one transaction of its own, which sees none of the changes that others commit.
- A copy is not synced; whoever keeps it does that.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import apsw

from fairlane.core.errors import StoreUnfit
from fairlane.file_modes import create_private

from .connection import connect
from .errors import translate_errors
from .queries import sql

STEP_PAGES = 1000
FENCE = 1_000_000_000  # more than what the original can have counted since the copy was made

OnStep = Callable[[int, int], None]  # how many pages were copied, and of how many


def copy_file(source: Path, target: Path, on_step: OnStep) -> None:
    """Copy a queue's file as it is now to a new file."""
    with translate_errors(source):
        reader = connect(source)
        try:
            reader.execute("BEGIN")
            reader.execute(
                sql.read_queue
            ).fetchone()  # from here on it sees one state; without it, every commit restarts the copy
            with translate_errors(target):
                _copy(reader, target, on_step)
        finally:
            reader.close()


def _copy(reader: apsw.Connection, target: Path, on_step: OnStep) -> None:
    create_private(str(target))
    writer = apsw.Connection(str(target))
    try:
        writer.pragma("journal_mode", "OFF")
        writer.pragma("synchronous", "OFF")
        with writer.backup("main", reader, "main") as copying:
            while not copying.done:
                copying.step(STEP_PAGES)
                on_step(copying.page_count - copying.remaining, copying.page_count)
    finally:
        writer.close()


def check_file(path: Path) -> None:
    """Raise StoreUnfit if a file is damaged."""
    with translate_errors(path):
        connection = connect(path)
        try:
            findings = [row[0] for row in connection.execute("PRAGMA quick_check(3)")]
        finally:
            connection.close()
    if findings != ["ok"]:
        raise StoreUnfit(
            f"{path} is damaged: {'; '.join(findings)}; stop using the queue it is a copy of, restore an older backup"
        )


def fence_file(path: Path) -> None:
    """Raise every number that the original goes on to use, so that its claims, places in the feed and versions fit nothing."""
    with translate_errors(path):
        connection = connect(path)
        try:
            with connection:
                connection.execute(sql.fence_queue, (FENCE, FENCE))
                connection.execute(sql.fence_documents, (FENCE,))
        finally:
            connection.close()
