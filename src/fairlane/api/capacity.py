"""Capacity: what waits and runs by kind, how many slots there are, and how many would keep waits at a target.

Laws:
- A snapshot is made every few seconds, on a thread, from what the server follows already: reading it costs the store nothing.
- What an operator holds back (a pause, a cap, a kind's limit) is nobody's emergency: such documents count neither as urgent nor
  as overdue, nor as unserved.
- The slots wanted do not depend on the slots there are, so that an autoscaler cannot chase its own tail.
"""

from __future__ import annotations

import time
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from math import ceil, inf
from typing import Any, NamedTuple

from fairlane.queue.models import Kind
from fairlane.queue.workers import Fleet, Service

from .tracker import FollowedDocument, TrackedState

URGENT_PRIORITY_MAX = 3  # what light customers have: it should never wait for long
LOOKUPS_MAX = 50  # of customers' pauses and caps, for one snapshot
KNOWN_SECONDS, KNOWN_MAX = 10.0, 10_000  # for which one is remembered, and how many
USUAL_SECONDS = 1.0  # that a document takes, as long as none has ended


class KindLoad(NamedTuple):
    """What is known of one kind."""

    waiting: int
    of_blocked_customers: int  # of those that wait: their customer is paused or at its cap
    running: int
    oldest_wait: float
    slots: int
    service: Service
    arrivals_a_second: float
    usual_seconds: float
    limit: Kind | None = None  # of the kind

    @property
    def held_back(self) -> int:
        """How many of those that wait would not start if there were more slots."""
        return self.waiting if self.limit and self.limit.held_by else self.of_blocked_customers

    @property
    def unserved(self) -> int:
        """How many wait for a worker that is not there."""
        return 0 if self.service == "served" else self.waiting - self.held_back

    def slots_wanted(self, target_wait: float) -> int:
        """Return how many slots keep up with what comes, and start what waits now within that many seconds.

        What a pause or a cap holds back asks for none: more slots would not start it. Nor do slots that the kind's limit keeps
        idle, whether it is reached at this moment or not, so that an autoscaler sees no steps. Never fewer than documents run,
        so that nothing is stopped in the middle.
        """
        startable = self.waiting - self.of_blocked_customers
        busy = self.usual_seconds * min(self.arrivals_a_second + startable / target_wait, self._starts_max())
        wanted = max(ceil(round(busy, 6)), int(startable > 0))
        return max(self.running, wanted if self.limit is None else min(wanted, self.limit.running_max or wanted))

    def _starts_max(self) -> float:
        return inf if self.limit is None or self.limit.rate is None else self.limit.rate


class CapacitySnapshot(NamedTuple):
    """The load of every kind at one moment, and what an alarm should know."""

    fleet: Fleet
    loads: Mapping[str, KindLoad]
    urgent_wait: float  # the longest of documents of priorities 1 to 3 that a worker could take
    overdue: int  # documents that waited for more dispatches than the rules promise
    untracked: int

    def unserved(self, limit: int) -> list[tuple[str, bool]]:
        """Return kinds of which documents wait although no worker takes them, and whether that is because all are draining."""
        kinds = ((kind, load) for kind, load in self.loads.items() if load.waiting and load.service != "served")
        return [(kind, load.service == "draining") for kind, load in islice(kinds, limit)]


def take_snapshot(
    tracked: TrackedState, fleet: Fleet, blocked: BlockedCustomers, limits: Mapping[str, Kind]
) -> CapacitySnapshot:
    """Measure the load; `limits` are those of the kinds that have one."""
    waiting = tracked.waiting
    blocked.begin()
    served = {kind for kind in {document.kind for document in waiting} if fleet.service_of(kind) == "served"}
    startable = served - {kind for kind, limit in limits.items() if limit.held_by}
    urgent_ms = _urgent_since([document for document in waiting if document.kind in startable], blocked, fleet.now_ms)
    promised = [document for document in waiting if document.kind in served - limits.keys()]  # a limit may pass over any other
    overdue = sum(1 for document in _overdue(tracked, promised) if not blocked.get(document.customer, unknown=True))
    senders = Tally(document.customer for document in waiting).most_common(LOOKUPS_MAX)
    held = {customer for customer, _ in senders if blocked.get(customer, unknown=False)}
    of_blocked = Tally(document.kind for document in waiting if document.customer in held)
    ready = Tally(document.kind for document in waiting)
    oldest: dict[str, int] = {}
    for document in waiting:
        oldest[document.kind] = min(oldest.get(document.kind, document.ready_ms), document.ready_ms)
    loads = {
        kind: _load(tracked, fleet, kind, (ready[kind], of_blocked[kind]), oldest.get(kind, fleet.now_ms), limits.get(kind))
        for kind in sorted({*ready, *tracked.running, *tracked.paces})
    }
    return CapacitySnapshot(fleet, loads, max(0, fleet.now_ms - urgent_ms) / 1000, overdue, tracked.untracked)


