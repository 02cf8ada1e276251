"""Deliveries of webhooks as records: what is pending, what was given up, and what a customer's address last answered.

A customer's pending deliveries are kept in the order in which they are due, and customers with any are kept in the order in
which their next one is due. So a step of the sender costs the same however many are pending, and whoever else has some.

Laws:
- A delivery is written before its customer is woken, and a customer stays listed until none of its deliveries is pending.
- A delivery keeps its id over all its tries, also when it is sent again by hand: receivers drop repeats by it.
- No record holds a payload, a file name or a key: the body is made when it is sent.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from fairlane.core.document import Record
from fairlane.engine import Engine

from .auth import time_ms

PENDING = "webhook deliveries"  # by customer, time when due, and id
FAILED = "webhook failures"  # given up; by customer, time of the event, and id
DUE = "webhook customers"  # by time when due, and customer
STATUS = "webhook status"  # by customer
PAGE = 500
RECENT_MAX = 50  # delivered ones that are kept for each customer
COUNT_MAX = 1000
RETRY_FIRST_MS, RETRY_FACTOR, RETRY_MAX_MS = 2_000, 2, 3_600_000
ATTEMPTS_MAX = 20
AGE_MAX_MS = 3 * 86_400_000  # of the event; what was tried before and is older is given up

DeliveryState = Literal["pending", "failed", "delivered"]


class Delivery(NamedTuple):
    """An event for a customer's address, and how often it was tried."""

    id: str
    customer: str
    type: str
    at_ms: int  # of the event
    document: str | None
    batch: str | None
    reason: str | None = None
    attempts: int = 0
    due_ms: int = 0  # when it is tried next
    tried_ms: int | None = None
    outcome: str | None = None  # of the last try


class WebhookStatus(NamedTuple):
    """What a customer's address last answered; `recent` are its newest deliveries, the newest first."""

    delivered_ms: int | None = None
    failed_ms: int | None = None
    failure: str | None = None
    failures: int = 0  # tries since the last that was delivered
    recent: tuple[Delivery, ...] = ()


class DueCustomer(NamedTuple):
    """The record that lists a customer as having a delivery that is due."""

    customer: str
    record: Record


class DuePage(NamedTuple):
    """Some of the customers that have a delivery to be tried now."""

    customers: list[DueCustomer]
    next: str  # cursor of the next page; empty: there is none


class DueDeliveries(NamedTuple):
    """Some of a customer's deliveries that are to be tried now, the longest due first."""

    deliveries: list[Delivery]
    is_all: bool  # no other one is due


def document_event(customer: str, document: str, state: str, at_ms: int, reason: str | None) -> Delivery:
    """Make the delivery of a document's ending; the same ending makes the same id."""
    return Delivery(f"msg_{document}_{at_ms}", customer, f"document.{state}", at_ms, document, None, reason, due_ms=at_ms)


def batch_event(customer: str, batch: str, made_ms: int, at_ms: int) -> Delivery:
    """Make the delivery of a batch's end; the same batch makes the same id."""
    return Delivery(f"msg_{batch}_{made_ms}", customer, "batch.ended", at_ms, None, batch, due_ms=at_ms)


