"""The life of the read model: loaded when the console is first opened, kept up to date from the feed, dropped when unused.

Laws:
- Without viewers nothing is kept: the model is loaded for the first request and dropped some time after the last one.
- The event loop never blocks: the store is read on threads, a page at a time.
- A model that cannot be kept up to date (the store failed, a customer was forgotten, changes were purged) is loaded again.
"""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from fairlane.api.auth import time_ms
from fairlane.api.feed import Feed
from fairlane.api.shares import HOLDER, SERVICE
from fairlane.core.document import ChangeRow, ReceiptRow
from fairlane.core.errors import FairlaneError
from fairlane.engine import Engine
from fairlane.queue.history import newest

from .figures import MinuteFigures, history
from .initial_load import load_model, look_up
from .model import DocumentFacts, ReadModel, encode_partial_frame

ACCEPTED_MAX = 100_000
KEEP_SECONDS = 3600.0  # after the last request
CATCH_UP_SECONDS = 0.05
PARTIAL_FRAME_SECONDS = 0.4
HISTORY_SECONDS = 5.0
HISTORIES_MAX = 20


class ReadModelLoader:
    """Holds the read model while the console is in use."""

    def __init__(self, engine: Engine, call: Callable[..., Awaitable[Any]], feed: Feed) -> None:
        self._engine = engine
        self._call = call
        self._feed = feed
        self._model: ReadModel | None = None
        self._loading: asyncio.Task[ReadModel] | None = None
        self._pending: list[ChangeRow] | None = None  # changes that came during a load; None: there is no load
        self._accepted: dict[str, DocumentFacts] = {}  # documents that this server accepted and the feed has not shown yet
        self._used_at = 0.0
        self._gaps = 0
        self.partial_frame = b""  # of a load that takes long; else empty
        self._partial_frame_at = 0.0
        self._histories: dict[int, tuple[ReadModel, float, asyncio.Future[bytes]]] = {}

    async def model(self) -> ReadModel:
        """Return the read model, with delayed documents that are due in their lanes; load it if there is none."""
        model = await self._current_model()
        model.advance_clock(time_ms())
        return model

    async def _current_model(self) -> ReadModel:
        self._used_at = time.monotonic()
        if self._model is not None and not self._model.is_stale:
            return self._model
        if self._loading is None:
            self._loading = asyncio.create_task(self._load())
            self._loading.add_done_callback(self._loaded)
        return await asyncio.shield(self._loading)

    async def history(self, minutes: int) -> bytes:
        """Return figures over time as JSON, calculated on a thread and at most every few seconds, for all viewers."""
        model = await self.model()
        cached = self._histories.get(minutes)
        if cached is None or not _is_fresh(cached, model, minutes):
            if len(self._histories) >= HISTORIES_MAX:
                self._histories.clear()
            figures = model.figures.snapshot(model.now_ms)
            result = asyncio.ensure_future(self._call(_history_json, figures, model.now_ms, minutes, model.since_ms))
            cached = self._histories[minutes] = model, time.monotonic(), result
        return await asyncio.shield(cached[2])

    # -- loading -------------------------------------------------------------------------------------------------------

    def _loaded(self, task: asyncio.Task[ReadModel]) -> None:
        self._loading = self._pending = None
        self.partial_frame = b""
        if not task.cancelled():
            task.exception()  # retrieve it: asyncio logs an exception that no request waited for

    async def _load(self) -> ReadModel:
        HOLDER.set(SERVICE)  # for all viewers, not only for the one that came first
        self._pending, self._gaps, self._partial_frame_at = [], self._feed.gaps, time.monotonic()
        start = self._feed.last or await self._call(newest, self._engine)
        model: ReadModel
        model, newest_change = await self._call(load_model, self._engine, start, self._show_partial)
        while True:  # catch up with what the store held when it was read
            changes, self._pending = self._pending, []
            await self._apply(model, changes)
            if model.change >= newest_change and not self._pending:
                self._model, self._pending = model, None
                return model
            await asyncio.sleep(CATCH_UP_SECONDS)

    def _show_partial(self, model: ReadModel) -> None:
        """Encode a frame of an unfinished model now and then; called on the thread that loads it."""
        if time.monotonic() - self._partial_frame_at > PARTIAL_FRAME_SECONDS:
            model.now_ms = time_ms()
            self.partial_frame, self._partial_frame_at = encode_partial_frame(model), time.monotonic()

    # -- following the feed --------------------------------------------------------------------------------------------

    def on_accepted(self, receipt: ReceiptRow, delay_ms: int) -> None:
        """Remember a document that this server accepted: it need not be looked up when the feed shows it."""
        if self._model is not None and len(self._accepted) < ACCEPTED_MAX:
            check = receipt.check
            ready_ms = check.checked_ms + delay_ms
            self._accepted[receipt.id] = DocumentFacts(
                receipt.number, check.priority, check.counter_thousandths, check.checked_ms, ready_ms, ready_ms, 0
            )

    async def on_changes(self, changes: list[ChangeRow]) -> None:
        """Apply changes of the feed, or keep them until the load is finished."""
        model = self._model
        if self._pending is not None:
            self._pending += changes
        elif model is not None:
            try:
                await self._apply(model, changes)
            except FairlaneError:
                model.is_stale = True
            if model.is_stale or self._gaps != self._feed.gaps or time.monotonic() - self._used_at > KEEP_SECONDS:
                self._model = None
                self._accepted.clear()
                self._histories.clear()
                gc.unfreeze()

    async def _apply(self, model: ReadModel, changes: list[ChangeRow]) -> None:
        changes = [change for change in changes if change.number > model.change]  # the feed may be behind the load
        facts: dict[str, DocumentFacts] = {}
        unknown = []
        for id in model.missing(changes):
            accepted = self._accepted.pop(id, None)
            if accepted is None:
                unknown.append(id)
            else:
                facts[id] = accepted
        if unknown:
            facts |= await self._call(look_up, self._engine, unknown)
        if any(change.what == "configured" for change in changes):
            model.rules = await self._call(self._engine.rules)
        model.apply(changes, facts)


def _is_fresh(cached: tuple[ReadModel, float, asyncio.Future[bytes]], model: ReadModel, minutes: int) -> bool:
    cached_model, at, result = cached
    age_max = max(HISTORY_SECONDS, minutes / 24)
    return cached_model is model and time.monotonic() - at <= age_max and not result.cancelled()


def _history_json(known: Mapping[int, MinuteFigures], now_ms: int, minutes: int, since_ms: int) -> bytes:
    return json.dumps(history(known, now_ms, minutes) | {"since": since_ms}, separators=(",", ":")).encode()
