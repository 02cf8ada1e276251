"""Export of everything that a queue keeps of one customer, as one archive that is made as it is read.

Laws:
- Memory use does not grow with what there is: documents are read one by one, and files in pieces.
- Every document that the customer had when the export began is in it, unless it was purged or forgotten meanwhile. Each is as
  it was at one moment: its state, payload, result and files belong together. What is submitted later is not in it.
- The feed is read last, so that it has what happened to these documents.
- Nothing that grants access is in it: neither hashes of keys and sessions nor secrets of webhooks.
"""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, BinaryIO, NamedTuple

from fairlane.atomic_file import atomic_file
from fairlane.blobs.envelope import File, pipeline_of, result_digest, unwrap_payload
from fairlane.blobs.files import RESULT_NAMES, Files
from fairlane.core.document import DocumentRow
from fairlane.core.errors import BadValue, BlobDamaged, StoreError, Unknown
from fairlane.engine import Engine
from fairlane.engine.codec import encode_terms
from fairlane.engine.protocol import ATTEMPTS, ATTEMPTS_KEPT, PROGRESS, DocumentBody, DocumentFilter
from fairlane.engine.walk import walk_documents

from .export_archive import PIECE_BYTES, Archive, gather
from .export_index import document_page, index_page
from .files import QueueFiles
from .forget import OnProgress, is_forgotten
from .history import read_changes
from .models import Exported, change_from, document_from, look_from
from .record_groups import exported_records, records_of

PART_BYTES, PART_ROWS = 4 * 1024 * 1024, 500  # after which a part of the documents, records or changes is full
TRIES = 10  # to read a document that changes meanwhile
MISSING_NAMED_MAX = 20
FORMAT = 1
RESULT_FILES = {"text": "text.md", "facts": "facts.json", "thumbnail": "thumbnail.png"}
_ENDING = re.compile(r".*(\.[A-Za-z0-9]{1,8})")


class StoredBytes(NamedTuple):
    """A file of a document: its name in the archive, its size, and how it is opened."""

    name: str
    size: int
    open: Callable[[], BinaryIO]


