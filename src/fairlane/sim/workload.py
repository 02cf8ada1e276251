"""Which documents came, when, from whom, and how long did each take?

Laws:
- Documents stand in the order of submission; their place is their number.
- Checks use the true times. The replay's clock may be another one, on which long silences are cut.
- Figures are whole numbers in arrays: a document costs some bytes, not objects.
"""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import IO, NamedTuple

from fairlane.core.document import validate_text
from fairlane.core.errors import BadValue, Mistake
from fairlane.core.policy import STEP, TIME_MAX_MS, Policy, to_milliseconds, to_thousandths

COLUMNS = ("submitted_at", "customer", "service_s")
SERVICE_MAX_SECONDS = 10**9
TOTAL_MAX_US = 2**62  # nothing that is added up overflows an array
GAP_MAX_US = 1800 * 10**6  # a longer silence of everybody is cut to this one when the load is set
WINDOW_MS = Policy().interval_ms  # what light, quiet and heavy are judged by, whatever the policy that is tried
LIGHT_MAX, HEAVY_MIN = 3, 22  # the last that is still served at priority 1, the first that is served at 9


class Arrival(NamedTuple):
    """One document as a source tells it."""

    at_ms: int
    customer: str
    service_us: int
    cost: int = STEP


@dataclass(frozen=True, slots=True)
class Workload:
    """Documents in the order of submission."""

    name: str
    customers: tuple[str, ...]  # by their own numbers, in the order of first appearance
    customer: array[int]  # whose document it is
    checked_ms: array[int]  # the true time of submission
    at_us: array[int]  # the same on the replay's clock, from 0
    service_us: array[int]
    cost: array[int]
    notes: tuple[str, ...] = ()  # what a reader of the answers must know
    recent: array[int] = field(init=False, repr=False, compare=False)  # sent by its customer within the window, it included

    def __post_init__(self) -> None:
        object.__setattr__(self, "recent", _recent(self.customer, self.checked_ms, len(self.customers)))

    def __len__(self) -> int:
        return len(self.customer)

    @classmethod
    def of(cls, name: str, arrivals: Iterable[Arrival], notes: tuple[str, ...] = ()) -> Workload:
        """A workload of what a source tells, sorted by time; documents of one moment keep their order."""
        customers: dict[str, int] = {}
        ordered = sorted(arrivals, key=lambda one: one.at_ms)
        if not ordered:
            raise Mistake(f"{name} holds no document; there is nothing to replay")
        first_ms = ordered[0].at_ms
        _countable(name, (ordered[-1].at_ms - first_ms) * 1000 + sum(one.service_us for one in ordered))
        return cls(
            name,
            customer=array("q", (customers.setdefault(one.customer, len(customers)) for one in ordered)),
            customers=tuple(customers),
            checked_ms=array("q", (one.at_ms for one in ordered)),
            at_us=array("q", ((one.at_ms - first_ms) * 1000 for one in ordered)),
            service_us=array("q", (one.service_us for one in ordered)),
            cost=array("q", (one.cost for one in ordered)),
            notes=notes,
        )

    def load(self, workers: int) -> float | None:
        """How much work comes beside what the workers can do; None if everything comes at once."""
        span_us = self._cut()[-1]
        return sum(self.service_us) / (workers * span_us) if span_us else None

    def at_load(self, load: float, workers: int) -> Workload:
        """The same documents, with service times scaled to this load and long silences of everybody cut."""
        if not 0 < load < math.inf:
            raise BadValue("--load", load, "a number above 0, as in 0.9")
        known = self.load(workers)
        if known is None or known == 0:
            raise Mistake(f"{self.name} cannot be scaled to a load: its documents all come at one moment or take no time")
        scale, cut_us = load / known, self._cut()
        _countable(self.name, cut_us[-1] * (1 + load * workers))
        return replace(self, at_us=cut_us, service_us=array("q", (round(one * scale) for one in self.service_us)))

    def _cut(self) -> array[int]:
        cut = array("q", [0])
        for before, after in pairwise(self.at_us):
            cut.append(cut[-1] + min(after - before, GAP_MAX_US))
        return cut

    def most_recent(self) -> list[int]:
        """For each customer the most that it ever sent within the window."""
        most = [0] * len(self.customers)
        for customer, count in zip(self.customer, self.recent, strict=True):
            most[customer] = max(most[customer], count)
        return most

    def sizes(self) -> list[int]:
        """For each customer how many documents it sent."""
        sent = [0] * len(self.customers)
        for customer in self.customer:
            sent[customer] += 1
        return sent


