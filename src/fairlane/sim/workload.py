"""A workload: documents with their submission time, customer and service time.

Laws:
- Documents are in order of submission; a document's index is its number.
- Checks use the true times. The replay's clock may differ: long silences can be cut on it.
- Figures are integers in arrays: a document takes a few bytes, not several objects.
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
from fairlane.core.policy import STEP, TIME_MAX_MS, Policy, interval_ms_of, to_milliseconds, to_thousandths

COLUMNS = ("submitted_at", "customer", "service_s")
SERVICE_MAX_SECONDS = 10**9
TOTAL_MAX_US = 2**62  # sums must fit into the arrays' 64-bit integers
GAP_MAX_US = 1800 * 10**6  # a longer time without any document is cut to this when a load is set
WINDOW_MS = interval_ms_of(Policy())  # light, quiet and heavy are defined by it, whatever policy is replayed
LIGHT_MAX, HEAVY_MIN = 3, 22  # the last document of a burst at priority 1, the first at 9


class Arrival(NamedTuple):
    """One submitted document."""

    at_ms: int
    customer: str
    service_us: int
    cost: int = STEP


@dataclass(frozen=True, slots=True)
class Workload:
    """Documents in order of submission."""

    name: str
    customers: tuple[str, ...]  # in order of first appearance
    customer: array[int]  # index into customers
    checked_ms: array[int]  # the true time of submission
    at_us: array[int]  # the same on the replay's clock, from 0
    service_us: array[int]
    cost: array[int]
    notes: tuple[str, ...] = ()  # sentences for the reader of the results
    recent: array[int] = field(init=False, repr=False, compare=False)  # its customer's documents in the window, with itself

    def __post_init__(self) -> None:
        object.__setattr__(self, "recent", _recent(self.customer, self.checked_ms, len(self.customers)))

    def __len__(self) -> int:
        return len(self.customer)

    @classmethod
    def of(cls, name: str, arrivals: Iterable[Arrival], notes: tuple[str, ...] = ()) -> Workload:
        """Build a workload, sorted by time; documents of the same moment keep their order."""
        customers: dict[str, int] = {}
        ordered = sorted(arrivals, key=lambda arrival: arrival.at_ms)
        if not ordered:
            raise Mistake(f"{name} contains no document; there is nothing to replay")
        first_ms = ordered[0].at_ms
        _check_total(name, (ordered[-1].at_ms - first_ms) * 1000 + sum(arrival.service_us for arrival in ordered))
        return cls(
            name,
            customer=array("q", (customers.setdefault(arrival.customer, len(customers)) for arrival in ordered)),
            customers=tuple(customers),
            checked_ms=array("q", (arrival.at_ms for arrival in ordered)),
            at_us=array("q", ((arrival.at_ms - first_ms) * 1000 for arrival in ordered)),
            service_us=array("q", (arrival.service_us for arrival in ordered)),
            cost=array("q", (arrival.cost for arrival in ordered)),
            notes=notes,
        )

    def load(self, workers: int) -> float | None:
        """Return the work as a share of the workers' capacity; None if everything arrives at one moment."""
        span_us = self._without_gaps()[-1]
        return sum(self.service_us) / (workers * span_us) if span_us else None

    def at_load(self, load: float, workers: int) -> Workload:
        """Return the workload with service times scaled to this load, and without long gaps."""
        if not 0 < load < math.inf:
            raise BadValue("--load", load, "a number above 0, as in 0.9")
        own_load = self.load(workers)
        if own_load is None or own_load == 0:
            raise Mistake(f"{self.name} cannot be scaled to a load: its documents all arrive at one moment or take no time")
        scale, at_us = load / own_load, self._without_gaps()
        _check_total(self.name, at_us[-1] * (1 + load * workers))
        return replace(self, at_us=at_us, service_us=array("q", (round(service * scale) for service in self.service_us)))

    def _without_gaps(self) -> array[int]:
        """Return the arrival times with every gap cut to GAP_MAX_US."""
        times = array("q", [0])
        for before, after in pairwise(self.at_us):
            times.append(times[-1] + min(after - before, GAP_MAX_US))
        return times

    def most_recent(self) -> list[int]:
        """Return for each customer the most documents that it ever sent within the window."""
        most = [0] * len(self.customers)
        for customer, count in zip(self.customer, self.recent, strict=True):
            most[customer] = max(most[customer], count)
        return most

    def sizes(self) -> list[int]:
        """Return for each customer how many documents it sent."""
        sent = [0] * len(self.customers)
        for customer in self.customer:
            sent[customer] += 1
        return sent


