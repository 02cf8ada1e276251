"""Handlers of the workers on the dashboard: a document says how long it takes, and how it ends."""

from __future__ import annotations

import asyncio
import os

from fairlane import Fail, Retry, Worker
from fairlane.worker import Document

worker = Worker(os.environ.get("FAIRLANE_URL", "sqlite:///fairlane.db"), slots=6)
faxes = Worker(os.environ.get("FAIRLANE_URL", "sqlite:///fairlane.db"), slots=2)


async def handle(document: Document) -> None:
    """Take as long as the document says, then fail or come back if it says so."""
    await asyncio.sleep(document.payload["seconds"])
    if "fails" in document.payload:
        raise Fail(document.payload["fails"])
    if "retries" in document.payload and document.attempt == 1:
        raise Retry(after=2, reason=document.payload["retries"])


for kind in ("invoices", "letters", "scans"):
    worker.handler(kind)(handle)
faxes.handler("faxes")(handle)
