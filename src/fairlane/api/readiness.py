"""Readiness: whether requests can be served now, and if not why.

Laws:
- However many ask at the same time, the store is asked once.
- The question is the service's own: it does not wait behind calls that strangers or customers cause.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fairlane.core.errors import FairlaneError

from .shares import HOLDER, SERVICE

if TYPE_CHECKING:
    from .service import Service

STORE_SECONDS = 2.0  # a health check must not wait as long for a store that is away as other calls do


class Readiness:
    """Finds out whether the service is ready."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._checking: asyncio.Task[list[str]] | None = None

    async def reasons(self) -> list[str]:
        """Say why requests cannot be served now; empty: they can."""
        if self._checking is None or self._checking.done():
            self._checking = asyncio.create_task(self._check())
        return await asyncio.shield(self._checking)

    async def _check(self) -> list[str]:
        HOLDER.set(SERVICE)
        service, reasons = self._service, []
        if service.is_stopping:
            reasons.append("it stops")
        if service.requests.is_full:
            reasons.append("too many requests are being answered")
        try:
            async with asyncio.timeout(STORE_SECONDS):
                if await service.call(service.is_frozen):
                    reasons.append(
                        "the queue is frozen: it is being moved, or its rules must be set; `fairlane doctor` says which"
                    )
        except (FairlaneError, TimeoutError):
            reasons.append("the store does not answer")
        if service.feed.is_failing:
            reasons.append("the feed cannot be read")
        return reasons
