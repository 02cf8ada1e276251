"""Submissions that arrive together share one commit.

The first submission starts a commit on the store's thread; those that arrive meanwhile form the next group. If one of a group
is refused (a key that was used for another body), the group is submitted one by one, so that only its sender sees the error.

Laws:
- A submission gets its response after its commit, or with the error of the store; never in between.
- What is cached of a customer for a moment (how many wait, how many are ahead) is for limits and estimates only.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from fairlane.core.document import ReceiptRow, Submission
from fairlane.core.errors import FairlaneError, Mistake, StoreError
from fairlane.engine import Engine

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
        queued_max: int,
        pending_max: int,
        on_accepted: Callable[[Accepted], None],
    ) -> None:
        self._engine = engine
        self._call = call  # on one thread, so that groups follow each other
        self._on_accepted = on_accepted  # called on the loop for every document
        self._queued_max = queued_max
        self._pending_max = pending_max
        self._pending: list[tuple[Submission, asyncio.Future[Accepted]]] = []
        self._is_committing = False
        self._queued: dict[str, _CachedCount] = {}
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

    async def refuse_full(self, customer: str) -> None:
        """Refuse a document of a customer that has too many waiting, before its bytes are read."""

        def check() -> None:
            if self._count_queued(customer, time.monotonic()).value >= self._queued_max:
                raise self._too_many_queued()

        await self._call(check)

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
        outcomes: dict[str, Accepted | Exception] = {}
        allowed: list[Submission] = []
        for submission in submissions:
            queued = self._count_queued(submission.customer, now)
            if queued.value >= self._queued_max:
                outcomes[submission.id] = self._too_many_queued()
            else:
                queued.value += 1
                allowed.append(submission)
        try:
            receipts: Sequence[ReceiptRow | FairlaneError] = self._engine.submit(allowed)
        except Mistake:
            receipts = [self._commit_alone(submission) for submission in allowed]
        for submission, receipt in zip(allowed, receipts, strict=True):
            if isinstance(receipt, FairlaneError):
                outcomes[submission.id] = receipt
            else:
                outcomes[submission.id] = self._accepted(submission, receipt, now)
        return [outcomes[submission.id] for submission in submissions]

    def _commit_all(self, submissions: Sequence[Submission]) -> list[Accepted]:
        now = time.monotonic()
        queued = self._count_queued(submissions[0].customer, now)
        if queued.value + len(submissions) > self._queued_max:
            raise self._too_many_queued()
        receipts = self._engine.submit(submissions)
        queued.value += len(submissions)
        return [self._accepted(submission, receipt, now) for submission, receipt in zip(submissions, receipts, strict=True)]

    def _commit_alone(self, submission: Submission) -> ReceiptRow | FairlaneError:
        try:
            return self._engine.submit([submission])[0]
        except FairlaneError as error:
            return error

    def _accepted(self, submission: Submission, receipt: ReceiptRow, now: float) -> Accepted:
        ahead = self._estimate_ahead(receipt, submission.kind, now)
        return Accepted(receipt, ahead, receipt.id != submission.id, submission.delay_ms, submission.kind)

    def _count_queued(self, customer: str, now: float) -> _CachedCount:
        """Return about how many documents of a customer wait."""
        count = self._queued.get(customer)
        if count is None or now - count.at > CACHE_SECONDS:
            if len(self._queued) >= CACHE_MAX:
                self._queued.clear()
            count = self._queued[customer] = _CachedCount(self._engine.customer(customer).waiting, now)
        return count

    def _too_many_queued(self) -> Problem:
        return Problem(
            "too-many-queued",
            f"{self._queued_max:,} documents of this customer wait already, which is the most; try again when some are done",
            retry_after=10,
        )

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
