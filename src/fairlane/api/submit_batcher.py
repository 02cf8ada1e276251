"""Submissions that arrive together share one commit.

The first submission starts a commit on the store's thread; those that arrive meanwhile form the next group. If one of a group
is refused (a key that was used for another body), the group is submitted one by one, so that only its sender sees the error. If
a customer has reached a limit, only its own submissions are.

Laws:
- A submission gets its response after its commit, or with the error of the store; never in between.
- What is cached for a moment (how many are ahead) is for estimates only.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from fairlane.core.document import ReceiptRow, Submission
from fairlane.core.errors import FairlaneError, LimitReached, Mistake, StoreError
from fairlane.engine import Engine
from fairlane.engine.limits import refuse_full

from .problems import Problem

GROUP_MAX = 256
CACHE_SECONDS = 2.0
CACHE_MAX = 20_000


class Accepted(NamedTuple):
    """A document that was accepted, now or before with the same key."""

    receipt: ReceiptRow
    ahead: int
    is_repeat: bool
    delay_ms: int
    kind: str


class _CachedCount:
    """A number that was read, and when."""

    __slots__ = ("at", "value")

    def __init__(self, value: int, at: float) -> None:
        self.value = value
        self.at = at


class SubmitBatcher:
    """Takes submissions one by one and passes them to the store in groups."""

    def __init__(
        self,
        engine: Engine,
        call: Callable[..., Awaitable[Any]],
        pending_max: int,
        on_accepted: Callable[[Accepted], None],
    ) -> None:
        self._engine = engine
        self._call = call  # on one thread, so that groups follow each other
        self._on_accepted = on_accepted  # called on the loop for every document
        self._pending_max = pending_max
        self._pending: list[tuple[Submission, asyncio.Future[Accepted]]] = []
        self._is_committing = False
        self._ahead: dict[tuple[str, str, int], _CachedCount] = {}

    async def submit(self, submission: Submission) -> Accepted:
        """Submit one document, in a commit with others."""
        if len(self._pending) >= self._pending_max:
            raise Problem("overloaded", "more documents arrive than the store can take; try again in a moment", retry_after=1)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Accepted] = loop.create_future()
        self._pending.append((submission, future))
        if not self._is_committing:
            self._is_committing = True
            loop.call_soon(self._start_commit, loop)  # so that submissions of the same moment join it
        return await future

    async def submit_all(self, submissions: Sequence[Submission]) -> list[Accepted]:
        """Submit all or none, in one commit of their own."""
        accepted: list[Accepted] = await self._call(self._commit_all, submissions)
        for document in accepted:
            self._on_accepted(document)
        return accepted

    async def refuse_full(self, customer: str, documents: int = 1, size: int = 1) -> None:
        """Refuse documents of a customer that has reached a limit now, before their bytes are read."""
        await self._call(lambda: refuse_full(self._engine.customer(customer), documents, size))

    def _start_commit(self, loop: asyncio.AbstractEventLoop) -> None:
        group, self._pending = self._pending[:GROUP_MAX], self._pending[GROUP_MAX:]
        commit = self._call(self._commit_each, [submission for submission, _ in group])
        self._commit = asyncio.ensure_future(commit)
        self._commit.add_done_callback(lambda done: self._end_commit(loop, [future for _, future in group], done))

    def _end_commit(
        self,
        loop: asyncio.AbstractEventLoop,
        futures: list[asyncio.Future[Accepted]],
        commit: asyncio.Future[list[Accepted | Exception]],
    ) -> None:
        if self._pending:
            self._start_commit(loop)
        else:
            self._is_committing = False
        error = StoreError("the server stops") if commit.cancelled() else commit.exception()
        outcomes = [error] * len(futures) if error is not None else commit.result()
        for future, outcome in zip(futures, outcomes, strict=True):
            if future.done():  # its sender has gone; the document stays
                continue
            if isinstance(outcome, BaseException):
                future.set_exception(outcome)
            else:
                self._on_accepted(outcome)
                future.set_result(outcome)

    # -- on the thread -------------------------------------------------------------------------------------------------

    def _commit_each(self, submissions: list[Submission]) -> list[Accepted | Exception]:
        """Submit a group; each gets a receipt or an error of its own."""
        now = time.monotonic()
        outcomes: dict[str, ReceiptRow | FairlaneError] = {}
        group: Sequence[Submission] = submissions
        while group:
            try:
                receipts = self._engine.submit(group)
            except Mistake as error:
                alone = self._at_fault(group, error)
                outcomes |= {submission.id: self._commit_alone(submission) for submission in alone}
                group = [submission for submission in group if submission.id not in outcomes]
            else:
                outcomes |= {submission.id: receipt for submission, receipt in zip(group, receipts, strict=True)}
                break
        return [self._outcome(submission, outcomes[submission.id], now) for submission in submissions]

    def _at_fault(self, group: Sequence[Submission], error: Mistake) -> Sequence[Submission]:
        """Return the submissions that may have caused an error: those of a customer at its limit, else all."""
        name = error.name if isinstance(error, LimitReached) else None
        return [submission for submission in group if submission.customer == name] or group

    def _outcome(self, submission: Submission, outcome: ReceiptRow | FairlaneError, now: float) -> Accepted | Exception:
        return outcome if isinstance(outcome, FairlaneError) else self._accepted(submission, outcome, now)

    def _commit_all(self, submissions: Sequence[Submission]) -> list[Accepted]:
        now = time.monotonic()
        receipts = self._engine.submit(submissions)
        return [self._accepted(submission, receipt, now) for submission, receipt in zip(submissions, receipts, strict=True)]

    def _commit_alone(self, submission: Submission) -> ReceiptRow | FairlaneError:
        try:
            return self._engine.submit([submission])[0]
        except FairlaneError as error:
            return error

    def _accepted(self, submission: Submission, receipt: ReceiptRow, now: float) -> Accepted:
        ahead = self._estimate_ahead(receipt, submission.kind, now)
        return Accepted(receipt, ahead, receipt.id != submission.id, submission.delay_ms, submission.kind)

    def _estimate_ahead(self, receipt: ReceiptRow, kind: str, now: float) -> int:
        """Return about how many documents go first; read once in a while for each lane, and counted up in between."""
        lane = (receipt.customer, kind, receipt.priority)
        count = self._ahead.get(lane)
        if count is None or now - count.at > CACHE_SECONDS:
            if len(self._ahead) >= CACHE_MAX:
                self._ahead.clear()
            outlook = self._engine.outlook(receipt.id)
            count = self._ahead[lane] = _CachedCount(0 if outlook is None else outlook.ahead, now)
        else:
            count.value += 1
        return count.value
