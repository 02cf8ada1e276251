"""An OTLP receiver for tests: keeps the spans that it receives."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Status


class Span(NamedTuple):
    """A span, as it arrived."""

    name: str
    trace: str
    id: str
    parent: str
    start: int
    end: int
    is_error: bool
    links: list[tuple[str, str]]
    attributes: dict[str, Any]
    service: str


class Receiver:
    """Receives spans as a collector does."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.bytes = b""
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.take(body)
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        address = f"http://127.0.0.1:{self._server.server_port}"
        self.variables = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": address, "OTEL_EXPORTER_OTLP_COMPRESSION": "none", "OTEL_BSP_SCHEDULE_DELAY": "50",
        }  # fmt: skip

    def take(self, body: bytes) -> None:
        self.bytes += body
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = next(pair.value.string_value for pair in resource.resource.attributes if pair.key == "service.name")
            for span in (span for scope in resource.scope_spans for span in scope.spans):
                attributes = {pair.key: pair.value.string_value or pair.value.int_value for pair in span.attributes}
                links = [(link.trace_id.hex(), link.span_id.hex()) for link in span.links]
                is_error = span.status.code == Status.STATUS_CODE_ERROR
                self.spans.append(
                    Span(
                        span.name, span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex(),
                        span.start_time_unix_nano, span.end_time_unix_nano, is_error, links, attributes, service,
                    )
                )  # fmt: skip

    def of(self, id: str) -> list[Span]:
        """Return the spans of a document by start."""
        spans = [span for span in self.spans if span.attributes["fairlane.document.id"] == id]
        return sorted(spans, key=lambda span: (span.start, span.end))

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