def _load(
    tracked: TrackedState, fleet: Fleet, kind: str, ready: tuple[int, int], oldest_ms: int, limit: Kind | None
) -> KindLoad:
    pace = tracked.paces.get(kind)
    arrivals, usual = (0.0, None) if pace is None else (pace.arrivals_a_second(fleet.now_ms), pace.usual_seconds)
    oldest_wait, usual = max(0, fleet.now_ms - oldest_ms) / 1000, USUAL_SECONDS if usual is None else usual
    slots, service = fleet.slots(kind), fleet.service_of(kind)
    return KindLoad(*ready, tracked.running[kind], oldest_wait, slots, service, arrivals, usual, limit)


class BlockedCustomers:
    """Whether customers are paused or at their cap: a few are looked up for each snapshot, and remembered for a while."""

    def __init__(self, look_up: Callable[[str], bool]) -> None:
        self._look_up = look_up
        self._known: dict[str, tuple[bool, float]] = {}
        self._left = 0

    def begin(self) -> None:
        """Allow the lookups of another snapshot."""
        self._left = LOOKUPS_MAX
        if len(self._known) > KNOWN_MAX:
            self._known.clear()

    def forget(self, customer: str) -> None:
        """Look a customer up again: its terms have changed."""
        self._known.pop(customer, None)

    def get(self, customer: str, *, unknown: bool) -> bool:
        """Return whether a customer is blocked; `unknown` if it was never looked up and no lookup is left."""
        known = self._known.get(customer)
        now = time.monotonic()
        if self._left and (known is None or now - known[1] > KNOWN_SECONDS):
            self._left -= 1
            known = self._known[customer] = self._look_up(customer), now
        return unknown if known is None else known[0]


def _urgent_since(documents: Iterable[FollowedDocument], blocked: BlockedCustomers, now_ms: int) -> int:
    """Return since when the longest-waiting urgent document waits that is not held back; now if there is none."""
    since: dict[str, int] = {}
    for document in documents:
        if document.priority <= URGENT_PRIORITY_MAX:
            since[document.customer] = min(since.get(document.customer, document.ready_ms), document.ready_ms)
    oldest_first = sorted(since.items(), key=lambda item: item[1])
    return next((ready_ms for customer, ready_ms in oldest_first if not blocked.get(customer, unknown=True)), now_ms)


def _overdue(tracked: TrackedState, documents: Sequence[FollowedDocument]) -> list[FollowedDocument]:
    """Return the documents that workers passed over for more dispatches than the rules promise."""
    every = tracked.rules.open_turn_every if tracked.rules.dispatch == "fair" else 0
    if not every:  # nothing is promised
        return []
    counts = {kind: tracked.dispatches_for(kind) for kind in {document.kind for document in documents}}

    def is_overdue(document: FollowedDocument) -> bool:
        dispatches, sets = counts[document.kind]
        return dispatches - document.dispatches > every * (document.before + 1) + (every - 1) * max(0, sets - 1)

    return [document for document in documents if is_overdue(document)]


def load_json(load: KindLoad, target_wait: float) -> dict[str, Any]:
    """Return the load of one kind as flat JSON members."""
    return {
        "waiting": load.waiting,
        "held_back": load.held_back,
        "running": load.running,
        "slots": load.slots,
        "slots_wanted": load.slots_wanted(target_wait),
        "unserved": load.unserved,
        "oldest_wait": round(load.oldest_wait, 3),
        "arrivals_a_second": round(load.arrivals_a_second, 6),
        "usual_seconds": round(load.usual_seconds, 6),
    }


SUMMED = ("waiting", "held_back", "running", "slots_wanted", "unserved")
NO_LOAD = KindLoad(0, 0, 0, 0.0, 0, "served", 0.0, USUAL_SECONDS)


def capacity_json(snapshot: CapacitySnapshot, target_wait: float, kind: str | None, kinds_max: int) -> dict[str, Any]:
    """Return the capacity for one kind, or for all of them with their sums; kinds beyond the biggest are in the sums only."""
    if kind is not None:
        load = snapshot.loads.get(kind, NO_LOAD)._replace(slots=snapshot.fleet.slots(kind))
        return {"kind": kind, "target_wait": target_wait, **load_json(load, target_wait)}
    loads = sorted(snapshot.loads.items(), key=lambda item: (-item[1].waiting - item[1].running, item[0]))
    figures = {name: load_json(load, target_wait) for name, load in loads}
    sums = {name: sum(each[name] for each in figures.values()) for name in SUMMED}
    return {
        "target_wait": target_wait,
        **sums,
        "slots": snapshot.fleet.slots(),
        "workers": snapshot.fleet.counts["working"],
        "oldest_wait": max((each["oldest_wait"] for each in figures.values()), default=0.0),
        "urgent_wait": round(snapshot.urgent_wait, 3),
        "overdue": snapshot.overdue,
        "untracked": snapshot.untracked,
        "kinds": dict(list(figures.items())[:kinds_max]),
    }
