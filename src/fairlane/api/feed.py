"""The feed of changes: read once from the store, and passed on to streams, waiting requests and listeners.

Laws:
- Each watcher gets every change it may see once, in the order of commits; one that reconnects says what it saw last.
- A watcher that does not keep up is dropped. It reconnects with the last number it saw and misses nothing.
- The newest changes are kept in memory, so that many that reconnect at once do not each read the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from bisect import bisect_right
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from fairlane.core.document import ENDED, ChangeRow
from fairlane.core.errors import FairlaneError, StoreError, Unknown
from fairlane.engine import Engine
from fairlane.queue.models import new_priority

from .auth import Caller
from .cursors import Cursors
from .problems import Problem, encode_json

PAGE = 1000
KEPT = 10_000  # changes in memory
POLL_SECONDS = 0.1
FAILED_SECONDS = 1.0
EVENT_NAMES = {"claimed": "started"}  # where the public name is another than the store's


class Frame(NamedTuple):
    """A server-sent event, ready to be sent."""

    number: int | None  # None: it is sent once, and not again to a watcher that reconnects
    customer: str | None
    text: bytes


def without_actor(change: ChangeRow) -> ChangeRow:
    """Return a change as customers may see it: without the operator who set a priority by hand."""
    if change.what != "prioritized" or not change.note:
        return change
    return change._replace(note=json.dumps(json.loads(change.note) | {"by": None}))


def encode_change(change: ChangeRow, id: str) -> Frame:
    """Encode a change as a server-sent event under the id that its readers see."""
    event = EVENT_NAMES.get(change.what, change.what)
    fields: dict[str, Any] = {
        "event": event,
        "at": change.at_ms / 1000,
        "customer": change.customer,
        "document": change.document,
    }
    if change.what in ("failed", "retried", "postponed", "cancelled", "expired") and change.note:
        fields["reason"] = change.note
    priority, by = new_priority(change)
    fields |= {name: value for name, value in (("priority", priority), ("by", by)) if value is not None}
    text = f"id: {id}\nevent: {event}\ndata: {encode_json(fields)}\n\n"
    return Frame(change.number, change.customer, text.encode())


class Watcher:
    """One stream of events: what is still to be sent to it."""

    def __init__(self, caller: Caller, frames_max: int) -> None:
        self.caller = caller
        self.is_ended = False
        self._frames: deque[Frame] = deque()
        self._frames_max = frames_max
        self._has_news = asyncio.Event()

    def add(self, frame: Frame) -> None:
        if len(self._frames) >= self._frames_max:
            self.end()
        elif not self.is_ended:
            self._frames.append(frame)
            self._has_news.set()

    def end(self) -> None:
        """Drop the watcher: nothing more comes."""
        self.is_ended = True
        self._has_news.set()

    async def next(self, seconds: float) -> list[Frame]:
        """Return what has come; empty if nothing came for that long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._has_news.wait()
        self._has_news.clear()
        frames, self._frames = list(self._frames), deque()
        return frames


