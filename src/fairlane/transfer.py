"""Moving a queue to another store: freeze, wait until nothing runs, copy everything, switch.

Laws:
- Neither queue accepts anything during the move: the source's errors name the target, the target's name the source.
- A move that was interrupted continues from its last mark when it is run again; rows that were copied stay as they are.
- The target opens only when everything was copied. The source stays frozen and whole, and its errors name the target.
- Files are copied under the same keys to the target's location, and stay in the source's; in a shared store nothing is copied.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from fairlane.blobs.files import PIECE_BYTES, Files
from fairlane.core.errors import Mistake, StoreError, Unknown
from fairlane.core.policy import Rules
from fairlane.masking import mask_url
from fairlane.queue.audit import Actor, recorded
from fairlane.queue.files import QueueFiles, default_location
from fairlane.queue.workers import WORKERS

from .engine import Engine, open_engine
from .engine.protocol import DocumentFilter
from .engine.walk import newest_document, walk_documents
from .queue import PAGE_SIZE

MOVING = "is being moved to"
ROWS_MAX = 200  # in one call: their payloads may be large
GROUP, KEY = "fairlane", "move"  # the target's record of how far the move is
POLL_SECONDS = 0.2


class TransferSummary(NamedTuple):
    """How much was copied in this run."""

    customers: int
    documents: int
    records: int
    files: int


class TransferProgress(NamedTuple):
    """How far a move is."""

    phase: str  # "waiting" for running documents, "copying" documents, "files"
    running: int
    copied: int
    total: int


ProgressCallback = Callable[[TransferProgress], None]


def move(
    from_url: str,
    to_url: str,
    on_progress: ProgressCallback = lambda _: None,
    *,
    from_blobs: str | None = None,
    to_blobs: str | None = None,
    actor: Actor | None = None,
) -> TransferSummary:
    """Move a queue and its files from one store to another; may be interrupted at any moment and run again.

    With an actor it is in the audit log of both.
    """
    if from_url == to_url:
        raise Mistake(f"a queue cannot be moved from {mask_url(from_url)} to itself")
    source = open_engine(from_url, create=False)
    target = open_engine(to_url)
    try:
        files = _files(source, from_blobs or default_location(from_url), to_blobs or default_location(to_url))
        before = {"from": mask_url(from_url), "to": mask_url(to_url)}
        with recorded(source, actor, "queue.move", before=before, also=lambda: target) as change:
            summary = _move(source, target, from_url, to_url, files, on_progress)
            change.after = summary._asdict()
        return summary
    finally:
        source.close()
        target.close()


def stop(from_url: str, actor: Actor | None = None) -> None:
    """Give up a move: the source accepts documents again. Refused after the move is complete: then the target is the queue."""
    source = open_engine(from_url, create=False)
    try:
        frozen = source.rules().frozen
        if frozen is None or not frozen.startswith(MOVING):
            raise Mistake(f"there is no move to stop: this queue {frozen or 'is not being moved'}")
        with recorded(source, actor, "queue.stop-move"):
            _freeze(source, None)
    finally:
        source.close()


def _files(source: Engine, from_location: str | None, to_location: str | None) -> tuple[Files, Files] | None:
    """Return source and target of the files, if there are any; both must be known before anything is frozen."""
    queue_files = QueueFiles(source, "", from_location)
    if not queue_files.has_any():
        return None
    if from_location is None or to_location is None:
        missing = "are: --from-blobs" if from_location is None else "shall be: --to-blobs"
        raise Mistake(
            f"this queue has files; say where they {missing} FOLDER or s3://bucket/prefix (the same for both leaves them there)"
        )
    files = queue_files.open()
    target = Files(to_location, files.namespace)
    next(target.list_files(), None)  # raise for a location that cannot be used while nothing is frozen yet
    return files, target


def _move(
    source: Engine,
    target: Engine,
    from_url: str,
    to_url: str,
    files: tuple[Files, Files] | None,
    on_progress: ProgressCallback,
) -> TransferSummary:
    moving, moved = f"{MOVING} {mask_url(to_url)}", f"was moved to {mask_url(to_url)}: use that one"
    filling = f"is being filled from {mask_url(from_url)}"
    checkpoint = _load_checkpoint(target, from_url)
    _validate(source, target, (moving, moved) if checkpoint else (moving,), checkpoint is None)
    summary = TransferSummary(0, 0, 0, 0)
    if checkpoint is None or not checkpoint.is_over:
        _freeze(source, moving)
        _freeze(target, filling)
        _save_checkpoint(target, from_url, checkpoint or _Checkpoint(None))
        _wait_for_running(source, on_progress)
        summary = _copy_rows(source, target, filling, from_url, on_progress)
        if files is not None:
            summary = summary._replace(files=_copy_files(*files, on_progress))
        _save_checkpoint(target, from_url, _Checkpoint(None, is_over=True))
    _freeze(source, moved)
    _freeze(target, None)
    target.put_record(GROUP, KEY, None)
    return summary


class _Checkpoint(NamedTuple):
    """How far a move is, as recorded in its target."""

    mark: str | None
    is_over: bool = False  # everything was copied


def _load_checkpoint(target: Engine, from_url: str) -> _Checkpoint | None:
    record = target.record(GROUP, KEY)
    if record is None:
        return None
    saved = json.loads(record.value)
    if saved["from"] != mask_url(from_url):
        raise Mistake(f"the target is being filled from {saved['from']}; finish that move first, or give an empty target")
    return _Checkpoint(saved["mark"], saved["is_over"])


def _save_checkpoint(target: Engine, from_url: str, checkpoint: _Checkpoint) -> None:
    target.put_record(GROUP, KEY, json.dumps({"from": mask_url(from_url), **checkpoint._asdict()}))


def _validate(source: Engine, target: Engine, allowed: Sequence[str], is_first_run: bool) -> None:
    frozen = source.rules().frozen
    if frozen is not None and frozen not in allowed:
        raise Mistake(f"the source cannot be moved: it {frozen}")
    if is_first_run and (target.customers("", 1) or newest_document(target)):
        raise Mistake("the target already holds a queue; give an empty one, so that two queues are not mixed")


def _freeze(engine: Engine, reason: str | None) -> None:
    """Freeze a queue for a reason, or thaw it with None."""
    while (rules := engine.rules()).frozen != reason:
        engine.configure(replace(rules, frozen=reason))


def _wait_for_running(source: Engine, on_progress: ProgressCallback) -> None:
    """Wait until every running document has ended, was given back, or its lease ran out."""
    running = DocumentFilter(state="running")
    while any(walk_documents(source, running, page_size=1)):
        source.reclaim(PAGE_SIZE)
        on_progress(TransferProgress("waiting", len(list(islice(walk_documents(source, running), PAGE_SIZE))), 0, 0))
        time.sleep(POLL_SECONDS)


def _copy_rows(source: Engine, target: Engine, filling: str, from_url: str, on_progress: ProgressCallback) -> TransferSummary:
    counters = source.pack(None, 1).queue
    assert counters is not None
    checkpoint = _load_checkpoint(target, from_url)
    cursor = None if checkpoint is None else checkpoint.mark
    summary = TransferSummary(0, 0, 0, 0)
    while True:
        packed = source.pack(cursor, ROWS_MAX)
        if packed.records:  # workers register where they work: those of the source do not work on the target
            packed = packed._replace(records=tuple(record for record in packed.records if record.group != WORKERS))
        if packed.queue is not None:
            packed = packed._replace(queue=packed.queue._replace(rules=_target_rules(packed.queue.rules, filling)))
        target.unpack(packed)
        copied = len(packed.customers), len(packed.documents), len(packed.records), 0
        summary = TransferSummary(*(before + more for before, more in zip(summary, copied, strict=True)))
        if packed.documents:
            on_progress(TransferProgress("copying", 0, packed.documents[-1].snapshot.number, counters.last_number))
        cursor = packed.cursor
        if cursor is None:
            return summary
        _save_checkpoint(target, from_url, _Checkpoint(cursor))


def _copy_files(source: Files, target: Files, on_progress: ProgressCallback) -> int:
    """Copy the files that the target lacks; both listings are in key order, so neither is held in memory."""
    copied, total = 0, sum(1 for _ in source.list_files())
    existing_files = target.list_files()
    existing = next(existing_files, None)
    for number, file in enumerate(source.list_files(), 1):
        while existing is not None and existing.key < file.key:
            existing = next(existing_files, None)
        if existing is None or (existing.key, existing.size) != (file.key, file.size):
            copied += _copy_file(source, target, file.key)
        on_progress(TransferProgress("files", 0, number, total))
    return copied


def _copy_file(source: Files, target: Files, key: str) -> bool:
    try:
        file = source.blobs.open(key)
    except Unknown:  # of a submission that was refused since
        return False
    with file:
        target.blobs.put({key: iter(lambda: file.read(PIECE_BYTES), b"")})
    return True


def _target_rules(rules: Rules, filling: str) -> Rules:
    if rules.frozen is None:
        raise StoreError("the source was thawed during the move; run the move again")
    return replace(rules, frozen=filling)
