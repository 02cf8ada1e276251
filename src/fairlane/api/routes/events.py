"""The route of events: a stream of changes as they happen, and those missed since.

Laws:
- A stream ends within a second after its key was revoked or has expired, and when the server stops.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Query
from starlette.responses import Response, StreamingResponse

from fairlane.api.cursors import CURSOR_DIGITS
from fairlane.api.dependencies import AnyCaller, RequestContext, event_stream
from fairlane.api.feed import Frame
from fairlane.api.problems import Problem, bad_value

KEY_CHECK_SECONDS = 1.0  # how often the key is checked again
KEEPALIVE_SECONDS = 15.0  # proxies cut a silent stream off, nginx after 60 seconds
router = APIRouter(tags=["events"])


@router.get(
    "/v1/events",
    response_class=StreamingResponse,
    responses={200: {"description": "Server-sent events.", "content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def watch_events(
    context: AnyCaller,
    after: Annotated[
        str | None, Query(pattern=r"^[0-9]+$", max_length=CURSOR_DIGITS, description="Everything after this event; 0: all.")
    ] = None,
    last_event_id: Annotated[str | None, Header(description="The event that was seen last.")] = None,
) -> Response:
    """What happens: submitted, started, progress, done, failed and more; a customer sees only its own."""
    service = context.service
    if last_event_id:
        if not (last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) <= CURSOR_DIGITS):
            raise bad_value("Last-Event-ID", last_event_id, "the id of an event")
        after = last_event_id
    if service.feed.watchers >= service.limits.viewers:
        raise Problem("overloaded", "too many streams are open; try again later", retry_after=30)
    if service.feed.watchers_of(context.caller.id) >= service.limits.viewers_a_key:
        raise Problem("too-many-requests", "too many streams are open with this key; close one", retry_after=30)
    service.refuse_waiting()
    if not service.cursors.is_loaded:
        await service.call(service.cursors.load)
    last = None if after is None else _number(context, after)
    if last is not None:
        await service.feed.refuse_purged(last)
    return event_stream(_stream(context, last))


def _number(context: RequestContext, id: str) -> int:
    """Return the number of the event with this id; 0 is before all."""
    number = 0 if id == "0" else context.service.cursors.decode(context.caller.customer, id)
    if number is None and context.caller.sees_all:
        raise bad_value("after", id, "the id of an event")
    if number is None:  # also one of before ids were encrypted
        raise Problem("events-purged", "this id is none of this queue; read /v1/documents again and watch from now on")
    return number


async def _stream(context: RequestContext, after: int | None) -> AsyncIterator[bytes]:
    service = context.service
    with service.while_waiting(), service.feed.watch(context.caller, service.limits.viewer_events) as watcher:
        last = service.feed.last or 0 if after is None else after
        yield _comment(context, "watching", last)  # a client cut off before its first event resumes from here
        if after is not None:
            async for frames in service.feed.missed(context.caller, after):
                yield _join(frames)
                last = _last(frames, last)
        sent_at = time.monotonic()
        while True:
            frames = [frame for frame in await watcher.next(KEY_CHECK_SECONDS) if frame.number is None or frame.number > last]
            if await service.caller(context.credential) is None:
                return
            if frames:
                yield _join(frames)
                last = _last(frames, last)
            elif time.monotonic() - sent_at > KEEPALIVE_SECONDS:
                yield _comment(context, "still here", service.feed.last or 0)
            if watcher.is_ended or service.is_stopping:
                return
            if frames or time.monotonic() - sent_at > KEEPALIVE_SECONDS:
                sent_at = time.monotonic()


def _comment(context: RequestContext, text: str, last: int) -> bytes:
    """Return a comment with the id of the newest event, of whomever; salted, so that nobody sees whether it is another one."""
    id = context.service.cursors.encode(context.caller.customer, last, is_salted=True)
    return f": {text}\nid: {id}\n\n".encode()


def _last(frames: list[Frame], before: int) -> int:
    return max([before, *(frame.number for frame in frames if frame.number is not None)])


def _join(frames: list[Frame]) -> bytes:
    return b"".join(frame.text for frame in frames)