def _countable(name: str, total_us: float) -> None:
    if total_us > TOTAL_MAX_US:
        raise Mistake(f"{name} takes {total_us / 1e6:,.3g} s in all, more than can be counted; are its times in seconds?")


def _recent(customer: Sequence[int], checked_ms: Sequence[int], customers: int) -> array[int]:
    windows: list[deque[int]] = [deque() for _ in range(customers)]
    counts = array("q")
    for one, now_ms in zip(customer, checked_ms, strict=True):
        window = windows[one]
        while window and now_ms - window[0] >= WINDOW_MS:
            window.popleft()
        window.append(now_ms)
        counts.append(len(window))
    return counts


def read_csv(path: Path) -> Workload:
    """A file of submitted_at, customer, service_s and perhaps cost, plain or gzipped; a bad row is named by its line."""
    try:
        with _opened(path) as file:
            return Workload.of(path.name, _rows(path, file))
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        raise Mistake(f"{path} cannot be read: {error}") from error


def _opened(path: Path) -> IO[str]:
    with path.open("rb") as file:
        zipped = file.read(2) == b"\x1f\x8b"
    if zipped:
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _rows(path: Path, file: IO[str]) -> Iterator[Arrival]:
    reader = csv.reader(file)
    header = [name.strip() for name in next(reader, [])]
    if missing := [name for name in COLUMNS if name not in header]:
        found = ",".join(header) or "nothing"
        raise Mistake(f"{path}, line 1: the header must name {','.join(COLUMNS)} (cost may follow); "
                      f"{', '.join(missing)} is missing in {found!r}")  # fmt: skip
    known: dict[str, str] = {}
    for row in reader:
        if not row:
            continue
        told = dict(zip(header, row, strict=False))
        try:
            if len(row) != len(header):
                raise BadValue("row", ",".join(row), f"{len(header)} fields, as in the header")
            name = told["customer"]
            customer = known.get(name) or known.setdefault(name, validate_text("customer", name))
            cost = to_thousandths("cost", _number("cost", told["cost"]), 0.001, 10_000) if "cost" in told else STEP
            yield Arrival(_moment(told["submitted_at"]), customer, _service(told["service_s"]), cost)
        except BadValue as error:
            raise Mistake(f"{path}, line {reader.line_num}: {error}") from error


def _moment(told: str) -> int:
    """Seconds, or a date and time; without a zone it is UTC."""
    try:
        seconds = float(told)
    except ValueError:
        try:
            moment = datetime.fromisoformat(told.strip())
        except ValueError:
            wanted = "a number of seconds, or a time as in 2026-03-01T09:30:00Z"
            raise BadValue("submitted_at", told, wanted) from None
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return to_milliseconds("submitted_at", seconds, 0, TIME_MAX_MS)


def _service(told: str) -> int:
    seconds = _number("service_s", told)
    if not 0 <= seconds <= SERVICE_MAX_SECONDS:
        raise BadValue("service_s", told, f"a number of seconds from 0 to {SERVICE_MAX_SECONDS:,}")
    return round(seconds * 1_000_000)


def _number(name: str, told: str) -> float:
    try:
        value = float(told)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BadValue(name, told, "a number")
    return value
