"""What does a program use to submit documents and look after them? `Queue`, and `AsyncQueue` with the same verbs awaited.

This is where values are checked, so that engines may trust them, and where thousandths and milliseconds become the numbers
people use.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import replace
from enum import Enum
from functools import update_wrapper
from typing import Any, Concatenate, Final, NamedTuple, ParamSpec, TypeVar, get_args

from .core.document import (
    BATCH_MAX,
    JSON_BYTES_MAX,
    Change,
    Check,
    Customer,
    Document,
    Receipt,
    State,
    Submission,
    text,
)
from .core.errors import BadValue, Unknown, WrongState
from .core.policy import TIME_MAX_MS, Dispatch, Policy, Reset, Rules, Standing, Terms, milliseconds, thousandths
from .core.retry import DELAY_MAX_MS
from .engine import Engine, joined, open_engine
from .engine.protocol import PROGRESS
from .explain import Explanation, customer_explained, explained
from .settings import DEFAULT_URL

DEFAULT_KIND = "extract"
NESTING_MAX = 100
AT_ONCE = 1000  # documents that one step of a long job touches
PARTIAL_BYTES_MAX = 60 * 1024

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode

_VARIANT = dict(zip("0123456789abcdef", 4 * "89ab", strict=True))  # two bits of the digit are fixed

P = ParamSpec("P")
T = TypeVar("T")


class Keep(Enum):
    """The default of what is left as it is, where None already means something."""

    KEEP = "keep"


KEEP: Final = Keep.KEEP


class Progress(NamedTuple):
    """What the handler of a document told on its way."""

    attempt: int
    progress: float | str | None  # a share from 0 to 1, or a few words
    partial: Any  # the newest partial result


class Look(NamedTuple):
    """Where a customer stands now; looking moved nothing."""

    customer: str
    counter: int | float
    next_priority: int
    waiting: int
    running: int
    done: int
    failed: int
    cancelled: int
    resets_in: float  # seconds until a check would find the reset interval over
    oldest_wait: float | None  # seconds that its longest-ready document has waited
    paused: bool


def json_text(name: str, value: Any, bytes_max: int = JSON_BYTES_MAX) -> str:
    """A value as JSON text, refused if it is none, too large or too deep."""
    try:
        told = _encode(value)
        size = len(told) if told.isascii() else len(told.encode())
    except UnicodeEncodeError:  # a lone surrogate: escaped, so that it comes back exactly
        told = json.dumps(value, allow_nan=False, separators=(",", ":"))
        size = len(told)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadValue(name, value, f"JSON ({error})") from error
    if size > bytes_max:
        raise BadValue(
            name, f"{size:,} bytes of JSON", f"at most {bytes_max:,} bytes; put large content in a file and send its path"
        )
    if size > 2 * NESTING_MAX and told.count("[") + told.count("{") > NESTING_MAX and _depth(value) > NESTING_MAX:
        raise BadValue(name, value, f"JSON nested at most {NESTING_MAX} deep")
    return told


def _depth(value: Any) -> int:
    """How deep a value is nested, without recursion."""
    deepest, level = 0, [value]
    while level:
        level = [
            inner
            for one in level
            if isinstance(one, dict | list | tuple)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
        deepest += 1
    return deepest


def new_ids(count: int) -> list[str]:
    """UUIDs of version 7: random, and sorted by time so that the store writes neighbouring ids side by side."""
    stamp = f"{time.time_ns() // 1_000_000:012x}"
    start = f"{stamp[:8]}-{stamp[8:]}-7"
    random = os.urandom(10 * count).hex()
    return [
        f"{start}{random[at : at + 3]}-{_VARIANT[random[at + 3]]}{random[at + 4 : at + 7]}-{random[at + 8 : at + 20]}"
        for at in range(0, 20 * count, 20)
    ]


class Queue:
    """A queue at a URL: `memory://`, `sqlite:///fairlane.db`, `postgresql://user@host/database` or `redis://localhost`."""

    def __init__(self, url: str = DEFAULT_URL, *, create: bool = True) -> None:
        self.url = url
        self.engine: Engine = open_engine(url, create)

    def __enter__(self) -> Queue:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the store."""
        self.engine.close()

    def within(self, transaction: object) -> Queue:
        """The same queue inside a transaction that you have open on the same PostgreSQL database, a psycopg connection.

        A document exists exactly if what you wrote beside it does.
        """
        inside = copy(self)
        inside.engine = joined(self.engine, transaction)
        return inside

    # -- submitting --------------------------------------------------------------------------------------------------

    def submit(
        self,
        customer: str,
        payload: Any = None,
        *,
        kind: str = DEFAULT_KIND,
        key: str | None = None,
        cost: float = 1,
        delay: float = 0,
        made_from: str | None = None,
        now: float | None = None,
    ) -> Receipt:
        """Submit one document; a repeated `key` returns the first receipt, one made from another inherits its priority."""
        common = _Common.checked(customer, kind, cost, delay, made_from)
        (id,) = new_ids(1)
        submission = common.submission(id, payload, key)
        return self.engine.submit([submission], now_ms=_moment(now))[0]

    def submit_many(
        self,
        customer: str,
        payloads: Iterable[Any],
        *,
        kind: str = DEFAULT_KIND,
        keys: Iterable[str] | None = None,
        cost: float = 1,
        delay: float = 0,
        made_from: str | None = None,
        now: float | None = None,
    ) -> list[Receipt]:
        """Submit many documents of one customer: as many checks, one commit, all or none."""
        if isinstance(payloads, str | bytes | dict) or not isinstance(payloads, Iterable):
            raise BadValue("payloads", payloads, "a list of payloads")
        listed = list(payloads)
        listed_keys: list[str] | list[None] = [None] * len(listed) if keys is None else list(keys)
        if len(listed) > BATCH_MAX:
            raise BadValue("payloads", f"a list of {len(listed):,}", f"at most {BATCH_MAX:,} long; submit them in parts")
        if len(listed_keys) != len(listed):
            raise BadValue("keys", f"a list of {len(listed_keys):,}", f"as long as payloads, {len(listed):,}")
        common = _Common.checked(customer, kind, cost, delay, made_from)
        named = zip(new_ids(len(listed)), listed, listed_keys, strict=True)
        submissions = [common.submission(id, payload, key) for id, payload, key in named]
        return self.engine.submit(submissions, now_ms=_moment(now)) if submissions else []

    def check(self, customer: str, *, cost: float = 1, now: float | None = None) -> Check:
        """One check of a customer without a document, for use beside another queue."""
        return self.engine.check(text("customer", customer), _cost(cost), now_ms=_moment(now))

    # -- looking -----------------------------------------------------------------------------------------------------

    def look(self, customer: str, *, now: float | None = None) -> Look:
        """Where a customer stands; moves nothing."""
        return _look(self.engine.customer(text("customer", customer), now_ms=_moment(now)))

    def customers(self, *, now: float | None = None) -> Iterator[Look]:
        """Where every customer stands, by id."""
        now_ms = _moment(now)
        after = ""
        while page := self.engine.customers(after, AT_ONCE, now_ms=now_ms):
            yield from map(_look, page)
            after = page[-1].id

    def document(self, id: str) -> Document:
        """One document as it is now."""
        document = self.engine.document(_id(id))
        if document is None:
            raise _unknown(id)
        return document

    def documents(self, customer: str | None = None, state: State | None = None) -> Iterator[Document]:
        """Documents, newest first; of one customer, or in one state, or both."""
        if customer is not None:
            text("customer", customer)
        if state is not None and state not in get_args(State):
            raise BadValue("state", state, "one of " + ", ".join(get_args(State)))
        before: int | None = None
        while page := self.engine.documents(customer, state, before, AT_ONCE):
            yield from page
            before = page[-1].number

    def payload(self, id: str) -> Any:
        """What was handed in."""
        body = self.engine.body(_id(id))
        if body is None:
            raise _unknown(id)
        return json.loads(body.payload)

    def result(self, id: str) -> Any:
        """What came out of a document that is done."""
        document = self.document(id)
        if document.state != "done":
            why = f": {document.reason}" if document.reason else ""
            raise WrongState(f"document {id} has no result: it is {document.state}{why}; only a document that is done has one")
        body = self.engine.body(id)
        return None if body is None or body.result is None else json.loads(body.result)

    def progress(self, id: str) -> Progress | None:
        """What the handler of a document reported in its newest attempt, unless it is done; None if it told nothing."""
        token = self.document(id).token
        record = self.engine.record(PROGRESS, id)
        told = None if record is None else json.loads(record.value)
        if told is None or told["token"] != token:  # told by a worker that has lost the document since
            return None
        return Progress(told["attempt"], told["progress"], told["partial"])

    def explain(self, id: str, *, now: float | None = None) -> Explanation:
        """Why a document has its priority, about how much is ahead of it, and about when it will be served."""
        outlook = self.engine.outlook(_id(id), now_ms=_moment(now))
        return explained(self.document(id), self.engine.rules(), outlook)

    def explain_customer(self, customer: str, *, now: float | None = None) -> Explanation:
        """Where a customer stands, when that changes and what it has of its own; refused for one never seen."""
        known = self.engine.customer(text("customer", customer), now_ms=_moment(now))
        if known.standing == Standing() and known.terms_version == 0:
            raise Unknown(f"there is no customer {customer!r}; it never sent a document here, or it was forgotten")
        return customer_explained(known, self.engine.rules())

    def changes(self, after: int | None = None, limit: int = AT_ONCE) -> list[Change]:
        """What changed after a change number, oldest first; None: from the oldest kept."""
        if after is not None and not (type(after) is int and 0 <= after <= TIME_MAX_MS):
            raise BadValue("after", after, "the number of a change, 0 for all, or None for all that are kept")
        if type(limit) is not int or not 1 <= limit <= BATCH_MAX:
            raise BadValue("limit", limit, f"a whole number from 1 to {BATCH_MAX:,}")
        return self.engine.changes(after, limit)

    # -- changing ----------------------------------------------------------------------------------------------------

    def cancel(self, id: str) -> bool:
        """End a document that has not ended; False if it already has."""
        if self.engine.cancel([_id(id)]):
            return True
        self.document(id)
        return False

    def retry(self, id: str) -> None:
        """Give a failed document another round of attempts; not a new document, so no check."""
        if not self.engine.retry(_id(id)):
            raise WrongState(f"document {id} is {self.document(id).state}; only a failed one can be retried")

    def pause(self, customer: str) -> None:
        """Serve nothing of a customer until it is resumed; it may go on submitting."""
        self.tune(customer, paused=True)

    def resume(self, customer: str) -> None:
        """Serve a paused customer again."""
        self.tune(customer, paused=False)

    def tune(
        self,
        customer: str,
        *,
        weight: float | Keep = KEEP,
        cap: int | Keep | None = KEEP,
        paused: bool | Keep = KEEP,
        reset_interval: float | Keep | None = KEEP,
        thresholds: tuple[float, ...] | Keep | None = KEEP,
        reset: Reset | Keep | None = KEEP,
    ) -> Terms:
        """Give a customer its own weight, cap, pause or policy; what is not named stays, None is as everybody."""
        wanted: dict[str, Any] = {
            "weight": weight, "cap": cap, "paused": paused, "reset_interval": reset_interval, "thresholds": thresholds,
            "reset": reset,
        }  # fmt: skip
        changes = {name: value for name, value in wanted.items() if value is not KEEP}
        text("customer", customer)
        while True:  # again if somebody else tuned the customer meanwhile
            known = self.engine.customer(customer)
            terms = replace(known.terms, **changes)
            if terms == known.terms or self.engine.tune(customer, terms, known.terms_version) is not None:
                return terms

    def terms(self, customer: str) -> Terms:
        """What a customer has of its own."""
        return self.engine.customer(text("customer", customer)).terms

    def rules(self) -> Rules:
        """The policy, the dispatch and the open-turn share that hold for everybody, with their version."""
        return self.engine.rules()

    def configure(
        self,
        *,
        reset_interval: float | None = None,
        thresholds: tuple[float, ...] | None = None,
        reset: Reset | None = None,
        dispatch: Dispatch | None = None,
        open_turn_every: int | None = None,
    ) -> Rules:
        """Change the rules for everybody from the next check or claim; what is not named stays."""
        while True:  # again if somebody else changed them meanwhile
            known = self.engine.rules()
            told = known.policy
            policy = Policy(
                told.reset_interval if reset_interval is None else reset_interval,
                told.thresholds if thresholds is None else thresholds,
                told.reset if reset is None else reset,
            )
            every = known.open_turn_every if open_turn_every is None else open_turn_every
            wanted = Rules(policy, known.dispatch if dispatch is None else dispatch, every, known.version, known.frozen)
            if wanted == known:
                return known
            made = self.engine.configure(wanted)
            if made is not None:
                return made

    def reset(self, customer: str) -> None:
        """Set a customer back as if it had never been seen; its documents keep their priorities."""
        self.engine.reset(text("customer", customer))

    def purge(self, older_than: float, *, now: float | None = None) -> int:
        """Forget documents that ended longer ago than that many seconds, and the feed up to then; returns how many."""
        age_ms, now_ms = milliseconds("older_than", older_than, 0, TIME_MAX_MS), _moment(now)
        total = 0
        while any(gone := self.engine.purge(age_ms, AT_ONCE, now_ms=now_ms)):
            total += gone.documents
        return total

    def forget(self, customer: str) -> int:
        """Erase a customer: its documents in whatever state, its counter, its terms, its lines of the feed."""
        text("customer", customer)
        total = 0
        while gone := self.engine.forget(customer, AT_ONCE):
            total += gone
        return total


