"""Metrics for Prometheus, kept by following the feed.

Laws:
- Labels are bounded: priorities, known words, routes of ours, and a few of the biggest senders.
- What is light and what is starved means the same as in the simulator.
- The metrics are this server's view of the whole queue, whichever server and worker took part.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from fairlane.core.document import ENDED, ChangeRow, CheckRow, DocumentRow, ReceiptRow
from fairlane.core.policy import interval_ms_of
from fairlane.queue import Queue

from .auth import time_ms
from .feed import EVENT_NAMES

PAGE = 1000
TRACKED_MAX = 200_000  # waiting and running documents that are tracked one by one
SENDERS = 10
SENDERS_KNOWN_MAX = 20_000
REASONS_MAX = 20
LIGHT_MOST = 3  # documents of a customer within LIGHT_MS, as the simulator says
LIGHT_MS = 1_500_000
LIGHT_WAITS = 2000  # newest ones, for the p99
WAIT_BUCKETS = (0.1, 0.5, 1, 5, 15, 60, 300, 900, 1800, 3600, 14400, 86400)
RESPONSE_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 30)
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD")
WAITS_AGAIN = ("retried", "released", "expired", "revived", "due")


disable_created_metrics()  # type: ignore[no-untyped-call]  # when a series began doubles what is scraped, for nothing


class _TrackedDocument(NamedTuple):
    """A document that has not ended."""

    number: int
    customer: str
    priority: int
    ready_ms: int
    is_light: bool


class Metrics:
    """Tracks documents through the feed, and is scraped."""

    def __init__(self, queue: Queue, call: Callable[..., Awaitable[Any]]) -> None:
        self._queue = queue
        self._call = call
        self._waiting: OrderedDict[str, _TrackedDocument] = OrderedDict()  # about in the order they became ready
        self._running: dict[str, _TrackedDocument] = {}
        self._delayed: dict[str, _TrackedDocument] = {}
        self._expected: dict[str, tuple[int, CheckRow, int]] = {}  # accepted here, and not in the feed yet
        self._overdue: set[str] = set()  # counted as starved already
        self._senders: Tally[str] = Tally()  # how many of each customer wait
        self._recent: OrderedDict[str, deque[int]] = OrderedDict()  # when a customer sent its newest documents
        self._light_waits: deque[float] = deque(maxlen=LIGHT_WAITS)
        self._reasons: set[str] = set()
        self._last_number = 0
        self._untracked = 0
        self._now_ms = 0
        self._response_children: dict[tuple[str, str, int], Histogram] = {}
        self._interval_ms = LIGHT_MS  # the reset interval
        self.registry = CollectorRegistry()
        self._make_counters()
        self.registry.register(self)

    def _make_counters(self) -> None:
        into = self.registry
        self._events = Counter("fairlane_documents", "What happened to documents, by what.", ("event",), registry=into)
        self._failures = Counter("fairlane_failures", "Documents that failed, by reason.", ("reason",), registry=into)
        self._starved = Counter(
            "fairlane_starved", "Documents ready for longer than a reset interval when a later one was taken.", registry=into
        )
        self._waits = Histogram(
            "fairlane_wait_seconds", "From ready to started.", ("priority",), buckets=WAIT_BUCKETS, registry=into
        )
        self._responses = Histogram(
            "fairlane_http_seconds",
            "Requests, by route.",
            ("method", "route", "status"),
            buckets=RESPONSE_BUCKETS,
            registry=into,
        )
        self._deliveries = Counter("fairlane_webhooks", "Calls of webhooks, by outcome.", ("outcome",), registry=into)

    def on_response(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a response."""
        labels = (method if method in METHODS else "other", route, status // 100)
        child = self._response_children.get(labels)
        if child is None:
            child = self._response_children[labels] = self._responses.labels(*labels[:2], f"{labels[2]}xx")
        child.observe(seconds)

    def on_delivery(self, outcome: str) -> None:
        """Count a call of a webhook."""
        self._deliveries.labels(outcome).inc()

    def running(self, limit: int) -> list[tuple[str, str]]:
        """Return some documents that run now, with their customers."""
        return [(id, document.customer) for id, document in islice(self._running.items(), limit)]

    def scrape(self) -> bytes:
        """Return everything in the text format of Prometheus."""
        return generate_latest(self.registry)

    # -- tracking ------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Read what waits and runs already."""
        for document in await self._call(self._not_ended):
            self._track(document)
        self._interval_ms = interval_ms_of((await self._call(self._queue.rules)).policy)

    def _not_ended(self) -> list[DocumentRow]:
        documents: list[DocumentRow] = []
        newest = self._queue.engine.documents(None, None, None, 1)
        self._last_number = newest[0].number if newest else 0
        for state in ("running", "ready", "delayed"):
            before: int | None = None
            while page := self._queue.engine.documents(None, state, before, PAGE):
                documents += page
                before = page[-1].number
                if len(documents) >= TRACKED_MAX:
                    break
        return sorted(documents, key=lambda document: document.number)

    def on_accepted(self, receipt: ReceiptRow, delay_ms: int) -> None:
        """Note a document that was accepted here, before the feed has it."""
        self._expect(receipt.id, receipt.number, receipt.check, receipt.check.checked_ms + delay_ms)

    def _expect(self, id: str, number: int, check: CheckRow, ready_ms: int) -> None:
        if len(self._expected) >= TRACKED_MAX:
            self._expected.clear()
        self._expected[id] = (number, check, ready_ms)

    def _is_tracked(self, id: str) -> bool:
        return id in self._waiting or id in self._running or id in self._delayed

    def _start_tracking(self, id: str) -> None:
        expected = self._expected.pop(id, None)
        if expected is None or self._is_tracked(id):
            return
        number, check, ready_ms = expected
        self._last_number = max(self._last_number, number)
        is_light = self._is_light(check.customer, check.checked_ms)
        if len(self._waiting) + len(self._running) >= TRACKED_MAX:
            self._untracked += 1
            return
        tracked = _TrackedDocument(number, check.customer, check.priority, ready_ms, is_light)
        if ready_ms > check.checked_ms:
            self._delayed[id] = tracked
        else:
            self._wait(id, tracked)

    def _track(self, document: DocumentRow) -> None:
        tracked = _TrackedDocument(document.number, document.customer, document.priority, document.ready_ms, False)
        if document.state == "running":
            self._running[document.id] = tracked
        elif document.state == "delayed":
            self._delayed[document.id] = tracked
        else:
            self._wait(document.id, tracked)

    async def on_changes(self, changes: list[ChangeRow]) -> None:
        """Count changes, as the feed reads them."""
        submitted = [change.document for change in changes if change.what == "submitted" and change.document is not None]
        if not all(
            id in self._expected or self._is_tracked(id) for id in submitted
        ):  # submitted through another server or the library
            for document in await self._call(self._newly_submitted):
                self._expect(document.id, document.number, document.check, document.ready_ms)
        for id in submitted:
            self._start_tracking(id)
        for change in changes:
            self._now_ms = max(self._now_ms, change.at_ms)
            if change.what == "configured":
                self._interval_ms = interval_ms_of((await self._call(self._queue.rules)).policy)
            if change.document is not None:
                self._events.labels(EVENT_NAMES.get(change.what, change.what)).inc()
                self._on_change(change, change.document)

    def _newly_submitted(self) -> list[DocumentRow]:
        """Read the documents above the last number that was seen."""
        documents: list[DocumentRow] = []
        before: int | None = None
        while page := self._queue.engine.documents(None, None, before, PAGE):
            new = [document for document in page if document.number > self._last_number]
            documents += new
            before = page[-1].number
            if len(new) < len(page) or len(documents) >= TRACKED_MAX:
                break
        return documents

    def _is_light(self, customer: str, at_ms: int) -> bool:
        recent = self._recent.setdefault(customer, deque(maxlen=LIGHT_MOST))
        is_light = len(recent) < LIGHT_MOST or at_ms - recent[0] > LIGHT_MS
        recent.append(at_ms)
        self._recent.move_to_end(customer)
        while len(self._recent) > SENDERS_KNOWN_MAX:
            self._recent.popitem(last=False)
        return is_light

    def _on_change(self, change: ChangeRow, id: str) -> None:
        if change.what == "claimed":
            self._on_claim(change, id)
        elif change.what in ENDED:
            self._stop_waiting(id)
            self._running.pop(id, None)
            self._delayed.pop(id, None)
            if change.what == "failed":
                self._failures.labels(self._reason(change.note)).inc()
        elif change.what in WAITS_AGAIN and (tracked := self._running.pop(id, None)) is not None:
            self._wait(id, tracked._replace(ready_ms=change.at_ms))

    def _on_claim(self, change: ChangeRow, id: str) -> None:
        tracked = self._stop_waiting(id) or self._delayed.pop(id, None)
        if tracked is None:
            return
        self._running[id] = tracked
        seconds = max(0, change.at_ms - tracked.ready_ms) / 1000
        self._waits.labels(str(tracked.priority)).observe(seconds)
        if tracked.is_light:
            self._light_waits.append(seconds)
        for other_id, other in islice(self._waiting.items(), 100):
            if change.at_ms - other.ready_ms <= self._interval_ms:
                break
            if other.number < tracked.number and other_id not in self._overdue:
                self._overdue.add(other_id)
                self._starved.inc()

    def _wait(self, id: str, tracked: _TrackedDocument) -> None:
        self._waiting[id] = tracked
        self._senders[tracked.customer] += 1

    def _stop_waiting(self, id: str) -> _TrackedDocument | None:
        tracked = self._waiting.pop(id, None)
        self._overdue.discard(id)
        if tracked is not None:
            self._senders[tracked.customer] -= 1
            if self._senders[tracked.customer] <= 0:
                del self._senders[tracked.customer]
        return tracked

    def _reason(self, note: str | None) -> str:
        """Return the beginning of a reason as a label, as long as there are few of them."""
        beginning = (note or "unknown").partition(":")[0][:60]
        if beginning in self._reasons or len(self._reasons) < REASONS_MAX:
            self._reasons.add(beginning)
            return beginning
        return "other"

    # -- scraping ------------------------------------------------------------------------------------------------------

    def collect(self) -> Iterator[Metric]:
        """Return the gauges of this moment."""
        ready = GaugeMetricFamily("fairlane_ready_documents", "Documents that could be taken now.", labels=("priority",))
        oldest = GaugeMetricFamily("fairlane_oldest_wait_seconds", "The longest wait of those ready.", labels=("priority",))
        counts: Tally[int] = Tally()
        since: dict[int, int] = {}
        for tracked in list(self._waiting.values()):
            priority, ready_ms = tracked.priority, tracked.ready_ms
            counts[priority] += 1
            since[priority] = min(since.get(priority, ready_ms), ready_ms)
        now_ms = max(self._now_ms, time_ms())
        for priority in range(1, 10):
            ready.add_metric((str(priority),), counts[priority])
            waited_ms = now_ms - since.get(priority, now_ms)
            oldest.add_metric((str(priority),), max(0, waited_ms) / 1000)
        yield ready
        yield oldest
        yield GaugeMetricFamily("fairlane_running_documents", "Documents that run now.", value=len(self._running))
        yield GaugeMetricFamily(
            "fairlane_untracked_documents", "Documents above what one server follows.", value=self._untracked
        )
        light = sorted(self._light_waits)
        p99 = light[-(-99 * len(light) // 100) - 1] if light else 0.0
        yield GaugeMetricFamily("fairlane_light_wait_p99_seconds", "Of 100 light documents 99 waited no longer.", value=p99)
        senders = GaugeMetricFamily("fairlane_sender_waiting_documents", "Of the biggest senders.", labels=("customer",))
        for customer, count in self._senders.most_common(SENDERS):
            senders.add_metric((customer,), count)
        yield senders
