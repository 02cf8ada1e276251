"""Metrics for Prometheus: what happened to documents, counted as the feed has it, and gauges of this moment.

Laws:
- Labels are bounded: priorities, known words, routes of ours, a few kinds, and a few of the biggest senders.
- When a customer is forgotten, failures are counted afresh: a label may quote a reason of its documents.
- What is light means the same as in the simulator.
- The metrics are this server's view of the whole queue, whichever server and worker took part.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from itertools import islice
from typing import Any, get_args

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from fairlane.core.dispatch import is_blocked
from fairlane.core.document import ENDED, ChangeRow
from fairlane.queue import Queue
from fairlane.queue.kinds import limited_kinds
from fairlane.queue.models import WorkerState
from fairlane.queue.workers import Fleet

from .auth import time_ms
from .capacity import BlockedCustomers, CapacitySnapshot, KindLoad, take_snapshot
from .feed import EVENT_NAMES
from .submit_batcher import Accepted
from .tracker import DocumentTracker, FollowedDocument

SENDERS = 10
REASONS_MAX = 20
KINDS_MAX = 20  # that have a label of their own; the others share one
OTHER = "other"
LIGHT_WAITS = 2000  # newest ones, for the p99
# Steps of two or three: Prometheus guesses inside a bucket, so that a percentile is as wrong as its bucket is wide.
WAIT_BUCKETS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 14400, 86400)
RESPONSE_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 30)
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD")


disable_created_metrics()  # type: ignore[no-untyped-call]  # when a series began doubles what is scraped, for nothing


class Metrics:
    """Counts what the feed says of documents, and is scraped."""

    def __init__(self, queue: Queue, call: Callable[..., Awaitable[Any]]) -> None:
        self._queue = queue
        self._call = call
        self._tracker = DocumentTracker(queue, call)
        self._blocked = BlockedCustomers(self._is_blocked)
        self.snapshot: CapacitySnapshot | None = None  # None: not taken yet
        self._light_waits: deque[float] = deque(maxlen=LIGHT_WAITS)
        self._reasons: set[str] = set()
        self._kinds: set[str] = set()
        self._now_ms = 0
        self._response_children: dict[tuple[str, str, int], Histogram] = {}
        self.registry = CollectorRegistry()
        self._make_counters()
        self.registry.register(self)

    def _make_counters(self) -> None:
        into = self.registry

        def histogram(name: str, help: str, labels: tuple[str, ...], buckets: tuple[float, ...] = WAIT_BUCKETS) -> Histogram:
            return Histogram(f"fairlane_{name}", help, labels, buckets=buckets, registry=into)

        self._events = Counter("fairlane_documents", "What happened to documents.", ("event", "kind"), registry=into)
        self._failures = Counter("fairlane_failures", "Documents that failed, by reason.", ("reason",), registry=into)
        self._waits = histogram("wait_seconds", "From ready to started.", ("priority",))
        self._kind_waits = histogram("kind_wait_seconds", "From ready to started.", ("kind",))
        self._handling = histogram("kind_handle_seconds", "From started to settled, for each attempt.", ("kind",))
        self._responses = histogram("http_seconds", "Requests, by route.", ("method", "route", "status"), RESPONSE_BUCKETS)
        self._deliveries = Counter("fairlane_webhooks", "Calls of webhooks, by outcome.", ("outcome",), registry=into)

    def on_response(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a response."""
        labels = (method if method in METHODS else OTHER, route, status // 100)
        child = self._response_children.get(labels)
        if child is None:
            child = self._response_children[labels] = self._responses.labels(*labels[:2], f"{labels[2]}xx")
        child.observe(seconds)

    def on_delivery(self, outcome: str) -> None:
        """Count a call of a webhook."""
        self._deliveries.labels(outcome).inc()

    def running(self, limit: int) -> list[tuple[str, str]]:
        """Return some documents that run now, with their customers."""
        return [(id, document.customer) for id, document in islice(self._tracker.running.items(), limit)]

    def scrape(self) -> bytes:
        """Return everything in the text format of Prometheus."""
        return generate_latest(self.registry)

    # -- following the feed --------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Read what waits and runs already."""
        await self._tracker.start()

    async def refresh(self) -> None:
        """Take a snapshot of the capacity."""
        fleet = self._tracker.fleet = await self._call(Fleet, self._queue.engine)
        self._tracker.promote_due(fleet.now_ms)
        limits = await self._call(limited_kinds, self._queue.engine)
        self.snapshot = await self._call(take_snapshot, self._tracker.copy(), fleet, self._blocked, limits)

    def _is_blocked(self, id: str) -> bool:
        customer = self._queue.engine.customer(id)
        return is_blocked(customer.terms.paused, customer.terms.cap, customer.running)

    def on_accepted(self, accepted: Accepted) -> None:
        """Note a document that was accepted here, before the feed has it."""
        receipt = accepted.receipt
        ready_ms = receipt.check.checked_ms + accepted.delay_ms
        self._tracker.expect(receipt.id, receipt.number, accepted.kind, receipt.check, ready_ms)

    async def on_changes(self, changes: list[ChangeRow]) -> None:
        """Count changes, as the feed reads them."""
        await self._tracker.prepare(changes)  # before anything is counted: it may fail
        for change in changes:
            self._now_ms = max(self._now_ms, change.at_ms)
            if change.what == "tuned" and change.customer is not None:
                self._blocked.forget(change.customer)
            if change.what == "forgotten":
                self._failures.clear()
                self._reasons.clear()
            if change.document is not None:
                document = self._tracker.apply(change, change.document)
                kind = OTHER if document is None else self._kind(document.kind)
                self._events.labels(EVENT_NAMES.get(change.what, change.what), kind).inc()
                if change.what == "failed":
                    self._failures.labels(self._reason(change.note)).inc()
                if document is not None:
                    self._observe(change, document, kind)

    def _observe(self, change: ChangeRow, document: FollowedDocument, kind: str) -> None:
        if change.what == "claimed":
            seconds = max(0, change.at_ms - document.ready_ms) / 1000
            self._waits.labels(str(document.priority)).observe(seconds)
            self._kind_waits.labels(kind).observe(seconds)
            if document.is_light:
                self._light_waits.append(seconds)
        elif document.started_ms and change.what in (*ENDED, "continued", "split", "retried", "postponed", "released"):
            self._handling.labels(kind).observe(max(0, change.at_ms - document.started_ms) / 1000)

    def _kind(self, kind: str) -> str:
        """Return a kind as a label, as long as there are few of them."""
        return _bounded(self._kinds, kind, KINDS_MAX)

    def _reason(self, note: str | None) -> str:
        """Return the beginning of a reason as a label, as long as there are few of them."""
        return _bounded(self._reasons, (note or "unknown").partition(":")[0][:60], REASONS_MAX)

    # -- scraping ------------------------------------------------------------------------------------------------------

    def collect(self) -> Iterator[Metric]:
        """Return the gauges of this moment, and those of the last snapshot."""
        yield from self._priority_gauges()
        tracker = self._tracker
        yield _gauge("running_documents", "Documents that run now.", len(tracker.running))
        yield _gauge("untracked_documents", "Documents above what one server follows.", tracker.untracked)
        light = sorted(self._light_waits)
        p99 = light[-(-99 * len(light) // 100) - 1] if light else 0.0
        yield _gauge("light_wait_p99_seconds", "Of 100 light documents 99 waited no longer.", p99)
        senders = dict(tracker.senders.most_common(SENDERS))
        yield _gauges("sender_waiting_documents", "Of the biggest senders.", "customer", senders)
        if self.snapshot is not None:
            yield from self._snapshot_gauges(self.snapshot)

    def _priority_gauges(self) -> Iterator[Metric]:
        counts: Tally[int] = Tally()
        since: dict[int, int] = {}
        for document in list(self._tracker.waiting.values()):
            counts[document.priority] += 1
            since[document.priority] = min(since.get(document.priority, document.ready_ms), document.ready_ms)
        now_ms = max(self._now_ms, time_ms())
        waits = {priority: max(0, now_ms - since.get(priority, now_ms)) / 1000 for priority in range(1, 10)}
        ready = {priority: counts[priority] for priority in range(1, 10)}
        yield _gauges("ready_documents", "Documents that could be taken now.", "priority", ready)
        yield _gauges("oldest_wait_seconds", "The longest wait of those ready.", "priority", waits)

    def _snapshot_gauges(self, snapshot: CapacitySnapshot) -> Iterator[Metric]:
        fleet = snapshot.fleet
        yield _gauges("workers", "Workers, by state.", "state", {state: fleet.counts[state] for state in get_args(WorkerState)})
        yield _gauge("outdated_workers", "Workers that know only an older schema than the store has.", fleet.outdated)
        yield _gauge("slots", "Slots of the workers that take documents.", fleet.slots())
        yield _gauge(
            "urgent_wait_seconds", "Longest wait of priorities 1 to 3, of what a worker could take.", snapshot.urgent_wait
        )
        yield _gauge("overdue_documents", "Documents passed over for longer than the rules promise.", snapshot.overdue)
        loads = self._loads_by_label(snapshot)
        for name, help, figure in (
            ("kind_ready_documents", "Documents that could be taken now.", lambda load: load.waiting),
            ("kind_running_documents", "Documents that run now.", lambda load: load.running),
            ("kind_oldest_wait_seconds", "The longest wait of those ready.", lambda load: load.oldest_wait),
            ("kind_slots", "Slots of the workers that take this kind.", lambda load: load.slots),
            ("kind_unserved_documents", "Ready documents that no worker takes.", lambda load: load.unserved),
        ):  # fmt: skip
            figures = {
                label: (max if name in ("kind_oldest_wait_seconds", "kind_slots") else sum)(map(figure, group))
                for label, group in loads.items()
            }
            yield _gauges(name, help, "kind", figures)

    def _loads_by_label(self, snapshot: CapacitySnapshot) -> dict[str, list[KindLoad]]:
        loads: dict[str, list[KindLoad]] = {}
        for kind, load in snapshot.loads.items():
            loads.setdefault(self._kind(kind), []).append(load)
        return loads


def _bounded(known: set[str], value: str, limit: int) -> str:
    """Return a label if it is known or there is room for it."""
    if value in known or len(known) < limit:
        known.add(value)
        return value
    return OTHER


def _gauge(name: str, help: str, value: float) -> Metric:
    return GaugeMetricFamily(f"fairlane_{name}", help, value=value)


def _gauges(name: str, help: str, label: str, values: Mapping[Any, float]) -> Metric:
    gauges = GaugeMetricFamily(f"fairlane_{name}", help, labels=(label,))
    for key, value in values.items():
        gauges.add_metric((str(key),), value)
    return gauges
