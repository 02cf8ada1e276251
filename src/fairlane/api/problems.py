"""Problems (RFC 9457): how the API responds when something cannot be done, with a stable type, a status and a sentence.

Laws:
- `type` is a word that programs may rely on; `detail` is for people and may change.
- What a key may not see looks exactly like what does not exist: one problem, `nothing-here`, for both.
- A problem never holds a key, a payload or anything of another customer, nor where the store is: its own messages name hosts
  and files, and only go to the log.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from fairlane.core.errors import (
    BadValue,
    FairlaneError,
    KeyConflict,
    LimitReached,
    QueueFull,
    QuotaFull,
    RetriesSpent,
    StoreBusy,
    StoreError,
    StoreFrozen,
    StoreFull,
    StoreUnreachable,
    Unknown,
    WrongState,
)

MEDIA_TYPE = "application/problem+json"
# ASCII, so that any text can be sent. Values are made here and have no cycles; checking for them would cost a third.
encode_json = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode

TITLES: dict[str, tuple[int, str]] = {
    "bad-request": (400, "The request cannot be read"),
    "no-key": (401, "A key is needed"),
    "not-allowed": (403, "This key may not do this"),
    "not-from-page": (403, "This was not asked for by the page"),
    "nothing-here": (404, "There is nothing here for this key"),
    "wrong-method": (405, "This cannot be done here"),
    "too-slow": (408, "The request took too long to arrive"),
    "key-conflict": (409, "This idempotency key was used for something else"),
    "wrong-state": (409, "The document is not in a state that allows this"),
    "changed-meanwhile": (409, "Somebody else changed it meanwhile"),
    "token-used": (409, "This upload token was used"),
    "what-if-busy": (409, "Another question is being answered"),
    "no-history": (409, "There is nothing to replay"),
    "events-purged": (410, "These events were purged"),
    "too-large": (413, "The body is too large"),
    "wrong-media-type": (415, "A body of this type is not taken"),
    "bad-value": (422, "A value is out of its range"),
    "retries-spent": (409, "The document was retried often enough"),
    "too-many-queued": (429, "Too many documents are queued"),
    "too-many-requests": (429, "Too many requests"),
    "too-many-headers": (431, "The headers are too large"),
    "broken": (500, "Something broke here"),
    "overloaded": (503, "Too much at once"),
    "store-busy": (503, "The store could not do it now"),
    "stopping": (503, "The server stops"),
    "store-full": (507, "There is no room left"),
    "quota-full": (507, "The customer keeps as much as it may"),
}


class Problem(Exception):
    """A response that says why a request cannot be done."""

    def __init__(
        self,
        type: str,
        detail: str,
        *,
        retry_after: int | None = None,
        close: bool = False,
        figures: Mapping[str, str | int] | None = None,
    ) -> None:
        super().__init__(detail)
        self.type = type
        self.status, self.title = TITLES[type]
        self.detail = detail
        self.retry_after = retry_after
        self.close = close  # do not read the rest of the body
        self.figures = dict(figures or {})  # of a limit

    def body(self) -> bytes:
        fields = {"type": self.type, "title": self.title, "status": self.status, "detail": self.detail}
        return encode_json({**fields, **self.figures}).encode()

    def headers(self) -> list[tuple[bytes, bytes]]:
        headers = [(b"content-type", MEDIA_TYPE.encode())]
        if self.status == 401:
            headers.append((b"www-authenticate", b'Bearer realm="fairlane"'))
        if self.retry_after is not None:
            headers.append((b"retry-after", b"%d" % self.retry_after))
        if self.close:
            headers.append((b"connection", b"close"))
        return headers


def nothing_here() -> Problem:
    """Return the problem for what does not exist, and for what this key may not see."""
    return Problem("nothing-here", "there is nothing at this address that this key may see")


def too_many_strangers() -> Problem:
    """Return the problem of an address that sends too much without a valid key."""
    detail = "too many requests without a valid key, or too many new connections, from this address; try again in a moment"
    return Problem("too-many-requests", detail, retry_after=1, close=True)


def bad_value(name: str, value: object, expected: str) -> Problem:
    return Problem("bad-value", str(BadValue(name, value, expected)))


_TYPES: Sequence[tuple[type[FairlaneError], str, int | None]] = (
    (KeyConflict, "key-conflict", None),
    (WrongState, "wrong-state", None),
    (QueueFull, "too-many-queued", 10),
    (QuotaFull, "quota-full", None),
    (RetriesSpent, "retries-spent", None),
    (StoreFull, "store-full", None),
    (StoreFrozen, "store-busy", 60),
    (StoreBusy, "store-busy", 1),
    (StoreUnreachable, "store-busy", 2),
    (StoreError, "store-busy", 5),
    (FairlaneError, "bad-value", None),
)


_DETAILS = {  # of problems with the store
    "store-busy": "the store could not do it now; send it again with the same Idempotency-Key",
    "store-full": "the store has no room left, and nothing was kept; send it again later, with the same Idempotency-Key",
}


def problem_of(error: FairlaneError) -> Problem:
    """Turn an error of the queue into a problem."""
    if isinstance(error, Unknown):
        return nothing_here()
    type, retry_after = next((type, after) for error_type, type, after in _TYPES if isinstance(error, error_type))
    detail = _DETAILS[type] if isinstance(error, StoreError) else str(error)
    return Problem(type, detail, retry_after=retry_after, figures=_figures(error) if isinstance(error, LimitReached) else None)


def _figures(error: LimitReached) -> dict[str, str | int]:
    return {"limit": error.limit, "used": error.used, "adding": error.adding, "most": error.most}
