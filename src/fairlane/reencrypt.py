"""Re-encryption of a queue: whatever is not encrypted with the first key is brought to it, while the queue is in use.

The same run begins encryption, changes the key, and ends encryption: where the first key is `none`, everything becomes plain.

Laws:
- Every text is replaced only if it is still what it was, and every file as a whole: whoever reads finds the one or the other.
- How far it is stands in the store. A run that was interrupted goes on from there when it is started again.
- Files that a running document may still write are left alone; they are counted.
- A key is struck off the queue's list when a whole pass found nothing that is encrypted with it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

from fairlane.blobs.envelope import submitted
from fairlane.blobs.files import Files, StoredFile
from fairlane.core.document import ChangeRow, DocumentRow, Record
from fairlane.core.errors import BlobDamaged, Mistake, StoreError, Unknown
from fairlane.encryption import EncryptedEngine, EncryptionKeyring, KeyMissing, load_keyring, open_store
from fairlane.encryption.engine import (
    DIGEST_KEY,
    GROUP,
    KEYED,
    PLAIN_GROUPS,
    RUN_KEY,
    keyed_digest,
    reason_context,
    record_context,
    registered_keys,
    text_context,
)
from fairlane.encryption.files import HEAD_BYTES, FileCipher
from fairlane.encryption.texts import MARK, TextDamaged, reseal, reseal_within, unseal
from fairlane.engine import Engine, vacuum_queue_file
from fairlane.engine.protocol import PackedDocument, Rewrite, TextPart
from fairlane.queue import PAGE_SIZE
from fairlane.queue.audit import Actor, recorded
from fairlane.queue.files import QueueFiles
from fairlane.queue.forget import OnProgress
from fairlane.queue.history import read_changes
from fairlane.queue.validation import body_digest

ROWS_MAX = 100  # documents in one step: their payloads may be large
PASSES_MAX = 3
REASON_EVENTS = ("failed", "retried", "postponed")  # whose notes in the feed are reasons of documents


class Reencrypted(NamedTuple):
    """What a run has done."""

    key: str | None  # the id of the first key; None: everything is plain now
    texts: int  # that were re-encrypted
    files: int
    left: int  # that could not be: their key is missing, they are damaged, or a running document may write them
    reason: str | None  # of the first of these
    struck: tuple[str, ...]  # ids of keys with which nothing is encrypted any more
    not_rewritten: str | None = None  # why the file of the queue was not rewritten; None: it was, or is not to be


def reencrypt(
    url: str,
    blobs: str | None = None,
    on_progress: OnProgress = lambda *_: None,
    *,
    dry_run: bool = False,
    vacuum: bool = True,
    actor: Actor | None = None,
) -> Reencrypted:
    """Bring a queue and its files to the first key; with `dry_run` only count what that would change.

    The file of a queue in a file is rewritten then, unless `vacuum` is False: what was replaced is still in it. With an actor
    it is in the audit log.
    """
    keyring = load_keyring()
    if not keyring.keys:
        raise Mistake(
            "there is no encryption key: make one with `fairlane encrypt --new-key`, and name its file in "
            "FAIRLANE_ENCRYPTION_KEY_FILE, here and for every program that uses this queue"
        )
    engine = open_store(url, create=False, keyring=keyring)
    assert isinstance(engine, EncryptedEngine)
    try:
        run = _Run(engine, QueueFiles(engine, url, blobs, keyring).open_existing(), on_progress, dry_run)
        if dry_run:
            return run.run()
        with recorded(cast(Engine, engine), actor, "queue.encrypt") as change:
            done = run.run()
            if vacuum and (done.texts or run.is_resumed):
                on_progress("rewriting the file", 0, 0)
                done = done._replace(not_rewritten=_vacuum(engine.inner))
            run.finish()
            change.after = {name: value for name, value in done._asdict().items() if name not in ("reason", "not_rewritten")}
        return done
    finally:
        engine.close()


def _vacuum(engine: Engine) -> str | None:
    """Rewrite the file of a queue in a file; return why it was not."""
    try:
        vacuum_queue_file(engine)
    except StoreError as error:
        return str(error)
    return None


class _Run:
    """One run: passes over texts until one changes nothing, and one over files."""

    def __init__(self, engine: EncryptedEngine, files: Files | None, on_progress: OnProgress, is_dry: bool) -> None:
        self._engine: Engine = engine.inner
        self._keyring: EncryptionKeyring = engine.keyring
        self._secret = engine.digest_secret
        self._files, self._cipher = files, FileCipher(engine.keyring)
        self._on_progress, self._is_dry = on_progress, is_dry
        self._target = None if self._keyring.first is None else self._keyring.first.id
        self._counts: Counter[str] = Counter()
        self._reason: str | None = None
        self.is_resumed = False  # whether a run that was interrupted may have replaced texts

    def run(self) -> Reencrypted:
        phases: dict[str, Callable[[Any], Iterator[Any]]] = {
            "files": self._all_files, "documents": self._documents, "records": self._records, "changes": self._changes,
        }  # fmt: skip
        first_phase, first_cursor = self._load()
        self._save(first_phase, first_cursor)  # before anything is replaced
        is_whole, is_clean, names = (first_phase, first_cursor) == ("files", None), False, list(phases)
        for phase, cursor in ((first_phase, first_cursor), *[("documents", None)] * (PASSES_MAX - 1)):
            before = self._counts["texts"]
            for name in names[names.index(phase) :]:
                for mark in phases[name](cursor if name == phase else None):
                    self._save(name, mark)
            is_clean = is_whole and self._counts["texts"] == before
            if is_clean or self._is_dry:
                break
            is_whole = True
            self._counts["left texts"] = 0  # they will be met again
        left = self._counts["left texts"] + self._counts["left files"]
        struck = self._strike() if is_clean and not left and not self._is_dry else ()
        return Reencrypted(self._target, self._counts["texts"], self._counts["files"], left, self._reason, struck)

    def finish(self) -> None:
        """Note that nothing is left to do, the rewriting of the file included."""
        self._engine.put_record(GROUP, RUN_KEY, None)

    def _load(self) -> tuple[str, Any]:
        """Return phase and cursor where to begin: those of a run to the same key that was interrupted, if there are."""
        record = None if self._is_dry else self._engine.record(GROUP, RUN_KEY)
        known = {} if record is None else json.loads(record.value)
        self.is_resumed = record is not None
        if known.get("target", "") != self._target:
            return "files", None
        self._counts.update(known["left"])
        self._reason = known["reason"]
        return known["phase"], known["cursor"]

    def _save(self, phase: str, cursor: Any) -> None:
        if not self._is_dry:
            left = {name: count for name, count in self._counts.items() if name.startswith("left")}
            fields = {"target": self._target, "phase": phase, "cursor": cursor, "left": left, "reason": self._reason}
            self._engine.put_record(GROUP, RUN_KEY, json.dumps(fields))

    def _leave(self, what: str, error: Exception) -> None:
        self._counts[f"left {what}"] += 1
        self._reason = self._reason or str(error)

    def _strike(self) -> tuple[str, ...]:
        """Strike every key but the first off the list of the queue; with no first key, the secret of digests too."""
        struck = tuple(key_id for key_id in registered_keys(self._engine) if key_id != self._target)
        for name in (*struck, *(() if self._target else (DIGEST_KEY,))):
            self._engine.put_record(GROUP, name, None)
        return struck

    # -- texts -----------------------------------------------------------------------------------------------------------

    def _documents(self, cursor: str | None) -> Iterator[str]:
        cursor = cursor or json.dumps(["documents", None])
        last = self._engine.pack(None, 1).queue
        while cursor is not None and json.loads(cursor)[0] == "documents":
            packed = self._engine.pack(cursor, ROWS_MAX)
            rewrites: dict[TextPart, list[Rewrite]] = {}
            for document in packed.documents:
                for part, text in self._texts(document):
                    rewrites.setdefault(part, []).append(text)
            for part, texts in rewrites.items():
                self._rewrite(part, texts)
            if packed.documents and last is not None:
                self._on_progress("documents", packed.documents[-1].snapshot.number, last.last_number)
            cursor = packed.cursor
            if cursor is not None:
                yield cursor

    def _texts(self, document: PackedDocument) -> Iterator[tuple[TextPart, Rewrite]]:
        """Yield the texts of a document that are to be replaced."""
        row = document.snapshot
        try:
            for part, text in (("payload", document.payload), ("result", document.result)):
                if text and (after := reseal(self._keyring, text_context(part, row.id), text)) != text:
                    yield part, Rewrite(row.number, text, after)  # type: ignore[misc]
            if (
                row.reason
                and (after := reseal_within(self._keyring, reason_context(row.id, row.reason), row.reason)) != row.reason
            ):
                yield "reason", Rewrite(row.number, row.reason, after)
            if document.digest and (after := self._digest(document, row)) != document.digest:
                yield "digest", Rewrite(row.number, document.digest, after)
        except (KeyMissing, TextDamaged) as error:
            self._leave("texts", error)

    def _digest(self, document: PackedDocument, row: DocumentRow) -> str:
        assert document.digest is not None
        is_keyed = document.digest.startswith(KEYED)
        if self._target is None and is_keyed:
            return body_digest(*submitted(row.kind, unseal(self._keyring, text_context("payload", row.id), document.payload)))
        if self._target is not None and not is_keyed and self._secret is not None:
            return keyed_digest(self._secret, document.digest)
        return document.digest

    def _rewrite(self, part: TextPart, texts: list[Rewrite]) -> None:
        self._counts["texts"] += len(texts) if self._is_dry else self._engine.rewrite(part, texts)

    def _records(self, cursor: str | None) -> Iterator[str]:
        cursor = cursor or json.dumps(["records", None])
        looked = 0
        while cursor is not None:
            packed = self._engine.pack(cursor, PAGE_SIZE)
            for record in packed.records:
                if record.group not in PLAIN_GROUPS or (record.group, record.key) == (GROUP, DIGEST_KEY):
                    self._record(record)
            looked += len(packed.records)
            self._on_progress("records", looked, 0)
            cursor = packed.cursor
            if cursor is not None:
                yield cursor

    def _record(self, record: Record | None) -> None:
        try:
            while record is not None:  # again if others change it at the same time
                after = reseal(self._keyring, record_context(record.group, record.key), record.value)
                if after == record.value:
                    return
                if self._is_dry or self._engine.put_record(record.group, record.key, after, record.version) is not None:
                    self._counts["texts"] += 1
                    return
                record = self._engine.record(record.group, record.key)
        except (KeyMissing, TextDamaged) as error:
            self._leave("texts", error)

    def _changes(self, after: int | None) -> Iterator[int]:
        number = after or 0
        while page := read_changes(self._engine, number):
            rewrites = []
            for change in page:
                try:
                    rewrites += self._note(change)
                except (KeyMissing, TextDamaged) as error:
                    self._leave("texts", error)
            self._rewrite("note", rewrites)
            number = page[-1].number
            self._on_progress("changes", number, 0)
            yield number

    def _note(self, change: ChangeRow) -> list[Rewrite]:
        note = change.note
        if not note or change.document is None or (MARK not in note and change.what not in REASON_EVENTS):
            return []
        after = reseal_within(self._keyring, reason_context(change.document, note), note)
        return [] if after == note else [Rewrite(change.number, note, after)]

    # -- files -----------------------------------------------------------------------------------------------------------

    def _all_files(self, cursor: str | None) -> Iterator[str]:
        if self._files is None:
            return
        running = list[StoredFile]()
        for looked, file in enumerate(self._files.list_files(after=cursor or ""), 1):
            if not self._file(self._files, file):
                running.append(file)
            self._on_progress("files", looked, 0)
            if looked % ROWS_MAX == 0 and not running:  # else a run that goes on later would pass over those
                yield file.key
        for file in running:
            if not self._file(self._files, file):
                self._leave(
                    "files", Mistake(f"document {file.document} is running and may still write its files; run it again")
                )

    def _file(self, files: Files, file: StoredFile) -> bool:
        """Re-encrypt one file, unless a running document may still write it: then return False."""
        document = self._engine.document(file.document)
        if document is not None and document.state == "running" and document.token == file.token:
            return False
        try:
            with files.blobs.open(file.key) as stored:
                if self._cipher.is_current(stored.read(HEAD_BYTES)):
                    return True
                stored.seek(0)
                self._counts["files"] += 1
                if not self._is_dry:
                    files.reencrypt(file.key, stored)
        except Unknown:  # it was removed meanwhile
            return True
        except (KeyMissing, BlobDamaged) as error:
            self._counts["files"] -= 1
            self._leave("files", error)
            return True
        if document is not None and self._engine.document(file.document) is None:  # forgotten or purged meanwhile
            files.blobs.remove([file.key])
        return True
