"""What only operators may see and change: every customer, its terms, kinds and their limits, and the policy.

Laws:
- For a customer's key none of this exists.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, NamedTuple

from fairlane.api.auth import Caller
from fairlane.api.problems import Problem, bad_value, nothing_here
from fairlane.api.webhooks import webhook_of
from fairlane.core.document import Customer, DocumentRow, validate_text
from fairlane.core.policy import Rules, Terms
from fairlane.engine.protocol import DocumentFilter
from fairlane.engine.walk import walk_documents
from fairlane.queue import Attempt, Kind, Look, Queue, UnservedKind, WorkerStatus
from fairlane.queue.audited_queue import audited
from fairlane.queue.backlog import BacklogStep, backlog_start, recheck_step, table_step
from fairlane.queue.explain import Explanation
from fairlane.queue.export import CustomerExport
from fairlane.queue.kinds import kinds_page

from .documents import is_id


class CustomerView(NamedTuple):
    """Where a customer stands and what it has of its own."""

    look: Look
    terms: Terms
    webhook_url: str | None


class OperatorAccess:
    """Reads and changes on behalf of an operator."""

    def __init__(self, queue: Queue, caller: Caller) -> None:
        if not caller.sees_all:
            raise nothing_here()
        self._queue = queue

    def attempts(self, id: str) -> list[Attempt]:
        """Read what is kept of a document's failed attempts."""
        if not is_id(id) or self._queue.engine.document(id) is None:
            raise nothing_here()
        return self._queue.attempts(id)

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
        filter = DocumentFilter(customer=validate_text("customer", customer))
        return list(islice(walk_documents(self._queue.engine, filter, page_size=limit), limit))

    def export(self, customer: str) -> CustomerExport:
        """Begin an export of everything that is kept of a customer."""
        with audited(self._queue, "customer.export", target=validate_text("customer", customer), customer=customer):
            return CustomerExport(self._queue.engine, self._queue.files, customer)

    def explain(self, customer: str) -> Explanation:
        return self._queue.explain_customer(validate_text("customer", customer))

    def tune(self, customer: str, changes: dict[str, Any]) -> CustomerView:
        """Change what a customer has of its own."""
        self._queue.tune(customer, **changes)
        return self.customer(customer)

    def reset(self, customer: str, with_backlog: bool, cursor: str | None) -> tuple[CustomerView, BacklogStep]:
        """Let a customer stand as never seen; with its backlog, check its next waiting documents again. A step with a cursor
        goes on with that, and resets nothing."""
        if cursor is not None and not with_backlog:
            raise bad_value("cursor", cursor, "left out unless with_backlog is true")
        engine, before = self._queue.engine, {"counter": self._queue.look(customer).counter}
        start = backlog_start(engine) if with_backlog and cursor is None else cursor
        with audited(self._queue, "customer.reset", target=customer, customer=customer, before=before) as change:
            if cursor is None:
                engine.reset(customer)
            step = BacklogStep(0, None) if start is None else recheck_step(engine, customer, start)
            backlog = {"reprioritized": step.changed} if with_backlog else {}
            change.after = {"counter": self._queue.look(customer).counter, **backlog}
        return self.customer(customer), step

    # -- kinds ---------------------------------------------------------------------------------------------------------

    def kinds(self, after: str, limit: int) -> list[Kind]:
        """Read a page of kinds by name."""
        return kinds_page(self._queue.engine, after and validate_text("after", after), limit)

    def kind(self, kind: str) -> Kind:
        return self._queue.kind(kind)

    def limit_kind(self, kind: str, version: int | None, changes: dict[str, Any]) -> Kind:
        """Change the limit of a kind; with a version only if that is the current one."""
        if version is not None and self._queue.kind(kind).version != version:
            raise Problem("changed-meanwhile", f"the limit of kind {kind!r} has another version than {version}; look again")
        return self._queue.limit_kind(kind, **changes)

    # -- workers -------------------------------------------------------------------------------------------------------

    def workers(self) -> list[WorkerStatus]:
        return self._queue.workers()

    def unserved_kinds(self) -> list[UnservedKind]:
        return self._queue.unserved_kinds()

    def drain_worker(self, worker: str, drain: bool) -> list[str]:
        """Let a worker claim no more, or again; return the instance ids."""
        return self._queue.drain_worker(worker) if drain else self._queue.undrain_worker(worker)

    # -- policy --------------------------------------------------------------------------------------------------------

    def rules(self) -> Rules:
        return self._queue.rules()

    def apply_table(self, customer: str | None, cursor: str | None) -> BacklogStep:
        """Give the next waiting documents, of one customer or of all, the priorities of the table of now."""
        engine = self._queue.engine
        with audited(self._queue, "policy.apply", target=customer, customer=customer) as change:
            step = table_step(engine, customer, backlog_start(engine) if cursor is None else cursor)
            change.after = {"reprioritized": step.changed}
        return step

    def configure(self, version: int | None, changes: dict[str, Any]) -> Rules:
        """Change the rules for everybody; with a version only if that is the current one."""
        if version is not None and self._queue.rules().version != version:
            raise Problem("changed-meanwhile", f"the policy has another version than {version}; look at it again")
        return self._queue.configure(**changes)
