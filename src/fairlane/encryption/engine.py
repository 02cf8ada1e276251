"""An engine whose texts are encrypted on their way in and decrypted on their way out; the store inside knows nothing of it.

Encrypted are payloads, results, reasons, details of attempts and the values of records, except of those groups that hold
nothing of customers. Ids, customers, kinds, keys, times and numbers stay plain: the store orders and finds documents by them.

Laws:
- Every text is bound to the document, or to the group and key of the record, that it belongs to.
- Before the first text is encrypted with a key, the store knows the id of that key: whoever opens it without is refused.
- A claim whose payload needs a key that is missing goes back, without its attempt being counted, and no more are claimed for a
  while. One whose payload was changed fails.
- What is not encrypted is read as it is, so that encryption can begin, end and change its key while the queue is in use.
- The digest of an idempotency key's body is keyed with a secret of the queue, or guesses could be compared with it.
"""

from __future__ import annotations

import hmac
import json
import re
import secrets
import time
from asyncio import AbstractEventLoop
from collections.abc import Mapping, Sequence
from typing import Any, cast

from fairlane.core.document import (
    ChangeRow,
    Claim,
    Continued,
    DocumentRow,
    Done,
    Failed,
    Outcome,
    PartRow,
    ReceiptRow,
    Record,
    Released,
    Submission,
)
from fairlane.core.errors import KeyConflict, StoreError
from fairlane.engine import Engine, join_transaction, open_engine
from fairlane.engine.protocol import ATTEMPTS, SCAN_MAX, DocumentBody, DocumentFilter, DocumentPage, attempt_key

from .keyring import EncryptionKeyring, KeyMissing, load_keyring
from .texts import MARK, TextDamaged, is_sealed, seal, unseal, unseal_within

# Records of one group: the ids of keys that are in use, the secret of digests, and how far a re-encryption is.
GROUP, DIGEST_KEY, RUN_KEY = "encryption", "digest", "run"
# Nothing of customers is in these.
PLAIN_GROUPS = {GROUP, "blobs", "file holds", "fairlane", "start estimates", "workers", "webhook sender"}
_PARTS_FAILED = re.compile(r"(?:its part (\S+) failed: )+")  # as in PART_FAILED; of nested parts the innermost
KEYED = "k1:"  # digests that are keyed begin so
KEYS_MAX = 1000
LOCKED_SECONDS = 30.0  # without claims, after one whose key is missing
FAILED_EXAMINED = 500  # documents whose reasons are decrypted for one page


def open_store(url: str, create: bool = True, keyring: EncryptionKeyring | None = None) -> Engine:
    """Open the engine that a URL names, with the keys of this program unless others are passed in."""
    keys = load_keyring() if keyring is None else keyring
    engine = open_engine(url, create)
    try:
        return cast(Engine, EncryptedEngine(engine, keys))
    except BaseException:
        engine.close()
        raise


def join_store_transaction(engine: Engine, transaction: object, loop: AbstractEventLoop | None = None) -> Engine:
    """Return the same queue inside a transaction that the caller has open on the same server."""
    joined = join_transaction(inner_engine(engine), transaction, loop)
    return cast(Engine, EncryptedEngine(joined, engine.keyring, engine)) if isinstance(engine, EncryptedEngine) else joined


def inner_engine(engine: Engine) -> Engine:
    """Return the store inside."""
    return engine.inner if isinstance(engine, EncryptedEngine) else engine


def text_context(part: str, id: str) -> str:
    """Return the context of a document's text: its payload, result or reason."""
    return f"{part}/{id}"


def reason_context(id: str, text: str) -> str:
    """Return the context of a reason: of a document that failed with a part it is that part's reason, behind plain words."""
    parts = _PARTS_FAILED.match(text) if MARK in text else None
    return text_context("reason", parts[1] if parts else id)


def record_context(group: str, key: str) -> str:
    return f"record/{group}/{key}"


def keyed_digest(secret: bytes, digest: str) -> str:
    return KEYED + hmac.digest(secret, digest.encode(), "sha256").hex()


