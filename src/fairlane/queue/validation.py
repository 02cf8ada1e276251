"""Which values may a caller give? Checked here once, so that engines may trust them.

Laws:
- A payload is JSON of a bounded size and depth, and comes back exactly.
- Ids are made here: random, and sorted by time.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from typing import Any, Literal, NamedTuple

from fairlane.blobs.envelope import refuse_ours
from fairlane.core.document import JSON_BYTES_MAX, Submission, validate_text
from fairlane.core.errors import BadValue, Unknown
from fairlane.core.policy import TIME_MAX_MS, to_milliseconds, to_thousandths
from fairlane.core.retry import DELAY_MAX_MS

DEFAULT_KIND = "extract"
NESTING_MAX = 100
PARTIAL_BYTES_MAX = 60 * 1024
PAGES: Literal["pages"] = "pages"  # a cost that is estimated from the file

Cost = float | Literal["pages"]

# A circle ends at the depth that Python allows, which is told in the same words; looking for one would cost every payload.
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False).encode

_VARIANT = dict(zip("0123456789abcdef", 4 * "89ab", strict=True))  # two bits of the digit are fixed


def json_text(name: str, value: Any, bytes_max: int = JSON_BYTES_MAX) -> str:
    """A value as JSON text, refused if it is none, too large or too deep."""
    try:
        told = _encode(value)
        size = len(told) if told.isascii() else len(told.encode())
    except UnicodeEncodeError:  # a lone surrogate: escaped, so that it comes back exactly
        told = json.dumps(value, allow_nan=False, separators=(",", ":"))
        size = len(told)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadValue(name, value, f"JSON ({error})") from error
    if size > bytes_max:
        raise BadValue(
            name,
            f"{size:,} bytes of JSON",
            f"at most {bytes_max:,} bytes; send large content as a file, with path= or content=",
        )
    if size > 2 * NESTING_MAX and told.count("[") + told.count("{") > NESTING_MAX and _depth(value) > NESTING_MAX:
        raise BadValue(name, value, f"JSON nested at most {NESTING_MAX} deep")
    return told


def _depth(value: Any) -> int:
    """How deep a value is nested, without recursion."""
    deepest, level = 0, [value]
    while level:
        level = [
            inner
            for one in level
            if isinstance(one, dict | list | tuple)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
        deepest += 1
    return deepest


def payload_text(payload: Any) -> str:
    """The payload of a document without a file as JSON text."""
    refuse_ours(payload)
    return json_text("payload", payload)


def new_ids(count: int) -> list[str]:
    """UUIDs of version 7: random, and sorted by time so that the store writes neighbouring ids side by side."""
    stamp = f"{time.time_ns() // 1_000_000:012x}"
    start = f"{stamp[:8]}-{stamp[8:]}-7"
    random = os.urandom(10 * count).hex()
    return [
        f"{start}{random[at : at + 3]}-{_VARIANT[random[at + 3]]}{random[at + 4 : at + 7]}-{random[at + 8 : at + 20]}"
        for at in range(0, 20 * count, 20)
    ]


class Common(NamedTuple):
    """What the documents of one call have in common, checked once."""

    customer: str
    kind: str
    cost: int
    delay_ms: int
    made_from: str | None

    @classmethod
    def checked(cls, customer: str, kind: str, cost: Cost, delay: float, made_from: str | None) -> Common:
        delay_ms = to_milliseconds("delay", delay, 0, DELAY_MAX_MS)
        source = None if made_from is None else document_id(made_from)
        return cls(validate_text("customer", customer), validate_text("kind", kind, 100), cost_of(cost), delay_ms, source)

    def submission(self, id: str, told: str, key: str | None, cost: int | None = None) -> Submission:
        digest = None
        if key is not None:
            validate_text("key", key)
            canonical = json.dumps(json.loads(told), sort_keys=True, separators=(",", ":"))
            digest = hashlib.sha256(f"{self.kind}\n{canonical}".encode()).hexdigest()
        return Submission(id, self.customer, self.kind, told, cost or self.cost, key, digest, self.delay_ms, self.made_from)


def cost_of(cost: Cost) -> int:
    if cost == PAGES:
        raise BadValue(
            "cost", cost, "a number where no file is handed in; the pages of a file are counted, with path= or content="
        )
    return to_thousandths("cost", cost, 0.001, 10_000)


def moment(now: float | None) -> int | None:
    return None if now is None else to_milliseconds("now", now, 0, TIME_MAX_MS)


def document_id(id: str) -> str:
    return validate_text("document id", id)


def unknown(id: str) -> Unknown:
    return Unknown(f"there is no document {id}; it was never submitted here, or it was purged")