class DeliveryStore:
    """Reads and writes of deliveries."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def add(self, delivery: Delivery) -> None:
        """Write a delivery down; the same again changes nothing. Wake its customer afterwards."""
        self._engine.put_record(PENDING, _key(delivery, delivery.due_ms), _to_json(delivery), 0)

    def wake(self, customer: str) -> None:
        """List a customer as due now."""
        self._engine.put_record(DUE, _due_key(0, customer), "null")

    def has_any(self) -> bool:
        return bool(self._engine.records(DUE, "", 1))

    def due_customers(self, now_ms: int, after: str) -> DuePage:
        """Read a page of the customers that have a delivery to be tried now, the longest due first."""
        page = self._engine.records(DUE, after, PAGE)
        listed = [(record, record.key.partition("/")) for record in page]
        due = [DueCustomer(customer, record) for record, (due_ms, _, customer) in listed if int(due_ms) <= now_ms]
        return DuePage(due, due[-1].record.key if len(due) == PAGE else "")

    def due(self, customer: str, now_ms: int, open_ids: Collection[str], limit: int) -> DueDeliveries:
        """Read a customer's deliveries that are to be tried now and are not being tried; give up those that are too old."""
        page_size = len(open_ids) + limit + 1
        page = self._engine.records(PENDING, _prefix(customer), page_size)
        pending = [_from_json(record.value) for record in page if record.key.startswith(_prefix(customer))]
        due = [delivery for delivery in pending if delivery.due_ms <= now_ms]
        is_all, fresh = len(due) < page_size, []
        for delivery in due:
            if delivery.id in open_ids:
                continue
            if delivery.attempts and delivery.at_ms < now_ms - AGE_MAX_MS:
                self.give_up(delivery)
            else:
                fresh.append(delivery)
        return DueDeliveries(fresh[:limit], is_all and len(fresh) <= limit)

    def relist(self, due: DueCustomer) -> None:
        """List a customer under the time of its next delivery, or not at all if none is pending."""
        following = self._engine.records(PENDING, _prefix(due.customer), 1)
        if following and following[0].key.startswith(_prefix(due.customer)):
            next_ms = _from_json(following[0].value).due_ms
            self._engine.put_record(DUE, _due_key(next_ms, due.customer), "null")
        # Only if nobody has woken the customer since it was read.
        self._engine.put_record(DUE, due.record.key, None, due.record.version)

    def remove(self, delivery: Delivery) -> None:
        self._engine.put_record(PENDING, _key(delivery, delivery.due_ms), None)

    def try_later(self, delivery: Delivery, tried: Delivery) -> bool:
        """Replace a delivery by what it is after a failed try, due later; False: that was the last try."""
        if tried.attempts >= ATTEMPTS_MAX:
            self.give_up(tried)
            return False
        delay_ms = min(RETRY_MAX_MS, RETRY_FIRST_MS * RETRY_FACTOR ** (tried.attempts - 1))
        later = tried._replace(due_ms=(tried.tried_ms or 0) + delay_ms)
        self.add(later)  # before the old one goes: a crash loses none
        self._engine.put_record(DUE, _due_key(later.due_ms, later.customer), "null")
        self.remove(delivery)
        return True

    def give_up(self, delivery: Delivery) -> None:
        """Keep a delivery among the failed ones."""
        self._engine.put_record(FAILED, _key(delivery, delivery.at_ms), _to_json(delivery))
        self.remove(delivery)

    def send_again(self, delivery: Delivery) -> Delivery:
        """Make a delivery due now, with fresh tries, wherever it is kept."""
        again = delivery._replace(attempts=0, due_ms=time_ms())
        self.add(again)
        if delivery.due_ms != again.due_ms:
            self.remove(delivery)
        self._engine.put_record(FAILED, _key(delivery, delivery.at_ms), None)
        self.wake(delivery.customer)
        return again

    # -- for people ----------------------------------------------------------------------------------------------------

    def page(self, customer: str, state: DeliveryState, after: str, limit: int) -> list[tuple[str, Delivery]]:
        """Read a page of a customer's deliveries, each with the cursor that continues after it; the delivered ones are few."""
        if state == "delivered":
            return [("", delivery) for delivery in self.status(customer).recent]
        prefix, group = _prefix(customer), PENDING if state == "pending" else FAILED
        records = self._engine.records(group, prefix + after, limit)
        mine = [record for record in records if record.key.startswith(prefix)]
        return [(record.key.removeprefix(prefix), _from_json(record.value)) for record in mine]

    def count(self, customer: str, state: Literal["pending", "failed"]) -> int:
        """Count a customer's deliveries, up to COUNT_MAX."""
        return len(self.page(customer, state, "", COUNT_MAX))

    def find(self, customer: str, id: str) -> Delivery | None:
        """Find one of a customer's deliveries: pending, given up or among the newest delivered."""
        states: tuple[DeliveryState, ...] = ("delivered", "failed", "pending")
        listed = (delivery for state in states for delivery in self._all(customer, state))
        return next((delivery for delivery in listed if delivery.id == id), None)

    def _all(self, customer: str, state: DeliveryState) -> Iterator[Delivery]:
        after = ""
        while page := self.page(customer, state, after, PAGE):
            yield from (delivery for _, delivery in page)
            after = page[-1][0]
            if not after:
                return

    # -- status --------------------------------------------------------------------------------------------------------

    def status(self, customer: str) -> WebhookStatus:
        record = self._engine.record(STATUS, customer)
        if record is None:
            return WebhookStatus()
        fields = json.loads(record.value)
        return WebhookStatus(**{**fields, "recent": tuple(Delivery(**delivery) for delivery in fields["recent"])})

    def note(self, customer: str, delivered: Sequence[Delivery], failed: Sequence[Delivery]) -> None:
        """Note what a customer's address answered; two notes of one customer must not be taken at once."""
        known = self.status(customer)
        recent = (*reversed(delivered), *known.recent)[:RECENT_MAX]
        status = known._replace(recent=recent, failures=len(failed) + (0 if delivered else known.failures))
        if delivered:
            status = status._replace(delivered_ms=delivered[-1].tried_ms)
        if failed:
            status = status._replace(failed_ms=failed[-1].tried_ms, failure=failed[-1].outcome)
        value = {**status._asdict(), "recent": [delivery._asdict() for delivery in recent]}
        self._engine.put_record(STATUS, customer, json.dumps(value))

    def forget_status(self, customer: str) -> None:
        """Forget what was noted of an address, for the one that takes its place."""
        self._engine.put_record(STATUS, customer, None)


def forget_failures(engine: Engine, older_seconds: float) -> None:
    """Remove deliveries that were given up, once their event is that old."""
    after, before_ms = "", time_ms() - older_seconds * 1000
    while page := engine.records(FAILED, after, PAGE):
        after = page[-1].key
        for record in page:
            if _from_json(record.value).at_ms < before_ms:
                engine.put_record(FAILED, record.key, None, record.version)


def _prefix(customer: str) -> str:
    """Return what the keys of a customer's deliveries begin with; no other customer's do."""
    return customer.replace("%", "%25").replace("/", "%2F") + "/"


def _key(delivery: Delivery, at_ms: int) -> str:
    return f"{_prefix(delivery.customer)}{at_ms:015}/{delivery.id}"


def _due_key(due_ms: int, customer: str) -> str:
    return f"{due_ms:015}/{customer}"


def _to_json(delivery: Delivery) -> str:
    return json.dumps(delivery._asdict())


def _from_json(value: str) -> Delivery:
    fields: dict[str, Any] = json.loads(value)
    return Delivery(**fields)
