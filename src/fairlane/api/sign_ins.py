"""Sign-ins for the audit log: those of customers, and those that were refused.

Laws:
- A flood fills neither the store nor the memory: what is alike is counted, in one entry, and while it goes on entries are
  written ever less often. The first one is written at once.
- What was sent as a key is not kept; only its public part is, if it has one.
- What is written does not name a customer that was forgotten meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from fairlane.core.errors import StoreError
from fairlane.engine import Engine
from fairlane.queue.audit import Actor, forget_in_audit, note
from fairlane.queue.forget import is_forgotten

from .auth import GROUP as KEYS
from .auth import Caller, Key, public_part, time_ms

PAUSE_MIN_SECONDS, PAUSE_MAX_SECONDS = 1.0, 600.0  # between writes, while there is something to write
ENTRIES_MAX = 20  # that are written at once; the rest is counted in one more
ALIKE_MAX = 1000  # that are counted apart
PEOPLE = "people"  # the group of records, by the id of the person
FORGOTTEN = "forgotten"


class SignIn(NamedTuple):
    """What sign-ins have in common that are counted together."""

    actor: Actor
    customer: str | None
    refusal: str | None  # why it was refused; None: it was not


OTHERS = SignIn(Actor("key", ""), None, "several")


class SignIns:
    """Counts sign-ins, and writes them to the audit log in the background."""

    def __init__(
        self,
        engine: Engine,
        call: Callable[..., Awaitable[Any]],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._engine = engine
        self._call = call
        self._sleep = sleep
        self._counts: Counter[SignIn] = Counter()
        self._has_some = asyncio.Event()

    def accepted(self, caller: Caller, address: str) -> None:
        """Note that a customer has signed in."""
        self._count(SignIn(caller.actor(address), caller.customer, None))

    def refused(self, credential: str, key: Key | None, address: str) -> None:
        """Note that somebody tried with a key that is not valid; `key` is the one with its public part, if there is one."""
        if key is None:
            self._count(SignIn(Actor("key", public_part(credential), address=address), None, "unknown"))
        else:
            actor = key.caller.actor(address)
            self._count(SignIn(actor, key.customer, key.ended(time_ms()) or "wrong"))

    def refused_person(self, id: str, name: str, address: str, refusal: str) -> None:
        """Note that somebody could not sign in as themselves; without a provider's word, nobody knows who it was."""
        self._count(SignIn(Actor("person", id, name, "", address), None, refusal))

    def _count(self, sign_in: SignIn) -> None:
        is_known = sign_in in self._counts or len(self._counts) < ALIKE_MAX
        self._counts[sign_in if is_known else OTHERS] += 1
        self._has_some.set()

    async def run(self) -> None:
        """Write what was counted, for ever: at once after a quiet time, else ever less often."""
        pause = PAUSE_MIN_SECONDS
        while True:
            await self._has_some.wait()
            await self.flush()
            await self._sleep(pause)
            pause = min(2 * pause, PAUSE_MAX_SECONDS) if self._has_some.is_set() else PAUSE_MIN_SECONDS

    async def flush(self) -> None:
        """Write what was counted so far."""
        counts, self._counts = self._counts, Counter()
        self._has_some.clear()
        several = counts.pop(OTHERS, 0)
        listed = counts.most_common(ENTRIES_MAX)
        several += counts.total() - sum(count for _, count in listed)
        unwritten = Counter(dict(listed)) + Counter({OTHERS: several})
        try:
            for sign_in, count in list(unwritten.items()):
                await self._call(write_sign_in, self._engine, sign_in, count)
                del unwritten[sign_in]
        except StoreError:
            self._counts += unwritten
            self._has_some.set()
            raise


def write_sign_in(engine: Engine, sign_in: SignIn, count: int) -> None:
    """Write an entry for so many sign-ins that are alike."""
    actor, customer, refusal = sign_in
    action = "session.begin" if refusal is None else "session.refused"
    if _is_forgotten(engine, sign_in):
        actor, customer = Actor(actor.kind, FORGOTTEN, role=actor.role), FORGOTTEN
    note(engine, actor, action, customer=customer, after={"count": count}, error=refusal)
    if sign_in.customer is not None and _is_forgotten(engine, sign_in):  # since the first look
        forget_in_audit(engine, sign_in.customer)


def _is_forgotten(engine: Engine, sign_in: SignIn) -> bool:
    """Return whether the customer that somebody signed in for is gone, and its key, or the person, too."""
    if sign_in.customer is None or not is_forgotten(engine, sign_in.customer):
        return False
    return engine.record(KEYS if sign_in.actor.kind == "key" else PEOPLE, sign_in.actor.id) is None
