"""The state that the routes of the console share: sessions, the read model, and the broadcast of frames."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends, Request

from fairlane.api.service import Service
from fairlane.console.read_model.loader import ReadModelLoader

from .broadcast import Broadcast
from .sessions import SessionStore

KINDS_SHOWN = 5  # in the live view; the view of workers has all


class ConsoleState:
    """The shared state, one for each server."""

    def __init__(self, service: Service) -> None:
        engine = service.queue.engine
        self.sessions = SessionStore(engine)
        self.loader = ReadModelLoader(engine, service.call, service.feed)
        self.broadcast = Broadcast(self.loader, lambda: _unserved(service))
        self.is_what_if_running = False


def _unserved(service: Service) -> list[tuple[str, bool]]:
    """Return the kinds that wait although no worker takes them, as the last snapshot of the capacity has it."""
    snapshot = service.metrics.snapshot
    return [] if snapshot is None else snapshot.unserved(KINDS_SHOWN)


def console_state(request: Request) -> ConsoleState:
    return cast(ConsoleState, request.app.state.service.extension.state)


SharedState = Annotated[ConsoleState, Depends(console_state)]
