"""The files of a queue: where they are stored, and how documents with files are submitted.

Laws:
- A queue has a namespace of its own in the blob store, named in its records: queues may share a store, and a queue that moves
  to another engine takes its namespace along.
- Everything that can be refused is refused before the first byte is written.
- Bytes are durable before their document exists, and the document exists before its sender gets a receipt.
- Bytes whose document certainly does not exist are removed at once; in doubt they are left to the sweep.
- Nothing is swept through a frozen queue: its documents may live on in another one with the same namespace.
- While a backup holds the files, those of purged documents are left to the sweep, and nothing is swept: the backup's copy of
  the queue still has these documents. Whoever removes files asks for holds after the documents are gone; the hold is there
  before the copy is made.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any, BinaryIO, NamedTuple

from fairlane.blobs.envelope import File, pipeline_of, wrap_payload
from fairlane.blobs.files import SIZE_MAX, Files, discard_inputs, open_content
from fairlane.blobs.gc import GRACE_SECONDS, Sweep, SweepResult
from fairlane.blobs.page_count import PageCounter
from fairlane.core.document import BATCH_MAX, ReceiptRow, Submission
from fairlane.core.errors import BadValue, Mistake, StoreBusy, StoreFrozen, StoreFull, StoreUnfit, StoreUnreachable
from fairlane.core.policy import STEP
from fairlane.encryption import EncryptionKeyring
from fairlane.encryption.files import FileCipher
from fairlane.engine import Engine, open_engine
from fairlane.engine.protocol import Removed

from .models import Receipt, receipts_from
from .validation import JSON_BYTES_MAX, SubmitOptions, document_id, json_text, new_ids

NAME_LENGTH_MAX = 255
WRITERS_MAX = 8  # files of one call that are written at the same time
PAYLOAD_BYTES_MAX = JSON_BYTES_MAX - 8 * 1024  # the rest is for the envelope
HOLDS, HOLD_MS = "file holds", 600_000  # records of backups under way; one that is not renewed for that long has died
RECORDS, NAMESPACE_KEY, SWEEP_KEY = "blobs", "place", "swept"  # records: the namespace, and when a worker last began a sweep
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
NOT_DONE = (Mistake, StoreBusy, StoreFull, StoreFrozen, StoreUnfit, StoreUnreachable)  # after these errors nothing was changed


class QueueFiles:
    """The files of one queue; nothing is opened or created before it is needed."""

    def __init__(self, engine: Engine, url: str, location: str | None, keyring: EncryptionKeyring | None = None) -> None:
        self._engine = engine
        self._cipher = FileCipher(keyring or EncryptionKeyring())
        self.location = default_location(url) if location is None else location  # None: not configured
        self._files: Files | None = None

    def open(self) -> Files:
        """Return the files, or raise Mistake if no location is configured."""
        if self._files is None:
            if self.location is None:
                raise Mistake(
                    "this queue has no storage for files: configure one, as in "
                    'Queue(url, blobs="/srv/files") or blobs="s3://bucket/prefix"; commands take --blobs, FAIRLANE_BLOBS, '
                    "or blobs in fairlane.toml"
                )
            self._files = Files(self.location, self._namespace() or self._new_namespace(), self._cipher)
        return self._files

    def has_any(self) -> bool:
        """Return whether the queue ever had a file."""
        return self._files is not None or self._namespace() is not None

    def is_there(self) -> bool:
        """Return whether files may be at the configured location: it is on S3, or a folder that exists."""
        return self.location is not None and (self.location.startswith("s3://") or os.path.isdir(self.location))

    def open_existing(self) -> Files | None:
        """Return the files, or None if the queue never had one."""
        return self.open() if self.has_any() else None

    def open_configured(self) -> Files | None:
        """Return the files, or None if the queue never had one or no location is configured."""
        return None if self.location is None else self.open_existing()

    def hold(self, name: str) -> None:
        """Keep every file that is there, until this hold is released or was not renewed for HOLD_MS."""
        self._engine.put_record(HOLDS, name, json.dumps(self._engine.now() + HOLD_MS))

    def release(self, name: str) -> None:
        """End a hold."""
        self._engine.put_record(HOLDS, name, None)

    def are_held(self) -> bool:
        """Return whether a backup holds the files."""
        holds = self._engine.records(HOLDS, "", 1000)
        return bool(holds) and self._engine.now() < max(int(json.loads(hold.value)) for hold in holds)

    def remove_if_gone(self, documents: Iterable[Removed]) -> None:
        """Remove the files of those documents that are not in the queue any more."""
        gone = [document for document in documents if self._engine.document(document.id) is None]
        files = self.open_configured() if gone else None
        if files is not None and not self.are_held():
            files.remove_documents(gone)

    def begin_sweep(self, files: Files, grace_seconds: float = GRACE_SECONDS, after: str | None = None) -> Sweep:
        """Return a sweep that begins after a key."""
        return Sweep(files, self._engine.document, partial(step_tokens, self._engine), self.are_held, grace_seconds, after)

    def run_sweep(self, sweep: Sweep, seconds_max: float | None = None) -> SweepResult:
        """Remove what no document owns, unless the queue is frozen."""
        rules = self._engine.rules()
        if rules.frozen is not None:
            raise StoreFrozen(rules.frozen)
        return sweep.run(seconds_max)

    def begin_daily_sweep(self) -> bool:
        """Return True if a sweep is due, to one of the workers that ask at the same time."""
        record = self._engine.record(RECORDS, SWEEP_KEY)
        if record is not None and time.time() - float(json.loads(record.value)) < GRACE_SECONDS:
            return False
        version = 0 if record is None else record.version
        return self._engine.put_record(RECORDS, SWEEP_KEY, json.dumps(time.time()), version) is not None

    def _namespace(self) -> str | None:
        record = self._engine.record(RECORDS, NAMESPACE_KEY)
        return None if record is None else str(json.loads(record.value))

    def _new_namespace(self) -> str:
        self._engine.put_record(RECORDS, NAMESPACE_KEY, json.dumps(secrets.token_hex(8)), 0)  # no change if another process did
        namespace = self._namespace()
        assert namespace is not None
        return namespace


@cache
def open_files_of(url: str, location: str | None, keyring: EncryptionKeyring) -> Files:
    """Return the files of the queue at a URL; its engine is opened for a moment, the first time."""
    engine = open_engine(url, create=False)
    try:
        return QueueFiles(engine, url, location, keyring).open()
    finally:
        engine.close()


def step_tokens(engine: Engine, id: str) -> set[int]:
    """Return the tokens under which the steps of a document that are done wrote their files."""
    body = engine.body(id)
    return set() if body is None else {step.token for step in pipeline_of(json.loads(body.payload)).results}


def default_location(url: str) -> str | None:
    """Return the folder beside a SQLite file; None for other engines."""
    path = url.removeprefix("sqlite:///")
    return None if path == url else f"{os.path.abspath(path)}.blobs"


class Input(NamedTuple):
    """One file to submit: the path of a file, or its content as bytes or as a binary file."""

    path: str | os.PathLike[str] | None = None
    content: bytes | BinaryIO | None = None
    name: str | None = None  # the sender's name for it; default: the last part of the path
    payload: Any = None  # JSON of the caller's own
    key: str | None = None
    depth: int = 0  # how many archives it came out of
    parent: str | None = None  # the document that was the archive


def submit_files(
    engine: Engine, files: Files, options: SubmitOptions, inputs: Sequence[Input], is_by_pages: bool, now_ms: int | None
) -> list[Receipt]:
    """Write the bytes of all inputs, then submit all documents in one step."""
    ids = new_ids(len(inputs))
    for source in inputs:
        _validate_envelope(options, source, is_by_pages)
    try:
        submissions = _write_all(files, options, ids, inputs, is_by_pages)
    except BaseException:
        discard_inputs(files, options.customer, ids)
        raise
    try:
        receipts = engine.submit(submissions, now_ms=now_ms)
    except NOT_DONE:
        discard_inputs(files, options.customer, ids)
        raise
    discard_repeated(files, submissions, receipts)
    return receipts_from(receipts, ids)


def write_inputs(files: Files, options: SubmitOptions, inputs: Iterable[Input], is_by_pages: bool) -> list[Submission]:
    """Write inputs one after the other as they arrive, for a caller that submits them then; all are written, or none."""
    ids: list[str] = []
    submissions = []
    try:
        for source in inputs:
            _validate_envelope(options, source, is_by_pages)
            ids += new_ids(1)
            submissions.append(_write(files, options, ids[-1], source, is_by_pages))
    except BaseException:
        discard_inputs(files, options.customer, ids)
        raise
    return submissions


def discard_repeated(files: Files, submissions: Sequence[Submission], receipts: Sequence[ReceiptRow]) -> None:
    """Remove the bytes of repeated submissions: the first one has bytes of its own."""
    pairs = zip(submissions, receipts, strict=True)
    repeated = [submission.id for submission, receipt in pairs if receipt.id != submission.id]
    if repeated:
        discard_inputs(files, submissions[0].customer, repeated)


def _write_all(
    files: Files, options: SubmitOptions, ids: Sequence[str], inputs: Sequence[Input], is_by_pages: bool
) -> list[Submission]:
    """Write all inputs, several at the same time: syncs and requests that wait together take no longer than one."""
    if len(inputs) == 1:
        return [_write(files, options, ids[0], inputs[0], is_by_pages)]
    with ThreadPoolExecutor(min(WRITERS_MAX, len(inputs)), thread_name_prefix="fairlane-files") as pool:
        pairs = zip(ids, inputs, strict=True)
        futures = [pool.submit(_write, files, options, id, source, is_by_pages) for id, source in pairs]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(cancel_futures=True)  # and wait for those that have begun
            raise


def validate_inputs(inputs: Iterable[Input]) -> list[Input]:
    """Return the inputs of one call, or raise BadValue."""
    if isinstance(inputs, Input | str | bytes) or not isinstance(inputs, Iterable):
        raise BadValue("files", inputs, 'a list, as in [Input(path="invoice.pdf")]')
    sources = list(inputs)
    for source in sources:
        if not isinstance(source, Input):
            raise BadValue("one of files", source, 'an Input, as in Input(path="invoice.pdf")')
        if type(source.depth) is not int or not 0 <= source.depth <= 1000:
            raise BadValue("depth", source.depth, "how many archives the file came out of, 0 to 1,000")
        if source.parent is not None:
            document_id(source.parent)
        if source.name is not None and (not isinstance(source.name, str) or not source.name):
            raise BadValue("name", source.name, "the sender's name for the file, or None")
    if len(sources) > BATCH_MAX:
        raise BadValue("files", f"a list of {len(sources):,}", f"at most {BATCH_MAX:,} long; submit them in parts")
    return sources


def display_name(source: Input) -> str | None:
    """Return the sender's name for a file, cut and with replacements for what cannot be printed; it is never used as a path."""
    name = source.name
    if name is None and source.path is not None:
        name = os.path.basename(os.fsdecode(source.path)) if isinstance(source.path, str | os.PathLike) else None
    if not name:
        return None
    text = name.encode(errors="surrogateescape" if source.name is None else "replace").decode(errors="replace")
    return _UNPRINTABLE.sub("\ufffd", text)[:NAME_LENGTH_MAX]


def _write(files: Files, options: SubmitOptions, id: str, source: Input, is_by_pages: bool) -> Submission:
    """Write the bytes of one input; return its submission."""
    content = open_content(source.path, source.content)
    counter = PageCounter() if is_by_pages else None
    try:
        size, sha256 = files.put_input(options.customer, id, content, counter.feed if counter else None)
    finally:
        if source.path is not None:
            content.close()  # type: ignore[union-attr]
    cost = counter.pages() * STEP if counter else None
    file = File(display_name(source), size, sha256, source.depth, source.parent, is_by_pages)
    return _submission(options, id, source, file, cost)


def _validate_envelope(options: SubmitOptions, source: Input, is_by_pages: bool) -> None:
    """Build the largest possible envelope, so that a bad key or payload is refused while nothing is written."""
    largest = File(display_name(source), SIZE_MAX, 64 * "0", source.depth, source.parent, is_by_pages)
    _submission(options, "", source, largest, None)


def _submission(options: SubmitOptions, id: str, source: Input, file: File, cost: int | None) -> Submission:
    payload = json_text("payload", source.payload, PAYLOAD_BYTES_MAX)
    return options.submission(id, wrap_payload(file, payload, options.pipeline), source.key, cost, source.parent, file.size)
