"""The JSON around a caller's payload and a handler's result that says which files belong to a document.

Laws:
- A payload with a file is `{"fairlane.file": {name, size, sha256, …}, "payload": the caller's payload}`. Callers may not use
  the key `fairlane.file` themselves, so the two cannot be confused.
- A result with files lists them with size and SHA-256 under `"fairlane.results"`.
- The sender's file name is shown, never used as a path.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from fairlane.core.errors import BadValue

FILE = "fairlane.file"
RESULTS = "fairlane.results"


class BlobDigest(NamedTuple):
    """Size and hash of bytes that were written."""

    size: int
    sha256: str


class File(NamedTuple):
    """What is known of a document's file."""

    name: str | None  # the sender's name for it
    size: int
    sha256: str
    depth: int = 0  # how many archives it came out of
    parent: str | None = None  # the document that was the archive
    by_pages: bool = False  # its cost was estimated from pages, to be corrected when their number is known


def wrap_payload(file: File, payload: str) -> str:
    """Return the payload of a document with a file; both are JSON text."""
    fields = {name: value for name, value in file._asdict().items() if value != File._field_defaults.get(name, KeyError)}
    # Join the texts instead of parsing the payload: the digest of an idempotency key covers exactly these bytes.
    return f'{{"{FILE}":{json.dumps(fields)},"payload":{payload}}}'


def unwrap_payload(stored: Any) -> tuple[File | None, Any]:
    """Return the file of a document, if it has one, and the caller's own payload."""
    if isinstance(stored, dict) and FILE in stored:
        return File(**stored[FILE]), stored["payload"]
    return None, stored


def reject_reserved_key(payload: Any) -> None:
    """Refuse a payload that claims a file without one being sent."""
    if isinstance(payload, dict) and FILE in payload:
        raise BadValue(
            "payload", payload, f"without the name {FILE!r}, which says that there is a file; send it with path= or content="
        )


def wrap_results(digests: Mapping[str, BlobDigest]) -> dict[str, Any]:
    """Return what a handler adds to its result so that the files it wrote can be read."""
    return {RESULTS: {name: digest._asdict() for name, digest in digests.items()}}


def results_bytes(result: Any) -> int:
    """Return the bytes of a document's result files."""
    results = result.get(RESULTS) if isinstance(result, dict) else None
    digests = [result_digest(result, name) for name in results] if isinstance(results, dict) else []
    return sum(digest.size for digest in digests if digest is not None and type(digest.size) is int and digest.size > 0)


def result_digest(result: Any, name: str) -> BlobDigest | None:
    """Return size and hash of one of a document's result files, if it has it."""
    results = result.get(RESULTS) if isinstance(result, dict) else None
    entry = results.get(name) if isinstance(results, dict) else None
    if not isinstance(entry, dict) or entry.keys() != {"size", "sha256"}:
        return None
    return BlobDigest(entry["size"], entry["sha256"])
