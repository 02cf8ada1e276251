"""What happens in the queue, told to everybody who watches: one reader of the feed for all of them.

Laws:
- Each watcher gets every change it may see once, in the order of commits; whoever comes back says what it saw last.
- A watcher that does not keep up is let go. It comes back with the last number it saw and misses nothing.
- The newest changes are kept in memory, so that many who come back at once do not each read the store.
"""

from __future__ import annotations

import asyncio
import contextlib
from bisect import bisect_right
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from fairlane.core.document import ENDED, ChangeRow
from fairlane.core.errors import FairlaneError, Unknown
from fairlane.engine import Engine

from .auth import Caller
from .problems import Problem, encode_json

PAGE = 1000
KEPT = 10_000  # changes in memory
POLL_SECONDS = 0.1
FAILED_SECONDS = 1.0
WORDS = {"claimed": "started"}  # what people call it


def newest(engine: Engine) -> int:
    """The number of the newest change, found by halving; 0: there is none."""
    oldest = engine.changes(None, 1)
    if not oldest:
        return 0
    known = oldest[0].number
    step = 1
    while engine.changes(known + step, 1):
        known, step = known + step, step * 2
    while engine.changes(known, 1):  # the newest is above `known` and at most `known + step`
        step = max(1, step // 2)
        known += step if engine.changes(known + step - 1, 1) else 0
    return known


def first_since(engine: Engine, at_ms: int) -> int:
    """The number before that of the first change at this time or later, found by halving; the newest if there is none."""
    oldest = engine.changes(None, 1)
    low, high = (oldest[0].number - 1 if oldest else 0), newest(engine)
    while low < high:
        middle = (low + high) // 2
        page = engine.changes(middle, 1)
        if page and page[0].at_ms < at_ms:
            low = page[0].number
        else:
            high = middle
    return low


class Frame(NamedTuple):
    """A change, ready to be sent."""

    number: int | None  # None: it is told once, and not again to whoever comes back
    customer: str | None
    text: bytes


def framed(change: ChangeRow) -> Frame:
    """A change as a server-sent event."""
    event = WORDS.get(change.what, change.what)
    told = {"event": event, "at": change.at_ms / 1000, "customer": change.customer, "document": change.document}
    if change.what in ("failed", "retried", "cancelled", "expired") and change.note:
        told["reason"] = change.note
    line = encode_json(told)
    return Frame(change.number, change.customer, f"id: {change.number}\nevent: {event}\ndata: {line}\n\n".encode())


def is_for(caller: Caller, customer: str | None) -> bool:
    """Whether a caller may see a change."""
    return caller.customer is None or caller.customer == customer


class Watcher:
    """One stream: what is still to be sent."""

    def __init__(self, caller: Caller, frames_max: int) -> None:
        self.caller = caller
        self.is_ended = False
        self._frames: deque[Frame] = deque()
        self._frames_max = frames_max
        self._news = asyncio.Event()

    def add(self, frame: Frame) -> None:
        if len(self._frames) >= self._frames_max:
            self.end()
        elif not self.is_ended:
            self._frames.append(frame)
            self._news.set()

    def end(self) -> None:
        """Let go: nothing more comes."""
        self.is_ended = True
        self._news.set()

    async def next(self, seconds: float) -> list[Frame]:
        """What has come, or nothing after that long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()
        self._news.clear()
        frames, self._frames = list(self._frames), deque()
        return frames


class Feed:
    """Follows the store and tells watchers, waiters and listeners."""

    def __init__(self, engine: Engine, call: Callable[..., Awaitable[list[ChangeRow]]]) -> None:
        self._engine = engine
        self._call = call
        self._kept: deque[ChangeRow] = deque(maxlen=KEPT)
        self._watchers: set[Watcher] = set()
        self._waiters: dict[str, set[asyncio.Future[None]]] = {}
        self.listeners: list[Callable[[list[ChangeRow]], Awaitable[None]]] = []
        self.last: int | None = None  # the newest change that was told
        self.is_failing = False
        self.gaps = 0  # how often changes were purged before they were told

    async def run(self, last: int) -> None:
        """Follow the store from a change on, until cancelled."""
        self.last = last if self.last is None else self.last  # begun again: on from where it was
        while True:
            try:
                changes = await self._call(self._engine.changes, self.last, PAGE)
                self.is_failing = False
            except Unknown:  # purged under our feet: the oldest that is kept is the next
                changes = await self._call(self._engine.changes, None, PAGE)
                self.gaps += 1
            except FairlaneError:
                self.is_failing = True
                await asyncio.sleep(FAILED_SECONDS)
                continue
            if changes:
                self._tell(changes)
                for listener in self.listeners:
                    await listener(changes)
            if len(changes) < PAGE:
                await asyncio.sleep(POLL_SECONDS)

    def _tell(self, changes: list[ChangeRow]) -> None:
        for change in changes:
            self.last = change.number
            self._kept.append(change)
            if self._watchers:
                frame = framed(change)  # once for all who watch
                for watcher in self._watchers:
                    if is_for(watcher.caller, frame.customer):
                        watcher.add(frame)
            if change.what in ENDED and change.document is not None:
                for waiter in self._waiters.pop(change.document, ()):
                    if not waiter.done():
                        waiter.set_result(None)

    def send_progress(self, customer: str, document: str, told: dict[str, Any]) -> None:
        """What a handler told on its way, to those who watch now."""
        line = encode_json({"event": "progress", "customer": customer, "document": document, **told})
        frame = Frame(None, customer, f"event: progress\ndata: {line}\n\n".encode())
        for watcher in self._watchers:
            if is_for(watcher.caller, customer):
                watcher.add(frame)

    async def ended(self, document: str, is_ended: Callable[[], Awaitable[bool]], seconds: float) -> None:
        """Until a document has ended, or that long."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(document, set()).add(waiter)
        try:
            if not await is_ended():  # looked at after the waiter stands: no ending slips between
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
        """Let everybody go: the server stops."""
        for watcher in self._watchers:
            watcher.end()
        for waiters in self._waiters.values():
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    @property
    def watchers(self) -> int:
        return len(self._watchers)

    def watchers_of(self, key_id: str) -> int:
        """How many streams a key has open."""
        return sum(one.caller.key_id == key_id for one in self._watchers)

    @contextlib.contextmanager
    def watched(self, caller: Caller, frames_max: int) -> Iterator[Watcher]:
        """A watcher that gets everything from now on."""
        watcher = Watcher(caller, frames_max)
        self._watchers.add(watcher)
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)

    async def check_kept(self, after: int) -> None:
        """Refuse if changes after this one were purged."""
        if not self._kept or after + 1 < self._kept[0].number:
            try:
                await self._call(self._engine.changes, after, 1)
            except Unknown:
                raise purged(after) from None

    async def missed(self, caller: Caller, after: int) -> AsyncIterator[list[Frame]]:
        """What a caller has missed since a change, up to the newest that was told."""
        until = self.last or 0
        while after < until:
            if self._kept and self._kept[0].number <= after + 1:
                start = bisect_right(self._kept, after, key=lambda change: change.number)
                changes = [change for change in islice(self._kept, start, None) if change.number <= until]
            else:
                try:
                    changes = await self._call(self._engine.changes, after, PAGE)
                except Unknown:
                    raise purged(after) from None
                changes = [change for change in changes if change.number <= until]
            if not changes:
                return
            after = changes[-1].number
            yield [framed(change) for change in changes if is_for(caller, change.customer)]


def purged(after: int) -> Problem:
    """A watcher slept too long."""
    return Problem("events-purged", f"some events after {after} were purged; read /v1/documents again and watch from now on")
