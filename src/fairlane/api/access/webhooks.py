"""A customer's webhook on behalf of a caller: its address, its secrets, and what was and is to be delivered."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

from fairlane.api.auth import Caller
from fairlane.api.problems import Problem, nothing_here
from fairlane.api.webhook_deliveries import (
    Delivery,
    DeliveryState,
    DeliveryStore,
    WebhookStatus,
    batch_event,
    document_event,
)
from fairlane.api.webhooks import (
    Webhook,
    drop_webhook,
    expire_old_secret,
    put_webhook,
    rotate_secret,
    webhook_of,
)
from fairlane.core.errors import WrongState
from fairlane.queue import Queue
from fairlane.queue.audited_queue import audited

from .batches import BatchAccess
from .documents import DocumentAccess


class WebhookView(NamedTuple):
    """A webhook and how its calls go; `new_secret` is shown this once."""

    customer: str
    webhook: Webhook
    new_secret: str | None
    status: WebhookStatus
    pending: int
    failed: int


class WebhookAccess:
    """Reads and changes of a customer's webhook; an operator names the customer, a customer has only its own."""

    def __init__(self, queue: Queue, caller: Caller, documents: DocumentAccess) -> None:
        self._queue = queue
        self._engine = queue.engine
        self._caller = caller
        self._documents = documents
        self._deliveries = DeliveryStore(queue.engine)

    def get(self, customer: str | None) -> WebhookView:
        name = self._caller.customer_for(customer)
        return self._view(name, self._existing(name), None)

    def put(self, customer: str | None, url: str, secret: str | None) -> WebhookView:
        """Set the address, and the secret if one is named or none is there."""
        name = self._caller.customer_for(customer)
        known = webhook_of(self._engine, name)
        with audited(self._queue, "webhook.set", customer=name, before=_address(known)) as change:
            hook, is_new = put_webhook(self._engine, name, url, secret, is_by_operator=self._caller.sees_all)
            if known is None or known.url != url:
                self._deliveries.forget_status(name)
            change.after = _address(hook)
        return self._view(name, hook, hook.secrets[0].secret if is_new else None)

    def remove(self, customer: str | None) -> None:
        name = self._caller.customer_for(customer)
        with audited(self._queue, "webhook.remove", customer=name, before=_address(webhook_of(self._engine, name))):
            drop_webhook(self._engine, name)
            self._deliveries.forget_status(name)

    def rotate(self, customer: str | None, secret: str | None, overlap_seconds: float) -> WebhookView:
        """Sign with a new secret; the one before stays valid for the overlap."""
        name = self._caller.customer_for(customer)
        self._existing(name)
        with audited(self._queue, "webhook.rotate", customer=name, before={"overlap": overlap_seconds}):
            hook = rotate_secret(self._engine, name, secret, overlap_seconds)
        return self._view(name, hook, hook.secrets[0].secret)

    def expire_old_secret(self, customer: str | None) -> WebhookView:
        """End the overlap of a rotation now."""
        name = self._caller.customer_for(customer)
        self._existing(name)
        with audited(self._queue, "webhook.expire-old-secret", customer=name):
            hook = expire_old_secret(self._engine, name)
        return self._view(name, hook, None)

    # -- deliveries ----------------------------------------------------------------------------------------------------

    def deliveries(self, customer: str | None, state: DeliveryState, after: str, limit: int) -> list[tuple[str, Delivery]]:
        """Read a page of deliveries, each with the cursor that continues after it."""
        name = self._caller.customer_for(customer)
        self._existing(name)
        return self._deliveries.page(name, state, after, limit)

    def send_again(self, customer: str | None, id: str) -> Delivery:
        """Send one delivery again, with its id."""
        name = self._caller.customer_for(customer)
        self._existing(name)
        delivery = self._deliveries.find(name, id)
        if delivery is None:
            raise nothing_here()
        with audited(self._queue, "webhook.send", target=delivery.id, customer=name):
            return self._deliveries.send_again(delivery)

    def send_event(self, document: str | None, batch: str | None) -> Delivery:
        """Send the end of a document or a batch, again or for the first time, with the id that it has or would have had."""
        if (document is None) == (batch is None):
            raise Problem("bad-value", "name a document or a batch, and not both")
        event = self._document_event(document) if document is not None else self._batch_event(batch or "")
        self._existing(event.customer)
        known = self._deliveries.find(event.customer, event.id)
        with audited(self._queue, "webhook.send", target=event.id, customer=event.customer):
            return self._deliveries.send_again(event if known is None else known)

    def _document_event(self, id: str) -> Delivery:
        document = self._documents.get(id)
        if document.ended_ms is None:
            raise WrongState(f"document {id} is {document.state}; a webhook tells of one that has ended")
        return document_event(document.customer, id, document.state, document.ended_ms, document.reason)

    def _batch_event(self, id: str) -> Delivery:
        batches = BatchAccess(self._queue, self._caller)
        batch, ended_ms = batches.get(id), batches.ended_ms(id)
        if ended_ms is None:
            raise WrongState(f"batch {id} has documents that have not ended; a webhook tells of one that has ended")
        return batch_event(batch.customer, id, batch.made_ms, ended_ms)

    def _existing(self, customer: str) -> Webhook:
        hook = webhook_of(self._engine, customer)
        if hook is None:
            raise nothing_here()
        return hook

    def _view(self, customer: str, hook: Webhook, new_secret: str | None) -> WebhookView:
        counts = self._deliveries.count(customer, "pending"), self._deliveries.count(customer, "failed")
        return WebhookView(customer, hook, new_secret, self._deliveries.status(customer), *counts)


def _address(hook: Webhook | None) -> dict[str, str] | None:
    """Return where a webhook leads, for the audit log: the path and the query of its URL may be a secret."""
    return None if hook is None else {"host": urlsplit(hook.url).hostname or ""}
