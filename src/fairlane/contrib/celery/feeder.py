"""The feeder: claims documents in their order, and hands each over to Celery's workers, through the broker, when one is free.

Laws:
- It claims no more than workers have free slots, and a few hundredths of a second of work more. What runs is counted by the
  store, so that several feeders count alike.
- While a message is at the broker the claim is renewed here, until a worker takes the document over.
- What nobody takes over within RECALL_SECONDS goes back to the queue, without its attempt being counted: the broker lost it, or
  the workers are busy with other tasks. Its message is stale then, and whoever gets it drops it.
- A broker that is away is waited for, and nothing is claimed meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import platform
import threading
import time
from collections.abc import Collection
from typing import Any, NamedTuple

from kombu.exceptions import KombuError

from fairlane.contrib.publish_check import logger
from fairlane.core.document import ChangeRow, Claim, Failed, Outcome, Released
from fairlane.core.errors import BadValue, FairlaneError, Mistake
from fairlane.encryption import load_keyring, open_store
from fairlane.engine import Engine
from fairlane.queue.workers import Fleet
from fairlane.worker.registration import LOOK_SECONDS, Registration

from .bridge import FEEDER, Bridge
from .brokers import Broker, broker_of
from .endings import Endings
from .finish_rate import FinishRate
from .message import next_message, queue_of

RECALL_SECONDS = 2.0
CLAIM_MAX = 200
WAIT_SECONDS = 0.25  # for the store's signal that a document may be ready
POLL_SECONDS, POLL_SECONDS_MAX = 0.005, 0.05  # between looks whether a slot is free
FLEET_SECONDS = 1.0  # between looks at the registry of workers
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.25, 5.0  # between tries while something is away


class Pool:
    """The workers that consume the same queues: their slots, and how fast they finish tasks."""

    def __init__(self, kinds: frozenset[str]) -> None:
        self.kinds = kinds
        self.slots = 0
        self.unfinished = 0  # documents in these kinds that are at the broker or run, as far as they are counted here
        self.paused_until = 0.0
        self._pause_seconds = PAUSE_SECONDS
        self._finish_rate = FinishRate()
        self._claimed = 0

    def note(self, unfinished: int, now: float) -> None:
        """Note how many documents are unfinished."""
        self._finish_rate.finished(max(0, self.unfinished + self._claimed - unfinished), now)
        self._claimed, self.unfinished = 0, unfinished

    def room(self, now: float) -> int:
        """Return how many documents may be handed over now."""
        room = self.slots + self._finish_rate.ahead() - self.unfinished - self._claimed
        return 0 if now < self.paused_until else max(0, min(CLAIM_MAX, room))

    def claimed(self, count: int) -> None:
        self._claimed += count

    def took_over(self) -> None:
        self._pause_seconds = PAUSE_SECONDS

    def recalled(self, now: float) -> None:
        """Pause, longer each time until something is taken over again."""
        self.paused_until = now + self._pause_seconds
        self._pause_seconds = min(PAUSE_SECONDS_MAX, 2 * self._pause_seconds)

    def poll_seconds(self) -> float:
        """Return how long to wait for a slot: a part of the time until the next task ends."""
        return min(POLL_SECONDS_MAX, max(POLL_SECONDS, 0.25 / max(self._finish_rate.rate, 1e-3)))


class _AtBroker(NamedTuple):
    claim: Claim
    since: float
    pool: Pool


class Feeder:
    """Feeds the workers of one app; several may run."""

    def __init__(self, app: Any, bridge: Bridge) -> None:
        self._app = app
        self._bridge = bridge
        self.name = f"{FEEDER}{platform.node()[:100] or 'host'}-{os.getpid()}"
        self._stop = threading.Event()
        self._pools: dict[frozenset[str], Pool] = {}
        self._at_broker: dict[str, _AtBroker] = {}
        self._producer: Any = None
        self._broker: Broker | None = None
        self._declared: set[str] = set()  # queues, on this connection
        self._fleet_at = self._beat_at = 0.0
        self._renew_at = 0.0
        self._fruitless = 0
        self._away: str | None = None

    def stop(self) -> None:
        """Give back what nobody has taken over, and end; from any thread or signal handler."""
        self._stop.set()

    def run(self) -> None:
        """Feed until stopped."""
        engine = open_store(self._bridge.url, keyring=load_keyring())
        try:
            registration = Registration(engine, self.name, {}, 0)
            endings = Endings(self._app, engine)
            pause = PAUSE_SECONDS
            while not self._stop.is_set():
                try:
                    self._connect()
                    self._cycle(engine, registration, endings)
                except FairlaneError as error:
                    self._note_away(f"the store: {error}")
                except self._broker_errors as error:
                    self._disconnect()
                    self._note_away(f"the broker: {error}")
                else:
                    self._note_back()
                    pause = PAUSE_SECONDS
                    continue
                self._stop.wait(pause)
                pause = min(PAUSE_SECONDS_MAX, 2 * pause)
            with contextlib.suppress(FairlaneError):
                self._release(engine, list(self._at_broker))
                endings.save()
                registration.remove()
        finally:
            self._disconnect()
            engine.close()

    def _cycle(self, engine: Engine, registration: Registration, endings: Endings) -> None:
        now = time.monotonic()
        if now >= self._fleet_at:
            self._read_fleet(engine)
            self._fleet_at = now + FLEET_SECONDS
        if now >= self._beat_at:
            registration.beat("working", {})
            self._beat_at = now + LOOK_SECONDS
        for change in endings.follow():
            self._note_change(change)
        self._renew(engine, now)
        self._recall(engine, now)
        self._count(engine, now)
        wanting = [pool for pool in self._pools.values() if pool.room(now)]
        short = [pool for pool in wanting if self._feed(engine, pool, pool.room(now))]
        if not short:
            if self._pools:
                self._stop.wait(min(pool.poll_seconds() for pool in self._pools.values()))
            else:
                self._stop.wait(WAIT_SECONDS)
            return
        self._wait(engine, short)

    # -- what there is room for ----------------------------------------------------------------------------------------

    def _read_fleet(self, engine: Engine) -> None:
        slots: dict[frozenset[str], int] = {}
        for record in Fleet(engine).working:
            kinds = frozenset(kind for kind in record.kinds or () if queue_of(kind) is not None)
            if kinds:
                slots[kinds] = slots.get(kinds, 0) + record.slots
        for kinds in slots.keys() - self._pools.keys():
            self._pools[kinds] = Pool(kinds)
        for kinds in self._pools.keys() - slots.keys():
            del self._pools[kinds]
        for kinds, count in slots.items():
            self._pools[kinds].slots = count

    def _count(self, engine: Engine, now: float) -> None:
        """Share out what is unfinished among the pools that may have it: those with the fewest queues first."""
        pools = sorted(self._pools.values(), key=lambda pool: len(pool.kinds))
        unfinished = dict.fromkeys(pools, 0)
        kinds = {kind for pool in pools for kind in pool.kinds}
        for kind in sorted(kinds, key=lambda kind: sum(kind in pool.kinds for pool in pools)):
            running = engine.kind(kind).running
            takers = [pool for pool in pools if kind in pool.kinds]
            for pool in takers:
                taken = min(running, max(0, pool.slots - unfinished[pool]))
                unfinished[pool] += taken
                running -= taken
            unfinished[takers[-1]] += running
        for pool, count in unfinished.items():
            pool.note(count, now)

    # -- handing over --------------------------------------------------------------------------------------------------

    def _feed(self, engine: Engine, pool: Pool, room: int) -> bool:
        """Claim for a pool, and hand over; return whether there was less than it has room for."""
        kinds = dict.fromkeys(sorted(pool.kinds), self._bridge.attempts)
        claims = engine.claim(self.name, room, self._bridge.lease_ms, kinds)
        now = time.monotonic()
        pool.claimed(len(claims))
        self._fruitless = 0 if claims else self._fruitless + 1
        self._at_broker |= {claim.id: _AtBroker(claim, now, pool) for claim in claims}
        refused: list[tuple[Claim, Outcome]] = []
        for number, claim in enumerate(claims):
            try:
                self._publish(engine, claim)
            except BadValue as error:
                del self._at_broker[claim.id]
                refused.append((claim, Failed(str(error))))
            except self._broker_errors:
                self._release(engine, [each.id for each in claims[number:]])
                raise
        if refused:
            engine.settle(refused)
        return len(claims) < room

    def _publish(self, engine: Engine, claim: Claim) -> None:
        message = next_message(engine, claim)
        if message.queue not in self._declared:
            self._producer.maybe_declare(self._app.amqp.queues[message.queue])
            self._declared.add(message.queue)
        message.publish(self._producer, claim, self._broker)

    def _wait(self, engine: Engine, pools: Collection[Pool]) -> None:
        """Wait until there may be a document for these pools."""
        if self._fruitless > 1:  # it may be held back by a cap, or another feeder was faster
            self._stop.wait(min(POLL_SECONDS_MAX, 0.001 * 2 ** min(self._fruitless, 10)))
        is_all = len(pools) == len(self._pools)
        kinds = sorted({kind for pool in pools for kind in pool.kinds})
        engine.wait(WAIT_SECONDS if is_all and not self._stop.is_set() else POLL_SECONDS, kinds)

    # -- what is at the broker -----------------------------------------------------------------------------------------

    def _note_change(self, change: ChangeRow) -> None:
        if change.what == "taken_over" and change.document is not None:
            taken = self._at_broker.get(change.document)
            if taken is not None and change.token is not None and change.token > taken.claim.token:
                del self._at_broker[change.document]
                taken.pool.took_over()

    def _renew(self, engine: Engine, now: float) -> None:
        if now >= self._renew_at and self._at_broker:
            for claim in engine.extend([each.claim for each in self._at_broker.values()], self._bridge.lease_ms):
                del self._at_broker[claim.id]
        if now >= self._renew_at:
            engine.reclaim(CLAIM_MAX)
            self._renew_at = now + min(RECALL_SECONDS, self._bridge.lease_ms / 4000)

    def _recall(self, engine: Engine, now: float) -> None:
        late = [each for each in self._at_broker.values() if now - each.since > RECALL_SECONDS]
        if late:
            for pool in {each.pool for each in late}:
                pool.recalled(now)
            self._release(engine, [each.claim.id for each in late])

    def _release(self, engine: Engine, ids: list[str]) -> None:
        claims = [self._at_broker[id].claim for id in ids if id in self._at_broker]
        if claims:
            engine.settle([(claim, Released()) for claim in claims])
        for id in ids:
            self._at_broker.pop(id, None)

    # -- the broker ----------------------------------------------------------------------------------------------------

    @property
    def _broker_errors(self) -> tuple[type[BaseException], ...]:
        return (KombuError, OSError) if self._producer is None else (*self._producer.connection.recoverable_connection_errors,
            *self._producer.connection.recoverable_channel_errors, KombuError, OSError)  # fmt: skip

    def _connect(self) -> None:
        if self._producer is None:
            # Without confirmations, which cost a round trip each: what the broker loses is handed over again.
            connection = self._app.connection_for_write(transport_options={"confirm_publish": False})
            connection.ensure_connection(max_retries=1, timeout=PAUSE_SECONDS_MAX)
            with contextlib.suppress(Mistake):  # another broker: it gets no priorities, and needs none
                self._broker = broker_of(connection)
            self._producer, self._declared = self._app.amqp.Producer(connection, auto_declare=False), set()

    def _disconnect(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            with contextlib.suppress(Exception):
                producer.connection.collect()

    def _note_away(self, what: str) -> None:
        if self._away is None:
            self._away = what
            logger.warning("nothing is fed until it is back: %s", what)

    def _note_back(self) -> None:
        if self._away is not None:
            self._away = None
            logger.warning("workers are fed again")
