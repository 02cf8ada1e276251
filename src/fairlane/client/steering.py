"""Verbs of `Client` for operators: priorities by hand, limits of kinds, resets, workers that drain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from fairlane.core.document import validate_text
from fairlane.queue import KEEP, Keep, Kind
from fairlane.queue.forget import OnProgress
from fairlane.queue.validation import document_id, validate_priority

from . import models
from .admin import AdminVerbs
from .models import member

KINDS_PAGE_SIZE = 200


class ClientSteering(AdminVerbs):
    """What an operator does with documents, customers, kinds and workers."""

    def prioritize(self, id: str, priority: int) -> None:
        """Set the priority of a waiting document by hand, without a check; it stays until it is set again."""
        path = f"/v1/documents/{quote(document_id(id), safe='')}"
        self._http.send("PATCH", path, {"priority": validate_priority("priority", priority)}, is_idempotent=True)

    def apply_table(self, customer: str | None = None, *, on_progress: OnProgress = lambda *_: None) -> int:
        """Give waiting documents, of one customer or of all, the priority that the table of now gives; return how many changed.

        It is read from the counter of their check. It goes in small steps; if it is interrupted, call it again.
        """
        if customer is not None:
            validate_text("customer", customer)
        return self._walk("/v1/policy/apply", {"customer": customer}, on_progress, is_idempotent=True)

    def reset(self, customer: str, *, with_backlog: bool = False, on_progress: OnProgress = lambda *_: None) -> int:
        """Set a customer back as if it had never been seen; its documents keep their priorities, unless with its backlog.

        Then its waiting documents are checked again in the order of submission, as if they came now, in small steps; if that is
        interrupted, reset it again. Return how many got another priority.
        """
        path = f"/v1/customers/{quote(validate_text('customer', customer), safe='')}/reset"
        if not with_backlog:
            self._http.send("POST", path, is_idempotent=False)
            return 0
        return self._walk(path, {"with_backlog": True}, on_progress, is_idempotent=False)

    def _walk(self, path: str, body: dict[str, Any], on_progress: OnProgress, *, is_idempotent: bool) -> int:
        """Take step after step; return how many documents changed."""
        changed, cursor = 0, None
        while True:
            step = self._http.send("POST", path, {**body, "cursor": cursor}, is_idempotent=is_idempotent)
            changed, cursor = changed + int(member(step, "changed")), member(step, "next")
            on_progress("reprioritized", changed, 0)
            if cursor is None:
                return changed

    def kinds(self) -> Iterator[Kind]:
        """Yield kinds with their limits, by name: that have or had one, that workers take, or of which documents are ready."""
        return map(models.kind, self._pages(f"/v1/kinds?limit={KINDS_PAGE_SIZE}", "kinds"))

    def kind(self, kind: str) -> Kind:
        """Return a kind with its limit."""
        return models.kind(self._http.get(_kind(kind)))

    def limit_kind(
        self,
        kind: str,
        *,
        running_max: int | Keep | None = KEEP,
        rate: float | Keep | None = KEEP,
        burst: float | Keep = KEEP,
    ) -> Kind:
        """Limit what all workers together do with a kind: documents that run at once, and starts a second, `burst` at once.

        What is not named stays, None is no limit.
        """
        options = {"running_max": running_max, "rate": rate, "burst": burst}
        changes = {name: value for name, value in options.items() if value is not KEEP}
        if not changes:
            return self.kind(kind)
        return models.kind(self._http.send("PATCH", _kind(kind), changes, is_idempotent=True))

    def drain_worker(self, worker: str) -> list[str]:
        """Let a worker, by name or instance id, finish what it has and claim no more; return the instance ids."""
        return list(member(self._http.send("POST", f"{_worker(worker)}/drain", is_idempotent=True), "instances"))

    def undrain_worker(self, worker: str) -> list[str]:
        """Let a drained worker claim again; return the instance ids."""
        return list(member(self._http.send("POST", f"{_worker(worker)}/undrain", is_idempotent=True), "instances"))


def _kind(kind: str) -> str:
    return f"/v1/kinds/{quote(validate_text('kind', kind, 100), safe='')}"


def _worker(worker: str) -> str:
    return f"/v1/workers/{quote(validate_text('worker', worker), safe='')}"
