"""A task's message as a document holds it, and the claim with which it is handed over to a worker of Celery's.

Laws:
- The body stays as Celery's serialiser made it: here nothing is ever deserialised.
- A message goes to the queue to which Celery routed it, and the kind of its document is that queue's name.
- What is handed over has the claim's id and token in a header. Another delivery of the same message has the same token.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from kombu import serialization

from fairlane.core.document import Claim
from fairlane.core.errors import BadValue
from fairlane.engine import Engine
from fairlane.engine.protocol import RECORD_BYTES_MAX
from fairlane.queue.record_groups import CELERY_RETRIES
from fairlane.queue.validation import json_text

from .brokers import Broker
from .publish import HEADER

KIND_PREFIX = "celery:"
TRANSIENT = 1  # delivery mode: a message that is lost is handed over again, so that the broker need not write it to its disk
SENT_BY_US = {
    "priority",
    "expiration",
    "timeout",
    "confirm_timeout",
}  # properties that only matter to a broker that holds tasks


def kind_of(queue: str) -> str:
    """Return the kind of the documents that hold tasks of a queue."""
    return KIND_PREFIX + queue


def queue_of(kind: str) -> str | None:
    """Return the queue of Celery's whose tasks documents of this kind hold; None: they hold none."""
    return kind.removeprefix(KIND_PREFIX) if kind.startswith(KIND_PREFIX) else None


class HandedOver(NamedTuple):
    """The claim that a message carries in its header."""

    id: str
    token: int
    customer: str
    priority: int

    @classmethod
    def of(cls, claim: Claim) -> HandedOver:
        return cls(claim.id, claim.token, claim.customer, claim.priority)

    @classmethod
    def parse(cls, headers: Mapping[str, Any] | None) -> HandedOver | None:
        """Return the claim in the headers of a message; None if they have none."""
        value = (headers or {}).get(HEADER)
        if not isinstance(value, Mapping):
            return None
        id, token, customer, priority = (value.get(name) for name in cls._fields)
        if not (isinstance(id, str) and type(token) is int and isinstance(customer, str) and type(priority) is int):
            return None
        return cls(id, token, customer, priority)


class TaskMessage(NamedTuple):
    """A task's message, in values that are JSON."""

    task: str
    id: str
    queue: str
    headers: dict[str, Any]
    properties: dict[str, Any]
    content_type: str
    content_encoding: str
    compression: str | None
    body: str
    is_base64: bool

    @classmethod
    def encode(
        cls, task: str, queue: str, body: object, serializer: str | None, headers: Mapping[str, Any], options: Mapping[str, Any]
    ) -> TaskMessage:
        """Encode what Celery would publish: `options` are those of the publication."""
        content_type, content_encoding, data = serialization.dumps(body, serializer)  # type: ignore[no-untyped-call]
        is_base64 = not isinstance(data, str)
        return cls(
            task, str(headers["id"]), queue, {name: value for name, value in headers.items() if name != HEADER},
            {name: value for name, value in options.items() if name not in SENT_BY_US and value is not None},
            content_type, content_encoding, options.get("compression"),
            b64encode(data).decode() if is_base64 else data, is_base64,
        )  # fmt: skip

    def payload_text(self) -> str:
        """Return it as a document's payload; raise BadValue if that is impossible."""
        return json_text(f"the message of task {self.task}", self._asdict())

    @classmethod
    def parse(cls, payload: str) -> TaskMessage:
        """Return the message in a document's payload; raise BadValue if there is none."""
        try:
            return cls(**json.loads(payload))
        except (TypeError, ValueError) as error:
            raise BadValue("the payload", payload[:100], "a message that the bridge has stored") from error

    def data(self) -> str | bytes:
        """Return its body as the serialiser made it."""
        return b64decode(self.body) if self.is_base64 else self.body

    def delay_seconds(self) -> float:
        """Return how long it is until the task may start."""
        eta = self.headers.get("eta")
        if eta is None:
            return 0.0
        at = datetime.fromisoformat(eta)
        return max(0.0, (at - datetime.now(at.tzinfo)).total_seconds())

    def publish(self, producer: Any, claim: Claim, broker: Broker | None) -> None:
        """Hand the claim over: publish the message with it. The delay is over, so that no worker shall wait for it again."""
        headers = {**self.headers, "eta": None, HEADER: HandedOver.of(claim)._asdict()}
        producer.publish(
            self.data(), exchange="", routing_key=self.queue, content_type=self.content_type,
            content_encoding=self.content_encoding, compression=self.compression, headers=headers,
            delivery_mode=TRANSIENT, retry=False,
            priority=None if broker is None else broker.number(claim.priority), **self.properties,
        )  # fmt: skip


# -- retries ---------------------------------------------------------------------------------------------------------------


def keep_retry(engine: Engine, handed: HandedOver, message: TaskMessage) -> None:
    """Keep the message of a task's next attempt beside its document, as far as it differs from the first one's."""
    body = engine.body(handed.id)
    if body is None:
        return  # erased meanwhile
    first = TaskMessage.parse(body.payload)._asdict()
    changed = {name: value for name, value in message._asdict().items() if value != first[name]}
    text = json.dumps({"customer": handed.customer, "changed": changed})
    if len(text) > RECORD_BYTES_MAX:
        raise BadValue(
            f"the arguments of the retry of task {message.task}", f"{len(text):,} bytes",
            f"at most {RECORD_BYTES_MAX:,} bytes if they are not those of the first attempt",
        )  # fmt: skip
    engine.put_record(CELERY_RETRIES, handed.id, text)


def next_message(engine: Engine, claim: Claim) -> TaskMessage:
    """Return the message with which the task of a claim is to begin."""
    message = TaskMessage.parse(claim.payload)
    record = engine.record(CELERY_RETRIES, claim.id) if claim.token > 1 else None
    return message if record is None else message._replace(**json.loads(record.value)["changed"])


def forget_retry(engine: Engine, id: str) -> None:
    """Remove what is kept of a document that has ended."""
    engine.put_record(CELERY_RETRIES, id, None)


def seconds_until(when: object) -> float:
    """Return the seconds until the moment that Celery names: a number of them, a time, or None for now."""
    if isinstance(when, datetime):
        now = datetime.now(when.tzinfo or UTC)
        return max(0.0, ((when if when.tzinfo else when.replace(tzinfo=UTC)) - now).total_seconds())
    return max(0.0, float(when)) if isinstance(when, int | float) else 0.0
