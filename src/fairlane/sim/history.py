"""What did a live queue really get? Its feed as a workload, and its rules as a contender."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fairlane.core.document import Change
from fairlane.core.errors import Mistake
from fairlane.core.policy import STEP, Terms
from fairlane.queue import AT_ONCE, Queue

from .contender import Contender
from .workload import Arrival, Workload

ATTEMPT_ENDS = ("done", "failed", "retried", "released", "expired", "cancelled")


def feed(queue: Queue) -> Iterator[Change]:
    """Every change that is kept, oldest first, up to now."""
    page = queue.changes()
    while page:
        yield from page
        page = queue.changes(page[-1].number, AT_ONCE)


def history(queue: Queue) -> Workload:
    """The documents of a queue that have ended, each with the time that workers spent on it, all attempts together."""
    submitted: dict[str, tuple[int, str]] = {}
    claimed_ms: dict[str, int] = {}
    spent_ms: dict[str, int] = {}
    ended: set[str] = set()
    for change in feed(queue):
        id = change.document
        if id is None or change.customer is None:
            continue
        if change.what == "submitted":
            submitted[id] = change.at_ms, change.customer
        elif change.what == "claimed":
            claimed_ms[id] = change.at_ms
        elif change.what in ATTEMPT_ENDS and id in claimed_ms:
            spent_ms[id] = spent_ms.get(id, 0) + max(0, change.at_ms - claimed_ms.pop(id))
            if change.what in ("done", "failed"):
                ended.add(id)
        elif change.what == "revived":
            ended.discard(id)
    known = [(id, *submitted[id]) for id in submitted if id in ended]
    if not known:
        raise Mistake(f"{queue.url} has no document that was submitted and has ended since its feed begins; nothing to replay")
    costs = {one.id: one.cost for one in queue.documents() if one.cost != STEP}
    arrivals = [Arrival(at_ms, customer, spent_ms[id] * 1000, costs.get(id, STEP)) for id, at_ms, customer in known]
    left_out = len(submitted) - len(known)
    notes = (f"{left_out:,} documents that have not ended, or were cancelled, are left out.",) if left_out else ()
    return Workload.of(queue.url, arrivals, notes)


def current(queue: Queue) -> Contender:
    """The rules that hold in a queue now, with what its customers have of their own, but pauses: what ended was served."""
    terms: dict[str, Terms] = {}
    after = ""
    while page := queue.engine.customers(after, AT_ONCE):
        terms.update((one.id, replace(one.terms, paused=False)) for one in page if one.terms_version)
        after = page[-1].id
    return Contender("current", queue.rules(), terms)
