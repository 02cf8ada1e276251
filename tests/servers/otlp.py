"""An OTLP receiver, as a collector would be: it keeps the spans that it is sent."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Status


class Span(NamedTuple):
    """What a receiver was told."""

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
    """Takes spans as a collector would."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.bytes = b""
        told = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                told.take(body)
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
        for whole in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = next(one.value.string_value for one in whole.resource.attributes if one.key == "service.name")
            for one in (span for scope in whole.scope_spans for span in scope.spans):
                attributes = {told.key: told.value.string_value or told.value.int_value for told in one.attributes}
                links = [(link.trace_id.hex(), link.span_id.hex()) for link in one.links]
                self.spans.append(
                    Span(
                        one.name, one.trace_id.hex(), one.span_id.hex(), one.parent_span_id.hex(), one.start_time_unix_nano,
                        one.end_time_unix_nano, one.status.code == Status.STATUS_CODE_ERROR, links, attributes, service,
                    )
                )  # fmt: skip

    def of(self, id: str) -> list[Span]:
        """The spans of a document, by their beginning."""
        found = [one for one in self.spans if one.attributes["fairlane.document.id"] == id]
        return sorted(found, key=lambda one: (one.start, one.end))

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
