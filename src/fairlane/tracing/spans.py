"""The spans of a document, written by several processes into one trace.

Laws:
- A document is one trace: `submit` is its root, `wait` and `handle` of each attempt are its children. Trace and span ids are
  derived from the document's id, so the processes need not pass them on.
- The trace id is a hash of the document's id: samplers decide by its bits, and some bits are the same in every document id.
- Spans carry ids, numbers and the name of an outcome; never a payload, a reason, a file name or a key.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from typing import NamedTuple

from opentelemetry.context import Context
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

PROTOCOLS = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
CLOSE_SECONDS = 5.0  # for exporting the last spans when a process ends


class SpanSubject(NamedTuple):
    """The document that a span is about."""

    id: str
    customer: str
    priority: int
    attempt: int | None = None
    outcome: str | None = None

    def attributes(self) -> dict[str, str | int]:
        attributes: dict[str, str | int | None] = {
            "fairlane.document.id": self.id,
            "fairlane.customer.id": self.customer,
            "fairlane.priority": self.priority,
            "fairlane.attempt": self.attempt,
            "fairlane.outcome": self.outcome,
        }
        return {name: value for name, value in attributes.items() if value is not None}


class _Ids(RandomIdGenerator):
    """Random ids, or those of `root` while it is set."""

    root: SpanContext | None = None

    def generate_trace_id(self) -> int:
        return super().generate_trace_id() if self.root is None else self.root.trace_id

    def generate_span_id(self) -> int:
        return super().generate_span_id() if self.root is None else self.root.span_id


def root_of(id: str) -> SpanContext:
    """Return the root of a document's trace, the same in every process."""
    digest = hashlib.sha256(f"trace of document {id}".encode()).digest()
    trace_id, span_id = int.from_bytes(digest[:16], "big"), int.from_bytes(digest[16:24], "big")
    return SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))


class Spans:
    """Sends spans to exporters in the background. Times are nanoseconds since the epoch."""

    def __init__(self, names: Sequence[str], environment: Mapping[str, str]) -> None:
        exporter_types = [_exporter_type(name, environment) for name in names]
        resource = Resource.create({"service.name": "fairlane"}).merge(OTELResourceDetector().detect())
        self._ids = _Ids()
        self._provider = TracerProvider(resource=resource, id_generator=self._ids, shutdown_on_exit=False)
        for exporter_type in exporter_types:
            self._provider.add_span_processor(BatchSpanProcessor(exporter_type()))
        self._tracer = self._provider.get_tracer("fairlane")
        self._propagator = TraceContextTextMapPropagator()

    def submitted(self, subject: SpanSubject, began: int, ended: int, traceparent: str | None) -> None:
        """Record a submission, linked to the sender's own trace. Not thread-safe."""
        links = []
        if traceparent is not None:
            sender = get_current_span(self._propagator.extract({"traceparent": traceparent}, Context())).get_span_context()
            links = [Link(sender)] if sender.is_valid else []
        # The wait begins by the store's clock, which is cut to milliseconds: it must not seem to begin before its submission.
        start = min(began, ended) // 1_000_000 * 1_000_000
        self._ids.root = root_of(subject.id)
        try:
            span = self._tracer.start_span("submit", Context(), SpanKind.SERVER, subject.attributes(), links, start_time=start)
        finally:
            self._ids.root = None
        span.end(ended)

    def waited(self, subject: SpanSubject, ready: int, began: int) -> None:
        """Record the time from ready to the start of an attempt."""
        self._child("wait", SpanKind.INTERNAL, subject, min(ready, began), began)

    def handled(self, subject: SpanSubject, began: int, ended: int) -> None:
        """Record an attempt."""
        self._child("handle", SpanKind.CONSUMER, subject, min(began, ended), ended)

    def is_sampled(self, id: str) -> bool:
        """Return whether the sampler takes this document; the same in every process with the same settings."""
        decision = self._provider.sampler.should_sample(Context(), root_of(id).trace_id, "submit").decision
        return decision is Decision.RECORD_AND_SAMPLE

    def _child(self, name: str, kind: SpanKind, subject: SpanSubject, start: int, end: int) -> None:
        if not self.is_sampled(subject.id):
            return
        parent = set_span_in_context(NonRecordingSpan(root_of(subject.id)), Context())
        span = self._tracer.start_span(name, parent, kind, subject.attributes(), start_time=start)
        if subject.outcome in ("failed", "retried", "lost"):
            span.set_status(Status(StatusCode.ERROR))
        span.end(end)

    def close(self) -> None:
        """Export what is left, for at most CLOSE_SECONDS: a dead collector must not keep the process alive."""
        closing = threading.Thread(target=self._provider.shutdown, name="fairlane-traces", daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)


def _exporter_type(name: str, environment: Mapping[str, str]) -> type[SpanExporter]:
    if name == "otlp":
        setting = environment.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environment.get("OTEL_EXPORTER_OTLP_PROTOCOL")
        protocol = setting or "http/protobuf"
        if protocol not in PROTOCOLS:
            raise ValueError(f"the protocol {protocol!r} is not one of {', '.join(PROTOCOLS)}")
        name = PROTOCOLS[protocol]
    for entry_point in entry_points(group="opentelemetry_traces_exporter", name=name):
        exporter_type: type[SpanExporter] = entry_point.load()
        return exporter_type
    raise ValueError(f"there is no exporter {name!r}; its package is not installed")
