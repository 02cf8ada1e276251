"""What the routes of the console share: sessions, the live picture of the queue, and who watches it."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends, Request

from fairlane.api.service import Service

from .broadcast import Frames
from .read_model.loader import Follower
from .sessions import Sessions


class ConsoleState:
    """One for each server."""

    def __init__(self, service: Service) -> None:
        engine = service.queue.engine
        self.sessions = Sessions(engine)
        self.follower = Follower(engine, service.call, service.feed)
        self.frames = Frames(self.follower)
        self.is_what_if_running = False


def console_state(request: Request) -> ConsoleState:
    return cast(ConsoleState, request.app.state.service.extension.state)


SharedState = Annotated[ConsoleState, Depends(console_state)]