def _check_total(name: str, total_us: float) -> None:
    if total_us > TOTAL_MAX_US:
        raise Mistake(
            f"{name} takes {total_us / 1e6:,.3g} s in total, more than can be counted; check that its times are in seconds"
        )


def _recent(customer: Sequence[int], checked_ms: Sequence[int], customers: int) -> array[int]:
    windows: list[deque[int]] = [deque() for _ in range(customers)]
    counts = array("q")
    for index, now_ms in zip(customer, checked_ms, strict=True):
        window = windows[index]
        while window and now_ms - window[0] >= WINDOW_MS:
            window.popleft()
        window.append(now_ms)
        counts.append(len(window))
    return counts


def read_csv(path: Path) -> Workload:
    """Read a CSV of submitted_at, customer, service_s and optionally cost, plain or gzipped."""
    try:
        with _open(path) as file:
            return Workload.of(path.name, _read_rows(path, file))
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        raise Mistake(f"{path} cannot be read: {error}") from error


def _open(path: Path) -> IO[str]:
    with path.open("rb") as file:
        is_gzipped = file.read(2) == b"\x1f\x8b"
    if is_gzipped:
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _read_rows(path: Path, file: IO[str]) -> Iterator[Arrival]:
    reader = csv.reader(file)
    header = [name.strip() for name in next(reader, [])]
    if missing := [name for name in COLUMNS if name not in header]:
        raise Mistake(f"{path}, line 1: the header must name {','.join(COLUMNS)} (cost is optional); "
                      f"it is {','.join(header)!r}, without {', '.join(missing)}")  # fmt: skip
    valid_customers: dict[str, str] = {}  # validate each name once
    for row in reader:
        if not row:
            continue
        values = dict(zip(header, row, strict=False))
        try:
            if len(row) != len(header):
                raise BadValue("row", ",".join(row), f"{len(header)} fields, as in the header")
            name = values["customer"]
            customer = valid_customers.get(name) or valid_customers.setdefault(name, validate_text("customer", name))
            cost = to_thousandths("cost", _parse_number("cost", values["cost"]), 0.001, 10_000) if "cost" in values else STEP
            yield Arrival(_parse_time_ms(values["submitted_at"]), customer, _parse_service_us(values["service_s"]), cost)
        except BadValue as error:
            raise Mistake(f"{path}, line {reader.line_num}: {error}") from error


def _parse_time_ms(text: str) -> int:
    """Parse seconds, or a date and time; without a time zone it is UTC."""
    try:
        seconds = float(text)
    except ValueError:
        try:
            time = datetime.fromisoformat(text.strip())
        except ValueError:
            expected = "a number of seconds, or a time as in 2026-03-01T09:30:00Z"
            raise BadValue("submitted_at", text, expected) from None
        seconds = (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    return to_milliseconds("submitted_at", seconds, 0, TIME_MAX_MS)


def _parse_service_us(text: str) -> int:
    seconds = _parse_number("service_s", text)
    if not 0 <= seconds <= SERVICE_MAX_SECONDS:
        raise BadValue("service_s", text, f"a number of seconds from 0 to {SERVICE_MAX_SECONDS:,}")
    return round(seconds * 1_000_000)


def _parse_number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BadValue(name, text, "a number")
    return value
