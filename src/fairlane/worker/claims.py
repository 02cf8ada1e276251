"""What does the worker hold, and until when? One Held for each claim, from its claim to its settlement.

Laws:
- A claim counts as lost before its lease can have ended: from the moment before the store was asked, less a margin.
- A claim that was lost is never settled, and its handler is stopped.
- One of a better priority begins before those that wait here, as it would in the store; but not before an open turn, nor
  before one that has been held for a while, so that none waits here for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from fairlane.core.document import Claim, Outcome

MARGIN_SHARE = 6  # of a lease is kept for noticing, and for ending a handler
MARGIN_SECONDS_MAX = 5.0
YIELD_SECONDS = 0.05  # that a document held here lets better ones pass


class Held:
    """One claim in the worker's hands."""

    __slots__ = (
        "asked", "began", "claim", "has_begun", "is_lost", "is_released", "outcome", "printed", "seconds", "serial", "until",
    )  # fmt: skip

    def __init__(self, serial: int, claim: Claim, asked: float, until: float) -> None:
        self.serial = serial
        self.claim = claim
        self.asked = asked  # on the monotonic clock: not held before then
        self.until = until  # the lease is ours at least until then
        self.began: float | None = None  # when its handler was started
        self.has_begun = False  # and somebody was told so
        self.seconds = 0.0  # that its handler ran
        self.outcome: Outcome | None = None
        self.is_lost = False
        self.is_released = False  # whatever its handler comes to, it is given back
        self.printed = ""

    def passes(self, other: Held) -> bool:
        """Whether this one, newly claimed, begins before another that waits here."""
        return (
            self.claim.priority < other.claim.priority
            and not other.claim.is_open_turn
            and self.asked - other.asked < YIELD_SECONDS
        )


def place_among(waiting: Sequence[Held], held: Held) -> int:
    """Where one that is newly claimed goes among those that wait."""
    place = len(waiting)
    while place and held.passes(waiting[place - 1]):
        place -= 1
    return place


class Holdings:
    """All claims in hand, by serial, and what is known about their leases."""

    def __init__(self, lease_ms: int) -> None:
        self.lease = lease_ms / 1000
        self.margin = min(self.lease / MARGIN_SHARE, MARGIN_SECONDS_MAX)
        self._held: dict[int, Held] = {}
        self._last_serial = 0

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Held]:
        return iter(list(self._held.values()))

    def take(self, claims: Iterable[Claim], asked: float) -> list[Held]:
        """New claims, asked for at that moment."""
        taken = []
        for claim in claims:
            self._last_serial += 1
            taken.append(Held(self._last_serial, claim, asked, asked + self.lease - self.margin))
        self._held.update((one.serial, one) for one in taken)
        return taken

    def drop(self, held: Held) -> None:
        """It is not ours any more: settled, or lost."""
        self._held.pop(held.serial, None)

    def get(self, serial: int) -> Held | None:
        """One that is still in hand."""
        return self._held.get(serial)

    def renewed(self, asked: float, upto: int) -> None:
        """The keeper renewed what it had been told of up to that serial."""
        until = asked + self.lease - self.margin
        for one in self._held.values():
            if one.serial > upto:
                break  # serials rise, and a dict keeps the order
            one.until = max(one.until, until)

    def overdue(self, now: float) -> list[Held]:
        """Claims that could not be renewed in time."""
        return [one for one in self._held.values() if one.until < now]
