"""Validation of the values that callers pass: done here once, so that engines can trust them.

Laws:
- A payload is JSON of limited size and depth, and comes back exactly.
- Document ids are made here: random, and sorted by time.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, get_args

from fairlane.blobs.envelope import Pipeline, reject_reserved_key, wrap_payload
from fairlane.core.document import State, Submission, validate_text
from fairlane.core.errors import BadValue, Unknown
from fairlane.core.policy import LEVELS_MAX, TIME_MAX_MS, to_milliseconds, to_thousandths
from fairlane.core.retry import DELAY_MAX_MS
from fairlane.engine.protocol import DocumentFilter

DEFAULT_KIND = "default"  # of documents with a payload only: for the handlers that you write
FILE_KIND = "extract"  # of documents with a file: for the built-in handler
JSON_BYTES_MAX = 256 * 1024
NESTING_MAX = 100
PARTIAL_BYTES_MAX = 60 * 1024
STEPS_MAX = 20
SLICE_PAGES_MAX = 10_000
PAGES: Literal["pages"] = "pages"  # a cost that is estimated from the file

Cost = float | Literal["pages"]

# No check for circular references: it would slow every payload, and one ends in a RecursionError, which is reported as well.
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False).encode

_VARIANT = dict(zip("0123456789abcdef", 4 * "89ab", strict=True))  # two bits of the digit are fixed


def json_text(name: str, value: Any, bytes_max: int = JSON_BYTES_MAX) -> str:
    """Encode a value as JSON text; raise BadValue if that is impossible, too large or too deep."""
    try:
        text = _encode(value)
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError:  # a lone surrogate: escaped, so that it comes back exactly
        text = json.dumps(value, allow_nan=False, separators=(",", ":"))
        size = len(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadValue(name, value, f"JSON ({error})") from error
    if size > bytes_max:
        raise BadValue(
            name,
            f"{size:,} bytes of JSON",
            f"at most {bytes_max:,} bytes; send large content as a file, with path= or content=",
        )
    if size > 2 * NESTING_MAX and text.count("[") + text.count("{") > NESTING_MAX and _depth(value) > NESTING_MAX:
        raise BadValue(name, value, f"JSON nested at most {NESTING_MAX} deep")
    return text


def _depth(value: Any) -> int:
    """Return how deep a value is nested, without recursion."""
    depth, level = 0, [value]
    while level:
        level = [
            item
            for container in level
            if isinstance(container, dict | list | tuple)
            for item in (container.values() if isinstance(container, dict) else container)
        ]
        depth += 1
    return depth


def payload_text(payload: Any, pipeline: Pipeline | None = None) -> str:
    """Encode the payload of a document without a file."""
    reject_reserved_key(payload)
    return wrap_payload(None, json_text("payload", payload), pipeline)


def first_kind(kind: str | None, steps: Sequence[str] | None, default: str) -> str:
    """Return the kind of a new document: that of its first step."""
    if steps is None:
        return default if kind is None else kind
    if isinstance(steps, str) or not isinstance(steps, Sequence) or not 1 <= len(steps) <= STEPS_MAX:
        raise BadValue("steps", steps, f'a list of 1 to {STEPS_MAX} kinds, as in ["extract", "classify"]')
    for step in steps:
        validate_text("one of steps", step, 100)
    if len(set(steps)) < len(steps):
        raise BadValue("steps", list(steps), "a list of different kinds: each is one step")
    if kind is not None and kind != steps[0]:
        raise BadValue("kind", kind, f"left out beside steps: a document begins as the first of them, {steps[0]!r}")
    return steps[0]


def make_pipeline(steps: Sequence[str] | None, slices: int | None) -> Pipeline | None:
    """Return how a new document goes on, of valid steps; None: it ends with its first step, in one piece."""
    if slices is not None and (type(slices) is not int or not 1 <= slices <= SLICE_PAGES_MAX):
        raise BadValue("slices", slices, f"pages of a slice, 1 to {SLICE_PAGES_MAX:,}")
    pipeline = Pipeline(tuple(steps or ()) if steps is not None and len(steps) > 1 else (), slices=slices or 0)
    return None if pipeline == Pipeline() else pipeline


def new_ids(count: int) -> list[str]:
    """Make UUIDs of version 7: random, and sorted by time so that new rows are neighbours in the store's index."""
    stamp = f"{time.time_ns() // 1_000_000:012x}"
    start = f"{stamp[:8]}-{stamp[8:]}-7"
    random = os.urandom(10 * count).hex()
    return [
        f"{start}{random[i : i + 3]}-{_VARIANT[random[i + 3]]}{random[i + 4 : i + 7]}-{random[i + 8 : i + 20]}"
        for i in range(0, 20 * count, 20)
    ]


