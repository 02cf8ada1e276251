"""Counting what documents take that an older version stored, step by step, while others use the file."""

from __future__ import annotations

from fairlane.engine.limits import stored_bytes

from .queries import Execute, sql
from .transaction import Transaction


def is_counted(execute: Execute) -> bool:
    """Return whether what all documents take is counted."""
    return bool(execute(sql.read_uncounted).get == 0)


def count_some(tx: Transaction, limit: int) -> bool:
    """Count the newest documents that are not counted yet; return whether there may be more."""
    tx.flush()
    rows = tx.execute(sql.read_uncounted_documents, (tx.uncounted, limit)).fetchall()
    for number, customer, kind, priority, payload, result in rows:
        size = stored_bytes(payload, result)
        tx.execute(sql.write_bytes, (size, number))
        lane = tx.lane(customer, kind, priority)
        lane.documents += 1
        lane.bytes += size
    tx.uncounted = rows[-1][0] - 1 if len(rows) == limit else 0
    return tx.uncounted > 0
