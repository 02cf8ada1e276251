"""Shares of the calls that are open at once: how many each customer may open, so that slow addresses leave room for the rest.

Laws:
- A customer is proven while its last call was accepted quickly. All others (never called, slow, failing) have half of the
  calls together, so that proven ones always find room.
- A customer may have an eighth of what is free, at least CUSTOMER_MIN and at most CUSTOMER_MAX: many that turn slow at the same
  moment take less and less each. One whose address fails has CUSTOMER_MIN, so that a call that hangs does not stop the others;
  one whose address has never accepted anything has one call at a time.
- The second failure in a row, and every one after it, is followed by a growing pause. Calls that were open together fail
  together, and count as one failure.
"""

from __future__ import annotations

from dataclasses import dataclass

CUSTOMER_MIN, CUSTOMER_MAX = 2, 8
FREE_DIVISOR = 8
QUICK_SECONDS = 2.0
PAUSE_FIRST_SECONDS, PAUSE_MAX_SECONDS = 1.0, 30.0


@dataclass(slots=True)
class _Customer:
    is_proven: bool
    open: int = 0
    failures: int = 0  # in a row
    failed_at: float = 0.0
    paused_until: float = 0.0
    was_accepted: bool = False


class CallShares:
    """Counts open calls, and judges addresses by how their calls end. Moments are seconds of a clock that never steps back."""

    def __init__(self, calls_max: int) -> None:
        self._calls_max = calls_max
        self._unproven_max = max(1, calls_max // 2)
        self._open = 0
        self._open_unproven = 0
        self._customers: dict[str, _Customer] = {}

    @property
    def is_full(self) -> bool:
        return self._open >= self._calls_max

    def is_known(self, customer: str) -> bool:
        """Whether a customer's calls are being judged; if not, `introduce` it before the first one."""
        return customer in self._customers

    def introduce(self, customer: str, is_proven: bool) -> None:
        """Begin to judge a customer's calls, with what is known of earlier ones."""
        self._customers.setdefault(customer, _Customer(is_proven, was_accepted=is_proven))

    def forget(self, customer: str) -> None:
        """Stop judging a customer that is proven and has no call open; it can be introduced again."""
        known = self._customers.get(customer)
        if known is not None and known.is_proven and not known.open:
            del self._customers[customer]

    def room(self, customer: str, now: float) -> int:
        """Return how many more calls a customer may open now."""
        known = self._customers[customer]
        if now < known.paused_until:
            return 0
        free = self._calls_max - self._open
        if not known.is_proven:
            free = min(free, self._unproven_max - self._open_unproven)
        return max(0, min(free, self._share(known, free) - known.open))

    def _share(self, known: _Customer, free: int) -> int:
        """Return how many calls a customer may have open."""
        if not known.was_accepted:
            return 1
        if known.failures:
            return CUSTOMER_MIN
        return max(CUSTOMER_MIN, min(CUSTOMER_MAX, free // FREE_DIVISOR))

    def open(self, customer: str, count: int) -> None:
        """Count calls as open."""
        known = self._customers[customer]
        known.open += count
        self._open += count
        if not known.is_proven:
            self._open_unproven += count

    def close(self, customer: str, count: int = 1) -> None:
        """Count calls as ended, or as not begun after all."""
        self.open(customer, -count)

    def judge(self, customer: str, is_accepted: bool, began: float, now: float) -> None:
        """Take note of how a call ended."""
        known = self._customers[customer]
        if is_accepted:
            known.failures, known.paused_until, known.was_accepted = 0, 0.0, True
            self._set_proven(known, now - began <= QUICK_SECONDS)
        elif began >= known.failed_at:
            known.failures, known.failed_at = known.failures + 1, now
            if known.failures > 1:
                known.paused_until = now + min(PAUSE_MAX_SECONDS, PAUSE_FIRST_SECONDS * 2.0 ** min(known.failures - 2, 10))
            self._set_proven(known, False)

    def pause(self, customer: str, until: float) -> None:
        """Open no call of a customer until a moment."""
        known = self._customers[customer]
        known.paused_until = max(known.paused_until, until)

    def _set_proven(self, known: _Customer, is_proven: bool) -> None:
        if known.is_proven != is_proven:
            known.is_proven = is_proven
            self._open_unproven += -known.open if is_proven else known.open
