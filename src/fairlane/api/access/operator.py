"""What only operators may see and change: every customer, its terms and webhook, and the policy.

Laws:
- For a customer's key none of this exists.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from fairlane.api.auth import Caller
from fairlane.api.problems import Problem, nothing_here
from fairlane.api.webhooks import Webhook, drop_webhook, put_webhook, webhook_of
from fairlane.core.document import Customer, DocumentRow, validate_text
from fairlane.core.policy import Rules, Terms
from fairlane.queue import Look, Queue
from fairlane.queue.explain import Explanation


class CustomerView(NamedTuple):
    """Where a customer stands and what it has of its own."""

    look: Look
    terms: Terms
    webhook_url: str | None


class OperatorAccess:
    """Reads and changes on behalf of an operator."""

    def __init__(self, queue: Queue, caller: Caller) -> None:
        if not caller.is_operator:
            raise nothing_here()
        self._queue = queue

    # -- customers -----------------------------------------------------------------------------------------------------

    def customers(self, after: str, limit: int) -> list[Look]:
        """Read a page of customers by id."""
        page = self._queue.engine.customers(after and validate_text("after", after), limit)
        return [self._queue.look(customer.id) for customer in page]

    def customer(self, id: str) -> CustomerView:
        hook = webhook_of(self._queue.engine, validate_text("customer", id))
        return CustomerView(self._queue.look(id), self._queue.terms(id), None if hook is None else hook.url)

    def snapshot(self, id: str) -> Customer:
        """Read a customer as the store has it."""
        return self._queue.engine.customer(validate_text("customer", id))

    def newest_documents(self, customer: str, limit: int) -> list[DocumentRow]:
        """Read a customer's newest documents, newest first."""
        return self._queue.engine.documents(validate_text("customer", customer), None, None, limit)

    def explain(self, customer: str) -> Explanation:
        return self._queue.explain_customer(validate_text("customer", customer))

    def tune(self, customer: str, changes: dict[str, Any]) -> CustomerView:
        """Change what a customer has of its own."""
        self._queue.tune(customer, **changes)
        return self.customer(customer)

    def reset(self, customer: str) -> CustomerView:
        """Let a customer stand as never seen."""
        self._queue.reset(customer)
        return self.customer(customer)

    def set_webhook(self, customer: str, url: str, secret: str | None) -> Webhook:
        return put_webhook(self._queue.engine, validate_text("customer", customer), url, secret)

    def remove_webhook(self, customer: str) -> None:
        drop_webhook(self._queue.engine, validate_text("customer", customer))

    # -- policy --------------------------------------------------------------------------------------------------------

    def rules(self) -> Rules:
        return self._queue.rules()

    def configure(self, version: int | None, changes: dict[str, Any]) -> Rules:
        """Change the rules for everybody; with a version only if that is the current one."""
        if version is not None and self._queue.rules().version != version:
            raise Problem("changed-meanwhile", f"the policy has another version than {version}; look at it again")
        return self._queue.configure(**changes)
