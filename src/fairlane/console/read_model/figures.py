"""How long did documents wait, and how many came and went? Figures by minute, for the last day.

Laws:
- Waits are counted in steps of a tenth: a percentile is within five per cent of a wait that really occurred.
- What is kept is bounded: a day of minutes, each with at most so many steps a class.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from copy import deepcopy
from math import exp, log
from typing import Any

MINUTE_MS = 60_000
DAY_MINUTES = 24 * 60
RECENT_MINUTES = 10  # what "now" means for waits
STILL_CHANGING = 3  # minutes back, as a store's clock may be late
LIGHT, HEAVY = "light", "heavy"
CLASSES: tuple[int | str, ...] = (*range(1, 10), LIGHT, HEAVY)
_STEP = log(1.1)

Steps = Counter[int]  # how many waits fell into each step


def step_of(wait_ms: int) -> int:
    """The step that a wait falls into."""
    return 0 if wait_ms < 1 else 1 + int(log(wait_ms) / _STEP)


def seconds_of(step: int) -> float:
    """About how long a wait in this step was."""
    return 0.0 if step == 0 else float(f"{exp((step - 0.5) * _STEP) / 1000:.3g}")


def percentile(steps: Steps, percent: int) -> float | None:
    """By nearest rank, in seconds; None: there were no waits."""
    left = -(-percent * steps.total() // 100)
    for step in sorted(steps):
        left -= steps[step]
        if left <= 0:
            return seconds_of(step)
    return None


class Minute:
    """What happened within one minute."""

    __slots__ = ("done", "failed", "started", "starved", "waits")

    def __init__(self) -> None:
        self.started = 0
        self.done = 0
        self.failed: Counter[str] = Counter()
        self.starved = 0  # the most that were starved at one time
        self.waits: dict[int | str, Steps] = {}  # by priority, and of light and heavy ones

    def waited(self, priority: int, sort: str, wait_ms: int) -> None:
        """A document began, after that long."""
        self.started += 1
        step = step_of(wait_ms)
        for name in (priority, sort) if sort else (priority,):
            steps = self.waits.get(name)
            if steps is None:
                steps = self.waits[name] = Counter()
            steps[step] += 1


class Figures:
    """The minutes of the last day, and what happened since midnight (UTC)."""

    def __init__(self) -> None:
        self._minutes: dict[int, Minute] = {}
        self._seconds: dict[int, int] = {}  # how many began in each of the last seconds
        self.day = 0
        self.done_today = 0
        self.failed_today: Counter[str] = Counter()

    def minute(self, at_ms: int) -> Minute:
        """The minute of a moment."""
        number = at_ms // MINUTE_MS
        found = self._minutes.get(number)
        if found is None:
            found = self._minutes[number] = Minute()
            for old in [one for one in self._minutes if one <= number - DAY_MINUTES]:
                del self._minutes[old]
        return found

    def began(self, at_ms: int, priority: int, sort: str, wait_ms: int) -> None:
        """A document began."""
        self.minute(at_ms).waited(priority, sort, wait_ms)
        second = at_ms // 1000
        if second not in self._seconds and len(self._seconds) > 120:
            self._seconds = {one: count for one, count in self._seconds.items() if one > second - 60}
        self._seconds[second] = self._seconds.get(second, 0) + 1

    def ended(self, at_ms: int, code: str | None) -> None:
        """A document is done, or failed with that code."""
        self.turn(at_ms)
        minute = self.minute(at_ms)
        if code is None:
            minute.done += 1
            self.done_today += 1
        else:
            minute.failed[code] += 1
            self.failed_today[code] += 1

    def turn(self, at_ms: int) -> None:
        """At midnight the day's counts begin again."""
        day = at_ms // (DAY_MINUTES * MINUTE_MS)
        if day > self.day:
            self.day, self.done_today, self.failed_today = day, 0, Counter()

    # -- what is told --------------------------------------------------------------------------------------------------

    def pace(self, now_ms: int) -> dict[str, Any]:
        """How fast it goes now."""
        second, ten = now_ms // 1000, range(1, 11)
        last = [self._minutes.get(now_ms // MINUTE_MS - back) for back in (0, 1)]
        share = 1 - (now_ms % MINUTE_MS) / MINUTE_MS  # of the minute before, to have a whole one

        def within(counts: list[int]) -> int:
            return round(counts[0] + counts[1] * share)

        return {
            "started_per_second": round(sum(self._seconds.get(second - back, 0) for back in ten) / 10, 1),
            "done_last_minute": within([one.done if one else 0 for one in last]),
            "failed_last_minute": within([one.failed.total() if one else 0 for one in last]),
        }

    def waits(self, now_ms: int) -> dict[str, float | None]:
        """Light and heavy waits of the last minutes."""
        told: dict[str, float | None] = {}
        minutes = [self._minutes.get(now_ms // MINUTE_MS - back) for back in range(RECENT_MINUTES)]
        for sort in (LIGHT, HEAVY):
            steps = _together(one.waits[sort] for one in minutes if one is not None and sort in one.waits)
            told |= {f"{sort}_p{percent}": percentile(steps, percent) for percent in (50, 95)}
        return told

    def copied(self, now_ms: int) -> dict[int, Minute]:
        """The minutes as they are now; those that may still change are copied, so that another thread may read them."""
        last = now_ms // MINUTE_MS
        return self._minutes | {at: deepcopy(one) for at, one in self._minutes.items() if at >= last - STILL_CHANGING}


def history(known: Mapping[int, Minute], now_ms: int, minutes: int) -> dict[str, Any]:
    """Series for charts, oldest first; at most 180 points."""
    step = max(1, -(-minutes // 180))
    last = now_ms // MINUTE_MS
    first = last - last % step - step * (-(-minutes // step) - 1)
    groups = [
        [one for at in range(start, start + step) if (one := known.get(at)) is not None]
        for start in range(first, last + 1, step)
    ]
    codes = sorted({code for group in groups for one in group for code in one.failed})
    waits = {name: [_together(one.waits[name] for one in group if name in one.waits) for group in groups] for name in CLASSES}
    series: dict[str, Any] = {
        f"wait_p{percent}": {
            str(name): [percentile(steps, percent) for steps in waits[name]] for name in CLASSES if isinstance(name, int)
        }
        for percent in (50, 95)
    }
    series |= {f"{name}_p95": [percentile(steps, 95) for steps in waits[name]] for name in (LIGHT, HEAVY)}
    series |= {
        "started": [sum(one.started for one in group) for group in groups],
        "done": [sum(one.done for one in group) for group in groups],
        "failed": {code: [sum(one.failed[code] for one in group) for group in groups] for code in codes},
        "starved": [max((one.starved for one in group), default=0) for group in groups],
    }
    return {"step_seconds": step * 60, "from": first * MINUTE_MS, "series": series}


def _together(many: Iterable[Steps]) -> Steps:
    steps: Steps = Counter()
    for one in many:
        for step, count in one.items():  # quicker than update, which asks what it is given
            steps[step] = steps.get(step, 0) + count
    return steps