class Feed:
    """Follows the store's feed, and passes changes on to watchers, waiters and listeners."""

    def __init__(self, engine: Engine, call: Callable[..., Awaitable[list[ChangeRow]]], cursors: Cursors) -> None:
        self._engine = engine
        self._call = call
        self._cursors = cursors
        self._kept: deque[ChangeRow] = deque(maxlen=KEPT)
        self._watchers: set[Watcher] = set()
        self._waiters: dict[str, set[asyncio.Future[None]]] = {}
        self.listeners: list[Callable[[list[ChangeRow]], Awaitable[None]]] = []
        self.last: int | None = None  # the newest change that was passed on
        self.is_failing = False
        self.gaps = 0  # how often changes were purged before they were read

    async def run(self, last: int) -> None:
        """Follow the store from a change on, until cancelled."""
        self.last = last if self.last is None else self.last  # started again after a failure: on from where it was
        while True:
            try:
                changes = await self._call(self._engine.changes, self.last, PAGE)
                self.is_failing = False
            except Unknown:  # purged before they were read: the oldest that is kept is the next
                changes = await self._call(self._engine.changes, None, PAGE)
                self.gaps += 1
            except FairlaneError:
                self.is_failing = True
                await asyncio.sleep(FAILED_SECONDS)
                continue
            if changes:
                self._pass_on(changes)
                for listener in self.listeners:
                    await self._tell(listener, changes)
            if len(changes) < PAGE:
                await asyncio.sleep(POLL_SECONDS)

    async def _tell(self, listener: Callable[[list[ChangeRow]], Awaitable[None]], changes: list[ChangeRow]) -> None:
        """Pass changes to a listener, again while the store fails: none may be missed, and later ones cannot be read either."""
        while True:
            try:
                return await listener(changes)
            except StoreError:
                self.is_failing = True
                await asyncio.sleep(FAILED_SECONDS)

    def _pass_on(self, changes: list[ChangeRow]) -> None:
        for change in changes:
            self.last = change.number
            self._kept.append(change)
            self._send_change(change)
            if change.what in ENDED and change.document is not None:
                for waiter in self._waiters.pop(change.document, ()):
                    if not waiter.done():
                        waiter.set_result(None)

    def _send_change(self, change: ChangeRow) -> None:
        """Send a change to everybody who may see it, encoded once for operators and once for the customer."""
        frames: dict[str | None, Frame] = {}
        for watcher in self._watchers:
            if watcher.caller.may_see(change.customer):
                reader = watcher.caller.customer
                if reader not in frames:
                    frames[reader] = self._encode(change, reader)
                watcher.add(frames[reader])

    def _encode(self, change: ChangeRow, reader: str | None) -> Frame:
        visible = change if reader is None else without_actor(change)
        return encode_change(visible, self._cursors.encode(reader, change.number))

    def _send(self, frame: Frame) -> None:
        for watcher in self._watchers:
            if watcher.caller.may_see(frame.customer):
                watcher.add(frame)

    def send_progress(self, customer: str, document: str, progress: dict[str, Any]) -> None:
        """Send what a handler reported to those who watch now."""
        data = encode_json({"event": "progress", "customer": customer, "document": document, **progress})
        self._send(Frame(None, customer, f"event: progress\ndata: {data}\n\n".encode()))

    async def wait_for_end(self, document: str, is_ended: Callable[[], Awaitable[bool]], seconds: float) -> None:
        """Wait until a document has ended, or for that long."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(document, set()).add(waiter)
        try:
            if not await is_ended():  # read after the waiter is registered, so that no ending is missed
                async with asyncio.timeout(seconds):
                    await waiter
        except TimeoutError:
            pass
        finally:
            others = self._waiters.get(document, set())
            others.discard(waiter)
            if not others:
                self._waiters.pop(document, None)

    def stop(self) -> None:
        """End all streams and waiting requests: the server stops."""
        for watcher in self._watchers:
            watcher.end()
        for waiters in self._waiters.values():
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    @property
    def watchers(self) -> int:
        return len(self._watchers)

    def watchers_of(self, caller_id: str) -> int:
        """Count the streams that a caller has open."""
        return sum(watcher.caller.id == caller_id for watcher in self._watchers)

    @contextlib.contextmanager
    def watch(self, caller: Caller, frames_max: int) -> Iterator[Watcher]:
        """Open a watcher that gets everything from now on."""
        watcher = Watcher(caller, frames_max)
        self._watchers.add(watcher)
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)

    async def refuse_purged(self, after: int) -> None:
        """Refuse to resume after a change if later ones were purged."""
        if not self._kept or after + 1 < self._kept[0].number:
            try:
                await self._call(self._engine.changes, after, 1)
            except Unknown:
                raise _purged() from None

    async def missed(self, caller: Caller, after: int) -> AsyncIterator[list[Frame]]:
        """Iterate over what a caller has missed since a change, up to the newest that was passed on."""
        until = self.last or 0
        while after < until:
            if self._kept and self._kept[0].number <= after + 1:
                start = bisect_right(self._kept, after, key=lambda change: change.number)
                changes = [change for change in islice(self._kept, start, start + PAGE) if change.number <= until]
            else:
                try:
                    changes = await self._call(self._engine.changes, after, PAGE)
                except Unknown:
                    raise _purged() from None
                changes = [change for change in changes if change.number <= until]
            if not changes:
                return
            after = changes[-1].number
            yield [self._encode(change, caller.customer) for change in changes if caller.may_see(change.customer)]


def _purged() -> Problem:
    return Problem("events-purged", "some events after that one were purged; read /v1/documents again and watch from now on")
