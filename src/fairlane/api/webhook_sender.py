"""The sender of webhooks: records every ending of a customer with a webhook, and calls until it is accepted.

What is to be delivered is written to the store before anything is sent: a cursor on the feed, and a record for each event. A
server that dies loses none; the next one goes on.

Laws:
- At least once, and in no promised order: `webhook-id` shows a repeat.
- Customers take turns, each with a few calls at once. An address that fails is called with one delivery at a time, and after
  growing pauses: it does not hold up the others.
- One server at a time delivers, by a lease in the records; two at once would only repeat, never lose.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from fairlane.api.access.batches import TO_CHECK, BatchRecord, batch_by_id
from fairlane.engine import Engine
from fairlane.procs.threads import DaemonThreads
from fairlane.queue.history import newest, read_changes

from .auth import time_ms
from .logging import Log
from .metrics import Metrics
from .webhook_deliveries import Delivery, DeliveryStore, DueCustomer, batch_event
from .webhook_events import batch_of, body, change_event, has_batch_ended, mark_batch_ended
from .webhook_transport import AddressRefused, post
from .webhooks import CURSOR, GROUP, STATE, Webhook, webhook_of

PAGE = 500
CALLS_AT_ONCE = 64  # of all customers
CUSTOMERS_AT_ONCE = 32
CALLS_A_CUSTOMER = 8  # at once
POLL_SECONDS = 0.5
PAUSE_MAX_SECONDS = 30.0  # between calls of an address that fails
LEASE_MS = 60_000


class TryOutcome(NamedTuple):
    """What came of one try."""

    delivery: Delivery
    is_delivered: bool


class WebhookSender:
    """Records what is to be delivered, and delivers it."""

    def __init__(
        self, engine: Engine, call: Callable[..., Awaitable[Any]], log: Log, metrics: Metrics, allow_private: bool
    ) -> None:
        self._engine = engine
        self._deliveries = DeliveryStore(engine)
        self._call = call
        self._log = log
        self._metrics = metrics
        self._allow_private = allow_private
        # Threads of its own: the servers that are called may be slow for long.
        self._threads = DaemonThreads(CALLS_AT_ONCE, "fairlane-webhook")
        self._name = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._turns: dict[str, asyncio.Task[None]] = {}  # by customer
        self._turn_ended = asyncio.Event()
        self._failing: dict[str, tuple[int, float]] = {}  # by customer: failed turns in a row, and when the next may begin
        self._last_turn: dict[str, float] = {}  # by customer; forgotten with the process

    async def run(self) -> None:
        """Deliver until cancelled."""
        try:
            while True:
                is_behind = False
                if await self._call(self._is_needed) and await self._call(self._acquire_lease):
                    is_behind = await self._call(self._record_endings)
                    await self._call(self._check_batches)
                    await self._start_turns()
                if not is_behind:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._turn_ended.wait(), POLL_SECONDS)
                self._turn_ended.clear()
        finally:
            for turn in self._turns.values():
                turn.cancel()
            await asyncio.gather(*self._turns.values(), return_exceptions=True)

    def close(self) -> None:
        """Send no more calls; those under way end by themselves."""
        self._threads.close()

    # -- turns ---------------------------------------------------------------------------------------------------------

    async def _start_turns(self) -> None:
        """Give a turn to customers that have something due, as far as there is room, first to whoever had none for longest."""
        now = time.monotonic()
        waiting = {
            due.customer: due
            for due in await self._call(self._deliveries.due_customers, time_ms())
            if due.customer not in self._turns and self._failing.get(due.customer, (0, 0.0))[1] <= now
        }
        room = CUSTOMERS_AT_ONCE - len(self._turns)
        for customer in sorted(waiting, key=lambda customer: self._last_turn.get(customer, 0.0))[:room]:
            self._last_turn[customer] = now
            self._turns[customer] = asyncio.create_task(self._take_turn(waiting[customer]))

    async def _take_turn(self, due: DueCustomer) -> None:
        """Try what a customer has due, a few at once, and list the customer again for what is left."""
        loop, customer = asyncio.get_running_loop(), due.customer
        try:
            hook, deliveries = await self._call(self._read_turn, customer)
            calls = (loop.run_in_executor(self._threads, self._send, hook, delivery) for delivery in deliveries)
            outcomes = await asyncio.gather(*calls)
            await self._call(self._end_turn, due, outcomes)
        except Exception as error:  # noqa: BLE001 the customer stays listed: its next turn repeats what was not recorded
            self._log.failed("webhooks", error)
            self._failing[customer] = (1, time.monotonic() + 1)
        finally:
            del self._turns[customer]
            self._turn_ended.set()

    def _read_turn(self, customer: str) -> tuple[Webhook | None, list[Delivery]]:
        limit = 1 if customer in self._failing else CALLS_A_CUSTOMER
        return webhook_of(self._engine, customer), self._deliveries.due(customer, time_ms(), limit)

    def _end_turn(self, due: DueCustomer, outcomes: list[TryOutcome]) -> None:
        delivered = [outcome.delivery for outcome in outcomes if outcome.is_delivered]
        failed = [outcome.delivery for outcome in outcomes if not outcome.is_delivered]
        if outcomes and not delivered:
            turns = self._failing.get(due.customer, (0, 0.0))[0] + 1
            self._failing[due.customer] = (turns, time.monotonic() + min(PAUSE_MAX_SECONDS, 2.0 ** min(turns - 1, 10)))
        elif outcomes:
            self._failing.pop(due.customer, None)
        if any(delivery.tried_ms for delivery in delivered + failed):
            self._deliveries.note(due.customer, [tried for tried in delivered if tried.tried_ms], failed)
        self._deliveries.relist(due)

    def _send(self, hook: Webhook | None, delivery: Delivery) -> TryOutcome:
        """Make one call, and record its outcome."""
        if hook is None:  # the customer has no webhook any more
            self._deliveries.remove(delivery)
            return TryOutcome(delivery._replace(tried_ms=None), True)
        try:
            message = body(self._engine, delivery)
            allow_private = self._allow_private and hook.is_by_operator
            status = post(hook.url, hook.valid_secrets(time_ms()), delivery.id, message, allow_private)
            is_delivered, outcome = 200 <= status < 300, f"answered {status}"
        except (AddressRefused, OSError, ValueError) as error:
            is_delivered, outcome = False, str(error)[:200] or type(error).__name__
        tried = delivery._replace(attempts=delivery.attempts + 1, tried_ms=time_ms(), outcome=outcome)
        if is_delivered:
            self._metrics.on_delivery("taken")
            self._deliveries.remove(delivery)
        else:
            self._record_failure(delivery, tried)
        return TryOutcome(tried, is_delivered)

    def _record_failure(self, delivery: Delivery, tried: Delivery) -> None:
        has_more = self._deliveries.try_later(delivery, tried)
        self._metrics.on_delivery("failed" if has_more else "given up")
        self._log.event(
            "webhook",
            customer=tried.customer,
            document=tried.document,
            batch=tried.batch,
            outcome=tried.outcome,
            attempts=tried.attempts,
            given_up=not has_more,
        )

    # -- recording, on a thread ----------------------------------------------------------------------------------------

    def _is_needed(self) -> bool:
        """Whether any customer has a webhook, or a delivery is left of one that had."""
        return bool(self._engine.records(GROUP, "", 1)) or self._deliveries.has_any()

    def _acquire_lease(self) -> bool:
        """Become the server that delivers, or stay it."""
        record = self._engine.record(STATE, "lease")
        lease: dict[str, Any] = {"name": "", "until_ms": 0} if record is None else json.loads(record.value)
        if lease["name"] != self._name and lease["until_ms"] > time_ms():
            return False
        if lease["name"] == self._name and lease["until_ms"] - time_ms() > LEASE_MS // 2:
            return True
        renewed = json.dumps({"name": self._name, "until_ms": time_ms() + LEASE_MS})
        return self._engine.put_record(STATE, "lease", renewed, 0 if record is None else record.version) is not None

    def _record_endings(self) -> bool:
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
                self._deliveries.add(delivery)
                document = self._engine.document(delivery.document or "")
                if document is not None and (batch := batch_of(self._engine, document)) is not None:
                    batches[batch.id] = (batch, delivery.at_ms)
        for batch, at_ms in batches.values():
            self._record_batch(batch, at_ms)
        for customer in has_hook:
            if has_hook[customer]:
                self._deliveries.wake(customer)
        moved = self._engine.put_record(STATE, CURSOR, json.dumps(changes[-1].number), cursor.version)
        return moved is not None and len(changes) == PAGE

    def _record_batch(self, batch: BatchRecord, at_ms: int) -> None:
        if has_batch_ended(self._engine, batch):
            self._deliveries.add(batch_event(batch.customer, batch.id, batch.made_ms, at_ms))
            mark_batch_ended(self._engine, batch)

    def _check_batches(self) -> None:
        """Check batches whose documents were submitted before the batch was written down: they may have ended in between."""
        for record in self._engine.records(TO_CHECK, "", PAGE):
            batch = batch_by_id(self._engine, record.key)
            if batch is not None and webhook_of(self._engine, batch.customer) is not None:
                self._record_batch(batch, time_ms())
                self._deliveries.wake(batch.customer)
            self._engine.put_record(TO_CHECK, record.key, None, record.version)