class CustomerExport:
    """One export: iterate over it once for the bytes of the archive."""

    def __init__(
        self, engine: Engine, queue_files: QueueFiles, customer: str, on_progress: OnProgress = lambda *_: None
    ) -> None:
        if is_forgotten(engine, customer) and next(records_of(engine, customer), None) is None:
            raise Unknown(f"there is no customer {customer!r}; it never sent a document here, or it was forgotten")
        self._engine, self._customer, self._on_progress = engine, customer, on_progress
        self._files = queue_files.open_existing()
        self._counts = {"documents": 0, "files": 0, "changes": 0, "records": 0}
        self._missing: list[str] = []
        self._bytes = 0

    @property
    def exported(self) -> Exported:
        """What the archive holds, once it was read to its end."""
        names = tuple(dict.fromkeys(self._missing))[:MISSING_NAMED_MAX]
        return Exported(self._counts["documents"], self._counts["files"], self._bytes, len(self._missing), names)

    def __iter__(self) -> Generator[bytes]:
        with closing(Archive()) as self._archive:
            for piece in gather(self._members()):
                self._bytes += len(piece)
                yield piece

    def _members(self) -> Iterator[bytes]:
        known, began_at = self._engine.customer(self._customer), datetime.now(UTC)
        fields = {
            "fairlane_export": FORMAT, "exported_at": began_at, **look_from(known)._asdict(),
            "terms": json.loads(encode_terms(known.terms)),
            "last_check_ms": known.standing.updated_ms, "sent_lately": known.standing.parts,
        }  # fmt: skip
        yield from self._archive.add("customer.json", "the customer", _json(fields))
        for rows in self._parts("records", exported_records(self._engine, self._customer)):
            yield from self._add_lines("records", rows)
        total = known.waiting + known.running + known.done + known.failed + known.cancelled
        yield from self._add_documents(total)
        for rows in self._parts("changes", self._changes()):
            yield from self._add_lines("changes", rows)
        page = index_page(self._customer, began_at, self._counts, self._archive.parts["documents.html"])
        yield from self._archive.add("index.html", "the overview, for people", page)
        yield from self._archive.end(self.exported._replace(bytes=0)._asdict())

    def _add_documents(self, total: int) -> Iterator[bytes]:
        part: list[tuple[bytes, dict[str, Any]]] = []
        size = 0
        for listed in walk_documents(self._engine, DocumentFilter(customer=self._customer)):
            found = self._read(listed)
            if found is None:  # purged or forgotten meanwhile
                continue
            entry = self._entry(*found)
            yield from self._add_files(found[0], entry)
            part.append((_json(entry), entry))
            size += len(part[-1][0])
            self._counts["documents"] += 1
            self._on_progress("documents", self._counts["documents"], total)
            if size >= PART_BYTES or len(part) >= PART_ROWS:
                yield from self._add_document_part(part)
                part, size = [], 0
        if part:
            yield from self._add_document_part(part)

    def _add_document_part(self, part: list[tuple[bytes, dict[str, Any]]]) -> Iterator[bytes]:
        yield from self._add_lines("documents", [line for line, _ in part])
        page = document_page(self._customer, [entry for _, entry in part])
        yield from self._archive.add_part("documents", ".html", "documents, for people", page)

    def _parts(self, name: str, rows: Iterable[dict[str, Any]]) -> Iterator[list[bytes]]:
        """Yield rows as JSON, some at a time."""
        part, size = list[bytes](), 0
        for row in rows:
            part.append(_json(row))
            size += len(part[-1])
            self._counts[name] += 1
            if size >= PART_BYTES or len(part) >= PART_ROWS:
                yield part
                part, size = [], 0
        if part:
            yield part

    def _add_lines(self, folder: str, lines: list[bytes]) -> Iterator[bytes]:
        return self._archive.add_part(folder, ".jsonl", folder, b"".join(lines))

    def _changes(self) -> Iterator[dict[str, Any]]:
        after, looked = 0, 0
        while page := read_changes(self._engine, after):
            for row in page:
                if row.customer == self._customer:
                    yield {**change_from(row)._asdict(), "note": row.note}
            after, looked = page[-1].number, looked + len(page)
            self._on_progress("changes", looked, 0)

    # -- one document --------------------------------------------------------------------------------------------------

    def _read(self, listed: DocumentRow) -> tuple[DocumentRow, DocumentBody] | None:
        """Read a document and its body as they were at one moment; None: it is gone."""
        row = listed
        for _ in range(TRIES):
            body, again = self._engine.body(row.id), self._engine.document(row.id)
            if body is None or again is None:
                return None
            if (row.state, row.token) == (again.state, again.token):
                return again, body
            row = again
        raise StoreError(f"document {row.id} changed {TRIES} times while it was read; export again")

    def _entry(self, row: DocumentRow, body: DocumentBody) -> dict[str, Any]:
        file, payload = unwrap_payload(json.loads(body.payload))
        prefix = f"{row.id}:"
        attempts = self._engine.records(ATTEMPTS, prefix, ATTEMPTS_KEPT) if row.token else []
        progress = self._engine.record(PROGRESS, row.id) if row.token and row.state != "done" else None
        steps = pipeline_of(json.loads(body.payload)).results
        return {
            **document_from(row)._asdict(),
            "file": None if file is None else file._asdict(),
            "steps": [step._asdict() for step in steps],
            "payload": payload,
            "result": None if body.result is None else json.loads(body.result),
            "failed_attempts": [json.loads(record.value) for record in attempts if record.key.startswith(prefix)],
            "progress": None if progress is None else json.loads(progress.value),
            "files": [],
        }

    def _add_files(self, row: DocumentRow, entry: dict[str, Any]) -> Iterator[bytes]:
        """Yield a document's files, and list them in its entry."""
        for stored in [] if self._files is None else _stored_files(self._files, row, entry):
            path = f"files/{row.id}/{stored.name}"
            try:
                content = stored.open()
            except (Unknown, BlobDamaged) as error:
                self._missing.append(row.id)
                entry["files"].append({"name": stored.name, "missing": str(error)})
                continue
            with content:
                pieces = iter(partial(content.read, PIECE_BYTES), b"")
                yield from self._archive.add_pieces(path, "a file of a document", stored.size, pieces)
            self._counts["files"] += 1
            entry["files"].append({"name": stored.name, "path": path, "size": stored.size})


def write_export(export: CustomerExport, path: str | os.PathLike[str]) -> Exported:
    """Write an export to a new file, which has its name only when it is complete."""
    ending = next((ending for ending in (".tar", ".tar.gz", ".tgz") if os.fspath(path).endswith(ending)), None)
    if ending is None:
        raise BadValue("path", os.fspath(path), "the name of a new file that ends with .tar, .tar.gz or .tgz")
    with atomic_file(path) as file:
        if ending == ".tar":
            file.writelines(export)
        else:
            with gzip.GzipFile("", "wb", fileobj=file) as packed:
                for piece in export:
                    packed.write(piece)
    return export.exported


def _stored_files(files: Files, row: DocumentRow, entry: dict[str, Any]) -> Iterator[StoredBytes]:
    if entry["file"] is not None and entry["file"]["of"] is None:  # that of a part is its whole's
        file = File(**entry["file"])
        ending = _ENDING.fullmatch(file.name or "")
        name = f"original{ending[1] if ending else ''}"
        yield StoredBytes(name, file.size, partial(files.open_input, row.customer, row.id, file))
    results = [(f"step-{number}-", step["token"], step["result"]) for number, step in enumerate(entry["steps"], start=1)]
    results += [("", row.token, entry["result"])] if row.state == "done" else []
    for prefix, token, result in results:
        for result_name in RESULT_NAMES:
            digest = result_digest(result, result_name)
            if digest is not None:
                opening = partial(files.open_result, row.customer, row.id, token, result_name, digest)
                yield StoredBytes(prefix + RESULT_FILES[result_name], digest.size, opening)


def _json(row: dict[str, Any]) -> bytes:
    return json.dumps(row, ensure_ascii=False, default=_plain).encode(errors="replace") + b"\n"


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    raise TypeError(f"{value!r} cannot be written as JSON")
