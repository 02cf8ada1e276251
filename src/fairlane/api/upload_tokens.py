"""Upload tokens: each lets a browser, or anybody else who is not trusted with a key, send one document of one customer.

Laws:
- A token is 256 random bits, shown once; the store keeps its SHA-256. Whatever else it allows was chosen by its maker.
- One conditional write spends it, after the bytes have arrived and before the document is submitted: of two uses at once one
  wins, and a server that dies in between leaves a token that is spent, never two documents.
- It ends when it expires, or with the key that made it.
- Public parts begin with the time at which they expire, so that those that are over are found without reading the others.
"""

from __future__ import annotations

import hmac
import json
import secrets
from typing import Any, Literal, NamedTuple

from fairlane.core.document import validate_text
from fairlane.core.errors import BadValue, StoreError, Unknown
from fairlane.engine import Engine
from fairlane.queue import FILE_KIND, PAGES, Cost
from fairlane.queue.audit import Actor, recorded
from fairlane.queue.validation import cost_thousandths, payload_text, validate_priority

from .auth import Caller, digest_of, time_ms
from .permissions import UPLOAD
from .problems import Problem

GROUP = "upload tokens"
PREFIX = "flu"
EXPIRES_SECONDS = 900.0  # unless its maker chooses otherwise
EXPIRES_MAX_SECONDS = 3600.0
KEPT_MS = 86_400_000  # after it expired, for uploads that began in time
PAYLOAD_CHARACTERS_MAX = 4096
PAGE = 500

TokenState = Literal["unused", "used", "expired"]


class UploadToken(NamedTuple):
    """A token as the store has it; `id` is its public part."""

    id: str
    digest: str
    customer: str
    kind: str
    bytes_max: int | None  # of the file; None: as every upload
    cost: Cost
    payload: Any
    made_by: str | None  # the public part of a key, without which it is not valid; None: it was not made with one
    made_ms: int
    expires_ms: int
    document: str | None = None  # what it was used for
    no_better_than: int | None = None  # the best priority of its document

    def state(self, now_ms: int) -> TokenState:
        return "used" if self.document is not None else "expired" if self.expires_ms <= now_ms else "unused"

    @property
    def caller(self) -> Caller:
        """Whoever shows this token."""
        return Caller(self.id, self.customer, "customer", UPLOAD, is_upload_token=True)


class TokenOptions(NamedTuple):
    """What a maker chooses."""

    kind: str = FILE_KIND
    bytes_max: int | None = None
    cost: Cost = 1
    payload: Any = None
    expires_seconds: float = EXPIRES_SECONDS
    no_better_than: int | None = None


AS_USUAL = TokenOptions()


def create(
    engine: Engine,
    customer: str,
    options: TokenOptions = AS_USUAL,
    *,
    made_by: str | None = None,
    now_ms: int | None = None,
    actor: Actor | None = None,
) -> tuple[str, UploadToken]:
    """Make a token for one document of a customer; its text cannot be had again."""
    now_ms = time_ms() if now_ms is None else now_ms
    _validate(customer, options)
    expires_ms = now_ms + round(options.expires_seconds * 1000)
    id = f"{expires_ms // 1000:010x}{secrets.token_hex(8)}"
    secret = f"{PREFIX}_{id}_{secrets.token_urlsafe(32)}"
    token = UploadToken(
        id, digest_of(secret), customer, options.kind, options.bytes_max, options.cost, options.payload, made_by, now_ms,
        expires_ms, no_better_than=options.no_better_than,
    )  # fmt: skip
    with recorded(engine, actor, "upload-token.create", target=id, customer=customer) as change:
        if engine.put_record(GROUP, id, _to_json(token), 0) is None:
            raise StoreError(f"there is an upload token {id} already; try again")  # 64 of its bits are random
        change.after = {"kind": token.kind, "bytes_max": token.bytes_max, "expires_ms": expires_ms}
    return secret, token


def _validate(customer: str, options: TokenOptions) -> None:
    validate_text("customer", customer)
    validate_text("kind", options.kind, 100)
    if options.bytes_max is not None and (type(options.bytes_max) is not int or options.bytes_max < 1):
        raise BadValue("bytes_max", options.bytes_max, "a whole number from 1 on")
    if options.cost != PAGES:
        cost_thousandths(options.cost)
    if options.no_better_than is not None:
        validate_priority("no_better_than", options.no_better_than)
    if len(payload_text(options.payload)) > PAYLOAD_CHARACTERS_MAX:
        raise BadValue("payload", "…", f"at most {PAYLOAD_CHARACTERS_MAX:,} characters as JSON")
    if not 1 <= options.expires_seconds <= EXPIRES_MAX_SECONDS:
        raise BadValue("expires", options.expires_seconds, f"1 to {EXPIRES_MAX_SECONDS:,.0f} seconds")


def is_upload_token(credential: str) -> bool:
    """Whether this has the form of an upload token."""
    return credential.startswith(f"{PREFIX}_")


def identify(engine: Engine, secret: str, *, now_ms: int | None = None) -> UploadToken | None:
    """Read the token that this is the text of; None: there is none, or it has expired. One that was used counts."""
    _, _, rest = secret.partition("_")
    id, _, _ = rest.partition("_")
    token = _read(engine, id)[0] if len(id) == 26 and id.isascii() and id.isalnum() else None
    is_right = hmac.compare_digest(digest_of(secret), digest_of("") if token is None else token.digest)
    is_over = token is None or token.expires_ms <= (time_ms() if now_ms is None else now_ms)
    return token if is_right and not is_over else None


def find(engine: Engine, id: str) -> UploadToken:
    """Read a token by its public part."""
    token = _read(engine, validate_text("upload token id", id))[0]
    if token is None:
        raise Unknown(f"there is no upload token {id}")
    return token


def spend(engine: Engine, id: str, document: str) -> None:
    """Use a token for this document; refused if it was used for another one, or is gone."""
    while True:
        token, version = _read(engine, id)
        if token is None:
            raise Problem("no-key", "this upload token has expired; get another one", close=True)
        refuse_used(token)
        if engine.put_record(GROUP, id, _to_json(token._replace(document=document)), version) is not None:
            return


def give_back(engine: Engine, id: str, document: str) -> None:
    """Make a token usable again whose document was surely not submitted."""
    while True:
        token, version = _read(engine, id)
        if token is None or token.document != document:
            return
        if engine.put_record(GROUP, id, _to_json(token._replace(document=None)), version) is not None:
            return


def refuse_used(token: UploadToken) -> None:
    """Refuse a token that was used; whoever lost the response learns for which document."""
    if token.document is not None:
        raise Problem("token-used", f"this upload token was used, for document {token.document}", close=True)


def remove_expired(engine: Engine, *, now_ms: int | None = None) -> int:
    """Remove the tokens that expired a day ago, and say how many; reads no others."""
    over = f"{((time_ms() if now_ms is None else now_ms) - KEPT_MS) // 1000:010x}"
    removed = 0
    while page := [record.key for record in engine.records(GROUP, "", PAGE) if record.key[:10] < over]:
        for id in page:
            engine.put_record(GROUP, id, None)
        removed += len(page)
    return removed


def _read(engine: Engine, id: str) -> tuple[UploadToken | None, int]:
    record = engine.record(GROUP, id)
    if record is None:
        return None, 0
    members = json.loads(record.value)
    return UploadToken(id, **{name: value for name, value in members.items() if name in UploadToken._fields}), record.version


def _to_json(token: UploadToken) -> str:
    return json.dumps({name: value for name, value in token._asdict().items() if name != "id"})
