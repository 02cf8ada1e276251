"""The console as an extension of the API: its routes, its sessions, and its view of the feed."""

from __future__ import annotations

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
from .routes import batches, customers, documents, history, live, payloads, rules, session, what_if
from .sessions import CSRF_HEADER, csrf_token, find_cookie, key_id_of
from .state import ConsoleState


class Console(Extension):
    """Adds the console to an API."""

    routers = tuple(
        module.router for module in (assets, session, live, history, customers, documents, payloads, batches, rules, what_if)
    )

    def __init__(self, service: Service) -> None:
        self._service = service
        self.state = ConsoleState(service)

    def credential(self, headers: dict[bytes, bytes], *, is_https: bool) -> str:
        return find_cookie(headers, is_https=is_https)

    def refuse_forged(self, credential: str, headers: dict[bytes, bytes], close: bool) -> None:
        if not hmac.compare_digest(headers.get(CSRF_HEADER, b""), csrf_token(credential).encode()):
            needed = f"a request with a cookie that changes something needs the header {CSRF_HEADER.decode()}"
            raise Problem("not-from-page", needed, close=close)

    def recognises(self, credential: str) -> bool:
        return key_id_of(credential) != ""

    def is_known(self, credential: str) -> bool:
        return self.state.sessions.is_known(key_id_of(credential))

    async def caller(self, credential: str) -> Caller | None:
        """Identify whoever signed in: the holder of the key that the session stands for."""
        key_id, sessions = key_id_of(credential), self.state.sessions
        if not sessions.is_cached(key_id):
            with contextlib.suppress(StoreError) if sessions.is_known(key_id) else contextlib.nullcontext():
                await self._service.call(sessions.load, key_id)  # while the store fails, as they were when last read
        if not sessions.is_open(credential):
            return None
        await self._service.load_key(key_id)
        return self._service.keyring.holder(key_id)

    def on_accepted(self, accepted: Accepted) -> None:
        self.state.loader.on_accepted(accepted.receipt, accepted.delay_ms)

    async def on_changes(self, changes: list[ChangeRow]) -> None:
        await self.state.loader.on_changes(changes)

    def stop(self) -> None:
        self.state.broadcast.stop()
