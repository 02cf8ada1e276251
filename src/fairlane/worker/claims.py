"""The claims in the worker's hands: their leases, the changes that the heartbeat needs, and the order in which they begin.

Laws:
- A claim counts as lost before its lease can have ended: from the moment before the store was asked, less a margin.
- A claim that was lost is never settled, and its handler is stopped.
- Changes go to the heartbeat with the next beat, so that a claim that is soon settled never does: no lease ends so soon.
- A document of a better priority begins before those that wait here, as it would in the store; but not before an open turn,
  nor before one that has been here for OVERTAKE_SECONDS_MAX, so that none waits here for ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Any

from fairlane.core.document import Claim, Outcome

MARGIN_SHARE = 6  # of a lease is kept for noticing a loss and for ending the handler
MARGIN_SECONDS_MAX = 5.0
OVERTAKE_SECONDS_MAX = 0.05  # for which a waiting document lets better ones pass


class ActiveClaim:
    """One claim in the worker's hands, from claim to settlement."""

    __slots__ = (
        "began_at", "claim", "is_announced", "is_lost", "outcome", "printed", "requested_at", "seconds", "serial",
        "valid_until",
    )  # fmt: skip

    def __init__(self, serial: int, claim: Claim, requested_at: float, valid_until: float) -> None:
        self.serial = serial
        self.claim = claim
        self.requested_at = requested_at  # on the monotonic clock: before the store was asked
        self.valid_until = valid_until  # the lease lasts at least until then
        self.began_at: float | None = None  # when its handler was started
        self.is_announced = False  # its `began` event was emitted
        self.seconds = 0.0  # that its handler ran
        self.outcome: Outcome | None = None
        self.is_lost = False
        self.printed = ""  # the end of what its handler printed

    def overtakes(self, other: ActiveClaim) -> bool:
        """Whether this claim, newly made, begins before another one that waits here."""
        return (
            self.claim.priority < other.claim.priority
            and not other.claim.is_open_turn
            and self.requested_at - other.requested_at < OVERTAKE_SECONDS_MAX
        )

    def facts(self) -> dict[str, Any]:
        """The fields that every event about this document has."""
        claim = self.claim
        return {
            "id": claim.id, "customer": claim.customer, "kind": claim.kind, "priority": claim.priority,
            "attempt": claim.attempts, "token": claim.token,
        }  # fmt: skip


def insertion_index(waiting: Sequence[ActiveClaim], active: ActiveClaim) -> int:
    """Return the index at which a new claim joins those that wait."""
    index = len(waiting)
    while index and active.overtakes(waiting[index - 1]):
        index -= 1
    return index


class Backlog(deque[ActiveClaim]):
    """Claims whose handlers have not begun, in the order in which they begin."""

    def add(self, active: ActiveClaim) -> None:
        """Add a new claim, before those that it overtakes."""
        self.insert(insertion_index(self, active), active)

    def put_back(self, claims: Sequence[ActiveClaim]) -> None:
        """Put claims back in front; those that would overtake them begin first all the same."""
        for active in reversed(claims):
            overtaking = takewhile(lambda other: other.overtakes(active), self)  # noqa: B023 - counted at once
            self.insert(sum(1 for _ in overtaking), active)


class Claims:
    """All claims in hand, by serial number, and what is known about their leases."""

    def __init__(self, lease_ms: int) -> None:
        self.lease = lease_ms / 1000
        self.margin = min(self.lease / MARGIN_SHARE, MARGIN_SECONDS_MAX)
        self._active: dict[int, ActiveClaim] = {}
        self._last_serial = 0
        self._added: dict[int, ActiveClaim] = {}  # since the last beat
        self._dropped: list[int] = []  # since the last beat, of those that an earlier one has added

    def __len__(self) -> int:
        return len(self._active)

    def __iter__(self) -> Iterator[ActiveClaim]:
        return iter(list(self._active.values()))

    def add(self, claims: Iterable[Claim], requested_at: float) -> list[ActiveClaim]:
        """Add new claims that were requested at that moment."""
        added = []
        for claim in claims:
            self._last_serial += 1
            added.append(ActiveClaim(self._last_serial, claim, requested_at, requested_at + self.lease - self.margin))
        by_serial = {active.serial: active for active in added}
        self._active |= by_serial
        self._added |= by_serial
        return added

    def drop(self, active: ActiveClaim) -> None:
        """Forget a claim that was settled or lost."""
        if self._active.pop(active.serial, None) is not None and self._added.pop(active.serial, None) is None:
            self._dropped.append(active.serial)

    def get(self, serial: int) -> ActiveClaim | None:
        return self._active.get(serial)

    def renew(self, requested_at: float, last_serial: int) -> None:
        """Note that the heartbeat has renewed every claim that it knew, up to that serial number."""
        valid_until = requested_at + self.lease - self.margin
        for active in self._active.values():
            if active.serial > last_serial:
                break  # serial numbers rise, and a dict keeps the order
            active.valid_until = max(active.valid_until, valid_until)

    def overdue(self, now: float) -> list[ActiveClaim]:
        """Return the claims that could not be renewed in time."""
        return [active for active in self._active.values() if active.valid_until < now]

    def take_changes(self) -> tuple[list[ActiveClaim], list[int]]:
        """Return what was added, and the serial numbers of what was dropped, since the last call."""
        changes = list(self._added.values()), self._dropped
        self._added, self._dropped = {}, []
        return changes
