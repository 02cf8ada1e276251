"""Figures by minute for the last day: waits, throughput, failures and starved documents.

Laws:
- Waits are counted in buckets of a tenth: a percentile is within five per cent of a wait that really occurred.
- Memory is bounded: a day of minutes, each with a limited number of buckets a class.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from copy import deepcopy
from math import exp, log
from typing import Any

MINUTE_MS = 60_000
DAY_MINUTES = 24 * 60
RECENT_MINUTES = 10  # that the current waits are taken from
CHANGING_MINUTES = 3  # the newest minutes may still change, because a store's clock may be late
POINTS_MAX = 180
LIGHT, HEAVY = "light", "heavy"
CLASSES: tuple[int | str, ...] = (*range(1, 10), LIGHT, HEAVY)  # waits are counted by priority and by class of sender
_BUCKET_WIDTH = log(1.1)

Buckets = Counter[int]  # bucket: how many waits fell into it


def bucket_of(wait_ms: int) -> int:
    """Return the bucket of a wait."""
    return 0 if wait_ms < 1 else 1 + int(log(wait_ms) / _BUCKET_WIDTH)


def bucket_seconds(bucket: int) -> float:
    """Return the middle of a bucket."""
    return 0.0 if bucket == 0 else float(f"{exp((bucket - 0.5) * _BUCKET_WIDTH) / 1000:.3g}")


def percentile(buckets: Buckets, percent: int) -> float | None:
    """Return a percentile by nearest rank, in seconds; None if there were no waits."""
    left = -(-percent * buckets.total() // 100)
    for bucket in sorted(buckets):
        left -= buckets[bucket]
        if left <= 0:
            return bucket_seconds(bucket)
    return None


class MinuteFigures:
    """The figures of one minute."""

    __slots__ = ("done", "failed", "started", "starved", "waits")

    def __init__(self) -> None:
        self.started = 0
        self.done = 0
        self.failed: Counter[str] = Counter()
        self.starved = 0  # the most that were starved at one time
        self.waits: dict[int | str, Buckets] = {}

    def record_start(self, priority: int, sender_class: str, wait_ms: int) -> None:
        """Count a document that a worker claimed."""
        self.started += 1
        bucket = bucket_of(wait_ms)
        for name in (priority, sender_class) if sender_class else (priority,):
            buckets = self.waits.get(name)
            if buckets is None:
                buckets = self.waits[name] = Counter()
            buckets[bucket] += 1


class Figures:
    """The minutes of the last day, and the totals since midnight (UTC)."""

    def __init__(self) -> None:
        self._minutes: dict[int, MinuteFigures] = {}
        self._starts: dict[int, int] = {}  # second: documents claimed in it, for the last seconds
        self.day = 0
        self.done_today = 0
        self.failed_today: Counter[str] = Counter()

    def minute(self, at_ms: int) -> MinuteFigures:
        """Return the figures of a minute, new if there are none; drop those older than a day."""
        number = at_ms // MINUTE_MS
        minute = self._minutes.get(number)
        if minute is None:
            minute = self._minutes[number] = MinuteFigures()
            for old in [other for other in self._minutes if other <= number - DAY_MINUTES]:
                del self._minutes[old]
        return minute

    def record_start(self, at_ms: int, priority: int, sender_class: str, wait_ms: int) -> None:
        """Count a document that a worker claimed."""
        self.minute(at_ms).record_start(priority, sender_class, wait_ms)
        second = at_ms // 1000
        if second not in self._starts and len(self._starts) > 120:
            self._starts = {other: count for other, count in self._starts.items() if other > second - 60}
        self._starts[second] = self._starts.get(second, 0) + 1

    def record_end(self, at_ms: int, failure_code: str | None) -> None:
        """Count a document that is done, or failed with a code."""
        self.advance_day(at_ms)
        minute = self.minute(at_ms)
        if failure_code is None:
            minute.done += 1
            self.done_today += 1
        else:
            minute.failed[failure_code] += 1
            self.failed_today[failure_code] += 1

    def advance_day(self, at_ms: int) -> None:
        """Clear the totals of the day after midnight."""
        day = at_ms // (DAY_MINUTES * MINUTE_MS)
        if day > self.day:
            self.day, self.done_today, self.failed_today = day, 0, Counter()

    # -- reading -------------------------------------------------------------------------------------------------------

    def rate(self, now_ms: int) -> dict[str, Any]:
        """Return how fast documents start and end."""
        second, ten = now_ms // 1000, range(1, 11)
        newest = [self._minutes.get(now_ms // MINUTE_MS - back) for back in (0, 1)]
        share = 1 - (now_ms % MINUTE_MS) / MINUTE_MS  # of the minute before, to have a whole one

        def last_minute(counts: list[int]) -> int:
            return round(counts[0] + counts[1] * share)

        return {
            "started_per_second": round(sum(self._starts.get(second - back, 0) for back in ten) / 10, 1),
            "done_last_minute": last_minute([minute.done if minute else 0 for minute in newest]),
            "failed_last_minute": last_minute([minute.failed.total() if minute else 0 for minute in newest]),
        }

    def waits(self, now_ms: int) -> dict[str, float | None]:
        """Return percentiles of the recent waits of light and heavy senders."""
        waits: dict[str, float | None] = {}
        recent = [self._minutes.get(now_ms // MINUTE_MS - back) for back in range(RECENT_MINUTES)]
        for name in (LIGHT, HEAVY):
            buckets = _merge(minute.waits[name] for minute in recent if minute is not None and name in minute.waits)
            waits |= {f"{name}_p{percent}": percentile(buckets, percent) for percent in (50, 95)}
        return waits

    def snapshot(self, now_ms: int) -> dict[int, MinuteFigures]:
        """Return the minutes for another thread to read: those that may still change are copied."""
        first_changing = now_ms // MINUTE_MS - CHANGING_MINUTES
        changing = {number: minute for number, minute in self._minutes.items() if number >= first_changing}
        return self._minutes | deepcopy(changing)


def history(known: Mapping[int, MinuteFigures], now_ms: int, minutes: int) -> dict[str, Any]:
    """Return series for charts, oldest first, at most `POINTS_MAX` points."""
    step = max(1, -(-minutes // POINTS_MAX))
    last = now_ms // MINUTE_MS
    first = last - last % step - step * (-(-minutes // step) - 1)
    groups = [
        [minute for number in range(start, start + step) if (minute := known.get(number)) is not None]
        for start in range(first, last + 1, step)
    ]
    codes = sorted({code for group in groups for minute in group for code in minute.failed})
    waits = {
        name: [_merge(minute.waits[name] for minute in group if name in minute.waits) for group in groups] for name in CLASSES
    }
    series: dict[str, Any] = {
        f"wait_p{percent}": {
            str(name): [percentile(buckets, percent) for buckets in waits[name]] for name in CLASSES if isinstance(name, int)
        }
        for percent in (50, 95)
    }
    series |= {f"{name}_p95": [percentile(buckets, 95) for buckets in waits[name]] for name in (LIGHT, HEAVY)}
    series |= {
        "started": [sum(minute.started for minute in group) for group in groups],
        "done": [sum(minute.done for minute in group) for group in groups],
        "failed": {code: [sum(minute.failed[code] for minute in group) for group in groups] for code in codes},
        "starved": [max((minute.starved for minute in group), default=0) for group in groups],
    }
    return {"step_seconds": step * 60, "from": first * MINUTE_MS, "series": series}


def _merge(many: Iterable[Buckets]) -> Buckets:
    merged: Buckets = Counter()
    for buckets in many:
        for bucket, count in buckets.items():  # Counter.update is slower: it checks the type of its argument
            merged[bucket] = merged.get(bucket, 0) + count
    return merged
