"""The audit log on behalf of an admin."""

from __future__ import annotations

from fairlane.api.auth import Caller
from fairlane.api.problems import bad_value, nothing_here
from fairlane.queue import Queue
from fairlane.queue.audit import AuditFilter, AuditPage, audit_page
from fairlane.queue.validation import now_milliseconds


class AuditAccess:
    """Reads of the audit log; for anybody but admins there is none."""

    def __init__(self, queue: Queue, caller: Caller) -> None:
        if "admin" not in caller.permissions:
            raise nothing_here()
        self._engine = queue.engine

    def page(
        self,
        who: str | None,
        what: str | None,
        customer: str | None,
        since: float | None,
        until: float | None,
        after: str | None,
        limit: int,
    ) -> AuditPage:
        """Read a page of entries, newest first; it may be short."""
        if after is not None and not (after.isascii() and after.isprintable()):
            raise bad_value("after", after, "what `next` of the page before holds")
        filter = AuditFilter(who, what, customer, now_milliseconds(since), now_milliseconds(until))
        return audit_page(self._engine, filter, after, limit)
