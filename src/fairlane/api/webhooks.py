"""How does a customer learn of an ending without asking? A signed call to an address of its own, until it is taken.

What is to be delivered is written to the store before anything is sent: a cursor on the feed, and a record for each ending
that a webhook wants. A server that dies loses none; the next one goes on.

Laws:
- At least once: the number of the delivery tells a repeat. In the order of endings as far as nothing fails.
- The address is looked up once, judged, and that very address is connected to: private, loopback and link-local ones are
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
from fairlane.core.errors import BadValue, Unknown
from fairlane.engine import Engine

from .auth import time_ms
from .feed import newest
from .logging import Log
from .metrics import Metrics
from .webhook_transport import Refused, checked_url, post

HOOKS = "webhooks"  # by customer
PENDING = "deliveries"  # by number of the change
STATE = "courier"
PAGE = 500
AT_ONCE = 16
BEAT_SECONDS = 0.5
LEASE_MS = 60_000
FIRST_MS, FACTOR, CEILING_MS = 2_000, 2, 3_600_000
ATTEMPTS_MAX = 20


class Webhook(NamedTuple):
    """Where a customer is called, and with which secret the calls are signed."""

    url: str
    secret: str


def put_webhook(engine: Engine, customer: str, url: str, secret: str | None) -> Webhook:
    """Set a customer's webhook."""
    checked_url(url)
    if secret is not None and not 16 <= len(secret) <= 200:
        raise BadValue("secret", "a text of another length", "16 to 200 characters long, or left out to have one made")
    if not engine.records(HOOKS, "", 1):  # the first one: from now on
        engine.put_record(STATE, "cursor", json.dumps(newest(engine)))
    hook = Webhook(url, secret or f"whs_{secrets.token_urlsafe(32)}")
    engine.put_record(HOOKS, customer, json.dumps(hook._asdict()))
    return hook


def webhook_of(engine: Engine, customer: str) -> Webhook | None:
    """A customer's webhook; None: it has none."""
    record = engine.record(HOOKS, customer)
    return None if record is None else Webhook(**json.loads(record.value))


def drop_webhook(engine: Engine, customer: str) -> None:
    """No more calls for a customer; what was still to be delivered is dropped when its turn comes."""
    engine.put_record(HOOKS, customer, None)


class WebhookSender:
    """Notes what is to be delivered, and delivers it."""

    def __init__(
        self, engine: Engine, call: Callable[..., Awaitable[Any]], log: Log, metrics: Metrics, allow_private: bool
    ) -> None:
        self._engine = engine
        self._call = call
        self._log = log
        self._metrics = metrics
        self._allow_private = allow_private
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="fairlane-webhook")  # others may be slow, for long
        self._name = f"{os.getpid()}-{secrets.token_hex(4)}"

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            busy = await self._call(self._is_wanted)
            if busy and await self._call(self._hold):
                await self._call(self._note)
                await self._deliver(await self._call(self._due))
            await asyncio.sleep(BEAT_SECONDS)

    def close(self) -> None:
        """No more calls; those under way are left to end by themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    # -- on a thread ---------------------------------------------------------------------------------------------------

    def _is_wanted(self) -> bool:
        """Whether anybody has a webhook, or had one and something is left to deliver."""
        return bool(self._engine.records(HOOKS, "", 1) or self._engine.records(PENDING, "", 1))

    def _hold(self) -> bool:
        """Be the one who delivers, or stay it."""
        record = self._engine.record(STATE, "lease")
        held: dict[str, Any] = {"name": "", "until_ms": 0} if record is None else json.loads(record.value)
        if held["name"] != self._name and held["until_ms"] > time_ms():
            return False
        if held["name"] == self._name and held["until_ms"] - time_ms() > LEASE_MS // 2:
            return True
        mine = json.dumps({"name": self._name, "until_ms": time_ms() + LEASE_MS})
        return self._engine.put_record(STATE, "lease", mine, 0 if record is None else record.version) is not None

    def _note(self) -> None:
        """Write down every ending since the cursor that a webhook wants; then move the cursor."""
        record = self._engine.record(STATE, "cursor")
        if record is None:
            self._engine.put_record(STATE, "cursor", json.dumps(newest(self._engine)), 0)
            return
        after, version = json.loads(record.value), record.version
        hooks: dict[str, bool] = {}
        while changes := self._changes(after):
            for change in changes:
                customer = change.customer
                if change.what not in ENDED or customer is None or change.document is None:
                    continue
                if customer not in hooks:
                    hooks[customer] = self._engine.record(HOOKS, customer) is not None
                if hooks[customer]:
                    self._engine.put_record(PENDING, f"{change.number:020}", _written(change), 0)
            after = changes[-1].number
            moved = self._engine.put_record(STATE, "cursor", json.dumps(after), version)
            if moved is None:  # another server has taken over
                return
            version = moved

    def _changes(self, after: int) -> list[ChangeRow]:
        try:
            return self._engine.changes(after, PAGE)
        except Unknown:  # purged while nobody ran: what is left of the feed is all that can be told
            return self._engine.changes(None, PAGE)

    def _due(self) -> list[tuple[str, dict[str, Any], Webhook | None]]:
        due: list[tuple[str, dict[str, Any], Webhook | None]] = []
        after = ""
        while len(due) < AT_ONCE and (page := self._engine.records(PENDING, after, PAGE)):
            after = page[-1].key
            for record in page:
                told = json.loads(record.value)
                if told["due_ms"] <= time_ms() and len(due) < AT_ONCE:
                    due.append((record.key, told, webhook_of(self._engine, told["customer"])))
        return due

    def _send(self, key: str, told: dict[str, Any], hook: Webhook | None) -> None:
        """One call, and what became of it."""
        if hook is None:
            self._engine.put_record(PENDING, key, None)
            return
        document = self._engine.document(told["document"])
        body = {name: told[name] for name in ("event", "at", "customer", "document")}
        if document is not None and document.reason:
            body["reason"] = document.reason
        try:
            status = post(hook.url, hook.secret, int(key), body, self._allow_private)
            outcome = "taken" if 200 <= status < 300 else f"answered {status}"
        except (Refused, OSError, ValueError) as error:
            outcome = str(error)[:200] or type(error).__name__
        if outcome == "taken":
            self._metrics.delivered("taken")
            self._engine.put_record(PENDING, key, None)
        else:
            self._failed(key, told, outcome)

    def _failed(self, key: str, told: dict[str, Any], outcome: str) -> None:
        attempts = told["attempts"] + 1
        is_last = attempts >= ATTEMPTS_MAX
        self._metrics.delivered("given up" if is_last else "failed")
        self._log.event(
            "webhook",
            customer=told["customer"],
            document=told["document"],
            outcome=outcome,
            attempts=attempts,
            given_up=is_last,
        )
        again = {**told, "attempts": attempts, "due_ms": time_ms() + min(CEILING_MS, FIRST_MS * FACTOR ** (attempts - 1))}
        self._engine.put_record(PENDING, key, None if is_last else json.dumps(again))

    # -- on the loop ---------------------------------------------------------------------------------------------------

    async def _deliver(self, due: list[tuple[str, dict[str, Any], Webhook | None]]) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(loop.run_in_executor(self._threads, self._send, *one) for one in due))


def _written(change: ChangeRow) -> str:
    return json.dumps(
        {"event": change.what, "at": change.at_ms / 1000, "customer": change.customer, "document": change.document,
         "attempts": 0, "due_ms": 0}
    )  # fmt: skip
