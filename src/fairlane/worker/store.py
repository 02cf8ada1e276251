"""The worker's calls to the store: in batches, on threads, and repeated when the store fails.

Laws:
- Only one thread settles and claims, so the loop never waits for the store; a second one waits for work while there is
  none, and claims what it was woken for.
- A failure of the store is reported and waited out; what was to be settled stays to be settled.
- A settlement that the store cannot take, for whatever reason of its own, does not hold up the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from fairlane.blobs.envelope import add_part_results, waits_for_parts
from fairlane.core.document import Claim, Failed, Outcome, State
from fairlane.core.errors import FairlaneError, StoreError
from fairlane.engine.protocol import DocumentFilter, Engine
from fairlane.engine.walk import walk_documents
from fairlane.queue.start_samples import StartSampler
from fairlane.queue.workers import unserved_kinds

from .document import clean_text, describe_error
from .resources import ClaimRequest

PAGE_SIZE = 200
UNENDED: tuple[State, ...] = ("running", "delayed", "ready")

Settlement = tuple[Claim, Outcome]


class Exchange(NamedTuple):
    """The result of one visit to the store."""

    settled: int  # so many of the settlements, from the first, need not be sent again
    lost: list[Claim]  # of those
    requested_at: float  # on the monotonic clock, before the store was asked for documents
    claims: list[Claim]
    failure: str | None = None


def with_part_results(engine: Engine, claim: Claim) -> Claim:
    """Add the results of its parts to a document that was split; without them its handler asks for another attempt."""
    if waits_for_parts(claim.payload):
        with suppress(StoreError):
            results = [part.result for part in engine.parts(claim.id)]
            return claim._replace(payload=add_part_results(claim.payload, results))
    return claim


class WorkerStore:
    """The worker's use of an engine."""

    def __init__(self, engine: Engine, worker: str, lease_ms: int, kinds: Mapping[str, int]) -> None:
        self._engine = engine
        self._worker = worker
        self._lease_ms = lease_ms
        self._kinds = kinds
        self._sampler = StartSampler(engine)

    def exchange(self, settlements: Sequence[Settlement], request: ClaimRequest) -> Exchange:
        """Settle what is finished, then claim what is requested."""
        lost: list[Claim] = []
        requested_at, settled = time.monotonic(), 0
        try:
            if settlements:
                lost = self._settle(settlements)
                settled = len(settlements)
            requested_at = time.monotonic()
            limit, kinds = request
            claims = self._engine.claim(self._worker, limit, self._lease_ms, kinds) if limit else []
            claims = [with_part_results(self._engine, claim) for claim in claims]
        except StoreError as error:
            return Exchange(settled, lost, requested_at, [], describe_error(error))
        return Exchange(settled, lost, requested_at, claims)

    def _settle(self, settlements: Sequence[Settlement]) -> list[Claim]:
        try:
            return self._engine.settle(settlements)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever the store cannot take must not hold up the others
            if len(settlements) > 1:
                return [lost for settlement in settlements for lost in self._settle([settlement])]
            ((claim, outcome),) = settlements
            if isinstance(outcome, Failed):
                return [claim]  # not even that: the lease will end it
            return self._settle([(claim, Failed(clean_text(f"its outcome could not be kept: {describe_error(error)}")))])

    def reclaim(self) -> str | None:
        """Give back documents of dead workers; returns what failed, if anything did."""
        try:
            while self._engine.reclaim(PAGE_SIZE) == PAGE_SIZE:
                pass
        except StoreError as error:
            return describe_error(error)
        return None

    def sample_starts(self) -> tuple[int, str | None]:
        """Do a step of sampling if one is due; returns in how many milliseconds the next is, and what failed."""
        try:
            return self._sampler.step(), None
        except FairlaneError as error:
            return 0, describe_error(error)

    def wait_and_claim(self, seconds: float, kinds: Collection[str], request: Callable[[], ClaimRequest]) -> Exchange | None:
        """Wait until a document of these kinds may be ready and claim at once what is requested then; None if none came."""
        try:
            if not self._engine.wait(seconds, list(kinds)):
                return None
        except StoreError as error:
            time.sleep(seconds)
            return Exchange(0, [], time.monotonic(), [], describe_error(error))
        return self.exchange([], request())

    def is_empty(self) -> bool:
        """Whether no document of our kinds is running, delayed, or ready and not paused."""
        try:
            return not any(self._has(state) for state in UNENDED)
        except StoreError:
            return False

    def unserved_kinds(self) -> list[str]:
        """Return the kinds of which documents wait although no worker takes them."""
        try:
            return [unserved.kind for unserved in unserved_kinds(self._engine)]
        except StoreError:
            return []

    def _has(self, state: State) -> bool:
        documents = walk_documents(self._engine, DocumentFilter(state=state))
        ours = (document for document in documents if document.kind in self._kinds)
        return any(state != "ready" or not self._is_paused(document.customer) for document in ours)

    def _is_paused(self, customer: str) -> bool:
        return self._engine.customer(customer).terms.paused
