"""How does the picture of the queue come to be, and stay true? It is read when somebody first looks, and then follows the feed.

Laws:
- Nobody looks: nothing is kept. The picture begins with the first look and is let go some time after the last one.
- The event loop never waits: the store is read on threads, a page at a time.
- A picture that cannot be followed (the store failed, a customer was forgotten, changes were purged) is made anew.
"""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections import ChainMap
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fairlane.api.auth import time_ms
from fairlane.api.feed import Feed, first_since, newest
from fairlane.api.problems import Problem
from fairlane.core.document import ENDED, ChangeRow, ReceiptRow
from fairlane.core.errors import FairlaneError, Unknown
from fairlane.engine import Engine

from .figures import Minute, history
from .model import ANEW, Live, Seen, seen, written_so_far

PAGE = 1000
PAST_CHANGES_MAX = 400_000  # of the past that are read to know today
PAST_MS = 24 * 3600 * 1000
FOLLOWED_MAX = 2_000_000  # documents that have not ended, or customers
TAKEN_MAX = 100_000
KEPT_SECONDS = 3600.0  # after the last look
CATCH_UP_SECONDS = 0.05
COUNTED_SECONDS = 0.4  # how often the picture that is being read is told
HISTORY_SECONDS = 5.0
HISTORIES_MAX = 20


class Follower:
    """Holds the picture of the queue while somebody looks at it."""

    def __init__(self, engine: Engine, call: Callable[..., Awaitable[Any]], feed: Feed) -> None:
        self._engine = engine
        self._call = call
        self._feed = feed
        self._live: Live | None = None
        self._pending: list[ChangeRow] | None = None  # changes that came while the store is read; None: it is not
        self._beginning: asyncio.Task[Live] | None = None
        self._taken: dict[str, Seen] = {}
        self._used_at = 0.0
        self._gaps = 0
        self.counted = b""  # a frame of what was read so far; empty: it is not read now, or not for long
        self._counted_at = 0.0
        self._histories: dict[int, tuple[Live, float, asyncio.Future[bytes]]] = {}

    async def live(self) -> Live:
        """The picture, made if there is none."""
        self._used_at = time.monotonic()
        if self._live is not None and not self._live.is_unsure:
            return self._live
        if self._beginning is None:
            self._beginning = asyncio.create_task(self._begin())
            self._beginning.add_done_callback(self._begun)
        return await asyncio.shield(self._beginning)

    async def history(self, minutes: int) -> bytes:
        """Figures over time as JSON, made on a thread and every few seconds at most, however many look."""
        live = await self.live()
        live.pass_time(time_ms())
        known = self._histories.get(minutes)
        if (
            known is None
            or known[0] is not live
            or time.monotonic() - known[1] > max(HISTORY_SECONDS, minutes / 24)
            or known[2].cancelled()
        ):
            if len(self._histories) >= HISTORIES_MAX:
                self._histories.clear()
            made = asyncio.ensure_future(
                self._call(_history, live.figures.copied(live.now_ms), live.now_ms, minutes, live.since_ms)
            )
            known = self._histories[minutes] = live, time.monotonic(), made
        return await asyncio.shield(known[2])

    def _begun(self, task: asyncio.Task[Live]) -> None:
        self._beginning = self._pending = None
        self.counted = b""
        if not task.cancelled():
            task.exception()  # whoever waits for it is told; nobody may be waiting any more

    async def _begin(self) -> Live:
        self._pending, self._gaps, self._counted_at = [], self._feed.gaps, time.monotonic()
        start = self._feed.last or await self._call(newest, self._engine)
        live: Live
        live, at = await self._call(loaded, self._engine, start, self._count)
        while True:  # up to what the store held when it was read
            changes, self._pending = self._pending, []
            await self._follow(live, changes)
            if live.change >= at and not self._pending:
                self._live, self._pending = live, None
                return live
            await asyncio.sleep(CATCH_UP_SECONDS)

    def _count(self, live: Live) -> None:
        """A picture that is being read; called on the thread that reads it."""
        if time.monotonic() - self._counted_at > COUNTED_SECONDS:
            live.now_ms = time_ms()
            self.counted, self._counted_at = written_so_far(live), time.monotonic()

    # -- following -----------------------------------------------------------------------------------------------------

    def taken(self, receipt: ReceiptRow, delay_ms: int) -> None:
        """A document was taken here: the feed will tell of it, and it need not be looked up."""
        if self._live is not None and len(self._taken) < TAKEN_MAX:
            check = receipt.check
            ready_ms = check.checked_ms + delay_ms
            self._taken[receipt.id] = Seen(
                receipt.number, check.priority, check.counter_thousandths, check.checked_ms, ready_ms, ready_ms, 0
            )

    async def told(self, changes: list[ChangeRow]) -> None:
        """What the feed tells."""
        live = self._live
        if self._pending is not None:
            self._pending += changes
        elif live is not None:
            try:
                await self._follow(live, changes)
            except FairlaneError:
                live.is_unsure = True
            if live.is_unsure or self._gaps != self._feed.gaps or time.monotonic() - self._used_at > KEPT_SECONDS:
                self._live = None
                self._taken.clear()
                self._histories.clear()
                gc.unfreeze()

    async def _follow(self, live: Live, changes: list[ChangeRow]) -> None:
        changes = [change for change in changes if change.number > live.change]  # the feed may still be behind
        read: dict[str, Seen] = {}
        unknown = []
        for id in live.needs(changes):
            taken = self._taken.pop(id, None)
            if taken is None:
                unknown.append(id)
            else:
                read[id] = taken
        if unknown:
            read |= await self._call(looked_up, self._engine, unknown)
        if any(change.what == "configured" for change in changes):
            live.rules = await self._call(self._engine.rules)
        live.follow(changes, read)


