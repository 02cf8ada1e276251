"""The audit log on behalf of an admin."""

from __future__ import annotations

from fairlane.api.auth import Caller
from fairlane.api.problems import bad_value, encode_json, nothing_here
from fairlane.queue import Queue
from fairlane.queue.audit import PAGE_SIZE, AuditFilter, AuditPage, audit_json, audit_page
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

    def lines(
        self,
        who: str | None,
        what: str | None,
        customer: str | None,
        since: float | None,
        until: float | None,
        after: str | None,
    ) -> tuple[bytes, str | None]:
        """Read a page as JSON lines, which may be none, and after which entry to read on; None: there are no more."""
        page = self.page(who, what, customer, since, until, after, PAGE_SIZE)
        return b"".join(encode_json(audit_json(entry)).encode() + b"\n" for entry in page.entries), page.next
