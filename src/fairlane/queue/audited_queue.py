"""A queue whose changes are in the audit log, on behalf of an operator, an admin or the command line.

Laws:
- Every verb of `Queue` that changes what is there, or gives it away, is recorded here. Submissions and checks are not: a
  document is its own record, and whoever submits thousands a second must not wait for a log.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any

from fairlane.blobs.gc import GRACE_SECONDS, SweepResult
from fairlane.core.document import State
from fairlane.core.policy import CustomerLimits, Policy, Rules, Terms, plain_seconds
from fairlane.engine.protocol import DocumentFilter

from .audit import Actor, AuditedChange, recorded
from .bulk import Action, BulkChange, BulkStep, applicable, bulk_step
from .forget import Forgotten, OnProgress
from .models import KEEP, Exported, Kind
from .queue import Queue
from .validation import document_filter

RULES = ("reset_interval", "thresholds", "reset", "dispatch", "turns", "open_turn_every")  # of these None is what stays


class AuditedQueue(Queue):
    """The same queue, in the hands of an actor."""

    def __init__(self, queue: Queue, actor: Actor) -> None:
        vars(self).update(vars(queue))  # one store: whoever closes one of them closes both
        self.actor = actor

    def cancel(self, id: str) -> bool:
        row = self._row(id)
        with audited(self, "document.cancel", target=id, customer=row.customer, before={"state": row.state}) as change:
            is_cancelled = super().cancel(id)
            change.after = {"state": self._row(id).state}
        return is_cancelled

    def retry(self, id: str, *, as_customer: bool = False) -> None:
        row = self._row(id)
        with audited(self, "document.retry", target=id, customer=row.customer, before={"state": row.state}) as change:
            super().retry(id, as_customer=as_customer)
            change.after = {"state": self._row(id).state}

    def bulk(
        self,
        action: Action,
        *,
        customer: str | None = None,
        state: State | None = None,
        kind: str | None = None,
        reason: str | None = None,
        since: float | datetime | None = None,
        until: float | datetime | None = None,
        cursor: str | None = None,
        dry_run: bool = False,
        priority: int | None = None,
        as_customer: bool = False,
    ) -> BulkStep:
        filter = document_filter(customer, state, kind, reason, since, until)
        change = BulkChange(action, priority, self._by(), as_customer)
        return audited_bulk(self, change, filter, cursor, is_dry_run=dry_run)

    def prioritize(self, id: str, priority: int) -> None:
        row = self._row(id)
        before = {"priority": row.priority}
        with audited(self, "document.prioritize", target=id, customer=row.customer, before=before) as change:
            super().prioritize(id, priority)
            change.after = {"priority": priority}

    def tune(self, customer: str, **options: Any) -> Terms:
        changes = {name: value for name, value in options.items() if value is not KEEP}
        if not changes:
            return super().tune(customer)
        action = "tune" if set(changes) != {"paused"} else "pause" if changes["paused"] else "resume"
        before = terms_json(self.terms(customer))
        with audited(self, f"customer.{action}", target=customer, customer=customer, before=before) as change:
            terms = super().tune(customer, **changes)
            change.after = terms_json(terms)
        return terms

    def reset(self, customer: str, *, with_backlog: bool = False, on_progress: OnProgress = lambda *_: None) -> int:
        before = {"counter": self.look(customer).counter}
        with audited(self, "customer.reset", target=customer, customer=customer, before=before) as change:
            changed = super().reset(customer, with_backlog=with_backlog, on_progress=on_progress)
            backlog = {"reprioritized": changed} if with_backlog else {}
            change.after = {"counter": self.look(customer).counter, **backlog}
        return changed

    def apply_table(self, customer: str | None = None, *, on_progress: OnProgress = lambda *_: None) -> int:
        with audited(self, "policy.apply", target=customer, customer=customer) as change:
            changed = super().apply_table(customer, on_progress=on_progress)
            change.after = {"reprioritized": changed}
        return changed

    def limit_kind(self, kind: str, **options: Any) -> Kind:
        changes = {name: value for name, value in options.items() if value is not KEEP}
        before = self.kind(kind)
        if not changes:
            return before
        with audited(self, "kind.limit", target=kind, before=limit_json(before)) as change:
            after = super().limit_kind(kind, **changes)
            change.after = limit_json(after)
        return after

    def configure(self, **options: Any) -> Rules:
        changes = {name: value for name, value in options.items() if value is not (None if name in RULES else KEEP)}
        if not changes:
            return super().configure()
        with audited(self, "policy.set", before=rules_json(self.rules())) as change:
            rules = super().configure(**changes)
            change.after = rules_json(rules)
        return rules

    def drain_worker(self, worker: str) -> list[str]:
        with audited(self, "worker.drain", target=worker) as change:
            change.after = {"instances": super().drain_worker(worker)}
        return list(change.after["instances"])

    def undrain_worker(self, worker: str) -> list[str]:
        with audited(self, "worker.undrain", target=worker) as change:
            change.after = {"instances": super().undrain_worker(worker)}
        return list(change.after["instances"])

    def purge(self, older_than: float | timedelta, *, now: float | datetime | None = None) -> int:
        with audited(self, "queue.purge", before={"older_than": plain_seconds(older_than)}) as change:
            purged = super().purge(older_than, now=now)
            change.after = {"documents": purged}
        return purged

    def forget(self, customer: str, *, vacuum: bool = True, on_progress: OnProgress = lambda *_: None) -> Forgotten:
        with audited(self, "customer.forget", target=customer, customer=customer) as change:
            forgotten = super().forget(customer, vacuum=vacuum, on_progress=on_progress)
            change.after = {"documents": forgotten.documents, "records": forgotten.records}
        return forgotten

    def export(self, customer: str, path: str | os.PathLike[str], *, on_progress: OnProgress = lambda *_: None) -> Exported:
        with audited(self, "customer.export", target=customer, customer=customer) as change:
            exported = super().export(customer, path, on_progress=on_progress)
            change.after = {"documents": exported.documents, "files": exported.files}
        return exported

    def sweep(
        self, *, grace: float | timedelta = GRACE_SECONDS, timeout: float | timedelta | None = None, after: str | None = None
    ) -> SweepResult:
        with audited(self, "files.sweep", before={"grace": plain_seconds(grace)}) as change:
            swept = super().sweep(grace=grace, timeout=timeout, after=after)
            change.after = {"removed": swept.removed, "bytes": swept.bytes}
        return swept


@contextmanager
def audited(
    queue: Queue, action: str, *, target: str | None = None, customer: str | None = None, before: Any = None
) -> Iterator[AuditedChange]:
    """Record a change of a queue, if it is an audited one."""
    actor = queue.actor if isinstance(queue, AuditedQueue) else None
    with recorded(queue.engine, actor, action, target=target, customer=customer, before=before) as change:
        yield change


def audited_bulk(queue: Queue, change: BulkChange, filter: DocumentFilter, cursor: str | None, *, is_dry_run: bool) -> BulkStep:
    """Make one step of a bulk change, and record it, if the queue is an audited one and the step is not a dry run."""
    filter = applicable(change, filter)
    if is_dry_run:
        return bulk_step(queue.engine, change, filter, cursor, is_dry_run=True)
    named = {name: value for name, value in filter._asdict().items() if value is not None}
    with audited(queue, f"documents.{change.action}", customer=filter.customer, before={"filter": named}) as entry:
        step = bulk_step(queue.engine, change, filter, cursor, is_dry_run=False)
        priority = {} if change.priority is None else {"priority": change.priority}
        entry.after = {"matched": step.matched, "changed": step.changed, "refused": step.refused, **priority}
    return step


def terms_json(terms: Terms) -> dict[str, Any]:
    """Return a customer's terms as JSON members."""
    return _members(terms)


def rules_json(rules: Rules) -> dict[str, Any]:
    """Return the rules as JSON members."""
    return {name: value for name, value in (_members(rules) | _members(rules.policy)).items() if name != "policy"}


def limit_json(kind: Kind) -> dict[str, Any]:
    """Return the limit of a kind as JSON members."""
    return {"running_max": kind.running_max, "rate": kind.rate, "burst": kind.burst}


def _members(value: Terms | Rules | Policy) -> dict[str, Any]:
    own = {field.name: getattr(value, field.name) for field in fields(value) if field.init}
    return {name: _plain(item) for name, item in own.items()}


def _plain(item: Any) -> Any:
    if isinstance(item, CustomerLimits):
        return item._asdict()
    return list(item) if isinstance(item, tuple) else item
