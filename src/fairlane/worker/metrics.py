"""Metrics of one worker for Prometheus: a hook that counts its events, and a small HTTP server on a thread.

Laws:
- The server is opened after the worker has forked: a thread before that could leave a lock closed in every child.
- A port that is taken is reported before the worker starts.
- Labels are bounded: the worker's own kinds, a few of them, and the outcomes.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from fairlane.core.errors import Mistake

from .hooks import WorkerEvent

KINDS_MAX = 20  # that have a label of their own; the others share one
BUCKETS = (0.01, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
REQUEST_SECONDS = 10.0


class WorkerMetrics:
    """Counts what a worker does; a hook for every event."""

    def __init__(self, slots: int) -> None:
        self.registry = registry = CollectorRegistry()
        self._running: set[tuple[str | None, int | None]] = set()
        self._kinds: set[str] = set()
        Gauge("fairlane_worker_slots", "Documents that it can run at once.", registry=registry).set(slots)
        busy = Gauge("fairlane_worker_busy_slots", "Documents that it runs now.", registry=registry)
        busy.set_function(lambda: len(self._running))
        self._draining = Gauge("fairlane_worker_draining", "1: an operator drains it.", registry=registry)
        labels = ("kind", "outcome")
        self._attempts = Counter("fairlane_worker_attempts", "Attempts that ended.", labels, registry=registry)
        self._seconds = Histogram(
            "fairlane_worker_handle_seconds", "In the handler.", ("kind",), buckets=BUCKETS, registry=registry
        )
        self._claimed = Counter("fairlane_worker_claimed_documents", "Documents that it claimed.", registry=registry)
        self._failures = Counter("fairlane_worker_store_failures", "Calls of the store that failed.", registry=registry)

    def __call__(self, event: WorkerEvent) -> None:
        attempt = (event.id, event.token)
        if event.name == "claimed":
            self._claimed.inc(event.number or 0)
        elif event.name == "began":
            self._running.add(attempt)
        elif event.name in ("finished", "unfinished", "lost"):
            self._running.discard(attempt)
            kind = self._kind(event.kind or "")
            self._attempts.labels(kind, event.outcome or event.name).inc()
            if event.seconds is not None:
                self._seconds.labels(kind).observe(event.seconds)
        elif event.name in ("draining", "undrained"):
            self._draining.set(event.name == "draining")
        elif event.name == "store_failed":
            self._failures.inc()

    def _kind(self, kind: str) -> str:
        if kind in self._kinds or len(self._kinds) < KINDS_MAX:
            self._kinds.add(kind)
            return kind
        return "other"


class MetricsServer:
    """Serves the metrics at /metrics once it is opened."""

    def __init__(self, host: str, port: int, registry: CollectorRegistry) -> None:
        self._address = host, port
        self._registry = registry
        self._server: ThreadingHTTPServer | None = None
        with self._refused():
            _HttpServer(self._address, BaseHTTPRequestHandler, host).server_close()  # to report a port that is taken

    def open(self) -> None:
        """Listen, and answer on a thread."""
        with self._refused():
            self._server = _HttpServer(self._address, _handler(self._registry), self._address[0])
        threading.Thread(target=self._server.serve_forever, name="fairlane-metrics", daemon=True).start()

    def close(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    @contextmanager
    def _refused(self) -> Iterator[None]:
        """Turn what the system refuses into a mistake that names the address."""
        try:
            yield
        except OSError as error:
            host, port = self._address
            reason = error.strerror or error
            raise Mistake(f"cannot listen on {host} port {port}: {reason}; choose another --metrics-port") from None


class _HttpServer(ThreadingHTTPServer):
    """Listens on an address of either family."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: Callable[..., Any], host: str) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__(address, handler)


def _handler(registry: CollectorRegistry) -> type[BaseHTTPRequestHandler]:
    class MetricsRequestHandler(BaseHTTPRequestHandler):
        """Answers to GET /metrics."""

        timeout = REQUEST_SECONDS

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                return self.send_error(404)
            body = generate_latest(registry)
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE_LATEST)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return None

        def log_message(self, *_: object) -> None:
            pass  # scrapes are not events

    return MetricsRequestHandler
