"""The measured past of a queue: how long its documents really waited, and why a replay of them may differ.

A replay has all its workers all the time, each for every document, and knows no pauses, no retries and no other rules. The past
had none of these promises. What is measured here stands beside the replay, so that nobody takes the one for the other.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import replace
from heapq import heappop, heappush
from typing import NamedTuple

from fairlane.core.document import ChangeRow

from .contenders import Contender
from .measures import Measures, measure
from .replay import Replay
from .workload import Workload

FACTOR_MUCH, SECONDS_MUCH = 1.5, 1.0  # waits that differ by more than both are not the same
SHARE_MUCH = 0.1  # of the documents, or of the time in which something waited
WORKERS_SHARE = 0.75  # fewer than this share of the workers at once, on average
GAP_MS = 2000  # nothing ran for so long although documents waited: the workers were away
NAME = "measured"
ATTEMPT_ENDS = ("done", "failed", "continued", "split", "retried", "postponed", "released", "expired", "cancelled")


class Doubt(NamedTuple):
    """A reason why a replay differs from the past, by a word for programs, and its figures."""

    reason: str
    values: dict[str, float]

    @property
    def sentence(self) -> str:
        return SENTENCES[self.reason].format(**self.values)


SENTENCES = {
    "workers": "The replay has {assumed:,.0f} workers all the time; on average {usual:,.1f} worked while documents waited.",
    "more_workers": "The replay has {assumed:,.0f} workers; up to {most:,.0f} documents ran at once. Set --workers to that.",
    "downtime": "For {seconds:,.0f} s documents waited and nothing ran: workers, or the store, were away.",
    "pauses": "Customers were paused in that time ({count:,.0f} times), and the replay pauses nobody.",
    "retries": "{count:,.0f} documents had more than one attempt; in the replay each runs once, without a pause between.",
    "rules": "The rules or a customer's terms were changed in that time ({count:,.0f} times); the replay uses those of now.",
    "unfinished": "{count:,.0f} documents were submitted and are not in the replay: they have not ended, or were cancelled.",
    "unknown": "The feed does not show why: workers that take only some kinds, or limits of other programs, may be the reason.",
}


class Observation:
    """What the feed shows of workers and waiting documents, change by change."""

    def __init__(self, delayed_ms: Mapping[str, int]) -> None:
        self._delayed_ms = delayed_ms  # documents that were submitted with a delay, and when that was over
        self._due: list[tuple[int, str]] = []  # heap of those that wait for it
        self._waiting: set[str] = set()
        self._running: set[str] = set()
        self._paused: set[str] = set()
        self._at_ms = 0
        self.first_ms = self.last_ms = 0
        self.running_max = 1
        self.waiting_ms = self.running_ms = self.down_ms = 0  # while something waited; running summed over the documents
        self.pauses = self.rule_changes = 0

    def apply(self, change: ChangeRow) -> None:
        self._pass_time(change.at_ms)
        id, what = change.document, change.what
        if what == "tuned":
            self._on_terms(change.customer or "", json.loads(change.note or "{}"))
        elif what == "configured":
            self.rule_changes += 1
        if id is None:
            return
        if what == "claimed":
            self._waiting.discard(id)
            self._running.add(id)
            self.running_max = max(self.running_max, len(self._running))
        elif what in ATTEMPT_ENDS:
            self._running.discard(id)
            self._waiting.discard(id)
        if what == "submitted" and id in self._delayed_ms:
            heappush(self._due, (self._delayed_ms[id], id))
        elif what in ("submitted", "released", "expired", "revived"):  # after a retry it may wait for its time
            self._waiting.add(id)

    def _on_terms(self, customer: str, terms: dict[str, object]) -> None:
        if terms.get("paused"):
            self.pauses += 1
            self._paused.add(customer)
        elif customer in self._paused:
            self._paused.discard(customer)
        else:
            self.rule_changes += 1

    def _pass_time(self, at_ms: int) -> None:
        self.first_ms = self.first_ms or at_ms
        passed_ms = max(0, at_ms - self._at_ms) if self._at_ms else 0
        self._at_ms = self.last_ms = max(self._at_ms, at_ms)
        if self._waiting:
            self.waiting_ms += passed_ms
            self.running_ms += passed_ms * len(self._running)
            if not self._running and passed_ms >= GAP_MS:
                self.down_ms += passed_ms
        while self._due and self._due[0][0] <= at_ms:
            self._waiting.add(heappop(self._due)[1])


class Past(NamedTuple):
    """What really happened to the documents of a workload."""

    replay: Replay  # in the form of a replay, so that it is measured in the same way
    observation: Observation
    retried: int
    left_out: int

    def measure(self) -> Measures:
        return measure(self.replay)

    def doubts(self, measured: Measures, simulated: Measures) -> list[Doubt]:
        """Return why a replay under the rules of now cannot be trusted; empty if its waits are those of the past."""
        if not differs(measured, simulated):
            return []
        return list(self._reasons(simulated.workers)) or [Doubt("unknown", {})]

    def _reasons(self, workers: int) -> Iterator[Doubt]:
        seen = self.observation
        up_ms = seen.waiting_ms - seen.down_ms
        usual = seen.running_ms / up_ms if up_ms else float(workers)
        if seen.down_ms >= SHARE_MUCH * seen.waiting_ms > 0:
            yield Doubt("downtime", {"seconds": seen.down_ms / 1000})
        if usual < WORKERS_SHARE * workers:
            yield Doubt("workers", {"assumed": workers, "usual": usual})
        if workers < seen.running_max:
            yield Doubt("more_workers", {"assumed": workers, "most": seen.running_max})
        if seen.pauses:
            yield Doubt("pauses", {"count": seen.pauses})
        if seen.rule_changes:
            yield Doubt("rules", {"count": seen.rule_changes})
        if self.retried >= SHARE_MUCH * len(self.replay.workload):
            yield Doubt("retries", {"count": self.retried})
        if self.left_out >= SHARE_MUCH * (len(self.replay.workload) + self.left_out):
            yield Doubt("unfinished", {"count": self.left_out})


def past_replay(workload: Workload, contender: Contender, workers: int, start_us: array[int]) -> Replay:
    """Return true starts in the form of a replay; its counters and priorities are empty."""
    turn = array("q", [0]) * len(workload)
    for number, document in enumerate(sorted(range(len(workload)), key=start_us.__getitem__), start=1):
        turn[document] = number
    empty = array("q", [0]) * len(workload)
    return Replay(workload, replace(contender, name=NAME), workers, empty, array("b", empty), start_us, turn)


def differs(measured: Measures, simulated: Measures) -> bool:
    """Return whether typical or long waits differ by much."""
    for group in ("light", "heavy", "all"):
        for figure in ("p50", "p95"):
            true, replayed = getattr(measured.waits[group], figure), getattr(simulated.waits[group], figure)
            if true is None or replayed is None:
                continue
            low, high = sorted((true, replayed))
            if high - low > SECONDS_MUCH and high > FACTOR_MUCH * low:
                return True
    return False
