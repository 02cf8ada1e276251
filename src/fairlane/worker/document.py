"""A document as its handler sees it, and the outcome of what the handler returns or raises.

Laws:
- A returned value is the result, with which the next step begins if there is one. A returned `Split` makes parts of the
  document. `Fail` ends the document; `Retry` and every other exception request another attempt.
- A file whose encryption key is missing here postpones the document: no attempt is spent.
- A result that cannot be stored (not JSON, too large) fails the document: another attempt would return it again.
- A reason is one short text that every store accepts. Customers see it, so it never holds a store's own message, which names
  hosts and files; that is in the traceback, for operators.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, BinaryIO, NamedTuple

from fairlane.blobs.envelope import (
    PART,
    PARTS,
    Pipeline,
    StepResult,
    pipeline_of,
    result_digest,
    results_bytes,
    unwrap_payload,
    wrap_part,
    wrap_payload,
    wrap_results,
)
from fairlane.blobs.files import Files
from fairlane.core.document import PARTS_MAX, Claim, Continued, Done, Failed, Outcome, Retried, Submission, validate_text
from fairlane.core.errors import BadValue, BlobDamaged, Mistake, StoreError, Unknown
from fairlane.core.policy import STEP, to_milliseconds, to_thousandths
from fairlane.core.retry import DELAY_MAX_MS, Backoff
from fairlane.encryption import KeyMissing
from fairlane.queue import PARTIAL_BYTES_MAX, json_text, new_ids

REASON_LENGTH_MAX = 1000
STEPS_BYTES_MAX = 1024 * 1024  # of a document's payload with the results of its steps, and of the payloads of its parts
PROGRESS_LENGTH_MAX = 200
KEY_PAUSE_MS = 30_000  # until a document comes back whose file is encrypted with a key that is not here
REPORTS_AT_ONCE = 20  # and as many a second; further ones are dropped, but the last one is always sent


class Retry(Exception):
    """Raised by a handler: try again, after a while (a number is seconds) or by the worker's back-off.

    With `counted=False` it is only too early: the document comes back after that while, and no attempt was spent.
    """

    def __init__(self, after: float | timedelta | None = None, reason: str = "", *, counted: bool = True) -> None:
        if type(counted) is not bool:
            raise BadValue("counted", counted, "True or False")
        if after is None and not counted:
            raise BadValue("after", after, "a time with counted=False, or the document would come back at once")
        self._after_ms = None if after is None else to_milliseconds("after", after, 0 if counted else 1, DELAY_MAX_MS)
        self.counted = counted
        self.reason = str(reason)
        super().__init__(self.reason or ("the handler asked for another attempt" if counted else "the handler postponed it"))


class Fail(Exception):
    """Raised by a handler: the document ends as failed, another attempt would not help."""

    def __init__(self, reason: str) -> None:
        self.reason = str(reason)
        super().__init__(self.reason)


class Split:
    """Returned by a handler: the document is split, each part with a payload of its own and the same file.

    Parts are documents, of the same kind unless another is named, and inherit the priority. When all are done, the document
    comes back as the same kind, with their results in `document.parts`. When one fails, so does the document.
    """

    def __init__(self, payloads: Sequence[Any], *, kind: str | None = None, costs: Sequence[float] | None = None) -> None:
        if not isinstance(payloads, Sequence) or isinstance(payloads, str | bytes) or not 1 <= len(payloads) <= PARTS_MAX:
            raise BadValue("payloads", payloads, f"a list of 1 to {PARTS_MAX:,} payloads, one for each part")
        if costs is not None and len(costs) != len(payloads):
            raise BadValue("costs", costs, f"as many as there are payloads, {len(payloads):,}")
        self.payloads = list(payloads)
        self.kind = None if kind is None else validate_text("kind", kind, 100)
        self.costs = None if costs is None else [to_thousandths("costs", cost, 0.001, 10_000) for cost in costs]


class ProgressReport(NamedTuple):
    """What a handler reports while it works; None is what it has not reported."""

    progress: float | str | None = None
    partial: str | None = None  # JSON text


class ClaimedDocument:
    """One document in a handler's hands."""

    def __init__(self, claim: Claim, send: Callable[[ProgressReport], None], files: Callable[[], Files]) -> None:
        self.id = claim.id
        self.customer = claim.customer
        self.kind = claim.kind
        self.priority = claim.priority
        self.attempt = claim.attempts
        self.attempts_max = claim.attempts_max
        self.token = claim.token  # rises with every claim: use it to fence writes to other systems, too
        stored = json.loads(claim.payload)
        self.file, self.payload = unwrap_payload(stored)
        self._pipeline = pipeline_of(stored)
        self._parts: list[Any] | None = stored.get(PARTS) if self._pipeline.parts else None
        self.results = {step.kind: step.result for step in self._pipeline.results}  # of the steps before this one
        self.part = self._pipeline.part or None  # which part of its whole it is, from 1; None: it is none
        self.slices = self._pipeline.slices or None  # it may be read in slices of so many pages
        self.cost: float | None = None  # set it if the document cost something else than its submission said
        self._files = files
        self._send = send
        self._report = ProgressReport()
        self._is_sent = True
        self._sent_count = 0
        self._began_at = time.monotonic()

    def __repr__(self) -> str:
        return f"<Document {self.id} of {self.customer}, kind {self.kind}, attempt {self.attempt} of {self.attempts_max}>"

    @property
    def parts(self) -> list[Any] | None:
        """The results of its parts, in order; None before it was split."""
        if self._pipeline.parts and self._parts is None:
            raise StoreError("the results of its parts could not be read; they will be at the next attempt")
        return self._parts

    def open(self) -> BinaryIO:
        """Open the submitted file for reading, checked by its hash; close it, or use it in a `with`."""
        if self.file is None:
            raise Mistake(f"document {self.id} was submitted without a file; all it has is its payload")
        try:
            return self._files().open_input(self.customer, self.file.of or self.id, self.file)
        except Unknown as error:  # nobody's mistake: the document exists, and its bytes should
            raise StoreError(str(error)) from error

    def put_results(
        self, *, text: str | bytes | BinaryIO | None = None, facts: Any = None, thumbnail: bytes | BinaryIO | None = None
    ) -> dict[str, Any]:
        """Write result files beside the queue; add the returned value to the result, so that they can be found."""
        written = self._files().put_results(
            self.customer, self.id, self.token, text=text, facts=facts, thumbnail=thumbnail,
            has_input=self.file is not None and self.file.of is None,
        )  # fmt: skip
        return wrap_results(written) | (wrap_part(self.id, self.token) if self.part else {})

    def open_part(self, number: int, name: str) -> BinaryIO:
        """Open a file that one of its parts wrote with `put_results`: the text, facts or thumbnail of part 1, 2, …"""
        result = (self.parts or ())[number - 1]
        digest, part = result_digest(result, name), result.get(PART) if isinstance(result, dict) else None
        if digest is None or part is None:
            raise Unknown(f"part {number} of document {self.id} has no {name}")
        return self._files().open_result(self.customer, part["id"], part["token"], name, digest)

    def progress(self, value: float | str) -> None:
        """Report how far the work is: a share from 0 to 1, or a few words."""
        is_share = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
        if not is_share and not (isinstance(value, str) and len(value) <= PROGRESS_LENGTH_MAX):
            raise BadValue("progress", value, f"a share from 0 to 1, or text of at most {PROGRESS_LENGTH_MAX} characters")
        self._update(self._report._replace(progress=clean_text(value) if isinstance(value, str) else value))

    def partial(self, value: Any) -> None:
        """Publish a partial result; the next one replaces it, and so does the result."""
        self._update(self._report._replace(partial=json_text("partial result", value, PARTIAL_BYTES_MAX)))

    def _next_step(self, result: Any) -> Continued | None:
        """Return how the document goes on with the result of this step; None: this was the last one."""
        pipeline = self._pipeline
        if pipeline.next_kind is None:
            return None
        step = StepResult(self.kind, self.token, result)
        after = pipeline._replace(results=(*pipeline.results, step), parts=0)
        return Continued(pipeline.next_kind, self._payload(after), (), cost_of(self), results_bytes(result))

    def _split(self, split: Split) -> Continued:
        """Return how the document goes on when these parts are done."""
        count = len(split.payloads)
        file = self.file and self.file._replace(of=self.file.of or self.id, by_pages=False)
        kind, payloads = split.kind or self.kind, [json_text("payload of a part", payload) for payload in split.payloads]
        payloads = [wrap_payload(file, text, Pipeline(part=number)) for number, text in enumerate(payloads, start=1)]
        parts = tuple(
            Submission(id, self.customer, kind, text, cost, made_from=self.id)
            for id, text, cost in zip(new_ids(count), payloads, split.costs or [STEP] * count, strict=True)
        )
        size = sum(len(part.payload) for part in parts)
        if size > STEPS_BYTES_MAX:
            raise BadValue(
                "payloads", f"{size:,} characters", f"at most {STEPS_BYTES_MAX:,} in all; keep large content in files"
            )
        return Continued(self.kind, self._payload(self._pipeline._replace(parts=count)), parts, cost_of(self))

    def _payload(self, pipeline: Pipeline) -> str:
        text = wrap_payload(self.file, json_text("payload", self.payload), pipeline)
        if len(text) > STEPS_BYTES_MAX:
            raise BadValue(
                "results", f"{len(text):,} characters of all steps", f"at most {STEPS_BYTES_MAX:,}; keep large content in files"
            )
        return text

    def _update(self, report: ProgressReport) -> None:
        """Send a report, unless the handler reports so often that it would keep the worker busy."""
        self._report, self._is_sent = report, False
        if self._sent_count < REPORTS_AT_ONCE * (1 + time.monotonic() - self._began_at):
            self.flush_report()

    def flush_report(self) -> None:
        """Send the newest report if it was held back."""
        if not self._is_sent:
            self._sent_count += 1
            self._is_sent = True
            self._send(self._report)


