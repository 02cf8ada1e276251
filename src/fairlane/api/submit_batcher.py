"""How do submissions that arrive together share one commit?

The first one starts a commit on the store's thread; whoever arrives meanwhile forms the next group. A mistake of one (a key
that was used for another body) makes its group go one by one, so that it is the mistake of its sender alone.

Laws:
- A submission is answered after its commit, or with the error of the store; never in between.
- What is believed of a customer for a moment (how many wait, how many are ahead) is for limits and estimates only.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import NamedTuple

from fairlane.core.document import ReceiptRow, Submission
from fairlane.core.errors import FairlaneError, Mistake
from fairlane.engine import Engine

from .problems import Problem

GROUP_MAX = 256
BELIEVED_SECONDS = 2.0
BELIEVED_MAX = 20_000


class Accepted(NamedTuple):
    """A document that was taken, or was taken before with the same key."""

    receipt: ReceiptRow
    ahead: int
    is_repeat: bool
    delay_ms: int


class _Count:
    """A number that was read, and when."""

    __slots__ = ("at", "value")

    def __init__(self, value: int, at: float) -> None:
        self.value = value
        self.at = at


class SubmitBatcher:
    """Takes submissions one by one and hands them to the store in groups."""

    def __init__(
        self,
        engine: Engine,
        thread: Executor,
        queued_max: int,
        at_once_max: int,
        taken: Callable[[Accepted], None] = lambda one: None,
    ) -> None:
        self._engine = engine
        self._thread = thread  # one thread, so that groups follow each other
        self._taken = taken  # told of every document that was taken, on the loop
        self._queued_max = queued_max
        self._at_once_max = at_once_max
        self._waiting: list[tuple[Submission, asyncio.Future[Accepted]]] = []
        self._is_busy = False
        self._queued: dict[str, _Count] = {}
        self._ahead: dict[tuple[str, str, int], _Count] = {}

    async def submit(self, one: Submission) -> Accepted:
        """One document, in a commit with others."""
        if len(self._waiting) >= self._at_once_max:
            raise Problem("overloaded", "more documents arrive than the store can take; try again in a moment", retry_after=1)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Accepted] = loop.create_future()
        self._waiting.append((one, future))
        if not self._is_busy:
            self._is_busy = True
            loop.call_soon(self._begin, loop)  # whoever arrived in the same moment comes along
        return await future

    async def submit_all(self, submissions: Sequence[Submission]) -> list[Accepted]:
        """All or none, in one commit of their own."""
        loop = asyncio.get_running_loop()
        taken = await loop.run_in_executor(self._thread, self._take_all, submissions)
        for one in taken:
            self._taken(one)
        return taken

    async def refuse_full(self, customer: str) -> None:
        """Refuse a document of a customer that has too many waiting, before its bytes are read."""

        def check() -> None:
            if self._room(customer, time.monotonic()).value >= self._queued_max:
                raise self._full()

        await asyncio.get_running_loop().run_in_executor(self._thread, check)

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        group, self._waiting = self._waiting[:GROUP_MAX], self._waiting[GROUP_MAX:]
        taking = loop.run_in_executor(self._thread, self._take_each, [one for one, _ in group])
        taking.add_done_callback(lambda taken: self._end(loop, [future for _, future in group], taken))

    def _end(
        self,
        loop: asyncio.AbstractEventLoop,
        futures: list[asyncio.Future[Accepted]],
        taken: asyncio.Future[list[Accepted | Exception]],
    ) -> None:
        if self._waiting:
            self._begin(loop)
        else:
            self._is_busy = False
        error = taken.exception()
        outcomes = [error] * len(futures) if error is not None else taken.result()
        for future, outcome in zip(futures, outcomes, strict=True):
            if future.done():  # its sender has gone; the document stays
                continue
            if isinstance(outcome, BaseException):
                future.set_exception(outcome)
            else:
                self._taken(outcome)
                future.set_result(outcome)

    # -- on the thread -------------------------------------------------------------------------------------------------

    def _take_each(self, submissions: list[Submission]) -> list[Accepted | Exception]:
        now = time.monotonic()
        outcomes: list[Accepted | Exception | None] = []
        for one in submissions:
            room = self._room(one.customer, now)
            outcomes.append(self._full() if room.value >= self._queued_max else None)
            room.value += outcomes[-1] is None
        wanted = [place for place, outcome in enumerate(outcomes) if outcome is None]
        try:
            receipts: Sequence[ReceiptRow | FairlaneError] = self._engine.submit([submissions[place] for place in wanted])
        except Mistake:
            receipts = [self._alone(submissions[place]) for place in wanted]
        return self._answered(submissions, outcomes, dict(zip(wanted, receipts, strict=True)), now)

    def _answered(
        self,
        submissions: list[Submission],
        refused: list[Accepted | Exception | None],
        receipts: dict[int, ReceiptRow | FairlaneError],
        now: float,
    ) -> list[Accepted | Exception]:
        answers: list[Accepted | Exception] = []
        for place, (one, refusal) in enumerate(zip(submissions, refused, strict=True)):
            receipt = receipts.get(place)
            if receipt is None:
                assert refusal is not None
                answers.append(refusal)
            elif isinstance(receipt, FairlaneError):
                answers.append(receipt)
            else:
                answers.append(Accepted(receipt, self._about_ahead(receipt, one.kind, now), receipt.id != one.id, one.delay_ms))
        return answers

    def _take_all(self, submissions: Sequence[Submission]) -> list[Accepted]:
        now = time.monotonic()
        customer = submissions[0].customer
        room = self._room(customer, now)
        if room.value + len(submissions) > self._queued_max:
            raise self._full()
        receipts = self._engine.submit(submissions)
        room.value += len(submissions)
        return [
            Accepted(receipt, self._about_ahead(receipt, one.kind, now), receipt.id != one.id, one.delay_ms)
            for one, receipt in zip(submissions, receipts, strict=True)
        ]

    def _alone(self, one: Submission) -> ReceiptRow | FairlaneError:
        try:
            return self._engine.submit([one])[0]
        except FairlaneError as error:
            return error

    def _room(self, customer: str, now: float) -> _Count:
        """About how many documents of a customer wait."""
        known = self._queued.get(customer)
        if known is None or now - known.at > BELIEVED_SECONDS:
            if len(self._queued) >= BELIEVED_MAX:
                self._queued.clear()
            known = self._queued[customer] = _Count(self._engine.customer(customer).waiting, now)
        return known

    def _full(self) -> Problem:
        return Problem(
            "too-many-queued",
            f"{self._queued_max:,} documents of this customer wait already, which is the most; try again when some are done",
            retry_after=10,
        )

    def _about_ahead(self, receipt: ReceiptRow, kind: str, now: float) -> int:
        """About how many documents go first; read once in a while for each lane, and counted on in between."""
        lane = (receipt.customer, kind, receipt.priority)
        known = self._ahead.get(lane)
        if known is None or now - known.at > BELIEVED_SECONDS:
            if len(self._ahead) >= BELIEVED_MAX:
                self._ahead.clear()
            outlook = self._engine.outlook(receipt.id)
            known = self._ahead[lane] = _Count(0 if outlook is None else outlook.ahead, now)
        else:
            known.value += 1
        return known.value
