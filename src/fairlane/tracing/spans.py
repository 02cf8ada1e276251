"""How do spans that are made in several processes become one trace? Their ids follow from the id of the document.

Laws:
- A document is one trace: `submit` is its root, `wait` and `handle` of each attempt are children of that. No process has to
  hear of another: each works the ids out for itself.
- The trace's id is a hash: samplers go by its bits, and some bits of a document's id are the same in all of them.
- Spans tell ids, numbers and the word of an outcome; never a payload, a reason, a name of a file or a key.
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
CLOSE_SECONDS = 5.0  # that the last spans may take when a process ends


class Told(NamedTuple):
    """What spans say of a document."""

    id: str
    customer: str
    priority: int
    attempt: int | None = None
    outcome: str | None = None

    def attributes(self) -> dict[str, str | int]:
        told: dict[str, str | int | None] = {
            "fairlane.document.id": self.id,
            "fairlane.customer.id": self.customer,
            "fairlane.priority": self.priority,
            "fairlane.attempt": self.attempt,
            "fairlane.outcome": self.outcome,
        }
        return {name: value for name, value in told.items() if value is not None}


class _Ids(RandomIdGenerator):
    """Random ids, but for a root whose ids are named."""

    named: SpanContext | None = None

    def generate_trace_id(self) -> int:
        return super().generate_trace_id() if self.named is None else self.named.trace_id

    def generate_span_id(self) -> int:
        return super().generate_span_id() if self.named is None else self.named.span_id


def root_of(id: str) -> SpanContext:
    """The root of a document's trace, whoever made it."""
    digest = hashlib.sha256(f"trace of document {id}".encode()).digest()
    trace_id, span_id = int.from_bytes(digest[:16], "big"), int.from_bytes(digest[16:24], "big")
    return SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))


class Spans:
    """Tells spans to exporters, in the background. Times are in nanoseconds since the epoch."""

    def __init__(self, names: Sequence[str], environment: Mapping[str, str]) -> None:
        chosen = [_exporter(name, environment) for name in names]
        resource = Resource.create({"service.name": "fairlane"}).merge(OTELResourceDetector().detect())
        self._ids = _Ids()
        self._provider = TracerProvider(resource=resource, id_generator=self._ids, shutdown_on_exit=False)
        for one in chosen:
            self._provider.add_span_processor(BatchSpanProcessor(one()))
        self._tracer = self._provider.get_tracer("fairlane")
        self._propagator = TraceContextTextMapPropagator()

    def submitted(self, told: Told, began: int, ended: int, traceparent: str | None) -> None:
        """A document was taken; the sender's own trace is linked. Not for two threads at once."""
        links = []
        if traceparent is not None:
            sender = get_current_span(self._propagator.extract({"traceparent": traceparent}, Context())).get_span_context()
            links = [Link(sender)] if sender.is_valid else []
        self._ids.named = root_of(told.id)
        try:
            span = self._tracer.start_span(
                "submit", Context(), SpanKind.SERVER, told.attributes(), links, start_time=min(began, ended)
            )
        finally:
            self._ids.named = None
        span.end(ended)

    def waited(self, told: Told, ready: int, began: int) -> None:
        """A document was ready, and now a handler has it."""
        self._child("wait", SpanKind.INTERNAL, told, min(ready, began), began)

    def handled(self, told: Told, began: int, ended: int) -> None:
        """An attempt came to its outcome."""
        self._child("handle", SpanKind.CONSUMER, told, min(began, ended), ended)

    def is_wanted(self, id: str) -> bool:
        """Whether the sampler wants this document; it says the same in every process with the same settings."""
        decision = self._provider.sampler.should_sample(Context(), root_of(id).trace_id, "submit").decision
        return decision is Decision.RECORD_AND_SAMPLE

    def _child(self, name: str, kind: SpanKind, told: Told, start: int, end: int) -> None:
        if not self.is_wanted(told.id):
            return
        parent = set_span_in_context(NonRecordingSpan(root_of(told.id)), Context())
        span = self._tracer.start_span(name, parent, kind, told.attributes(), start_time=start)
        if told.outcome in ("failed", "retried", "lost"):
            span.set_status(Status(StatusCode.ERROR))
        span.end(end)

    def close(self) -> None:
        """Send what is left, for a while: a collector that does not answer holds up nobody's end."""
        closing = threading.Thread(target=self._provider.shutdown, name="fairlane-traces", daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)


def _exporter(name: str, environment: Mapping[str, str]) -> type[SpanExporter]:
    if name == "otlp":
        told = environment.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environment.get("OTEL_EXPORTER_OTLP_PROTOCOL")
        protocol = told or "http/protobuf"
        if protocol not in PROTOCOLS:
            raise ValueError(f"the protocol {protocol!r} is not one of {', '.join(PROTOCOLS)}")
        name = PROTOCOLS[protocol]
    for one in entry_points(group="opentelemetry_traces_exporter", name=name):
        loaded: type[SpanExporter] = one.load()
        return loaded
    raise ValueError(f"there is no exporter {name!r}; its package is not installed")