def clean_text(reason: str) -> str:
    """Make a text that every store accepts: no NUL, no lone surrogates, not too long."""
    text = reason.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
    return text if len(text) <= REASON_LENGTH_MAX else text[: REASON_LENGTH_MAX - 1] + "…"


def outcome_of_value(document: ClaimedDocument, value: Any) -> Outcome:
    """Turn a handler's return value into an outcome."""
    try:
        if isinstance(value, Split):
            return document._split(value)
        result = None if value is None else json_text("result", value)
        return document._next_step(value) or Done(result, cost_of(document), results_bytes(value))
    except BadValue as error:
        return Failed(clean_text(f"the handler of {document.kind!r} returned what cannot be kept: {error}"))


def outcome_of_error(document: ClaimedDocument, error: BaseException, backoff: Backoff, dice: float) -> Outcome:
    """Turn a handler's exception into an outcome."""
    try:
        cost = cost_of(document)
    except BadValue as bad_cost:
        return Failed(clean_text(str(bad_cost)))
    if isinstance(error, Fail):
        return Failed(clean_text(error.reason), cost)
    if isinstance(error, KeyMissing):  # nothing is wrong with the document: it waits for a worker that has the key
        return Retried(KEY_PAUSE_MS, f"this worker does not have encryption key {error.key_id}", counted=False)
    after_ms = error._after_ms if isinstance(error, Retry) else None
    if after_ms is None:
        after_ms = backoff.delay_ms(document.attempt, dice)
    counted = not isinstance(error, Retry) or error.counted
    return Retried(after_ms, clean_text(describe_error(error)), cost, counted)


def describe_error(error: BaseException) -> str:
    """Describe an exception: its type and its message."""
    if isinstance(error, Retry):
        return str(error)
    if isinstance(error, StoreError) and not isinstance(error, BlobDamaged):
        return f"{type(error).__name__}: the queue's store or its files could not be used"
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - the user's exception may fail at that, too
        message = ""
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def cost_of(document: ClaimedDocument) -> int | None:
    """Return the corrected cost in thousandths, if the handler set one."""
    return None if document.cost is None else to_thousandths("document.cost", document.cost, 0.001, 10_000)
