"""The built-in handler: reads documents' files in the sandbox and keeps their text, facts and thumbnail.

Laws:
- No byte of an untrusted file is parsed in this process: that happens in the sandbox, and its response is validated.
- A failure that another attempt cannot help is final, with a code that people understand; others are retried.
- Files inside a file become documents of the same customer, each with its check and an idempotency key, so that a second
  attempt submits none of them twice. All of them are submitted, or none: if they do not fit the customer's limits, the file
  that holds them fails, and says so.
- Results that are much larger than their file are not kept beyond the customer's quota: otherwise what was accepted as a few
  kilobytes could fill the store.
- A path is read only for documents of the kind that `fairlane process` submits: a sender of documents may not read disks.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn

from fairlane.blobs.safe_open import open_regular_file
from fairlane.core.errors import BlobDamaged, LimitReached, Mistake, QueueFull, QuotaFull
from fairlane.core.retry import Backoff
from fairlane.engine.limits import refuse_bytes
from fairlane.folders.outputs import Outputs, member_paths
from fairlane.folders.scan import FOLDER_KIND
from fairlane.queue import FILE_KIND, PAGES, Input, Queue
from fairlane.sandbox.scratch import attempt_folder
from fairlane.worker import Document, Fail, Retry, Split, Worker

from . import CustomReader, Extraction, Limits, ReaderInput, Unreadable
from .custom_reader import check_readers, read_with, readers_for
from .limits import parse_languages
from .sandboxed import MEMORY_MAX, extract_isolated, prepare
from .slices import SLICED, join_slices, slice_of, split_pages
from .sniff import READERS

OCR_LANGUAGES = "ocr_languages"  # in the payload of a document
RESULTS_SPARE_BYTES = 100_000  # that results may be larger than their file before the quota is asked
QUEUE_FULL_SECONDS = 60.0  # before an archive is tried again whose files do not fit now
SECONDS_SPARE = 60.0  # beyond the time for reading: to fetch the file and to store results


class ExtractOptions(NamedTuple):
    """Settings of the built-in handler."""

    url: str
    blobs: str | None = None
    limits: Limits = Limits()
    pace: float = 0.0  # the least seconds that a document takes, so that people can watch
    outputs: Outputs | None = None  # a folder for the results, instead of the queue's own store
    keep_results: bool = True
    may_read_everything: bool = False  # read files also where nothing keeps them from reading all others
    readers: Mapping[str, CustomReader] = MappingProxyType({})  # of your own, by media type
    memory_max: int = MEMORY_MAX  # of each process in the sandbox


def limits_with(ocr_languages: str | None) -> Limits:
    """Return the usual limits, with the languages of a setting."""
    return Limits() if ocr_languages is None else Limits(ocr_languages=parse_languages(ocr_languages, OCR_LANGUAGES))


def built_in_worker(
    options: ExtractOptions,
    slots: int = 4,
    kinds: Sequence[str] = (FILE_KIND, FOLDER_KIND),
    backoff: Backoff | None = None,
) -> Worker:
    """Make a worker with the built-in handler; a `Mistake` where untrusted files cannot be confined."""
    handler = built_in_handler(options)
    worker = Worker(options.url, slots=slots, backoff=backoff, blobs=options.blobs)
    for kind in kinds:
        worker.handler(kind, timeout=options.limits.seconds_max + options.pace + SECONDS_SPARE)(handler)
    return worker


def built_in_handler(options: ExtractOptions) -> ExtractHandler:
    """Make the built-in handler, for a worker of your own; a `Mistake` where untrusted files cannot be confined."""
    check_readers(options.readers, READERS)
    prepare(options.may_read_everything, options.readers.values())
    return ExtractHandler(options)


class ExtractHandler:
    """Extracts one document, stores its results and submits the files inside it."""

    def __init__(self, options: ExtractOptions) -> None:
        self._options = options

    def __call__(self, document: Document) -> dict[str, Any] | Split:
        began = time.monotonic()
        try:
            with open_source(document) as source, attempt_folder() as scratch:
                return self._process(document, source, scratch)
        except Unreadable as error:
            if error.can_retry:
                raise Retry(reason=str(error)) from None
            raise Fail(str(error)) from None
        except BlobDamaged as error:
            raise Fail(f"corrupt: {error}") from None
        finally:
            if self._options.pace:
                time.sleep(max(0.0, self._options.pace - (time.monotonic() - began)))

    def _process(self, document: Document, source: Source, scratch: Path) -> dict[str, Any] | Split:
        limits = limits_of(document, self._options.limits)
        if document.parts is not None:
            extraction = join_slices(document, limits)
        elif document.part is not None:
            extraction = self._extract(document, source, scratch, replace(limits, pages=slice_of(document)))
        else:
            if document.slices is not None and self._options.outputs is None and self._options.keep_results:
                listed = self._extract(document, source, scratch, replace(limits, pages=(0, 0)))
                reader = self._options.readers.get(listed.media_type)
                can_slice = listed.media_type in SLICED and (reader is None or reader.slices)
                if can_slice and len(listed.pages) > document.slices:
                    self._correct_cost(document, listed)
                    return split_pages(len(listed.pages), document.slices, kept_payload(document))
                _empty(scratch)
            extraction = self._extract(document, source, scratch, limits)
        self._refuse_beyond_quota(document, extraction)
        members = self._submit_members(document, source, extraction)
        facts = extraction.facts() | {"members": members}
        self._correct_cost(document, extraction)
        return {**_summary(extraction, facts), **self._store_results(document, source, extraction, facts)}

    def _extract(self, document: Document, source: Source, scratch: Path, limits: Limits) -> Extraction:
        """Read a file, in the sandbox first; then by the reader of its type that is outside, if there is one."""
        readers = readers_for(self._options.readers, limits)
        extraction = self._extract_isolated(document, source, scratch, limits, readers)
        reader = readers.get(extraction.media_type)
        if reader is None or reader.sandbox:
            return extraction
        file = ReaderInput(source.path, source.name, limits, extraction)
        own = read_with(reader.load(), reader.name, file, let_through=(Retry, Fail))
        if own is not None or extraction.members:  # files that hold others have no OCR
            return own or extraction
        _empty(scratch)
        return self._extract_isolated(document, source, scratch, limits, {})

    def _extract_isolated(
        self, document: Document, source: Source, scratch: Path, limits: Limits, readers: Mapping[str, CustomReader]
    ) -> Extraction:
        sha256 = None if document.file is None else document.file.sha256  # verified when the file was opened
        return extract_isolated(
            source.path, source.name, scratch, limits, source.depth, self._options.memory_max,
            sha256=sha256, may_read_everything=self._options.may_read_everything, readers=readers,
        )  # fmt: skip

    def _correct_cost(self, document: Document, extraction: Extraction) -> None:
        if document.file is not None and document.file.by_pages:
            document.cost = max(1, len(extraction.pages))  # at most as many as the limits allow

    def _store_results(
        self, document: Document, source: Source, extraction: Extraction, facts: dict[str, Any]
    ) -> dict[str, Any]:
        if self._options.outputs is not None:
            try:
                self._options.outputs.write(source.output_path, extraction.text_bytes, facts, extraction.thumbnail)
            except Mistake as mistake:  # a full disk may have room later
                raise Retry(reason=str(mistake)) from None
            return {}
        if not self._options.keep_results:
            return {}
        return document.put_results(text=extraction.text_bytes, facts=facts, thumbnail=extraction.thumbnail)

    def _refuse_beyond_quota(self, document: Document, extraction: Extraction) -> None:
        """Fail a document whose text has grown far beyond its file, if its customer cannot keep that much."""
        if document.file is None or self._options.outputs is not None or not self._options.keep_results:
            return
        size = len(extraction.text_bytes) + len(extraction.thumbnail or b"")
        if size <= document.file.size + RESULTS_SPARE_BYTES:
            return
        with Queue(self._options.url, create=False) as queue:
            customer = queue.engine.customer(document.customer)
        try:
            refuse_bytes(customer, size)
        except QuotaFull as error:
            raise Unreadable("quota_full", f"its text was not kept, because {error}") from None

    def _submit_members(self, document: Document, source: Source, extraction: Extraction) -> list[dict[str, Any]]:
        """Submit the files inside as documents of their own."""
        if not extraction.members:
            return []
        chosen = document.payload if isinstance(document.payload, dict) else {}
        handed_on = {OCR_LANGUAGES: chosen[OCR_LANGUAGES]} if OCR_LANGUAGES in chosen else {}
        paths = member_paths(source.output_path, [member.name for member in extraction.members])
        inputs = [
            Input(member.path, name=member.name, payload={"place": path} | handed_on, key=f"member {number} of {document.id}",
                  depth=source.depth + 1, parent=document.id)
            for number, (member, path) in enumerate(zip(extraction.members, paths, strict=True), start=1)
        ]  # fmt: skip
        cost = PAGES if document.file is not None and document.file.by_pages else 1
        try:
            with Queue(self._options.url, create=False, blobs=self._options.blobs) as queue:
                best = queue.document(document.id).no_better_than
                receipts = queue.submit_files(document.customer, inputs, kind=document.kind, cost=cost, no_better_than=best)
        except LimitReached as error:
            _refuse_members(error, len(inputs))
        except Mistake as mistake:
            raise Fail(f"unsupported: the files inside cannot be documents of their own: {mistake}") from None
        return [
            {"name": member.name, "size": member.size, "document": receipt.id}
            for member, receipt in zip(extraction.members, receipts, strict=True)
        ]


def _refuse_members(error: LimitReached, count: int) -> NoReturn:
    """End the attempt of an archive whose files do not fit: none of them was submitted."""
    reason = f"none of the {count:,} files inside was submitted, because {error}"
    if isinstance(error, QuotaFull):
        raise Unreadable("quota_full", reason)
    if isinstance(error, QueueFull) and error.adding <= error.most:
        raise Retry(QUEUE_FULL_SECONDS, str(Unreadable("queue_full", reason)))
    raise Unreadable("too_many_files", reason)


def limits_of(document: Document, limits: Limits) -> Limits:
    """Return the limits with the languages of OCR that the document's sender chose."""
    if not isinstance(document.payload, dict) or OCR_LANGUAGES not in document.payload:
        return limits
    try:
        languages = parse_languages(document.payload[OCR_LANGUAGES], f"{OCR_LANGUAGES} in the payload")
    except Mistake as mistake:
        raise Fail(f"unsupported: {mistake}") from None
    return replace(limits, ocr_languages=languages)


