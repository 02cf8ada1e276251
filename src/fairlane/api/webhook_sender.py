"""The sender of webhooks: calls customers' addresses with what is to be delivered, until it is accepted.

Laws:
- At least once, and in no promised order: `webhook-id` shows a repeat.
- Nobody waits for anybody else's call, nor a customer for its own slowest: each call is recorded when it ends, and
  `webhook_shares` says who may open the next. Customers take turns for it.
- A customer stays listed as due while its calls are open, so that the next server repeats those of one that dies. A listing
  with nothing due but what is open is looked at again only after it was written anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fairlane.core.errors import StoreUnreachable
from fairlane.engine import Engine
from fairlane.procs.threads import DaemonThreads
from fairlane.queue.forget import erase_if_forgotten

from .auth import time_ms
from .limits import ServiceLimits
from .logging import Log
from .metrics import Metrics
from .webhook_addresses import AddressRefused
from .webhook_deliveries import Delivery, DeliveryStore, DueCustomer, DueDeliveries, DuePage
from .webhook_events import body
from .webhook_recorder import EndingRecorder
from .webhook_shares import CallShares
from .webhook_transport import CallFailed, post
from .webhooks import Webhook, webhook_of

POLL_SECONDS = 0.5
PAGES_A_STEP = 4  # of customers that are due; the next step goes on behind them
STOP_SECONDS = 2.0  # that open calls have to end, when the server stops
STORE_PAUSE_SECONDS = 1.0  # of a customer whose outcome could not be recorded


class TryOutcome(NamedTuple):
    """What came of one try."""

    delivery: Delivery
    is_delivered: bool


@dataclass(slots=True)
class _Active:
    """A customer whose deliveries are looked at or being tried."""

    is_busy: bool = False  # a look is under way: only one at a time
    open_ids: set[str] = field(default_factory=set)
    exhausted: dict[str, DueCustomer] = field(default_factory=dict)  # by key: listings with nothing due but what is open
    outcomes: list[TryOutcome] = field(default_factory=list)  # to be noted
    noting: asyncio.Lock = field(default_factory=asyncio.Lock)

    def is_exhausted(self, listing: DueCustomer) -> bool:
        known = self.exhausted.get(listing.record.key)
        return known is not None and known.record.version == listing.record.version


class WebhookSender:
    """Delivers what is recorded, and records what has ended meanwhile."""

    def __init__(
        self,
        engine: Engine,
        call: Callable[..., Awaitable[Any]],
        log: Log,
        metrics: Metrics,
        limits: ServiceLimits,
        allow_private: bool,
    ) -> None:
        self._engine = engine
        self._deliveries = DeliveryStore(engine)
        self._recorder = EndingRecorder(engine, self._deliveries)
        self._call = call
        self._log = log
        self._metrics = metrics
        self._call_seconds = limits.webhook_seconds
        self._allow_private = allow_private
        # Threads of its own: the servers that are called may be slow for long, and a hostile handshake costs processor time.
        self._threads = DaemonThreads(limits.webhook_calls, "fairlane-webhook")
        self._shares = CallShares(limits.webhook_calls)
        self._active: dict[str, _Active] = {}  # by customer
        self._tasks: set[asyncio.Task[None]] = set()
        self._cursor = ""  # of the customers that are due: where the next step begins
        self._something_ended = asyncio.Event()

    async def run(self) -> None:
        """Deliver until cancelled; calls that are open go on."""
        while True:
            is_behind = False
            if await self._call(self._recorder.is_needed) and await self._call(self._recorder.acquire_lease):
                is_behind = await self._call(self._recorder.record_endings)
                await self._call(self._recorder.check_batches)
                await self._look_at_due_customers()
            if not is_behind:
                with contextlib.suppress(TimeoutError):  # not wait_for, which loses a cancellation before Python 3.12
                    async with asyncio.timeout(POLL_SECONDS):
                        await self._something_ended.wait()
            self._something_ended.clear()

    async def close(self) -> None:
        """Wait a moment for open calls, so that they are not repeated, and leave the others."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_SECONDS)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._threads.close()

    # -- who is next ---------------------------------------------------------------------------------------------------

    async def _look_at_due_customers(self) -> None:
        """Look at customers with something due, beginning where the last step ended, as far as there is room for calls."""
        for _ in range(PAGES_A_STEP):
            page, proven = await self._call(self._read_due_customers, self._cursor)
            for customer, is_proven in proven.items():
                self._shares.introduce(customer, is_proven)
            for listing in page.customers:
                if self._shares.is_full:
                    return
                self._look_at(listing)
                self._cursor = listing.record.key
            self._cursor = page.next
            if not page.next:
                return

    def _read_due_customers(self, after: str) -> tuple[DuePage, dict[str, bool]]:
        """Read a page of customers, and of those whose calls are not judged yet whether the last ones were accepted."""
        page = self._deliveries.due_customers(time_ms(), after)
        unknown = {listing.customer for listing in page.customers if not self._shares.is_known(listing.customer)}
        statuses = {customer: self._deliveries.status(customer) for customer in unknown}
        return page, {
            customer: status.delivered_ms is not None and not status.failures for customer, status in statuses.items()
        }

    def _look_at(self, listing: DueCustomer) -> None:
        """Begin a look at what a customer has due, unless one is under way, nothing is new, or it may open no call."""
        customer = listing.customer
        active = self._active.get(customer)
        if active is not None and (active.is_busy or active.is_exhausted(listing)):
            return
        if not self._shares.is_known(customer):  # it was idle and is forgotten since the page was read
            return
        count = self._shares.room(customer, time.monotonic())
        if count:
            self._shares.open(customer, count)
            active = self._active.setdefault(customer, _Active())
            active.is_busy = True
            self._start(self._open_calls(listing, active, count))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _open_calls(self, listing: DueCustomer, active: _Active, count: int) -> None:
        """Open up to `count` calls for what a customer has due; they are counted as open already."""
        customer, opened = listing.customer, 0
        try:
            due: DueDeliveries = await self._call(self._read_due, customer, frozenset(active.open_ids), count)
            opened = len(due.deliveries)
            for delivery in due.deliveries:
                active.open_ids.add(delivery.id)
                self._start(self._deliver(delivery, active))
            if due.is_all:
                active.exhausted[listing.record.key] = listing
        except Exception as error:  # noqa: BLE001 the customer stays listed: the next look repeats it
            self._on_error(customer, error)
        finally:
            self._shares.close(customer, count - opened)
            active.is_busy = False
        await self._end_if_idle(customer, active)

    def _read_due(self, customer: str, open_ids: frozenset[str], limit: int) -> DueDeliveries:
        """Read what is due; of a customer that has no webhook any more, drop it."""
        due = self._deliveries.due(customer, time_ms(), open_ids, limit)
        if webhook_of(self._engine, customer) is not None:
            return due
        for delivery in due.deliveries:
            self._deliveries.remove(delivery)
        return DueDeliveries([], due.is_all)

    async def _end_if_idle(self, customer: str, active: _Active) -> None:
        """When nothing of a customer is open any more, list it under the time of its next delivery, or not at all."""
        self._something_ended.set()
        if active.is_busy or active.open_ids:
            return
        active.is_busy = True
        try:
            await self._call(self._end, customer, list(active.exhausted.values()))
        except Exception as error:  # noqa: BLE001 the customer stays listed
            self._on_error(customer, error)
        finally:
            self._active.pop(customer, None)
            self._shares.forget(customer)

    def _end(self, customer: str, listings: list[DueCustomer]) -> None:
        for listing in listings:
            self._deliveries.relist(listing)
        erase_if_forgotten(self._engine, customer)  # a call that was open meanwhile has written down how it ended

    def _on_error(self, customer: str, error: Exception) -> None:
        """Log an error, unless the store is away, which is logged once; leave the customer alone for a moment."""
        if not isinstance(error, StoreUnreachable):
            self._log.failed("webhooks", error)
        self._shares.pause(customer, time.monotonic() + STORE_PAUSE_SECONDS)

    # -- one call ------------------------------------------------------------------------------------------------------

    async def _deliver(self, delivery: Delivery, active: _Active) -> None:
        """Make one call and record its outcome."""
        customer = delivery.customer
        try:
            try:
                outcome = await self._try(delivery)
            finally:
                self._shares.close(customer)
                self._something_ended.set()
            if outcome is not None:
                await self._call(self._record, delivery, outcome)
                active.outcomes.append(outcome)
                await self._note(customer, active)
        except Exception as error:  # noqa: BLE001 it is still pending: the next look repeats it
            self._on_error(customer, error)
        finally:
            active.open_ids.discard(delivery.id)
        await self._end_if_idle(customer, active)

    async def _try(self, delivery: Delivery) -> TryOutcome | None:
        """Call the address that the customer has now; None: it has none any more."""
        prepared = await self._call(self._prepare, delivery)
        if prepared is None:
            return None
        hook, message = prepared
        began = time.monotonic()
        try:
            status = await asyncio.get_running_loop().run_in_executor(self._threads, self._post, hook, delivery.id, message)
            is_delivered, outcome = 200 <= status < 300, f"answered {status}"
        except (AddressRefused, CallFailed) as error:
            is_delivered, outcome = False, str(error)[:200]
        self._shares.judge(delivery.customer, is_delivered, began, time.monotonic())
        tried = delivery._replace(attempts=delivery.attempts + 1, tried_ms=time_ms(), outcome=outcome)
        return TryOutcome(tried, is_delivered)

    def _prepare(self, delivery: Delivery) -> tuple[Webhook, bytes] | None:
        hook = webhook_of(self._engine, delivery.customer)
        if hook is None:
            self._deliveries.remove(delivery)
            return None
        return hook, body(self._engine, delivery)

    def _post(self, hook: Webhook, id: str, message: bytes) -> int:
        allow_private = self._allow_private and hook.is_by_operator
        return post(hook.url, hook.valid_secrets(time_ms()), id, message, allow_private, self._call_seconds)

    def _record(self, delivery: Delivery, outcome: TryOutcome) -> None:
        """Remove what was accepted; what was not is tried later, or given up."""
        if outcome.is_delivered:
            self._deliveries.remove(delivery)
            self._metrics.on_delivery("taken")
            return
        tried = outcome.delivery
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

    async def _note(self, customer: str, active: _Active) -> None:
        """Note outcomes for people to look at; those that come while a note is being taken are noted together."""
        async with active.noting:
            outcomes, active.outcomes = active.outcomes, []
            if outcomes:
                delivered = [outcome.delivery for outcome in outcomes if outcome.is_delivered]
                failed = [outcome.delivery for outcome in outcomes if not outcome.is_delivered]
                await self._call(self._deliveries.note, customer, delivered, failed)
