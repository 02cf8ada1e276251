"""The JSON around a caller's payload and a handler's result that says which files belong to a document, and how it goes on.

Laws:
- A payload with a file or a pipeline is `{"fairlane.file": {name, size, sha256, …}, "fairlane.pipeline": {steps, …}, "payload":
  the caller's payload}`. Callers may not use these keys themselves, so the two cannot be confused.
- The results of a document's parts come with the claim under `"fairlane.parts"`, and are not stored there.
- A result with files lists them with size and SHA-256 under `"fairlane.results"`.
- The sender's file name is shown, never used as a path.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from fairlane.core.errors import BadValue

FILE = "fairlane.file"
PIPELINE = "fairlane.pipeline"
PARTS = "fairlane.parts"
PART = "fairlane.part"  # in the result of a part with files: whose they are
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
    of: str | None = None  # the document whose file it is, if the document is a part of that one


class StepResult(NamedTuple):
    """What a step of a document returned; its files are stored under its token."""

    kind: str
    token: int
    result: Any


class Pipeline(NamedTuple):
    """How a document goes on."""

    steps: tuple[str, ...] = ()  # the kinds that it passes through, in order
    results: tuple[StepResult, ...] = ()  # of the steps that are done
    slices: int = 0  # it may be read in slices of so many pages; 0: it may not
    parts: int = 0  # into so many it was split in this step
    part: int = 0  # it is this part of its whole, from 1; 0: it is none

    @property
    def next_kind(self) -> str | None:
        """The kind of the step after this one."""
        done = len(self.results)
        return self.steps[done + 1] if done + 1 < len(self.steps) else None


def wrap_payload(file: File | None, payload: str, pipeline: Pipeline | None = None) -> str:
    """Return the payload of a document with a file or a pipeline; the payload is JSON text."""
    # Join the texts instead of parsing the payload: the digest of an idempotency key covers exactly these bytes.
    wrapped = [f'"{FILE}":{json.dumps(_fields(file))},'] if file is not None else []
    if pipeline is not None and pipeline != Pipeline():
        wrapped.append(f'"{PIPELINE}":{json.dumps(_fields(pipeline), ensure_ascii=False)},')
    return f'{{{"".join(wrapped)}"payload":{payload}}}' if wrapped else payload


def _fields(value: Any) -> dict[str, Any]:
    """Return the fields that are not as they are by default."""
    return {name: field for name, field in value._asdict().items() if field != value._field_defaults.get(name, KeyError)}


def unwrap_payload(stored: Any) -> tuple[File | None, Any]:
    """Return the file of a document, if it has one, and the caller's own payload."""
    if isinstance(stored, dict) and (FILE in stored or PIPELINE in stored):
        return File(**stored[FILE]) if FILE in stored else None, stored["payload"]
    return None, stored


def pipeline_of(stored: Any) -> Pipeline:
    """Return how a document goes on; one that was submitted without a pipeline ends with its first step."""
    if not isinstance(stored, dict) or PIPELINE not in stored:
        return Pipeline()
    fields = stored[PIPELINE]
    results = tuple(StepResult(*result) for result in fields.get("results", ()))
    return Pipeline(**fields | {"steps": tuple(fields.get("steps", ())), "results": results})


def submitted(kind: str, payload: str) -> tuple[str, str]:
    """Return the kind and the payload with which a document was submitted, whatever its steps have made of them since."""
    stored = json.loads(payload)
    pipeline = pipeline_of(stored)
    if pipeline == Pipeline():
        return kind, payload
    file, own = unwrap_payload(stored)
    first = pipeline._replace(results=(), parts=0)
    return pipeline.steps[0] if pipeline.steps else kind, wrap_payload(file, json.dumps(own), first)


def waits_for_parts(payload: str) -> bool:
    """Return whether a document of that payload was split, and its parts' results belong to its next attempt."""
    return f'"{PIPELINE}":' in payload and pipeline_of(json.loads(payload)).parts > 0


def add_part_results(payload: str, results: Iterable[str | None]) -> str:
    """Return the payload of a document that was split with the results of its parts; all are JSON text."""
    return f'{payload[:-1]},"{PARTS}":[{",".join(result or "null" for result in results)}]}}'


def reject_reserved_key(payload: Any) -> None:
    """Refuse a payload that claims a file without one being sent, or a pipeline."""
    if not isinstance(payload, dict):
        return
    if FILE in payload:
        raise BadValue(
            "payload", payload, f"without the name {FILE!r}, which says that there is a file; send it with path= or content="
        )
    if PIPELINE in payload:
        raise BadValue("payload", payload, f"without the name {PIPELINE!r}; use steps= or slices=")


def wrap_results(digests: Mapping[str, BlobDigest]) -> dict[str, Any]:
    """Return what a handler adds to its result so that the files it wrote can be read."""
    return {RESULTS: {name: digest._asdict() for name, digest in digests.items()}}


def wrap_part(id: str, token: int) -> dict[str, Any]:
    """Return what is added to the result of a part, so that the document that it belongs to finds its files."""
    return {PART: {"id": id, "token": token}}


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