def _empty(folder: Path) -> None:
    """Remove everything in a folder."""
    shutil.rmtree(folder)
    folder.mkdir()


def kept_payload(document: Document) -> dict[str, Any]:
    """Return what slices must know of the document's payload."""
    payload = document.payload if isinstance(document.payload, dict) else {}
    return {name: payload[name] for name in (OCR_LANGUAGES,) if name in payload}


class Source(NamedTuple):
    """The file to read: its local path, its sender's name for it, and the path of its results in an output folder."""

    path: Path
    name: str
    output_path: str
    depth: int


@contextmanager
def open_source(document: Document) -> Iterator[Source]:
    """Make the document's file available as a local file."""
    if document.file is not None:
        with _local_file(document) as path:
            name = document.file.name or "document"
            payload = document.payload if isinstance(document.payload, dict) else {}
            yield Source(path, name, str(payload.get("place", f"{document.customer}/{name}")), document.file.depth)
        return
    if document.kind != FOLDER_KIND:
        raise Fail(
            f"unsupported: the document has no file, and kind {document.kind!r} is for files; submit it with path= or "
            "content=, or with another kind for a handler of your own"
        )
    payload = document.payload
    if not isinstance(payload, dict) or not isinstance(payload.get("path"), str):
        raise Fail('unsupported: the payload names no file, as in {"path": "/folder/invoice.pdf"}')
    try:
        open_regular_file(payload["path"]).close()
    except Mistake as mistake:
        raise Fail(str(mistake)) from None
    name = os.path.basename(payload["path"])
    yield Source(Path(payload["path"]), name, str(payload.get("place", name)), 0)


@contextmanager
def _local_file(document: Document) -> Iterator[Path]:
    """The stored file itself if it is on this machine, else a copy."""
    with document.open() as stored:
        if isinstance(stored.name, str):
            yield Path(stored.name)
            return
        with attempt_folder() as folder:
            with (folder / "input").open("xb") as copy:
                shutil.copyfileobj(stored, copy, 1024 * 1024)
            yield folder / "input"


def _summary(extraction: Extraction, facts: dict[str, Any]) -> dict[str, Any]:
    """Return the facts for the document's result; pages and names of members are in the stored facts only."""
    members = [member["document"] for member in facts["members"]]
    summary = facts | {"pages": len(extraction.pages), "characters": extraction.pages[-1].end, "members": members}
    return {name: value for name, value in summary.items() if value not in (None, [])}
