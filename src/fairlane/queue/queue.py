"""What does a program use to submit documents and look after them? `Queue`; `AsyncQueue` has the same verbs awaited.

Values are checked before engines see them, and thousandths and milliseconds become the numbers people use.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import replace
from enum import Enum
from typing import Any, BinaryIO, Final, NamedTuple, get_args

from fairlane.blobs.envelope import File, result_of, results_told, unwrapped
from fairlane.core.document import BATCH_MAX, Change, Check, Customer, Document, Receipt, State, validate_text
from fairlane.core.errors import BadValue, Unknown, WrongState
from fairlane.core.policy import TIME_MAX_MS, Dispatch, Policy, Reset, Rules, Standing, Terms, to_milliseconds
from fairlane.engine import Engine, join_transaction, open_engine
from fairlane.engine.protocol import PROGRESS
from fairlane.settings import DEFAULT_URL

from .blob_lifecycle import GRACE_SECONDS, Filing, Swept, remove_of, sweep
from .explain import Explanation, customer_explained, explained
from .files import Input, checked_inputs, send_files
from .validation import (
    DEFAULT_KIND,
    PAGES,
    Common,
    Cost,
    cost_of,
    document_id,
    moment,
    new_ids,
    payload_text,
    unknown,
)

AT_ONCE = 1000  # documents that one step of a long job touches


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


class Queue:
    """A queue at a URL: `memory://`, `sqlite:///fairlane.db`, `postgresql://user@host/database` or `redis://localhost`."""

    def __init__(self, url: str = DEFAULT_URL, *, create: bool = True, blobs: str | None = None) -> None:
        self.url = url
        self.engine: Engine = open_engine(url, create)
        self.filing = Filing(self.engine, url, blobs)

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
        inside.engine = join_transaction(self.engine, transaction)
        return inside

    # -- submitting --------------------------------------------------------------------------------------------------

    def submit(
        self,
        customer: str,
        payload: Any = None,
        *,
        path: str | os.PathLike[str] | None = None,
        content: bytes | BinaryIO | None = None,
        name: str | None = None,
        kind: str = DEFAULT_KIND,
        key: str | None = None,
        cost: Cost = 1,
        delay: float = 0,
        made_from: str | None = None,
        now: float | None = None,
    ) -> Receipt:
        """Submit one document.

        With a path or content it has a file. A repeated `key` returns the first receipt, one made from another inherits its
        priority.
        """
        if path is not None or content is not None or name is not None:
            file = Input(path, content, name, payload, key)
            return self.submit_files(customer, [file], kind=kind, cost=cost, delay=delay, made_from=made_from, now=now)[0]
        common = Common.checked(customer, kind, cost, delay, made_from)
        (id,) = new_ids(1)
        submission = common.submission(id, payload_text(payload), key)
        return self.engine.submit([submission], now_ms=moment(now))[0]

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
        common = Common.checked(customer, kind, cost, delay, made_from)
        named = zip(new_ids(len(listed)), listed, listed_keys, strict=True)
        submissions = [common.submission(id, payload_text(payload), key) for id, payload, key in named]
        return self.engine.submit(submissions, now_ms=moment(now)) if submissions else []

    def submit_files(
        self,
        customer: str,
        files: Iterable[Input],
        *,
        kind: str = DEFAULT_KIND,
        cost: Cost = 1,
        delay: float = 0,
        made_from: str | None = None,
        now: float | None = None,
    ) -> list[Receipt]:
        """Submit many documents of one customer, each with a file: as many checks, one commit, all or none."""
        inputs, now_ms, is_by_pages = checked_inputs(files), moment(now), cost == PAGES
        common = Common.checked(customer, kind, 1 if is_by_pages else cost, delay, made_from)
        if not inputs:
            return []
        return send_files(self.engine, self.filing.files(), common, inputs, is_by_pages, now_ms)

    def check(self, customer: str, *, cost: float = 1, now: float | None = None) -> Check:
        """One check of a customer without a document, for use beside another queue."""
        return self.engine.check(validate_text("customer", customer), cost_of(cost), now_ms=moment(now))

    # -- looking -----------------------------------------------------------------------------------------------------

    def look(self, customer: str, *, now: float | None = None) -> Look:
        """Where a customer stands; moves nothing."""
        return _look(self.engine.customer(validate_text("customer", customer), now_ms=moment(now)))

    def customers(self, *, now: float | None = None) -> Iterator[Look]:
        """Where every customer stands, by id."""
        now_ms = moment(now)
        after = ""
        while page := self.engine.customers(after, AT_ONCE, now_ms=now_ms):
            yield from map(_look, page)
            after = page[-1].id

    def document(self, id: str) -> Document:
        """One document as it is now."""
        document = self.engine.document(document_id(id))
        if document is None:
            raise unknown(id)
        return document

    def documents(self, customer: str | None = None, state: State | None = None) -> Iterator[Document]:
        """Documents, newest first; of one customer, or in one state, or both."""
        if customer is not None:
            validate_text("customer", customer)
        if state is not None and state not in get_args(State):
            raise BadValue("state", state, "one of " + ", ".join(get_args(State)))
        before: int | None = None
        while page := self.engine.documents(customer, state, before, AT_ONCE):
            yield from page
            before = page[-1].number

    def payload(self, id: str) -> Any:
        """What was handed in, beside a file."""
        return self._handed_in(id)[1]

    def input(self, id: str) -> File:
        """What is known of the file that was handed in: name, size, SHA-256."""
        file, _ = self._handed_in(id)
        if file is None:
            raise Unknown(f"document {id} was submitted without a file; `payload` is all that was handed in")
        return file

    def file(self, id: str) -> BinaryIO:
        """The bytes that were handed in, checked by their hash, as a file to read; close it, or use it in a `with`."""
        file, customer = self.input(id), self.document(id).customer
        return self.filing.files().open_input(customer, id, file)

    def _handed_in(self, id: str) -> tuple[File | None, Any]:
        body = self.engine.body(document_id(id))
        if body is None:
            raise unknown(id)
        return unwrapped(json.loads(body.payload))

    def result(self, id: str) -> Any:
        """What came out of a document that is done."""
        document = self.document(id)
        if document.state != "done":
            why = f": {document.reason}" if document.reason else ""
            raise WrongState(f"document {id} has no result: it is {document.state}{why}; only a document that is done has one")
        body = self.engine.body(id)
        return None if body is None or body.result is None else json.loads(body.result)

    def text(self, id: str) -> str:
        """The text that came out of a document that is done."""
        return self._came_out(id, "text").decode()

    def facts(self, id: str) -> Any:
        """The facts that came out of a document that is done."""
        return json.loads(self._came_out(id, "facts"))

    def thumbnail(self, id: str) -> bytes:
        """The picture that came out of a document that is done."""
        return self._came_out(id, "thumbnail")

    def _came_out(self, id: str, name: str) -> bytes:
        written, document = result_of(self.result(id), name), self.document(id)
        if written is None:
            raise Unknown(f"no {name} came out of document {id}; `result` is all that there is")
        with self.filing.files().open_result(document.customer, id, document.token, name, written) as file:
            return file.read()

    def put_results(
        self,
        customer: str,
        id: str,
        token: int,
        *,
        text: str | bytes | BinaryIO | None = None,
        facts: Any = None,
        thumbnail: bytes | BinaryIO | None = None,
    ) -> dict[str, Any]:
        """For handlers: write what came out of a document under the token of its claim; add what this returns to the result."""
        files = self.filing.files()
        return results_told(files.put_results(customer, id, token, text=text, facts=facts, thumbnail=thumbnail))

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
        outlook = self.engine.outlook(document_id(id), now_ms=moment(now))
        return explained(self.document(id), self.engine.rules(), outlook)

    def explain_customer(self, customer: str, *, now: float | None = None) -> Explanation:
        """Where a customer stands, when that changes and what it has of its own; refused for one never seen."""
        known = self.engine.customer(validate_text("customer", customer), now_ms=moment(now))
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
        if self.engine.cancel([document_id(id)]):
            return True
        self.document(id)
        return False

    def retry(self, id: str) -> None:
        """Give a failed document another round of attempts; not a new document, so no check."""
        if not self.engine.retry(document_id(id)):
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
        validate_text("customer", customer)
        while True:  # again if somebody else tuned the customer meanwhile
            known = self.engine.customer(customer)
            terms = replace(known.terms, **changes)
            if terms == known.terms or self.engine.tune(customer, terms, known.terms_version) is not None:
                return terms

    def terms(self, customer: str) -> Terms:
        """What a customer has of its own."""
        return self.engine.customer(validate_text("customer", customer)).terms

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
        self.engine.reset(validate_text("customer", customer))

    def purge(self, older_than: float, *, now: float | None = None) -> int:
        """Forget documents that ended longer ago than that many seconds, and the feed up to then; returns how many."""
        age_ms, now_ms = to_milliseconds("older_than", older_than, 0, TIME_MAX_MS), moment(now)
        total = 0
        while any(gone := self.engine.purge(age_ms, AT_ONCE, now_ms=now_ms)):
            total += gone.documents
        files = self.filing.files_reached() if total else None
        if files is not None:
            sweep(self.engine, files, GRACE_SECONDS, None, None)
        return total

    def forget(self, customer: str) -> int:
        """Erase a customer: its documents in whatever state and their files, its counter, its terms, its lines of the feed."""
        validate_text("customer", customer)
        files = self.filing.files_held()
        ids = set() if files is None else {one.id for one in self.documents(customer)}
        total = 0
        while gone := self.engine.forget(customer, AT_ONCE):
            total += gone
        if files is not None:
            remove_of(self.engine, files, customer, ids)
        return total

    def sweep(self, *, grace: float = GRACE_SECONDS, seconds: float | None = None, after: str | None = None) -> Swept:
        """Remove files older than the grace period that no document owns; after so many seconds it stops, and tells where."""
        to_milliseconds("grace", grace, 0, TIME_MAX_MS)
        if seconds is not None:
            to_milliseconds("seconds", seconds, 0, TIME_MAX_MS)
        files = self.filing.files_held()
        return Swept(0, 0, 0, None) if files is None else sweep(self.engine, files, grace, seconds, after)


def _look(one: Customer) -> Look:
    oldest_wait = None if one.oldest_wait_ms is None else one.oldest_wait_ms / 1000
    return Look(
        one.id, one.counter, one.next_priority, one.waiting, one.running, one.done, one.failed, one.cancelled,
        one.resets_in_ms / 1000, oldest_wait, one.terms.paused,
    )  # fmt: skip
