"""The state that the routes of the console share: sessions, the read model, and the broadcast of frames."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends, Request

from fairlane.api.service import Service
from fairlane.console.read_model.loader import ReadModelLoader

from .broadcast import Broadcast
from .sessions import SessionStore


class ConsoleState:
    """The shared state, one for each server."""

    def __init__(self, service: Service) -> None:
        engine = service.queue.engine
        self.sessions = SessionStore(engine)
        self.loader = ReadModelLoader(engine, service.call, service.feed)
        self.broadcast = Broadcast(self.loader)
        self.is_what_if_running = False


def console_state(request: Request) -> ConsoleState:
    return cast(ConsoleState, request.app.state.service.extension.state)


SharedState = Annotated[ConsoleState, Depends(console_state)]
