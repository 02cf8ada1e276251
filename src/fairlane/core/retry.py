"""Backoff: how long a failed attempt waits for the next one. Pure arithmetic: the caller supplies the randomness."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from .errors import BadValue
from .policy import plain_seconds, to_milliseconds

DELAY_MAX_MS = 365 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class Backoff:
    """Each attempt waits `factor` times longer, up to a ceiling; jitter shortens the wait by up to that share."""

    first: float | timedelta = 2.0  # numbers are seconds
    factor: float = 2.0
    ceiling: float | timedelta = 600.0
    jitter: float = 0.5

    def __post_init__(self) -> None:
        first_ms = to_milliseconds("first", self.first, 0, DELAY_MAX_MS)
        if first_ms > to_milliseconds("ceiling", self.ceiling, 0, DELAY_MAX_MS):
            raise BadValue("first", self.first, f"at most ceiling, {self.ceiling!r}")
        if not isinstance(self.factor, int | float) or not 1 <= self.factor <= 100:
            raise BadValue("factor", self.factor, "a number from 1 to 100")
        if not isinstance(self.jitter, int | float) or not 0 <= self.jitter <= 1:
            raise BadValue("jitter", self.jitter, "a share from 0 to 1")

    def delay_ms(self, attempts: int, dice: float) -> int:
        """Return the wait after that many attempts; `dice` is a random number from 0 (longest wait) up to 1."""
        if attempts < 1:
            raise BadValue("attempts", attempts, "1 or more: it counts the attempt that just failed")
        if not 0 <= dice < 1:
            raise BadValue("dice", dice, "a number from 0 up to, and not including, 1")
        delay_seconds, ceiling_seconds = plain_seconds(self.first), plain_seconds(self.ceiling)
        for _ in range(attempts - 1):
            if delay_seconds == 0 or delay_seconds >= ceiling_seconds or self.factor == 1:
                break
            delay_seconds *= self.factor
        return round(min(delay_seconds, ceiling_seconds) * (1 - self.jitter * dice) * 1000)
