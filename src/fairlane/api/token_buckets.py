"""Token buckets: so many a second for each key or address, with a burst."""

from __future__ import annotations

import time
from collections.abc import Callable

BUCKETS_MAX = 20_000
SWEPT_AT_ONCE = 2000  # buckets, so that no request waits for the sweep of all


class TokenBuckets:
    """A bucket for each id; one that is full again is forgotten."""

    def __init__(self, tokens_a_second: int, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._tokens_a_second = tokens_a_second
        self._burst = float(burst)
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}  # tokens, and when there were so many; the last used last

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, id: str) -> bool:
        """Take one token; False: none is left."""
        tokens = self._tokens(id)
        self._put(id, tokens - 1 if tokens >= 1 else tokens)
        return tokens >= 1

    def has(self, id: str) -> bool:
        """Whether a token is left."""
        return self._tokens(id) >= 1

    def give_back(self, id: str) -> None:
        """Put a token back that was taken for nothing."""
        self._put(id, min(self._burst, self._tokens(id) + 1))

    def _tokens(self, id: str) -> float:
        bucket = self._buckets.get(id)
        if bucket is None:
            return self._burst
        tokens, at = bucket
        return min(self._burst, tokens + (self._clock() - at) * self._tokens_a_second)

    def _put(self, id: str, tokens: float) -> None:
        self._buckets.pop(id, None)
        if len(self._buckets) >= BUCKETS_MAX:
            self._sweep()
        self._buckets[id] = (tokens, self._clock())

    def _sweep(self) -> None:
        """Forget buckets that are full again; if there are none, those that were not used for longest."""
        oldest = [id for id, _ in zip(self._buckets, range(SWEPT_AT_ONCE), strict=False)]
        full = [id for id in oldest if self._tokens(id) >= self._burst]
        for id in full or oldest[: SWEPT_AT_ONCE // 10]:
            del self._buckets[id]
