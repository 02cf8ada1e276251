"""Uploads: the bytes of files, from the connection into the queue.

A thread writes the file and asks the event loop for the next piece of the body when it needs one.

Laws:
- A file is written while it arrives; at no time is more than a few pieces of it in memory.
- A body that ends too early, is too large or too slow leaves neither a document nor bytes behind.
- The sender's name of a file is passed on, never used.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from io import SEEK_END
from itertools import chain
from tempfile import SpooledTemporaryFile
from typing import Any, BinaryIO, NamedTuple, cast
from urllib.parse import parse_qsl

from fairlane.api.access.batches import BatchAccess, BatchRecord, batch_id
from fairlane.blobs.envelope import Pipeline
from fairlane.blobs.files import Files, discard_inputs
from fairlane.core.document import Submission, validate_text
from fairlane.core.errors import StoreError
from fairlane.procs.threads import DaemonThreads
from fairlane.queue import FILE_KIND, PAGES
from fairlane.queue.files import NOT_DONE, Input, discard_repeated, write_inputs
from fairlane.queue.validation import SubmitOptions, first_kind, make_pipeline, validate_priority

from .auth import Caller, time_ms
from .middleware import ClientGone, LimitedReceive, Message, Receive, Scope, too_large
from .multipart import Form, Part
from .parsing import idempotency_key, make_batch, parse_json
from .problems import Problem, bad_value
from .service import Service
from .shares import HOLDER, all_taken, share_taken
from .submit_batcher import Accepted
from .turns import Turns
from .upload_tokens import UploadToken, give_back, refuse_used, spend

FIELDS = frozenset(("name", "kind", "cost", "delay", "customer", "payload", "no_better_than", "steps", "slices"))
BATCH_FIELDS = FIELDS - {"name"}  # every file has its own
TOKEN_FIELDS = frozenset(("name",))
FORM_BYTES_MAX = 64 * 1024  # of what a form has around a file, for an upload token
FIELD_BYTES_MAX = 256 * 1024
QUERY_BYTES_MAX = 16 * 1024
RETRY_SECONDS = 2  # after which an upload that was refused may be tried again
SPOOL_BYTES_MAX = 1024 * 1024  # of a form's file in memory; a larger one is spooled to disk


class UploadFields(NamedTuple):
    """What a request says beside the bytes, validated."""

    customer: str
    kind: str
    cost: float | str
    delay: float
    name: str | None
    payload: Any
    key: str | None
    no_better_than: int | None = None
    pipeline: Pipeline | None = None


class BodyReader:
    """The body of a request as a file that a thread reads; each piece is received by the loop when it is needed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, receive: Receive, first: Message) -> None:
        self._loop = loop
        self._receive = receive
        self._has_more = bool(first.get("more_body"))
        self._next = bytes(first.get("body", b""))

    @property
    def is_empty(self) -> bool:
        return not self._next and not self._has_more

    def read(self, _: int = -1) -> bytes:
        """Return the next piece, however long it is; empty at the end."""
        piece, self._next = self._next, b""
        while not piece and self._has_more:
            message = asyncio.run_coroutine_threadsafe(self._message(), self._loop).result()
            if message["type"] != "http.request":
                raise ClientGone
            piece, self._has_more = bytes(message.get("body", b"")), bool(message.get("more_body"))
        return piece

    async def _message(self) -> Message:
        return await self._receive()


