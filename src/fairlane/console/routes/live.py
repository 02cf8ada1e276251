"""The route of the live view: a stream of frames, one a second, encoded once for all viewers.

Laws:
- A frame is complete: a viewer that reconnects needs nothing it missed. `change` is the last change that is in it.
- While the queue is being loaded, frames show what was counted so far, and say so.
- A stream ends within a few seconds after its session or key has ended, and when the server stops.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from fastapi import APIRouter
from starlette.responses import Response

from fairlane.api.dependencies import AnyCaller, RequestContext, event_stream
from fairlane.api.problems import Problem
from fairlane.console.broadcast import Viewer
from fairlane.console.read_model.model import encode_frame
from fairlane.console.state import ConsoleState, SharedState

LOAD_SECONDS = 0.3  # after which a stream starts although the queue is still being loaded
PARTIAL_SECONDS = 0.5  # between frames of a queue that is being loaded
HEARTBEAT_TICKS = 5  # ticks without a frame after which a comment shows that the stream is alive
router = APIRouter(tags=["page"], include_in_schema=False)


@router.get("/page/frames")
async def stream_frames(context: AnyCaller, state: SharedState) -> Response:
    """Stream the live view, a frame a second."""
    service, broadcast = context.service, state.broadcast
    if len(broadcast) >= service.limits.viewers:
        raise Problem("overloaded", "too many streams are open; try again later", retry_after=30)
    if broadcast.viewers_of(context.caller.id) >= service.limits.viewers_a_key:
        raise Problem("too-many-requests", "too many streams are open with this key; close one", retry_after=30)
    service.refuse_waiting()
    with service.while_waiting(), contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LOAD_SECONDS):  # a load that fails quickly is a problem with its status, not a broken stream
            await state.loader.model()
    return event_stream(_stream(context, state))


async def _stream(context: RequestContext, state: ConsoleState) -> AsyncIterator[bytes]:
    service, broadcast, loader = context.service, state.broadcast, state.loader
    viewer = Viewer(context.caller.id)
    loading = asyncio.ensure_future(loader.model())
    with service.while_waiting():
        broadcast.add(viewer)
        try:
            yield b": watching\nretry: 2000\n\n"
            partial_frame = b""
            while not (await asyncio.wait([loading], timeout=PARTIAL_SECONDS))[0]:
                is_new, partial_frame = loader.partial_frame != partial_frame, loader.partial_frame
                yield partial_frame if is_new else b": reading the queue\n\n"
            yield encode_frame(loading.result(), [])
            sent, silent_ticks = broadcast.number, 0
            while True:
                await viewer.tick.wait()
                viewer.tick.clear()
                if viewer.is_ended or await service.caller(context.credential) is None:
                    return
                silent_ticks += 1
                if sent != broadcast.number:
                    sent, silent_ticks = broadcast.number, 0
                    yield broadcast.newest
                elif silent_ticks % HEARTBEAT_TICKS == 0:
                    yield b": still here\n\n"
        finally:
            loading.cancel()
            broadcast.remove(viewer)
