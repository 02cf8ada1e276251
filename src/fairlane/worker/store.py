"""How does the worker use the store? Off its loop, in groups, and again and again when the store fails.

Laws:
- Only one thread settles and claims, so the loop never waits for the store; a second one waits for work while there is
  none, and claims what it was woken for.
- A failure of the store is told and waited out; what was to be settled stays to be settled.
- A settlement that the store cannot take, for whatever reason of its own, does not hold up the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from fairlane.core.document import Claim, Failed, Outcome, State
from fairlane.core.errors import StoreError
from fairlane.engine.protocol import Engine

from .document import cleaned, told_of

RECLAIM_AT_ONCE = 200
UNENDED: tuple[State, ...] = ("running", "delayed", "ready")

Settlement = tuple[Claim, Outcome]


class Exchange(NamedTuple):
    """What came of one visit to the store."""

    settled: int  # so many of the settlements, from the first, are no longer ours to settle
    lost: list[Claim]  # of those
    asked: float  # on the monotonic clock, before the store was asked for documents
    claims: list[Claim]
    failure: str | None = None


class Store:
    """The worker's use of an engine."""

    def __init__(self, engine: Engine, worker: str, lease_ms: int, kinds: Mapping[str, int]) -> None:
        self._engine = engine
        self._worker = worker
        self._lease_ms = lease_ms
        self._kinds = kinds

    def exchange(self, settlements: Sequence[Settlement], limit: int) -> Exchange:
        """Settle what is finished, then claim up to `limit` more."""
        lost: list[Claim] = []
        asked, settled = time.monotonic(), 0
        try:
            if settlements:
                lost = self._settle(settlements)
                settled = len(settlements)
            asked = time.monotonic()
            claims = self._engine.claim(self._worker, limit, self._lease_ms, self._kinds) if limit else []
        except StoreError as error:
            return Exchange(settled, lost, asked, [], told_of(error))
        return Exchange(settled, lost, asked, claims)

    def _settle(self, settlements: Sequence[Settlement]) -> list[Claim]:
        try:
            return self._engine.settle(settlements)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever the store cannot take must not hold up the others
            if len(settlements) > 1:
                return [lost for one in settlements for lost in self._settle([one])]
            ((claim, outcome),) = settlements
            if isinstance(outcome, Failed):
                return [claim]  # not even that: the lease will end it
            return self._settle([(claim, Failed(cleaned(f"its outcome could not be kept: {told_of(error)}")))])

    def reclaim(self) -> str | None:
        """Give back documents of workers that died; says what failed, if it did."""
        try:
            while self._engine.reclaim(RECLAIM_AT_ONCE) == RECLAIM_AT_ONCE:
                pass
        except StoreError as error:
            return told_of(error)
        return None

    def await_and_claim(self, seconds: float, limit: Callable[[], int]) -> Exchange | None:
        """Wait until a document may be ready, and claim at once, up to the limit of then; None if none came in that time."""
        try:
            if not self._engine.wait(seconds, list(self._kinds)):
                return None
        except StoreError as error:
            time.sleep(seconds)
            return Exchange(0, [], time.monotonic(), [], told_of(error))
        return self.exchange([], limit())

    def is_empty(self) -> bool:
        """Whether nothing of our kinds runs, is delayed, or is ready and not paused."""
        try:
            return not any(self._has(state) for state in UNENDED)
        except StoreError:
            return False

    def _has(self, state: State) -> bool:
        before: int | None = None
        while page := self._engine.documents(None, state, before, RECLAIM_AT_ONCE):
            for one in page:
                if one.kind in self._kinds and not (state == "ready" and self._engine.customer(one.customer).terms.paused):
                    return True
            before = page[-1].number
        return False
