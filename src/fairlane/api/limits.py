"""Limits of the service: one frozen object, each limit with a default.

Laws:
- Nothing a client sends is without a limit, and what is over one is refused before it is read, or while it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

from fairlane.blobs.files import SIZE_MAX
from fairlane.core.document import BATCH_MAX
from fairlane.core.errors import BadValue, Mistake


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """Bytes, seconds and counts; docs/service.md says what each one is for."""

    upload_bytes: int = SIZE_MAX
    json_bytes: int = 1024 * 1024
    batch_bytes: int = 8 * 1024 * 1024
    batch_documents: int = 1000
    page_documents: int = 500
    requests_a_second: int = 200
    requests_burst: int = 400
    upload_tokens_a_second: int = 10
    requests_at_once: int = 512
    requests_a_customer: int = 128
    submissions_at_once: int = 4096
    uploads_at_once: int = 32
    uploads_a_customer: int = 8
    upload_wait_seconds: int = 5
    waiting_a_customer: int = 256
    store_calls_a_customer: int = 4
    searches_a_customer: int = 1
    open_requests_at_once: int = 64
    open_body_bytes: int = 1024
    open_body_seconds: int = 5
    strangers_a_second: int = 100
    strangers_burst: int = 1000
    connections: int = 1024
    connections_an_address: int = 128
    new_connections_a_second: int = 200
    handshake_seconds: int = 10
    pipelined_requests: int = 32
    header_bytes: int = 32 * 1024
    headers: int = 100
    header_seconds: int = 10
    body_idle_seconds: int = 20
    body_bytes_a_second: int = 4096
    response_idle_seconds: int = 30
    response_bytes_a_second: int = 4096
    idle_seconds: int = 30
    wait_seconds: int = 50  # nginx gives a response up after 60
    viewers: int = 1000
    viewers_a_key: int = 20
    viewer_events: int = 10_000
    webhook_calls: int = 128
    webhook_seconds: int = 20
    stop_seconds: int = 20

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if type(value) is not int or not 1 <= value <= 2**40:
                raise BadValue(f"limit {limit.name}", value, "a whole number from 1 on")
        if self.batch_documents > BATCH_MAX:
            raise BadValue("limit batch_documents", self.batch_documents, f"at most {BATCH_MAX:,}")
        if self.upload_bytes > SIZE_MAX:
            raise BadValue("limit upload_bytes", self.upload_bytes, f"at most {SIZE_MAX:,}, the most that the queue takes")


def parse_limits(assignments: Iterable[str]) -> ServiceLimits:
    """Return the limits with some changed, each as NAME=NUMBER."""
    known = [limit.name for limit in fields(ServiceLimits)]
    changes: dict[str, int] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if name == "queued_documents":
            raise Mistake(
                f"{assignment!r} is not a limit of the server any more: how many documents of a customer may wait is kept in "
                "the store; set it with `fairlane policy --waiting-max N`, or for one customer with `fairlane tune`"
            )
        if name not in known or not equals:
            raise Mistake(f"{assignment!r} is not a limit; write NAME=NUMBER, where NAME is one of {', '.join(known)}")
        if not (value.isascii() and value.isdigit()):
            raise BadValue(f"limit {name}", value, "a whole number from 1 on")
        changes[name] = int(value)
    return replace(ServiceLimits(), **changes)
