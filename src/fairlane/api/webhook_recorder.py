"""The recorder of webhooks: follows the feed, and records a delivery for every ending of a customer with a webhook.

Laws:
- The cursor on the feed moves after the deliveries are written: a server that dies loses none, and the next one goes on.
- One server at a time records and delivers, by a lease in the records; two at once would only repeat, never lose.
"""

from __future__ import annotations

import json
import os
import secrets
from typing import Any

from fairlane.api.access.batches import TO_CHECK, BatchRecord, batch_by_id
from fairlane.engine import Engine
from fairlane.queue.forget import erase_if_forgotten
from fairlane.queue.history import newest, read_changes

from .auth import time_ms
from .webhook_deliveries import Delivery, DeliveryStore, batch_event
from .webhook_events import batch_of, change_event, has_batch_ended, mark_batch_ended
from .webhooks import CURSOR, GROUP, STATE, webhook_of

PAGE = 500
LEASE_MS = 60_000


class EndingRecorder:
    """Records endings; every method uses the store, so call it on a thread."""

    def __init__(self, engine: Engine, deliveries: DeliveryStore) -> None:
        self._engine = engine
        self._deliveries = deliveries
        self._name = f"{os.getpid()}-{secrets.token_hex(4)}"

    def is_needed(self) -> bool:
        """Whether any customer has a webhook, or a delivery is left of one that had."""
        return bool(self._engine.records(GROUP, "", 1)) or self._deliveries.has_any()

    def acquire_lease(self) -> bool:
        """Become the server that delivers, or stay it."""
        record = self._engine.record(STATE, "lease")
        lease: dict[str, Any] = {"name": "", "until_ms": 0} if record is None else json.loads(record.value)
        if lease["name"] != self._name and lease["until_ms"] > time_ms():
            return False
        if lease["name"] == self._name and lease["until_ms"] - time_ms() > LEASE_MS // 2:
            return True
        renewed = json.dumps({"name": self._name, "until_ms": time_ms() + LEASE_MS})
        return self._engine.put_record(STATE, "lease", renewed, 0 if record is None else record.version) is not None

    def record_endings(self) -> bool:
        """Record the next page of endings of customers with a webhook, then move the cursor; True: there are more."""
        cursor = self._engine.record(STATE, CURSOR)
        if cursor is None:
            self._engine.put_record(STATE, CURSOR, json.dumps(newest(self._engine)), 0)
            return False
        changes = read_changes(self._engine, json.loads(cursor.value), PAGE)
        if not changes:
            return False
        has_hook: dict[str, bool] = {}
        batches: dict[str, tuple[BatchRecord, int]] = {}
        for delivery in filter(None, map(change_event, changes)):
            customer = delivery.customer
            if customer not in has_hook:
                has_hook[customer] = self._engine.record(GROUP, customer) is not None
            if has_hook[customer]:
                batch = self._record_ending(delivery)
                if batch is not None:
                    batches[batch.id] = (batch, delivery.at_ms)
        for batch, at_ms in batches.values():
            self._record_batch(batch, at_ms)
        for customer in has_hook:
            if has_hook[customer]:
                self._deliveries.wake(customer)
                erase_if_forgotten(self._engine, customer)
        moved = self._engine.put_record(STATE, CURSOR, json.dumps(changes[-1].number), cursor.version)
        return moved is not None and len(changes) == PAGE

    def _record_ending(self, delivery: Delivery) -> BatchRecord | None:
        """Record the ending of a document, unless it is a part: its whole has an end of its own. Return its batch."""
        document = self._engine.document(delivery.document or "")
        if document is None or document.whole is None:
            self._deliveries.add(delivery)
        return None if document is None else batch_of(self._engine, document)

    def check_batches(self) -> None:
        """Check batches whose documents were submitted before the batch was written down: they may have ended in between."""
        for record in self._engine.records(TO_CHECK, "", PAGE):
            batch = batch_by_id(self._engine, record.key)
            if batch is not None and webhook_of(self._engine, batch.customer) is not None:
                self._record_batch(batch, time_ms())
                self._deliveries.wake(batch.customer)
            self._engine.put_record(TO_CHECK, record.key, None, record.version)

    def _record_batch(self, batch: BatchRecord, at_ms: int) -> None:
        if has_batch_ended(self._engine, batch):
            self._deliveries.add(batch_event(batch.customer, batch.id, batch.made_ms, at_ms))
            mark_batch_ended(self._engine, batch)
