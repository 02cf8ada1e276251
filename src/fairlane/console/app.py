"""The console as an extension of the API: its routes, its sessions, and its view of the feed."""

from __future__ import annotations

import asyncio
import contextlib
import hmac

from fairlane.api.auth import Caller
from fairlane.api.extension import Extension
from fairlane.api.problems import Problem
from fairlane.api.service import Service
from fairlane.api.submit_batcher import Accepted
from fairlane.core.document import ChangeRow
from fairlane.core.errors import StoreError

from . import assets
from .routes import (
    audit,
    batches,
    customers,
    documents,
    history,
    live,
    payloads,
    proxy_session,
    rules,
    session,
    sessions,
    sign_in,
    what_if,
)
from .sessions import CSRF_HEADER, csrf_token, find_cookie, owner_of
from .sign_in_settings import SignInSettings
from .state import ConsoleState

MODULES = (
    assets, session, sessions, sign_in, proxy_session, live, history, customers, documents, payloads, batches, rules, what_if,
    audit,
)  # fmt: skip
TIDY_SECONDS = 3600.0


class Console(Extension):
    """Adds the console to an API."""

    routers = tuple(module.router for module in MODULES)

    def __init__(self, service: Service, sign_in_settings: SignInSettings | None = None) -> None:
        self._service = service
        self.state = ConsoleState(service, sign_in_settings or SignInSettings())
        proxy = self.state.sign_in.proxy
        self.proxy_headers = frozenset() if proxy is None else proxy.headers

    def credential(self, headers: dict[bytes, bytes], *, is_https: bool) -> str:
        return find_cookie(headers, is_https=is_https)

    def refuse_forged(self, credential: str, headers: dict[bytes, bytes], close: bool) -> None:
        if not hmac.compare_digest(headers.get(CSRF_HEADER, b""), csrf_token(credential).encode()):
            needed = f"a request with a cookie that changes something needs the header {CSRF_HEADER.decode()}"
            raise Problem("not-from-page", needed, close=close)

    def recognises(self, credential: str) -> bool:
        return owner_of(credential) != ""

    def is_known(self, credential: str) -> bool:
        return self.state.sessions.find(credential) is not None

    async def caller(self, credential: str) -> Caller | None:
        """Identify whoever signed in: a person, or the holder of the key that the session stands for."""
        owner, sessions = owner_of(credential), self.state.sessions
        session = sessions.find(credential) if sessions.is_cached(owner) else None
        if session is None:  # also if the cache is fresh: another server may have begun this session just now
            with contextlib.suppress(StoreError) if sessions.is_known(owner) else contextlib.nullcontext():
                await self._service.call(sessions.load, owner)  # while the store fails, as they were when last read
            session = sessions.find(credential)
        if session is None:
            return None
        if session.person is not None:
            return self.state.caller_of(session.person)
        await self._service.load_key(owner)
        return self._service.keyring.holder(owner)

    def is_vouched(self, caller: Caller, headers: dict[bytes, bytes]) -> bool:
        """Whether somebody counts as such in this request: whom a proxy vouched for needs the proxy's word in each."""
        proxy, grants = self.state.sign_in.proxy, self.state.sign_in.grants
        if proxy is None or not caller.is_person:  # beside a proxy there is no other way to sign in as oneself
            return True
        named = proxy.named(headers)
        return named is not None and grants.caller(named[0]._replace(groups=grants.named(named[1]))) == caller

    async def run(self) -> None:
        await sign_in.check_provider(self._service, self.state)
        while True:
            await self._service.call(self.state.sessions.remove_expired)
            await asyncio.sleep(TIDY_SECONDS)

    def on_accepted(self, accepted: Accepted) -> None:
        self.state.loader.on_accepted(accepted.receipt, accepted.delay_ms)

    async def on_changes(self, changes: list[ChangeRow]) -> None:
        await self.state.loader.on_changes(changes)

    def stop(self) -> None:
        self.state.broadcast.stop()