class Uploads:
    """Takes files, so many at once; each occupies a thread for as long as it arrives."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._turns = Turns(service.limits.uploads_at_once, service.limits.uploads_a_customer)
        self._threads = DaemonThreads(service.limits.uploads_at_once, "fairlane-upload")

    async def submit(self, scope: Scope, receive: Receive, content_type: str) -> Accepted:
        """Submit one document with a file, from a bare body or a form."""
        async with self._slot():
            if content_type == "multipart/form-data":
                return await self._submit_form(scope, receive)
            return await self._submit_bare(scope, receive)

    async def submit_with_token(
        self, scope: Scope, receive: Receive, content_type: str, token: UploadToken, name: str | None
    ) -> Accepted:
        """Submit the one document that an upload token allows: its maker has chosen everything but the bytes and their name."""
        refuse_used(token)
        if b"idempotency-key" in dict(scope["headers"]):
            raise Problem(
                "bad-value", "an upload token takes no Idempotency-Key: it is good for one document anyway", close=True
            )
        limit = self._service.limits.upload_bytes if token.bytes_max is None else token.bytes_max
        fields = UploadFields(
            token.customer, token.kind, token.cost, 0, name or None, token.payload, None, token.no_better_than
        )
        async with self._slot():
            await self._service.batcher.refuse_full(token.customer)
            if content_type != "multipart/form-data":
                _refuse_length(scope, limit)
                content = await _body(LimitedReceive(receive, limit))
                if content.is_empty:
                    raise bad_value("the body", b"", "the bytes of a file")
                return await self._submit_file(fields, cast(BinaryIO, content), token.id)
            _refuse_length(scope, limit + FORM_BYTES_MAX)
            form = Form(_content_type(scope), (await _body(LimitedReceive(receive, limit + FORM_BYTES_MAX))).read)
            with SpooledTemporaryFile(SPOOL_BYTES_MAX) as file:
                loop = asyncio.get_running_loop()
                values = await loop.run_in_executor(self._threads, _read_form, form, file)
                _refuse_unknown(values, TOKEN_FIELDS)
                if file.seek(0, SEEK_END) > limit:
                    raise too_large(limit)
                file.seek(0)
                named = fields._replace(name=name or values.get("name") or None)
                return await self._submit_file(named, cast(BinaryIO, file), token.id)

    async def submit_batch(self, scope: Scope, receive: Receive, batches: BatchAccess) -> tuple[BatchRecord, list[Accepted]]:
        """Submit the files of a form: each is written while it arrives, then all are submitted in one step."""
        service, loop = self._service, asyncio.get_running_loop()
        headers = dict(scope["headers"])
        key = idempotency_key(headers)
        async with self._slot():
            files = await service.call(service.queue.files.open)
            form = Form(headers[b"content-type"].decode("latin-1"), (await _body(receive)).read)
            id, submissions = await loop.run_in_executor(self._threads, self._write_batch, scope, form, loop)
        batch = make_batch(id, submissions, time_ms(), key)
        try:
            await service.call(batches.refuse_conflict, batch, key)
            accepted = await service.batcher.submit_all(submissions)
        except (Problem, *NOT_DONE):
            await loop.run_in_executor(self._threads, discard_inputs, files, batch.customer, batch.documents)
            raise
        receipts = [document.receipt for document in accepted]
        await loop.run_in_executor(self._threads, discard_repeated, files, submissions, receipts)
        batch = batch._replace(documents=tuple(receipt.id for receipt in receipts))
        await service.call(batches.put, batch)
        return batch, accepted

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        """Wait for a turn, not for long; nothing of the body is read before."""
        limits, holder = self._service.limits, HOLDER.get()
        self._service.store.refuse_if_away()
        try:
            async with asyncio.timeout(limits.upload_wait_seconds):
                await self._turns.take(holder)
        except TimeoutError:
            if self._turns.is_full:
                raise all_taken("uploads", RETRY_SECONDS) from None
            raise share_taken("uploads", limits.uploads_a_customer, RETRY_SECONDS) from None
        try:
            yield
        finally:
            self._turns.give_back(holder)

    async def _submit_bare(self, scope: Scope, receive: Receive) -> Accepted:
        query = scope["query_string"]
        if len(query) > QUERY_BYTES_MAX:
            raise bad_value("the query", f"{len(query):,} bytes", f"at most {QUERY_BYTES_MAX:,}")
        try:
            parameters = dict(parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=20))
        except ValueError:
            raise Problem(
                "bad-value", "the query cannot be read; write name=invoice.pdf, in UTF-8 and percent-encoded"
            ) from None
        fields = self._validate(scope, parameters)
        await self._refuse(scope, fields)
        content = await _body(receive)
        if content.is_empty:
            raise bad_value("the body", b"", "the bytes of a file")
        return await self._submit_file(fields, cast(BinaryIO, content))

    async def _submit_form(self, scope: Scope, receive: Receive) -> Accepted:
        """Submit the one file of a form; fields may follow the file, so it is spooled until the form has ended."""
        form = Form(_content_type(scope), (await _body(receive)).read)
        loop = asyncio.get_running_loop()
        with SpooledTemporaryFile(SPOOL_BYTES_MAX) as file:
            values = await loop.run_in_executor(self._threads, _read_form, form, file)
            fields = self._validate(scope, values)
            await self._refuse(scope, fields)
            return await self._submit_file(fields, cast(BinaryIO, file))

    def _write_batch(self, scope: Scope, form: Form, loop: asyncio.AbstractEventLoop) -> tuple[str, list[Submission]]:
        parts, first = form.parts(), None
        values: dict[str, str] = {}
        for part in parts:
            if part.filename is not None:
                first = part
                break
            _refuse_unknown([part.name], BATCH_FIELDS)
            values[part.name] = part.text(FIELD_BYTES_MAX)
        if first is None:
            raise bad_value("the form", "0 files", "fields of text, and then a part for each file")
        fields = self._validate(scope, values)
        asyncio.run_coroutine_threadsafe(self._refuse(scope, fields), loop).result()
        common, is_by_pages = _common(fields)
        id = batch_id(fields.customer, fields.key)
        inputs = self._inputs(chain([first], parts), id, fields.payload)
        return id, write_inputs(self._service.queue.files.open(), common, inputs, is_by_pages)

    def _inputs(self, parts: Iterator[Part], id: str, payload: Any) -> Iterator[Input]:
        """Iterate over the files of a batch; each is read when the one before it is written."""
        most = self._service.limits.batch_documents
        for index, part in enumerate(parts):
            if part.filename is None:
                raise Problem("bad-value", f"the field {part.name[:60]!r} comes after a file; send fields first", close=True)
            if index == most:
                raise Problem("bad-value", f"the form has more than {most:,} files; send them in several batches", close=True)
            yield Input(content=cast(BinaryIO, part), name=part.filename or None, payload=payload, key=f"{id}/{index}")
            if not part.size:
                raise bad_value(f"file {index} of the form", "0 bytes", "the bytes of a file")

    def _validate(self, scope: Scope, values: Mapping[str, str]) -> UploadFields:
        service, caller = self._service, cast(Caller, scope["caller"])
        _refuse_unknown(values, FIELDS)
        customer = caller.customer_for(values.get("customer"))
        steps = values["steps"].split(",") if "steps" in values else None
        kind = first_kind(values.get("kind"), steps, FILE_KIND)
        for each in steps or [validate_text("kind", kind, 100)]:
            service.refuse_kind(caller, each)
        pipeline = make_pipeline(steps, _whole("slices", values["slices"]) if "slices" in values else None)
        payload = parse_json(values["payload"].encode(errors="replace")) if "payload" in values else None
        cost = PAGES if values.get("cost") == PAGES else _number("cost", values.get("cost", "1"))
        key = idempotency_key(dict(scope["headers"]))
        name = values.get("name") or None
        delay, best = _number("delay", values.get("delay", "0")), values.get("no_better_than")
        no_better_than = None if best is None else validate_priority("no_better_than", _whole("no_better_than", best))
        return UploadFields(customer, kind, cost, delay, name, payload, key, no_better_than, pipeline)

    async def _refuse(self, scope: Scope, fields: UploadFields) -> None:
        """Refuse before bytes are written: a cost that the caller may not choose, and a customer that has reached a limit."""
        if fields.cost != PAGES:
            await self._service.refuse_cost(cast(Caller, scope["caller"]), cast(float, fields.cost))
        await self._service.batcher.refuse_full(fields.customer)

    async def _submit_file(self, fields: UploadFields, content: BinaryIO, token_id: str | None = None) -> Accepted:
        """Write the bytes, spend the upload token if it takes one, then submit the document, in a commit with others."""
        loop, files = asyncio.get_running_loop(), await self._service.call(self._service.queue.files.open)
        submission = await loop.run_in_executor(self._threads, _write, files, fields, content)
        engine = self._service.queue.engine
        try:
            if token_id is not None:
                await self._service.call(spend, engine, token_id, submission.id)
            accepted = await self._service.batcher.submit(submission)
        except (Problem, *NOT_DONE):
            await loop.run_in_executor(self._threads, discard_inputs, files, fields.customer, [submission.id])
            if token_id is not None:
                with suppress(StoreError):  # then it stays spent
                    await self._service.call(give_back, engine, token_id, submission.id)
            raise
        if accepted.is_repeat:
            await loop.run_in_executor(self._threads, discard_repeated, files, [submission], [accepted.receipt])
        return accepted

    def close(self) -> None:
        self._threads.close()


async def _body(receive: Receive) -> BodyReader:
    """Begin to read the body."""
    message = await receive()
    if message["type"] != "http.request":
        raise ClientGone
    return BodyReader(asyncio.get_running_loop(), receive, message)


def _refuse_length(scope: Scope, bytes_max: int) -> None:
    """Refuse a body that says that it is too large, before it is read."""
    if int(dict(scope["headers"]).get(b"content-length", 0)) > bytes_max:  # the parser has seen that it is a number
        raise too_large(bytes_max)


def _content_type(scope: Scope) -> str:
    value: bytes = dict(scope["headers"])[b"content-type"]
    return value.decode("latin-1")


def _read_form(form: Form, file: SpooledTemporaryFile[bytes]) -> dict[str, str]:
    """Read a form with one file and fields of text in any order; returns the fields."""
    values: dict[str, str] = {}
    fields = files = 0
    for part in form.parts():
        fields += part.filename is None
        files += part.filename is not None
        if files > 1 or fields > len(FIELDS):
            most = "one file" if files > 1 else f"{len(FIELDS)} fields"
            raise Problem("bad-request", f"the form has more than {most}; send several files as a batch", close=True)
        if part.filename is None:
            values[part.name] = part.text(FIELD_BYTES_MAX)
            continue
        while piece := part.read():
            file.write(piece)
        if part.filename:
            values.setdefault("name", part.filename)
    if not file.tell():
        raise bad_value("the form", f"{files} files", "one part with the bytes of a file, and fields of text")
    file.seek(0)
    return values


def _write(files: Files, fields: UploadFields, content: BinaryIO) -> Submission:
    common, is_by_pages = _common(fields)
    file = Input(content=content, name=fields.name, payload=fields.payload, key=fields.key)
    return write_inputs(files, common, [file], is_by_pages)[0]


def _common(fields: UploadFields) -> tuple[SubmitOptions, bool]:
    """Return what the documents of one request share, and whether each is charged by its pages."""
    is_by_pages = fields.cost == PAGES
    cost = 1 if is_by_pages else cast(float, fields.cost)
    options = SubmitOptions.validate(
        fields.customer, fields.kind, cost, fields.delay, None, fields.no_better_than, fields.pipeline
    )
    return options, is_by_pages


def _refuse_unknown(names: Iterable[str], known: frozenset[str]) -> None:
    for name in names:
        if name not in known:
            raise Problem("bad-value", f"{name[:60]!r} is not known beside a file; known: {', '.join(sorted(known))}")


def _whole(name: str, value: str) -> int:
    number = _number(name, value)
    if not isinstance(number, int):
        raise bad_value(name, value, "a whole number")
    return number


def _number(name: str, value: str) -> float:
    try:
        number = json.loads(value)
    except ValueError:
        number = value
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise bad_value(name, value, "a number")
    return number
