"""Verbs of `Client` for admins: the audit log."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from fairlane.queue.audit import AuditEntry
from fairlane.queue.validation import now_milliseconds

from . import models
from .models import member, members, unexpected_response
from .retries import RetryingTransport

AUDIT = "/v1/audit"
PAGE_SIZE = 500


class AdminVerbs:
    """What an admin does with a server, besides documents and customers."""

    _http: RetryingTransport

    def audit(
        self,
        *,
        who: str | None = None,
        what: str | None = None,
        customer: str | None = None,
        since: float | datetime | None = None,
        until: float | datetime | None = None,
    ) -> Iterator[AuditEntry]:
        """Yield who changed what, newest first: by a key or a user, an action or all of a sort, a customer, and when."""
        moments = {name: _seconds(value) for name, value in (("since", since), ("until", until))}
        wanted: dict[str, Any] = {"who": who, "what": what, "customer": customer, **moments, "limit": PAGE_SIZE}
        query = urlencode({name: value for name, value in wanted.items() if value is not None})
        return map(models.audit_entry, self._pages(f"{AUDIT}?{query}", "entries"))

    def _pages(self, path: str, name: str) -> Iterator[Any]:
        next_path: str | None = path
        while next_path is not None:
            page = self._http.get(next_path)
            yield from member(page, name)
            next_path = members(page).get("next")
            if next_path is not None and not str(next_path).startswith("/v1/"):
                raise unexpected_response("the link to the next page leads elsewhere")


def _seconds(moment: float | datetime | None) -> float | None:
    milliseconds = now_milliseconds(moment)
    return None if milliseconds is None else milliseconds / 1000