def _history(known: Mapping[int, Minute], now_ms: int, minutes: int, since_ms: int) -> bytes:
    return json.dumps(history(known, now_ms, minutes) | {"since": since_ms}, separators=(",", ":")).encode()


def looked_up(engine: Engine, ids: list[str]) -> dict[str, Seen]:
    """Documents by id; if they are many, those that came last are read a page at a time."""
    found: dict[str, Seen] = {}
    wanted = set(ids)
    if len(ids) > 20:
        newest_ones = engine.documents(None, None, None, PAGE)
        found = {one.id: seen(one) for one in newest_ones if one.id in wanted}
    for id in wanted - found.keys():
        document = engine.document(id)
        if document is not None:
            found[id] = seen(document)
    return found


# -- what a store holds ------------------------------------------------------------------------------------------------


Count = Callable[[Live], None]


def loaded(engine: Engine, until: int, count: Count = lambda live: None) -> tuple[Live, int]:
    """The picture at a change, as far back as is read, and the newest change that may be in it; on a thread.

    `count` is shown what was read so far, again and again."""
    with _uncollected():
        return _loaded(engine, until, count)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Millions of objects are made, none of them in a circle: to look for circles among them again and again takes longer than
    all the rest, and would hold up whoever is being answered."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


def _loaded(engine: Engine, until: int, count: Count) -> tuple[Live, int]:
    live = Live(engine.rules())
    now_ms = time_ms()
    start = min(until, max(first_since(engine, now_ms - PAST_MS), until - PAST_CHANGES_MAX))
    changes = _changes(engine, start)
    live.since_ms = changes[0].at_ms if changes else now_ms
    past = _documents(engine, live, count)
    _customers(engine, live)
    at = newest(engine)
    while changes:
        kept = [change for change in changes if change.number <= until]
        anew = [one.document for one in kept if one.what in ANEW and one.document is not None and one.document not in past]
        live.follow(kept, ChainMap(looked_up(engine, anew), past) if anew else past)
        if len(kept) < len(changes):
            break
        changes = _changes(engine, changes[-1].number)
    live.change = until
    live.is_unsure = False  # who was forgotten by now was not read
    return live, at


def _changes(engine: Engine, after: int) -> list[ChangeRow]:
    try:
        return engine.changes(after, PAGE)
    except Unknown:  # purged under our feet
        return engine.changes(None, PAGE)


def _documents(engine: Engine, live: Live, count: Count) -> dict[str, Seen]:
    """Everything that has not ended; returned is what has, as far back as figures go."""
    past: dict[str, Seen] = {}
    before: int | None = None
    while page := engine.documents(None, None, before, PAGE):
        before = page[-1].number
        for one in page:
            if one.state in ENDED:
                past[one.id] = seen(one)
            else:
                live.hold(one)
        count(live)
        if page[-1].submitted_ms < live.since_ms or len(past) > PAST_CHANGES_MAX:
            break
        _refuse_too_many(len(live.documents))
    for state in ("running", "ready", "delayed"):
        below = before
        while below is not None and (page := engine.documents(None, state, below, PAGE)):
            below = page[-1].number
            for one in page:
                live.hold(one)
            count(live)
            _refuse_too_many(len(live.documents))
    live.held()
    return past


def _customers(engine: Engine, live: Live) -> None:
    after = ""
    while page := engine.customers(after, PAGE):
        for one in page:
            row = live.row(one.id)
            row.standing = one.standing
            if one.terms_version:
                row.terms = one.terms
        after = page[-1].id
        _refuse_too_many(len(live.rows))


def _refuse_too_many(count: int) -> None:
    if count > FOLLOWED_MAX:
        raise Problem("overloaded", f"the live view follows at most {FOLLOWED_MAX:,} waiting documents and customers")
