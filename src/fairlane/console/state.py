"""The state that the routes of the console share: sessions, ways to sign in, the read model, the broadcast of frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, cast

from fastapi import Depends, Request

from fairlane.api.auth import Caller
from fairlane.api.service import Service
from fairlane.console.read_model.loader import ReadModelLoader

from . import proxy_people
from .broadcast import Broadcast
from .people import Person
from .sessions import SessionStore
from .sign_in_settings import SignInSettings

if TYPE_CHECKING:
    from .oidc import Provider

KINDS_SHOWN = 5  # in the live view; the view of workers has all


class ConsoleState:
    """The shared state, one for each server."""

    def __init__(self, service: Service, sign_in: SignInSettings) -> None:
        engine = service.queue.engine
        self.sessions = SessionStore(engine)
        self.sign_in = sign_in
        self.provider = _provider(sign_in)
        self.loader = ReadModelLoader(engine, service.call, service.feed)
        self.broadcast = Broadcast(self.loader, lambda: _unserved(service))
        self.is_what_if_running = False

    def caller_of(self, person: Person) -> Caller | None:
        """Return the caller that somebody who signed in is now; None: that sign-in counts no longer."""
        oidc, proxy = self.sign_in.oidc, self.sign_in.proxy
        issuers = [] if oidc is None else [oidc.issuer]
        issuers += [] if proxy is None else [proxy_people.ISSUER]
        return self.sign_in.grants.caller(person) if person.issuer in issuers else None


def _provider(sign_in: SignInSettings) -> Provider | None:
    """Return the OpenID provider; its packages are needed only where there is one."""
    if sign_in.oidc is None:
        return None
    from .oidc import Provider

    return Provider(sign_in.oidc)


def _unserved(service: Service) -> list[tuple[str, bool]]:
    """Return the kinds that wait although no worker takes them, as the last snapshot of the capacity has it."""
    snapshot = service.metrics.snapshot
    return [] if snapshot is None else snapshot.unserved(KINDS_SHOWN)


def console_state(request: Request) -> ConsoleState:
    return cast(ConsoleState, request.app.state.service.extension.state)


SharedState = Annotated[ConsoleState, Depends(console_state)]
