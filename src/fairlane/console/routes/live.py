"""The route of the live picture: one frame a second, made once for all who watch.

Laws:
- A frame is whole: whoever comes back needs nothing of what it missed. `change` says up to where the feed is told in it.
- While the queue is being read, frames tell what was counted so far, and say so.
- A stream ends within a few seconds after its session or key has ended, and when the server stops.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from fastapi import APIRouter
from starlette.responses import Response, StreamingResponse

from fairlane.api.auth import time_ms
from fairlane.api.dependencies import OperatorOnly, RequestContext
from fairlane.api.problems import Problem
from fairlane.console.broadcast import Viewer
from fairlane.console.read_model.model import written
from fairlane.console.state import ConsoleState, SharedState

READ_SECONDS = 0.3  # after which a stream begins although the queue is still being read
COUNT_SECONDS = 0.5  # how often it is told what was counted so far
BEAT_TICKS = 5  # ticks without a frame, after which a stream says that it is alive
router = APIRouter(tags=["page"], include_in_schema=False)


@router.get("/page/frames")
async def watch_frames(context: OperatorOnly, state: SharedState) -> Response:
    """The live picture, a frame a second."""
    service, frames = context.service, state.frames
    if len(frames) >= service.limits.viewers:
        raise Problem("overloaded", "too many streams are open; try again later", retry_after=30)
    if frames.of_key(context.caller.key_id) >= service.limits.viewers_a_key:
        raise Problem("too-many-requests", "too many streams are open with this key; close one", retry_after=30)
    with service.while_waiting(), contextlib.suppress(TimeoutError):
        async with asyncio.timeout(READ_SECONDS):  # what cannot be told is refused, if that is known soon
            await state.follower.live()
    return StreamingResponse(_stream(context, state), media_type="text/event-stream")


async def _stream(context: RequestContext, state: ConsoleState) -> AsyncIterator[bytes]:
    service, frames = context.service, state.frames
    viewer = Viewer(context.caller.key_id)
    reading = asyncio.ensure_future(state.follower.live())
    with service.while_waiting():
        frames.add(viewer)
        try:
            yield b": watching\nretry: 2000\n\n"
            counted = b""
            while not (await asyncio.wait([reading], timeout=COUNT_SECONDS))[0]:
                is_news, counted = state.follower.counted != counted, state.follower.counted
                yield counted if is_news else b": reading the queue\n\n"
            live = reading.result()
            live.pass_time(time_ms())
            yield written(live, [])
            seen, quiet = frames.number, 0
            while True:
                await viewer.woken.wait()
                viewer.woken.clear()
                if viewer.is_ended or await service.caller(context.credential) is None:
                    return
                quiet += 1
                if seen != frames.number:
                    seen, quiet = frames.number, 0
                    yield frames.newest
                elif quiet % BEAT_TICKS == 0:
                    yield b": still here\n\n"
        finally:
            reading.cancel()
            frames.remove(viewer)
