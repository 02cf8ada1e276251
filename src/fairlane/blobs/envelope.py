"""How does a document say that it has a file, and that files came out of it? JSON around what the caller gave.

Laws:
- A payload with a file is `{"fairlane.file": {name, size, sha256, …}, "payload": what the caller gave}`; callers may not use
  that first name themselves, so there is no doubt which is which.
- A result with files names them with size and SHA-256 under `"fairlane.results"`.
- The sender's name of a file is told, never used as a path.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from fairlane.core.errors import BadValue

FILE = "fairlane.file"
RESULTS = "fairlane.results"


class Written(NamedTuple):
    """How many bytes were written, and which."""

    size: int
    sha256: str


class File(NamedTuple):
    """What is known of a document's file."""

    name: str | None  # what the sender calls it
    size: int
    sha256: str
    depth: int = 0  # how many archives it came out of
    parent: str | None = None  # the document that was the archive
    by_pages: bool = False  # its cost was estimated from pages, to be corrected when their number is known


def wrapped(file: File, payload: str) -> str:
    """The payload of a document with a file, both as JSON text."""
    told = {name: value for name, value in file._asdict().items() if value != File._field_defaults.get(name, KeyError)}
    return f'{{"{FILE}":{json.dumps(told)},"payload":{payload}}}'


def unwrapped(told: Any) -> tuple[File | None, Any]:
    """The file of a document, if it has one, and the payload as the caller gave it."""
    if isinstance(told, dict) and FILE in told:
        return File(**told[FILE]), told["payload"]
    return None, told


def refuse_ours(payload: Any) -> None:
    """A caller may not say that there is a file where none was sent."""
    if isinstance(payload, dict) and FILE in payload:
        raise BadValue(
            "payload", payload, f"without the name {FILE!r}, which says that there is a file; send it with path= or content="
        )


def results_told(written: Mapping[str, Written]) -> dict[str, Any]:
    """What a handler adds to its result, so that what it wrote can be read."""
    return {RESULTS: {name: one._asdict() for name, one in written.items()}}


def result_of(told: Any, name: str) -> Written | None:
    """Size and hash of one of the files that came out of a document, if it has it."""
    named = told.get(RESULTS) if isinstance(told, dict) else None
    one = named.get(name) if isinstance(named, dict) else None
    return Written(one["size"], one["sha256"]) if isinstance(one, dict) and one.keys() == {"size", "sha256"} else None
