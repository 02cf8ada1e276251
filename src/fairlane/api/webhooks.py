"""Webhooks: a signed call to a customer's own address for each document that ends, repeated until it is accepted.

What is to be delivered is written to the store before anything is sent: a cursor on the feed, and a record for each ending of
a customer with a webhook. A server that dies loses none; the next one goes on.

Laws:
- At least once: the delivery number shows a repeat. In the order of endings as long as nothing fails.
- The address is resolved once and checked, and that very address is connected to: private, loopback and link-local ones are
  refused unless the operator allows them. Redirects are not followed.
- One server at a time delivers, by a lease in the records; two at once would only repeat, never lose.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from fairlane.core.document import ENDED, ChangeRow
from fairlane.core.errors import BadValue
from fairlane.engine import Engine

from .auth import time_ms
from .feed import newest, read_changes
from .logging import Log
from .metrics import Metrics
from .webhook_transport import AddressRefused, post, validate_url

HOOKS = "webhooks"  # by customer
PENDING = "deliveries"  # by number of the change
STATE = "courier"
PAGE = 500
DELIVERIES_AT_ONCE = 16
POLL_SECONDS = 0.5
LEASE_MS = 60_000
RETRY_FIRST_MS, RETRY_FACTOR, RETRY_MAX_MS = 2_000, 2, 3_600_000
ATTEMPTS_MAX = 20


class Webhook(NamedTuple):
    """Where a customer is called, and the secret that signs the calls."""

    url: str
    secret: str


class Delivery(NamedTuple):
    """A call that is due: its record, and the webhook; None: the customer has none any more."""

    key: str
    fields: dict[str, Any]
    hook: Webhook | None


def put_webhook(engine: Engine, customer: str, url: str, secret: str | None) -> Webhook:
    """Set a customer's webhook."""
    validate_url(url)
    if secret is not None and not 16 <= len(secret) <= 200:
        raise BadValue("secret", "a text of another length", "16 to 200 characters long, or left out to have one made")
    if not engine.records(HOOKS, "", 1):  # the first webhook: deliver endings from now on
        engine.put_record(STATE, "cursor", json.dumps(newest(engine)))
    hook = Webhook(url, secret or f"whs_{secrets.token_urlsafe(32)}")
    engine.put_record(HOOKS, customer, json.dumps(hook._asdict()))
    return hook


def webhook_of(engine: Engine, customer: str) -> Webhook | None:
    """Read a customer's webhook; None: it has none."""
    record = engine.record(HOOKS, customer)
    return None if record is None else Webhook(**json.loads(record.value))


def drop_webhook(engine: Engine, customer: str) -> None:
    """Remove a customer's webhook; pending deliveries are dropped when they are due."""
    engine.put_record(HOOKS, customer, None)


class WebhookSender:
    """Records what is to be delivered, and delivers it."""

    def __init__(
        self, engine: Engine, call: Callable[..., Awaitable[Any]], log: Log, metrics: Metrics, allow_private: bool
    ) -> None:
        self._engine = engine
        self._call = call
        self._log = log
        self._metrics = metrics
        self._allow_private = allow_private
        # Threads of its own: the servers that are called may be slow for long.
        self._threads = ThreadPoolExecutor(DELIVERIES_AT_ONCE, thread_name_prefix="fairlane-webhook")
        self._name = f"{os.getpid()}-{secrets.token_hex(4)}"

    async def run(self) -> None:
        """Deliver until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            if await self._call(self._is_needed) and await self._call(self._acquire_lease):
                await self._call(self._record_endings)
                due = await self._call(self._due)
                await asyncio.gather(*(loop.run_in_executor(self._threads, self._send, delivery) for delivery in due))
            await asyncio.sleep(POLL_SECONDS)

    def close(self) -> None:
        """Send no more calls; those under way end by themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    # -- on a thread ---------------------------------------------------------------------------------------------------

    def _is_needed(self) -> bool:
        """Whether any customer has a webhook, or a delivery is left of one that had."""
        return bool(self._engine.records(HOOKS, "", 1) or self._engine.records(PENDING, "", 1))

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

    def _record_endings(self) -> None:
        """Record every ending since the cursor for customers with a webhook; then move the cursor."""
        record = self._engine.record(STATE, "cursor")
        if record is None:
            self._engine.put_record(STATE, "cursor", json.dumps(newest(self._engine)), 0)
            return
        after, version = json.loads(record.value), record.version
        has_hook: dict[str, bool] = {}
        while changes := read_changes(self._engine, after, PAGE):
            for change in changes:
                customer = change.customer
                if change.what not in ENDED or customer is None or change.document is None:
                    continue
                if customer not in has_hook:
                    has_hook[customer] = self._engine.record(HOOKS, customer) is not None
                if has_hook[customer]:
                    self._engine.put_record(PENDING, f"{change.number:020}", _to_json(change), 0)
            after = changes[-1].number
            moved = self._engine.put_record(STATE, "cursor", json.dumps(after), version)
            if moved is None:  # another server has taken over
                return
            version = moved

    def _due(self) -> list[Delivery]:
        due: list[Delivery] = []
        after = ""
        while len(due) < DELIVERIES_AT_ONCE and (page := self._engine.records(PENDING, after, PAGE)):
            after = page[-1].key
            for record in page:
                fields = json.loads(record.value)
                if fields["due_ms"] <= time_ms() and len(due) < DELIVERIES_AT_ONCE:
                    due.append(Delivery(record.key, fields, webhook_of(self._engine, fields["customer"])))
        return due

    def _send(self, delivery: Delivery) -> None:
        """Make one call, and record its outcome."""
        key, fields, hook = delivery
        if hook is None:
            self._engine.put_record(PENDING, key, None)
            return
        document = self._engine.document(fields["document"])
        body = {name: fields[name] for name in ("event", "at", "customer", "document")}
        if document is not None and document.reason:
            body["reason"] = document.reason
        try:
            status = post(hook.url, hook.secret, int(key), body, self._allow_private)
            outcome = "taken" if 200 <= status < 300 else f"answered {status}"
        except (AddressRefused, OSError, ValueError) as error:
            outcome = str(error)[:200] or type(error).__name__
        if outcome == "taken":
            self._metrics.on_delivery("taken")
            self._engine.put_record(PENDING, key, None)
        else:
            self._on_failure(key, fields, outcome)

    def _on_failure(self, key: str, fields: dict[str, Any], outcome: str) -> None:
        attempts = fields["attempts"] + 1
        is_last = attempts >= ATTEMPTS_MAX
        self._metrics.on_delivery("given up" if is_last else "failed")
        self._log.event(
            "webhook",
            customer=fields["customer"],
            document=fields["document"],
            outcome=outcome,
            attempts=attempts,
            given_up=is_last,
        )
        delay_ms = min(RETRY_MAX_MS, RETRY_FIRST_MS * RETRY_FACTOR ** (attempts - 1))
        again = {**fields, "attempts": attempts, "due_ms": time_ms() + delay_ms}
        self._engine.put_record(PENDING, key, None if is_last else json.dumps(again))


def _to_json(change: ChangeRow) -> str:
    return json.dumps(
        {"event": change.what, "at": change.at_ms / 1000, "customer": change.customer, "document": change.document,
         "attempts": 0, "due_ms": 0}
    )  # fmt: skip