class _Common(NamedTuple):
    """What the documents of one call have in common, checked once."""

    customer: str
    kind: str
    cost: int
    delay_ms: int
    made_from: str | None

    @classmethod
    def checked(cls, customer: str, kind: str, cost: float, delay: float, made_from: str | None) -> _Common:
        delay_ms = milliseconds("delay", delay, 0, DELAY_MAX_MS)
        source = None if made_from is None else _id(made_from)
        return cls(text("customer", customer), text("kind", kind, 100), _cost(cost), delay_ms, source)

    def submission(self, id: str, payload: Any, key: str | None) -> Submission:
        told = json_text("payload", payload)
        digest = None
        if key is not None:
            text("key", key)
            canonical = json.dumps(json.loads(told), sort_keys=True, separators=(",", ":"))
            digest = hashlib.sha256(f"{self.kind}\n{canonical}".encode()).hexdigest()
        return Submission(id, self.customer, self.kind, told, self.cost, key, digest, self.delay_ms, self.made_from)


def _cost(cost: float) -> int:
    return thousandths("cost", cost, 0.001, 10_000)


def _moment(now: float | None) -> int | None:
    return None if now is None else milliseconds("now", now, 0, TIME_MAX_MS)


def _id(id: str) -> str:
    return text("document id", id)


