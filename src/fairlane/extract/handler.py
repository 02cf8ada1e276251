"""What does the worker do that comes with Fairlane? It reads documents' files, each in a sandbox, and keeps what they say.

Laws:
- No byte of a stranger's file is parsed here: that happens in the sandbox, and only what was checked comes back.
- What another attempt cannot help fails at once, with a code that people understand; the rest is tried again.
- Files inside a file become documents of the same customer, each with its check and with a key, so that a second attempt
  submits none of them twice.
- A path is read only for documents of the kind that `fairlane process` submits: whoever may send others may not read disks.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from fairlane.blobs.safe_open import open_ordinary
from fairlane.core.errors import BlobDamaged, Mistake
from fairlane.folders.outputs import Outputs, member_places
from fairlane.folders.scan import FOLDER_KIND
from fairlane.procs import syscalls
from fairlane.queue import DEFAULT_KIND, PAGES, Input, Queue
from fairlane.sandbox.scratch import attempt_folder
from fairlane.worker.document import Document, Fail, Retry
from fairlane.worker.worker import Worker

from . import Extraction, Limits, Unreadable
from .sandboxed import extract_isolated, prepare

SECONDS_SPARE = 60.0  # beyond those for reading: to fetch and to keep bytes


class Plan(NamedTuple):
    """What is done with documents."""

    url: str
    blobs: str | None = None
    limits: Limits = Limits()
    pace: float = 0.0  # seconds that each takes at least, to watch it
    outputs: Outputs | None = None  # where results go; else beside the queue
    is_kept: bool = True  # results are wanted at all


def built_in(plan: Plan, slots: int = 4, kinds: Sequence[str] = (DEFAULT_KIND, FOLDER_KIND)) -> Worker:
    """A worker with the built-in handler; refused where strangers' files could not be confined."""
    prepare()
    syscalls.keep_freed_memory()
    worker = Worker(plan.url, slots=slots, blobs=plan.blobs)
    for kind in kinds:
        worker.handler(kind, seconds=plan.limits.seconds_max + plan.pace + SECONDS_SPARE)(_Extracting(plan))
    return worker


class _Extracting:
    """The handler."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def __call__(self, document: Document) -> dict[str, Any]:
        began = time.monotonic()
        try:
            with _source(document) as source, attempt_folder() as scratch:
                return self._extracted(document, source, scratch)
        except Unreadable as error:
            if error.can_retry:
                raise Retry(reason=str(error)) from None
            raise Fail(str(error)) from None
        except BlobDamaged as error:
            raise Fail(f"corrupt: {error}") from None
        finally:
            if self._plan.pace:
                time.sleep(max(0.0, self._plan.pace - (time.monotonic() - began)))

    def _extracted(self, document: Document, source: _Source, scratch: Path) -> dict[str, Any]:
        sha256 = None if document.file is None else document.file.sha256  # it was checked when the file was opened
        read = extract_isolated(source.path, source.name, scratch, self._plan.limits, source.depth, sha256=sha256)
        members = self._submitted(document, source, read)
        facts = read.facts() | {"members": members}
        if document.file is not None and document.file.by_pages:
            document.cost = max(1, len(read.pages))  # at most as many as the limits allow
        return {**_summary(read, facts), **self._kept(document, source, read, facts)}

    def _kept(self, document: Document, source: _Source, read: Extraction, facts: dict[str, Any]) -> dict[str, Any]:
        """What goes where it can be read later."""
        if self._plan.outputs is not None:
            try:
                self._plan.outputs.write(source.place, read.text_bytes, facts, read.thumbnail)
            except Mistake as mistake:  # a disk that is full now may not be later
                raise Retry(reason=str(mistake)) from None
            return {}
        if not self._plan.is_kept:
            return {}
        return document.put_results(text=read.text_bytes, facts=facts, thumbnail=read.thumbnail)

    def _submitted(self, document: Document, source: _Source, read: Extraction) -> list[dict[str, Any]]:
        """Members as documents of their own."""
        if not read.members:
            return []
        places = member_places(source.place, [one.name for one in read.members])
        inputs = [
            Input(one.path, name=one.name, payload={"place": place}, key=f"member {number} of {document.id}",
                  depth=source.depth + 1, parent=document.id)
            for number, (one, place) in enumerate(zip(read.members, places, strict=True), start=1)
        ]  # fmt: skip
        cost = PAGES if document.file is not None and document.file.by_pages else 1
        try:
            with Queue(self._plan.url, create=False, blobs=self._plan.blobs) as queue:
                receipts = queue.submit_files(document.customer, inputs, kind=document.kind, cost=cost)
        except Mistake as mistake:
            raise Fail(f"unsupported: the files inside cannot be documents of their own: {mistake}") from None
        told = zip(read.members, receipts, strict=True)
        return [{"name": one.name, "size": one.size, "document": receipt.id} for one, receipt in told]


class _Source(NamedTuple):
    """What is read: where it is now, what its sender calls it, and where its results go in a folder."""

    path: Path
    name: str
    place: str
    depth: int


@contextmanager
def _source(document: Document) -> Iterator[_Source]:
    """What is read, as a file that the sandbox may be shown."""
    if document.file is not None:
        with _fetched(document) as path:
            name = document.file.name or "document"
            payload = document.payload if isinstance(document.payload, dict) else {}
            yield _Source(path, name, str(payload.get("place", f"{document.customer}/{name}")), document.file.depth)
        return
    if document.kind != FOLDER_KIND:
        raise Fail('unsupported: the document has no file; submit it with path= or content=, as in submit("acme", path=…)')
    payload = document.payload
    if not isinstance(payload, dict) or not isinstance(payload.get("path"), str):
        raise Fail('unsupported: the payload names no file, as in {"path": "/folder/invoice.pdf"}')
    try:
        open_ordinary(payload["path"]).close()
    except Mistake as mistake:
        raise Fail(str(mistake)) from None
    name = os.path.basename(payload["path"])
    yield _Source(Path(payload["path"]), name, str(payload.get("place", name)), 0)


@contextmanager
def _fetched(document: Document) -> Iterator[Path]:
    """The document's own bytes: where they lie on this machine, else a copy."""
    with document.open() as stored:
        if isinstance(stored.name, str):
            yield Path(stored.name)
            return
        with attempt_folder() as folder:
            with (folder / "input").open("xb") as copy:
                shutil.copyfileobj(stored, copy, 1024 * 1024)
            yield folder / "input"


def _summary(read: Extraction, facts: dict[str, Any]) -> dict[str, Any]:
    """What stands in the result itself; the pages and the names of members are in the facts."""
    members = [one["document"] for one in facts["members"]]
    told = facts | {"pages": len(read.pages), "characters": read.pages[-1].end, "members": members}
    return {name: value for name, value in told.items() if value not in (None, [])}