class EncryptedEngine:
    """The verbs that carry texts; every other one is the inner engine's own."""

    def __init__(self, inner: Engine, keyring: EncryptionKeyring, opened: EncryptedEngine | None = None) -> None:
        self.inner = inner
        self.keyring = keyring
        self._locked: tuple[float, KeyMissing] | None = None
        # The caller's transaction is only joined: nothing is read or written in it before the first verb.
        self.digest_secret: bytes | None = self._register() if opened is None else opened.digest_secret

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def _register(self) -> bytes | None:
        """Refuse a queue that needs other keys, note the first key in it, and return the secret of its digests."""
        try:
            known = {record.key for record in self.inner.records(GROUP, "", KEYS_MAX)}
        except StoreError as error:
            if self.keyring.keys or type(error) is not StoreError:
                raise
            return None  # the store is damaged, which `fairlane doctor` shall be able to find; what is encrypted is given back
        for key_id in key_ids(known):
            self.keyring.find(key_id)
        first = self.keyring.first
        if first is not None and first.id not in known:
            self.inner.put_record(GROUP, first.id, json.dumps({"since_ms": self.inner.now()}), 0)
        if first is not None and DIGEST_KEY not in known:
            sealed = seal(self.keyring, record_context(GROUP, DIGEST_KEY), json.dumps(secrets.token_hex(32)))
            self.inner.put_record(GROUP, DIGEST_KEY, sealed, 0)  # no change if another process did
        record = self.inner.record(GROUP, DIGEST_KEY) if self.keyring.keys else None
        if record is None:
            return None
        return bytes.fromhex(json.loads(unseal(self.keyring, record_context(GROUP, DIGEST_KEY), record.value)))

    # -- documents -----------------------------------------------------------------------------------------------------

    def submit(self, submissions: Sequence[Submission], *, now_ms: int | None = None) -> list[ReceiptRow]:
        if not self.keyring.keys:
            return self.inner.submit(submissions, now_ms=now_ms)
        plain = list(map(self._seal_payload, submissions))
        secret = self.digest_secret
        if secret is None or not any(each.digest for each in plain):
            return self.inner.submit(plain, now_ms=now_ms)
        keyed = [each._replace(digest=each.digest and keyed_digest(secret, each.digest)) for each in plain]
        preferred, other = (plain, keyed) if self.keyring.first is None else (keyed, plain)
        try:
            return self.inner.submit(preferred, now_ms=now_ms)
        except KeyConflict:  # or the first one came before encryption began, or ended
            return self.inner.submit(other, now_ms=now_ms)

    def _seal_payload(self, submission: Submission) -> Submission:
        return submission._replace(payload=seal(self.keyring, text_context("payload", submission.id), submission.payload))

    def claim(
        self,
        worker: str,
        limit: int,
        lease_ms: int,
        kinds: Mapping[str, int] | None = None,
        *,
        now_ms: int | None = None,
    ) -> list[Claim]:
        if self._locked is not None and time.monotonic() - self._locked[0] < LOCKED_SECONDS:
            raise self._locked[1]
        self._locked = None
        return self._decrypt(self.inner.claim(worker, limit, lease_ms, kinds, now_ms=now_ms), now_ms)

    def take_over(
        self, handed: Sequence[tuple[str, int]], worker: str, lease_ms: int, *, now_ms: int | None = None
    ) -> list[Claim | None]:
        taken = self.inner.take_over(handed, worker, lease_ms, now_ms=now_ms)
        claims = {claim.number: claim for claim in self._decrypt([claim for claim in taken if claim is not None], now_ms)}
        return [None if claim is None else claims.get(claim.number) for claim in taken]

    def _decrypt(self, encrypted: Sequence[Claim], now_ms: int | None) -> list[Claim]:
        """Decrypt the payloads of claims; end the others, and raise KeyMissing if a key was missing and none is left."""
        claims: list[Claim] = []
        refused: list[tuple[Claim, Outcome]] = []
        missing: KeyMissing | None = None
        for claim in encrypted:
            if not is_sealed(claim.payload):
                claims.append(claim)
                continue
            try:
                payload = unseal(self.keyring, text_context("payload", claim.id), claim.payload)
                claims.append(claim._replace(payload=payload))
            except KeyMissing as error:
                missing = error
                self._locked = time.monotonic(), missing
                refused.append((claim, Released()))
            except TextDamaged as error:
                refused.append((claim, Failed(f"corrupt: {error}")))
        if refused:
            self.inner.settle(refused, now_ms=now_ms)
        if missing is not None and not claims:
            raise missing
        return claims

    def settle(self, settlements: Sequence[tuple[Claim, Outcome]], *, now_ms: int | None = None) -> list[Claim]:
        if self.keyring.first is not None:
            settlements = [(claim, self._seal_outcome(claim, outcome)) for claim, outcome in settlements]
        return self.inner.settle(settlements, now_ms=now_ms)

    def _seal_outcome(self, claim: Claim, outcome: Outcome) -> Outcome:
        if isinstance(outcome, Released):
            return outcome
        if isinstance(outcome, Done):
            result = outcome.result
            return outcome._replace(result=result and seal(self.keyring, text_context("result", claim.id), result))
        if isinstance(outcome, Continued):
            payload = seal(self.keyring, text_context("payload", claim.id), outcome.payload)
            return outcome._replace(payload=payload, parts=tuple(map(self._seal_payload, outcome.parts)))
        reason = outcome.reason and seal(self.keyring, text_context("reason", claim.id), outcome.reason)
        context = record_context(ATTEMPTS, attempt_key(claim.id, claim.token))
        details = outcome.details and seal(self.keyring, context, outcome.details)
        return outcome._replace(reason=reason, details=details)

    def document(self, id: str) -> DocumentRow | None:
        row = self.inner.document(id)
        return None if row is None else self._row(row)

    def documents(self, filter: DocumentFilter, before: int | None, limit: int, scan_max: int = SCAN_MAX) -> DocumentPage:
        if filter.reason is None or not self.keyring.keys:
            page = self.inner.documents(filter, before, limit, scan_max)
            return page._replace(documents=[self._row(row) for row in page.documents])
        wider = filter._replace(reason=None, state=filter.state or "failed")  # only failed documents have a reason
        page = self.inner.documents(wider, before, min(FAILED_EXAMINED, scan_max), scan_max)
        matching = [row for row in map(self._row, page.documents) if filter.reason in (row.reason or "")]
        if len(matching) <= limit:
            return page._replace(documents=matching)
        return DocumentPage(matching[:limit], matching[limit - 1].number)

    def _row(self, row: DocumentRow) -> DocumentRow:
        if row.reason is None or not self.keyring.keys:
            return row
        return row._replace(reason=unseal_within(self.keyring, reason_context(row.id, row.reason), row.reason))

    def body(self, id: str) -> DocumentBody | None:
        body = self.inner.body(id)
        if body is None:
            return None
        payload = unseal(self.keyring, text_context("payload", id), body.payload)
        return DocumentBody(payload, body.result and unseal(self.keyring, text_context("result", id), body.result))

    def parts(self, id: str) -> list[PartRow]:
        return [self._part(part) for part in self.inner.parts(id)]

    def _part(self, part: PartRow) -> PartRow:
        result = part.result and unseal(self.keyring, text_context("result", part.document.id), part.result)
        return PartRow(self._row(part.document), result)

    def changes(self, after: int | None, limit: int) -> list[ChangeRow]:
        rows = self.inner.changes(after, limit)
        if not self.keyring.keys:
            return rows
        return [
            row._replace(note=unseal_within(self.keyring, reason_context(row.document, row.note), row.note))
            if row.note and row.document
            else row
            for row in rows
        ]

    # -- records -------------------------------------------------------------------------------------------------------

    def record(self, group: str, key: str) -> Record | None:
        record = self.inner.record(group, key)
        return None if record is None else self._record(record)

    def records(self, group: str, after: str, limit: int) -> list[Record]:
        return [self._record(record) for record in self.inner.records(group, after, limit)]

    def _record(self, record: Record) -> Record:
        if not is_sealed(record.value):
            return record
        return record._replace(value=unseal(self.keyring, record_context(record.group, record.key), record.value))

    def put_record(self, group: str, key: str, value: str | None, version: int | None = None) -> int | None:
        if value is not None and group not in PLAIN_GROUPS:
            value = seal(self.keyring, record_context(group, key), value)
        return self.inner.put_record(group, key, value, version)


def registered_keys(engine: Engine) -> list[str]:
    """Return the ids of the keys with which something in a queue may be encrypted."""
    return key_ids({record.key for record in inner_engine(engine).records(GROUP, "", KEYS_MAX)})


def is_reencrypting(engine: Engine) -> bool:
    """Return whether a re-encryption is under way, or was interrupted."""
    return inner_engine(engine).record(GROUP, RUN_KEY) is not None


def key_ids(names: set[str]) -> list[str]:
    """Return the key ids among the names of records in GROUP."""
    return sorted(name for name in names if len(name) == 8 and all(letter in "0123456789abcdef" for letter in name))