def _unknown(id: str) -> Unknown:
    return Unknown(f"there is no document {id}; it was never submitted here, or it was purged")


def _look(one: Customer) -> Look:
    oldest_wait = None if one.oldest_wait_ms is None else one.oldest_wait_ms / 1000
    return Look(
        one.id, one.counter, one.next_priority, one.waiting, one.running, one.done, one.failed, one.cancelled,
        one.resets_in_ms / 1000, oldest_wait, one.terms.paused,
    )  # fmt: skip


def _customers(queue: Queue, *, now: float | None = None) -> list[Look]:
    """Where every customer stands, by id."""
    return list(queue.customers(now=now))


def _documents(queue: Queue, customer: str | None = None, state: State | None = None) -> list[Document]:
    """Documents, newest first; of one customer, or in one state, or both."""
    return list(queue.documents(customer, state))


def _awaited(verb: Callable[Concatenate[Queue, P], T]) -> Callable[Concatenate[AsyncQueue, P], Coroutine[Any, Any, T]]:
    """The same verb on a thread, awaited."""

    async def awaited(self: AsyncQueue, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._on_thread(lambda: verb(self.queue, *args, **kwargs))

    return update_wrapper(awaited, verb)


class AsyncQueue:
    """A queue whose verbs are awaited; they run on threads, so that submissions made at once share a commit."""

    def __init__(self, url: str = DEFAULT_URL, *, create: bool = True, threads: int = 16) -> None:
        self.queue = Queue(url, create=create)
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="fairlane")

    async def __aenter__(self) -> AsyncQueue:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _on_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    async def close(self) -> None:
        """Let go of the store."""
        await self._on_thread(self.queue.close)
        self._threads.shutdown()

    def within(self, transaction: object) -> AsyncQueue:
        """The same queue inside a transaction that you have open on its database: a psycopg connection, on PostgreSQL."""
        inside = copy(self)
        inside.queue = self.queue.within(transaction)
        return inside

    submit = _awaited(Queue.submit)
    submit_many = _awaited(Queue.submit_many)
    check = _awaited(Queue.check)
    look = _awaited(Queue.look)
    customers = _awaited(_customers)
    document = _awaited(Queue.document)
    documents = _awaited(_documents)
    payload = _awaited(Queue.payload)
    result = _awaited(Queue.result)
    progress = _awaited(Queue.progress)
    explain = _awaited(Queue.explain)
    explain_customer = _awaited(Queue.explain_customer)
    changes = _awaited(Queue.changes)
    cancel = _awaited(Queue.cancel)
    retry = _awaited(Queue.retry)
    pause = _awaited(Queue.pause)
    resume = _awaited(Queue.resume)
    tune = _awaited(Queue.tune)
    terms = _awaited(Queue.terms)
    rules = _awaited(Queue.rules)
    configure = _awaited(Queue.configure)
    reset = _awaited(Queue.reset)
    purge = _awaited(Queue.purge)
    forget = _awaited(Queue.forget)
