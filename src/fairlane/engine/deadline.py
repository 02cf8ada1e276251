"""Deadlines: how long one call of a store on a server may take, all its tries together, and how a dead network is noticed."""

from __future__ import annotations

import math
import time

from fairlane.core.errors import BadValue

CALL_SECONDS = 30.0  # of one call: connecting, sending, the server's work and every try; `timeout` in a URL changes it
CONNECT_SECONDS = 5  # of one try to connect
TIMEOUT_RANGE = (0.1, 3600.0)

# How the kernel notices a peer that went away without a word. Half of a call's time, so that a read can be tried again.
SILENCE_SECONDS = 15  # sent data that nobody acknowledges for so long ends a connection
KEEPALIVE_IDLE_SECONDS, KEEPALIVE_INTERVAL_SECONDS, KEEPALIVE_COUNT = 10, 5, 3


class Deadline:
    """The moment at which a call ends, whatever it is doing."""

    def __init__(self, seconds: float = math.inf) -> None:
        self.seconds = seconds
        self._at = time.monotonic() + seconds

    def left(self) -> float:
        """Return the seconds left, 0 when it is over."""
        return max(0.0, self._at - time.monotonic())

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._at

    def sleep(self, seconds: float) -> None:
        """Pause, but not beyond the end."""
        time.sleep(min(seconds, self.left()))


def parse_timeout(name: str, text: str | None, default: float) -> float:
    """Parse an option of a URL that is a number of seconds."""
    if text is None:
        return default
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    low, high = TIMEOUT_RANGE
    if not low <= seconds <= high:
        raise BadValue(f"{name} in the url", text, f"a number of seconds from {low} to {high:,.0f}, as in ?{name}=10")
    return seconds
