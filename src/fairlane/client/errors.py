"""Which error is it when a server refuses? The word of its problem decides, as the library would raise it.

Laws:
- Only the word (`type`) is relied on; the sentence is for people, and is passed on as it is.
- Every word that the service may say stands here: a test compares them.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from fairlane.core.errors import (
    BadValue,
    FairlaneError,
    KeyConflict,
    Mistake,
    StoreBusy,
    StoreError,
    StoreFull,
    Unknown,
    WrongState,
)

KINDS: dict[str, type[FairlaneError]] = {
    "bad-request": Mistake,
    "no-key": Mistake,
    "nothing-here": Unknown,
    "wrong-method": Mistake,
    "too-slow": StoreError,
    "key-conflict": KeyConflict,
    "wrong-state": WrongState,
    "changed-meanwhile": WrongState,
    "events-purged": Unknown,
    "too-large": Mistake,
    "wrong-media-type": Mistake,
    "bad-value": BadValue,
    "too-many-queued": StoreBusy,
    "too-many-requests": StoreBusy,
    "too-many-headers": Mistake,
    "broken": StoreError,
    "overloaded": StoreBusy,
    "store-busy": StoreBusy,
    "stopping": StoreBusy,
    "store-full": StoreFull,
    "not-from-page": Mistake,
    "no-history": Unknown,
    "what-if-busy": WrongState,
}
NOTHING_DONE = frozenset(("too-many-queued", "too-many-requests", "overloaded", "stopping"))  # refused before it began
SENTENCE_MAX = 1000


class Refusal(NamedTuple):
    """A problem that a server told; an empty word: it was not told in our form."""

    status: int
    word: str
    sentence: str


def refusal(status: int, media_type: str, body: bytes) -> Refusal:
    """What a server, or something between us and it, said."""
    if media_type.partition(";")[0].strip().lower() == "application/problem+json":
        try:
            told = json.loads(body)
            return Refusal(status, str(told["type"]), str(told["detail"])[:SENTENCE_MAX])
        except (ValueError, KeyError, TypeError):
            pass
    return Refusal(status, "", f"the server answered {status} without saying why; something in front of it may have done so")


def error_of(told: Refusal) -> FairlaneError:
    """The error to raise."""
    kind = KINDS.get(told.word)
    if kind is None:
        kind = Mistake if 400 <= told.status < 500 and told.status not in (408, 429) else StoreError
    error = kind.__new__(kind, told.sentence)  # the sentence was made by the server: it is passed on, not made again
    if isinstance(error, BadValue):
        error.name, error.value = told.sentence.partition(" ")[0], None
    if isinstance(error, KeyConflict):
        error.document = ""
    return error
