"""What a package built on the API adds to its app: routes, a way to sign in, and a view of what happens."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from fastapi import APIRouter

from fairlane.core.document import ChangeRow

from .auth import Caller
from .submit_batcher import Accepted


class Extension:
    """An extension that adds nothing; override what is needed."""

    routers: Sequence[APIRouter] = ()  # matched before the API's own
    proxy_headers: frozenset[bytes] = frozenset()  # which count only in requests from a trusted proxy

    def credential(self, headers: dict[bytes, bytes], *, is_https: bool) -> str:
        """Return the credential of a request without an Authorization header; empty: it has none."""
        return ""

    def refuse_forged(self, credential: str, headers: dict[bytes, bytes], close: bool) -> None:
        """Raise a Problem if a request that changes something may come from another site."""

    def recognises(self, credential: str) -> bool:
        """Whether a credential is the extension's, and not a key."""
        return False

    def is_known(self, credential: str) -> bool:
        """Whether a credential that is recognised names something that was valid when it was last read."""
        return False

    async def caller(self, credential: str) -> Caller | None:
        """Identify the caller behind a credential that is recognised; None: it is not valid."""
        return None

    def is_vouched(self, caller: Caller, headers: dict[bytes, bytes]) -> bool:
        """Whether a caller who was identified counts as such in a request with these headers."""
        return True

    def on_accepted(self, accepted: Accepted) -> None:
        """Note a document that this server has accepted."""

    async def on_changes(self, changes: list[ChangeRow]) -> None:
        """Note changes, as the feed reads them."""

    async def run(self) -> None:
        """Do what is to be done all along; begun again when it fails, and cancelled when the service has stopped."""
        await asyncio.Event().wait()

    def stop(self) -> None:
        """End streams: the server stops."""
