"""Backoff: how long a failed attempt waits for the next one. Pure arithmetic: the caller supplies the randomness."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import BadValue
from .policy import to_milliseconds

DELAY_MAX_MS = 365 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class Backoff:
    """Each attempt waits `factor` times longer, up to a ceiling; jitter shortens the wait by up to that share."""

    first_seconds: float = 2.0
    factor: float = 2.0
    ceiling_seconds: float = 600.0
    jitter: float = 0.5

    def __post_init__(self) -> None:
        to_milliseconds("first_seconds", self.first_seconds, 0, DELAY_MAX_MS)
        to_milliseconds("ceiling_seconds", self.ceiling_seconds, 0, DELAY_MAX_MS)
        if self.first_seconds > self.ceiling_seconds:
            raise BadValue("first_seconds", self.first_seconds, f"at most ceiling_seconds, {self.ceiling_seconds!r}")
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
        delay_seconds = self.first_seconds
        for _ in range(attempts - 1):
            if delay_seconds == 0 or delay_seconds >= self.ceiling_seconds or self.factor == 1:
                break
            delay_seconds *= self.factor
        return round(min(delay_seconds, self.ceiling_seconds) * (1 - self.jitter * dice) * 1000)
