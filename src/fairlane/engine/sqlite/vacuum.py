"""Vacuum of a queue's file: it is rewritten with what is in it now, and nothing is left of what was deleted or replaced.

SQLite leaves deleted rows where they were until their place is needed again, in free pages, in the gaps of others and in the
write-ahead log. With secure_delete it overwrites most of them, not all: rows that once moved to a neighbouring page stay.

Laws:
- Others wait to write meanwhile, about 7 s for each GB of the file, and go on reading.
- It is done when the write-ahead log is empty, too; a program that has been reading for long can prevent that.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import apsw

from fairlane.core.errors import StoreBusy

from .connection import connect
from .errors import translate_errors

LOG_SECONDS = 5.0  # to empty the write-ahead log, while others read


def vacuum_file(path: Path) -> None:
    """Rewrite a file, and empty its write-ahead log."""
    with translate_errors(path):
        connection = connect(path)
        try:
            connection.pragma("temp_store", "FILE")  # it is as large as the queue
            connection.execute("VACUUM")
            _empty_log(connection, path)
        finally:
            connection.close()


def _empty_log(connection: apsw.Connection, path: Path) -> None:
    connection.set_busy_handler(None)  # which would wait for longer
    deadline = time.monotonic() + LOG_SECONDS
    while connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").get[0]:  # another checkpoint, or a reader of an older state
        if time.monotonic() > deadline:
            raise StoreBusy(
                f"{path}-wal could not be emptied, because another program, a backup for instance, reads an older state; "
                "what was deleted may still be in there: run fairlane vacuum when that has ended"
            )
        time.sleep(random.uniform(0.01, 0.1))
