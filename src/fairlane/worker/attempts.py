"""Details of failed attempts: the traceback and the end of the output, as JSON text that is kept with the document.

The engine writes them with the settlement, so that only the worker that held the document can; they are deleted with it.
"""

from __future__ import annotations

import json
import time

from .claims import ActiveClaim
from .output import OUTPUT_LENGTH_MAX, split_crash, storable_text


def attempt_details(active: ActiveClaim, worker: str, reason: str, traceback: str | None, at_ms: int | None = None) -> str:
    """Return the details of an attempt that failed just now; `at` is this machine's clock, for people to read."""
    output, crash = split_crash(active.printed)
    details = {
        "attempt": active.claim.attempts,
        "token": active.claim.token,
        "at": time.time_ns() // 1_000_000 if at_ms is None else at_ms,
        "worker": worker,
        "seconds": round(active.seconds, 3),
        "reason": reason,
        "traceback": traceback or (crash and storable_text(crash)),
        "output": storable_text(output[-OUTPUT_LENGTH_MAX:]) or None,
    }
    return json.dumps(details, ensure_ascii=False)
