"""What does a handler see of its document, and what does its answer mean?

Laws:
- A returned value is the result. `Fail` ends the document; `Retry` and every other exception ask for another attempt.
- A result that cannot be kept (no JSON, too large) fails the document: another attempt would return it again.
- A reason is one short text that every store can keep.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, BinaryIO, NamedTuple

from fairlane.blobs.envelope import unwrap_payload, wrap_results
from fairlane.blobs.files import Files
from fairlane.core.document import Claim, Done, Failed, Outcome, Retried
from fairlane.core.errors import BadValue, Mistake
from fairlane.core.policy import to_milliseconds, to_thousandths
from fairlane.core.retry import DELAY_MAX_MS, Backoff
from fairlane.queue import PARTIAL_BYTES_MAX, json_text

REASON_LENGTH_MAX = 1000
PROGRESS_LENGTH_MAX = 200
REPORTS_AT_ONCE = 20  # and as many a second; more are not passed on, but the last one always is


class Retry(Exception):
    """Raised by a handler: try again, after so many seconds or by the worker's back-off."""

    def __init__(self, after: float | None = None, reason: str = "") -> None:
        self.after_ms = None if after is None else to_milliseconds("after", after, 0, DELAY_MAX_MS)
        self.reason = str(reason)
        super().__init__(self.reason or "the handler asked for another attempt")


class Fail(Exception):
    """Raised by a handler: the document ends as failed, another attempt would not help."""

    def __init__(self, reason: str) -> None:
        self.reason = str(reason)
        super().__init__(self.reason)


class Report(NamedTuple):
    """What a handler tells while it works; None is what it has not told."""

    progress: float | str | None = None
    partial: str | None = None  # JSON text


class Document:
    """One document in a handler's hands."""

    def __init__(self, claim: Claim, report: Callable[[Report], None], files: Callable[[], Files]) -> None:
        self.id = claim.id
        self.customer = claim.customer
        self.kind = claim.kind
        self.priority = claim.priority
        self.attempt = claim.attempts
        self.attempts_max = claim.attempts_max
        self.token = claim.token  # rises with every claim: with it, writes to other places can be fenced too
        self.file, self.payload = unwrap_payload(json.loads(claim.payload))
        self.cost: float | None = None  # set it when the document cost something else than was said at submission
        self._files = files
        self._report = report
        self._told = Report()
        self._is_told = True
        self._reports = 0
        self._began = time.monotonic()

    def __repr__(self) -> str:
        return f"<Document {self.id} of {self.customer}, kind {self.kind}, attempt {self.attempt} of {self.attempts_max}>"

    def open(self) -> BinaryIO:
        """The bytes that were handed in, checked by their hash, as a file to read; close it, or use it in a `with`."""
        if self.file is None:
            raise Mistake(f"document {self.id} was submitted without a file; its payload is all that was handed in")
        return self._files().open_input(self.customer, self.id, self.file)

    def put_results(
        self, *, text: str | bytes | BinaryIO | None = None, facts: Any = None, thumbnail: bytes | BinaryIO | None = None
    ) -> dict[str, Any]:
        """Write what came out beside the queue; add what this returns to the result, so that it can be read."""
        written = self._files().put_results(
            self.customer, self.id, self.token, text=text, facts=facts, thumbnail=thumbnail, has_input=self.file is not None
        )
        return wrap_results(written)

    def progress(self, told: float | str) -> None:
        """Tell how far it is: a share from 0 to 1, or a few words."""
        is_share = isinstance(told, int | float) and not isinstance(told, bool) and 0 <= told <= 1
        if not is_share and not (isinstance(told, str) and len(told) <= PROGRESS_LENGTH_MAX):
            raise BadValue("progress", told, f"a share from 0 to 1, or text of at most {PROGRESS_LENGTH_MAX} characters")
        self._tell(self._told._replace(progress=cleaned(told) if isinstance(told, str) else told))

    def partial(self, value: Any) -> None:
        """Show what is there so far; the next partial result replaces it, and so does the result."""
        self._tell(self._told._replace(partial=json_text("partial result", value, PARTIAL_BYTES_MAX)))

    def _tell(self, told: Report) -> None:
        """Pass it on, unless a handler that reports all the time would keep the worker busy with that."""
        self._told, self._is_told = told, False
        if self._reports < REPORTS_AT_ONCE * (1 + time.monotonic() - self._began):
            self.tell_last()

    def tell_last(self) -> None:
        """Pass on what was told and not passed on."""
        if not self._is_told:
            self._reports += 1
            self._is_told = True
            self._report(self._told)


def cleaned(reason: str) -> str:
    """Text that every store can keep: no NUL, no lone surrogates, and not too long."""
    told = reason.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
    return told if len(told) <= REASON_LENGTH_MAX else told[: REASON_LENGTH_MAX - 1] + "…"


def returned(document: Document, value: Any) -> Outcome:
    """What a handler's value means."""
    try:
        result = None if value is None else json_text("result", value)
        return Done(result, cost_of(document))
    except BadValue as mistake:
        return Failed(cleaned(f"the handler of {document.kind!r} returned what cannot be kept: {mistake}"))


def raised(document: Document, error: BaseException, backoff: Backoff, dice: float) -> Outcome:
    """What a handler's exception means."""
    try:
        cost = cost_of(document)
    except BadValue as mistake:
        return Failed(cleaned(str(mistake)))
    if isinstance(error, Fail):
        return Failed(cleaned(error.reason), cost)
    after_ms = error.after_ms if isinstance(error, Retry) else None
    if after_ms is None:
        after_ms = backoff.delay_ms(document.attempt, dice)
    return Retried(after_ms, cleaned(told_of(error)), cost)


def told_of(error: BaseException) -> str:
    """An exception as a reason: its type and what it says."""
    if isinstance(error, Retry):
        return str(error)
    try:
        says = str(error)
    except Exception:  # noqa: BLE001 - somebody else's exception may not even know what it says
        says = ""
    return f"{type(error).__name__}: {says}" if says else type(error).__name__


def cost_of(document: Document) -> int | None:
    """The corrected cost in thousandths, if the handler set one."""
    return None if document.cost is None else to_thousandths("document.cost", document.cost, 0.001, 10_000)
