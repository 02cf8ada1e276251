"""How do the bytes of a file get from a connection into the queue? Piece by piece, on a thread that asks the loop for the next.

Laws:
- A file is written while it arrives; at no time is more than a few pieces of it in memory.
- A body that ends too early, is too large or too slow leaves neither a document nor bytes behind.
- The sender's name of a file is told on, never used.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from typing import Any, BinaryIO, NamedTuple, cast
from urllib.parse import parse_qsl

from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from fairlane.blobs.files import Files, dropped
from fairlane.core.document import Submission, validate_text
from fairlane.queue import DEFAULT_KIND, PAGES
from fairlane.queue.files import NOT_DONE, Input, drop_repeated, write_each
from fairlane.queue.validation import Common

from .auth import Caller
from .middleware import Gone, Message, Receive, Scope
from .multipart import Form, Part
from .parsing import batch_id, idempotency_key, parsed
from .problems import Problem, bad_value
from .service import Service
from .submit_batcher import Accepted

FIELDS = frozenset(("name", "kind", "cost", "delay", "customer", "payload"))
BATCH_FIELDS = FIELDS - {"name"}  # every file has its own
FIELD_BYTES_MAX = 256 * 1024
QUERY_BYTES_MAX = 16 * 1024


class Wanted(NamedTuple):
    """What is said beside the bytes."""

    customer: str
    kind: str
    cost: float | str
    delay: float
    name: str | None
    payload: Any
    key: str | None


class Body:
    """A body as a file that a thread reads; each piece is asked of the loop when it is wanted."""

    def __init__(self, loop: asyncio.AbstractEventLoop, receive: Receive, first: Message) -> None:
        self._loop = loop
        self._receive = receive
        self._more = bool(first.get("more_body"))
        self._rest = bytes(first.get("body", b""))

    def read(self, _: int = -1) -> bytes:
        """The next piece, however long it is; empty at the end."""
        piece, self._rest = self._rest, b""
        while not piece and self._more:
            message = asyncio.run_coroutine_threadsafe(_asked(self._receive), self._loop).result()
            if message["type"] != "http.request":
                raise Gone
            piece, self._more = bytes(message.get("body", b"")), bool(message.get("more_body"))
        return piece


async def _asked(receive: Receive) -> Message:
    return await receive()


class Uploads:
    """Takes files, so many at once; each holds a thread for as long as it arrives."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._at_once = 0
        self._threads = ThreadPoolExecutor(service.limits.uploads_at_once, thread_name_prefix="fairlane-upload")

    async def take(self, scope: Scope, receive: Receive, content_type: str) -> Accepted:
        """One document with a file, from a bare body or a form."""
        with self._counted():
            if content_type == "multipart/form-data":
                return await self._form(scope, receive)
            return await self._bare(scope, receive)

    async def write_batch(self, scope: Scope, receive: Receive, content_type: str) -> tuple[str, list[Submission]]:
        """The files of a form, each written while it arrives; a batch's id, and what is to be submitted."""
        with self._counted():
            message = await receive()
            if message["type"] != "http.request":
                raise Gone
            loop = asyncio.get_running_loop()
            form = Form(content_type, Body(loop, receive, message).read)
            return await loop.run_in_executor(self._threads, self._write_batch, scope, form, loop)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        if self._at_once >= self._service.limits.uploads_at_once:
            raise Problem("overloaded", "too many files arrive at once; try again in a moment", retry_after=2, close=True)
        self._at_once += 1
        try:
            yield
        finally:
            self._at_once -= 1

    async def _bare(self, scope: Scope, receive: Receive) -> Accepted:
        told = scope["query_string"]
        if len(told) > QUERY_BYTES_MAX:
            raise bad_value("the query", f"{len(told):,} bytes", f"at most {QUERY_BYTES_MAX:,}")
        try:
            fields = dict(parse_qsl(told.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=20))
        except ValueError:
            raise Problem(
                "bad-value", "the query cannot be read; write name=invoice.pdf, in UTF-8 and percent-encoded"
            ) from None
        wanted = self._wanted(scope, fields)
        await self._service.gatherer.refuse_full(wanted.customer)
        message = await receive()
        if message["type"] != "http.request":
            raise Gone
        content = Body(asyncio.get_running_loop(), receive, message)
        if not message.get("body") and not message.get("more_body"):
            raise bad_value("the body", b"", "the bytes of a file")
        return await self._submit(wanted, cast(BinaryIO, content))

    async def _form(self, scope: Scope, receive: Receive) -> Accepted:
        request = Request(scope, receive)
        parser = MultiPartParser(request.headers, request.stream(), max_files=1, max_fields=len(FIELDS),
                                 max_part_size=FIELD_BYTES_MAX)  # fmt: skip
        try:
            form = await parser.parse()
        except MultiPartException as error:
            raise Problem("bad-request", f"the form cannot be read: {error.message[:200]}") from None
        except ClientDisconnect:
            raise Gone from None
        except (KeyError, ValueError, AssertionError):
            raise Problem("bad-request", "the form cannot be read") from None
        files = [one for _, one in form.multi_items() if isinstance(one, UploadFile)]
        try:
            if len(files) != 1 or not files[0].size:
                raise bad_value("the form", f"{len(files)} files", "one part with the bytes of a file, and fields of text")
            fields = {name: str(one) for name, one in form.multi_items() if not isinstance(one, UploadFile)}
            if files[0].filename:
                fields.setdefault("name", files[0].filename)
            wanted = self._wanted(scope, fields)
            await self._service.gatherer.refuse_full(wanted.customer)
            return await self._submit(wanted, files[0].file)
        finally:
            for one in files:
                await one.close()

    def _write_batch(self, scope: Scope, form: Form, loop: asyncio.AbstractEventLoop) -> tuple[str, list[Submission]]:
        parts, first = form.parts(), None
        fields: dict[str, str] = {}
        for part in parts:
            if part.filename is not None:
                first = part
                break
            _refuse_unknown([part.name], BATCH_FIELDS)
            fields[part.name] = part.text(FIELD_BYTES_MAX)
        if first is None:
            raise bad_value("the form", "0 files", "fields of text, and then a part for each file")
        wanted = self._wanted(scope, fields)
        asyncio.run_coroutine_threadsafe(self._service.gatherer.refuse_full(wanted.customer), loop).result()
        common, is_by_pages = _common(wanted)
        id = batch_id(wanted.customer, wanted.key)
        inputs = self._inputs(chain([first], parts), id, wanted.payload)
        return id, write_each(self._service.queue.filing.files(), common, inputs, is_by_pages)

    def _inputs(self, parts: Iterator[Part], id: str, payload: Any) -> Iterator[Input]:
        """The files of a batch; each is asked for when the one before it is written."""
        most = self._service.limits.batch_documents
        for place, part in enumerate(parts):
            if part.filename is None:
                raise Problem("bad-value", f"the field {part.name[:60]!r} comes after a file; send fields first", close=True)
            if place == most:
                raise Problem("bad-value", f"the form has more than {most:,} files; send them in several batches", close=True)
            yield Input(content=cast(BinaryIO, part), name=part.filename or None, payload=payload, key=f"{id}/{place}")
            if not part.size:
                raise bad_value(f"file {place} of the form", "0 bytes", "the bytes of a file")

    def _wanted(self, scope: Scope, fields: Mapping[str, str]) -> Wanted:
        """What is said beside the bytes, checked."""
        service, caller = self._service, cast(Caller, scope["caller"])
        _refuse_unknown(fields, FIELDS)
        customer = service.wall.customer(caller, fields.get("customer"))
        kind = validate_text("kind", fields.get("kind", DEFAULT_KIND), 100)
        service.refuse_kind(caller, kind)
        payload = parsed(fields["payload"].encode(errors="replace")) if "payload" in fields else None
        cost = PAGES if fields.get("cost") == PAGES else _number("cost", fields.get("cost", "1"))
        key = idempotency_key(dict(scope["headers"]).get(b"idempotency-key"))
        name = fields.get("name") or None
        return Wanted(customer, kind, cost, _number("delay", fields.get("delay", "0")), name, payload, key)

    async def _submit(self, wanted: Wanted, content: BinaryIO) -> Accepted:
        """The bytes are written, and then the document is handed in, in a commit with others."""
        loop, files = asyncio.get_running_loop(), self._service.queue.filing.files()
        submission = await loop.run_in_executor(self._threads, self._write, files, wanted, content)
        try:
            taken = await self._service.gatherer.submit(submission)
        except (Problem, *NOT_DONE):
            await loop.run_in_executor(self._threads, dropped, files, wanted.customer, [submission.id])
            raise
        if taken.is_repeat:
            await loop.run_in_executor(self._threads, drop_repeated, files, [submission], [taken.receipt])
        return taken

    def _write(self, files: Files, wanted: Wanted, content: BinaryIO) -> Submission:
        common, is_by_pages = _common(wanted)
        one = Input(content=content, name=wanted.name, payload=wanted.payload, key=wanted.key)
        return write_each(files, common, [one], is_by_pages)[0]

    def close(self) -> None:
        """No more files."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _common(wanted: Wanted) -> tuple[Common, bool]:
    """What the documents of one call share, and whether each is charged by its pages."""
    is_by_pages = wanted.cost == PAGES
    cost = 1 if is_by_pages else cast(float, wanted.cost)
    return Common.checked(wanted.customer, wanted.kind, cost, wanted.delay, None), is_by_pages


def _refuse_unknown(names: Iterable[str], known: frozenset[str]) -> None:
    for name in names:
        if name not in known:
            raise Problem("bad-value", f"{name[:60]!r} is not known beside a file; known: {', '.join(sorted(known))}")


def _number(name: str, told: str) -> float:
    try:
        number = json.loads(told)
    except ValueError:
        number = told
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise bad_value(name, told, "a number")
    return number
