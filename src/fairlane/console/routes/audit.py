"""The route that downloads the audit log: an entry a line, in JSON, newest first.

Laws:
- A page is read when the one before it was sent: neither memory nor a single call of the store grows with the log.
- A download that ends too early is seen to be broken: it ends without the end of its last chunk.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response, StreamingResponse

from fairlane.api.dependencies import AnyCaller, RequestContext
from fairlane.api.download import attachment
from fairlane.api.problems import Problem

NAME = "audit.jsonl"
router = APIRouter(tags=["page"], include_in_schema=False)
Word = Annotated[str | None, Query(min_length=1, max_length=200)]


@router.get("/page/audit/export")
async def export_audit(
    context: AnyCaller,
    who: Word = None,
    what: Word = None,
    customer: Word = None,
    since: float | None = None,
    until: float | None = None,
) -> Response:
    """Return every entry that matches."""
    context.service.refuse_waiting()
    read = partial(context.access.audit.lines, who, what, customer, since, until)
    first = await context.service.call(read, None)
    headers = {"content-disposition": attachment(NAME), "cache-control": "no-store"}
    return StreamingResponse(_pieces(context, read, *first), headers=headers, media_type="application/jsonl")


async def _pieces(
    context: RequestContext, read: partial[tuple[bytes, str | None]], lines: bytes, after: str | None
) -> AsyncIterator[bytes]:
    service = context.service
    with service.while_waiting():
        while True:
            if lines:
                yield lines
            if after is None:
                return
            if service.is_stopping:
                raise Problem("stopping", "the server stops; try again")
            if await service.caller(context.credential) is None:
                raise Problem("no-key", "this key has ended meanwhile")
            lines, after = await service.call(read, after)