class SubmitOptions(NamedTuple):
    """What the documents of one call have in common, validated once."""

    customer: str
    kind: str
    cost: int
    delay_ms: int
    made_from: str | None
    no_better_than: int | None = None
    pipeline: Pipeline | None = None

    @classmethod
    def validate(
        cls,
        customer: str,
        kind: str,
        cost: Cost,
        delay: float | timedelta,
        made_from: str | None,
        no_better_than: int | None = None,
        pipeline: Pipeline | None = None,
    ) -> SubmitOptions:
        delay_ms = to_milliseconds("delay", delay, 0, DELAY_MAX_MS)
        source = None if made_from is None else document_id(made_from)
        if no_better_than is not None:
            validate_priority("no_better_than", no_better_than)
            if source is not None:
                raise BadValue("no_better_than", no_better_than, "left out beside made_from: the priority is inherited")
        names = validate_text("customer", customer), validate_text("kind", kind, 100)
        return cls(*names, cost_thousandths(cost), delay_ms, source, no_better_than, pipeline)

    def submission(
        self,
        id: str,
        payload: str,
        key: str | None,
        cost: int | None = None,
        parent: str | None = None,
        file_bytes: int = 0,
    ) -> Submission:
        digest = None
        if key is not None:
            validate_text("key", key)
            digest = body_digest(self.kind, payload)
        return Submission(
            id, self.customer, self.kind, payload, cost or self.cost, key, digest, self.delay_ms, self.made_from,
            self.no_better_than, parent, file_bytes,
        )  # fmt: skip


def body_digest(kind: str, payload: str) -> str:
    """Return a text that two submissions have in common exactly if they say the same."""
    canonical = json.dumps(json.loads(payload), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(f"{kind}\n{canonical}".encode()).hexdigest()


def validate_priority(name: str, priority: int | None) -> int:
    """Return a priority unchanged; raise BadValue unless it is one."""
    if type(priority) is not int or not 1 <= priority <= LEVELS_MAX:
        raise BadValue(name, priority, f"a whole number from 1 (served first) to {LEVELS_MAX} (served last)")
    return priority


def cost_thousandths(cost: Cost) -> int:
    if cost == PAGES:
        raise BadValue(
            "cost", cost, "a number for a document without a file; the pages of a file are counted, with path= or content="
        )
    return to_thousandths("cost", cost, 0.001, 10_000)


def now_milliseconds(now: float | datetime | None) -> int | None:
    return time_milliseconds("now", now)


def time_milliseconds(name: str, value: float | datetime | None) -> int | None:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise BadValue(name, value, "a datetime with a time zone, or seconds since the epoch")
        value = value.timestamp()
    return None if value is None else to_milliseconds(name, value, 0, TIME_MAX_MS)


def document_filter(
    customer: str | None = None,
    state: State | None = None,
    kind: str | None = None,
    reason: str | None = None,
    since: float | datetime | None = None,
    until: float | datetime | None = None,
) -> DocumentFilter:
    """Return a filter of documents; raise BadValue for a value that no document can have."""
    for name, text in (("customer", customer), ("kind", kind), ("reason", reason)):
        if text is not None:
            validate_text(name, text)
    if state is not None and state not in get_args(State):
        raise BadValue("state", state, "one of " + ", ".join(get_args(State)))
    if reason is not None and state not in (None, "failed"):
        raise BadValue("state", state, "failed, or left out, beside a reason: only failed documents have one")
    since_ms, until_ms = time_milliseconds("since", since), time_milliseconds("until", until)
    if since_ms is not None and until_ms is not None and until_ms <= since_ms:
        raise BadValue("until", until, f"later than since, {since}")
    return DocumentFilter(customer, state, kind, reason, since_ms, until_ms)


def to_seconds(name: str, duration: float | timedelta, least_ms: int = 0, most_ms: int = TIME_MAX_MS) -> float:
    """Return a duration as seconds in whole milliseconds; raise BadValue if it is out of range."""
    return to_milliseconds(name, duration, least_ms, most_ms) / 1000


def document_id(id: str) -> str:
    return validate_text("document id", id)


def unknown_document(id: str) -> Unknown:
    return Unknown(f"there is no document {id}; it was never submitted here, or it was purged")
