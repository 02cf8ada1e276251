"""What does a store promise? The verbs of an engine, a sentence each; the memory engine is the specification.

Laws for every engine:
- Every verb is atomic: it happens wholly or not at all, as if all verbs ran one after the other.
- Every change of state is one conditional write on (id, state, token).
- Only the store's clock decides. `now_ms` replaces it in tests and replays, and nowhere else.
- A submission is acknowledged after a durable commit, or `durability` says that the engine is not durable.
- Values are checked by those who make them (Queue, Worker); engines add, compare and remember.
- While the rules are frozen, verbs that begin or change something raise StoreFrozen. What runs may still end: `extend`,
  `settle` and `reclaim` go on, as do `configure`, which thaws, records, and looking.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from fairlane.core.document import (
    Change,
    Check,
    Claim,
    Customer,
    Document,
    Outcome,
    Outlook,
    Receipt,
    Record,
    State,
    Submission,
)
from fairlane.core.policy import Rules, Standing, Terms

DUE_MAX = 1000  # delayed documents that one claim makes ready, at most

PROGRESS = "progress"  # the group of records that belong to documents, by their id, and go with them

EXPIRED = "the worker stopped or died: its lease ran out on attempt {attempts} of {attempts_max}"
SPENT = "attempt {attempts} of {attempts_max} failed: {reason}"


class Body(NamedTuple):
    """What was handed in and what came out, as JSON text."""

    payload: str
    result: str | None


class Purged(NamedTuple):
    """How much one purge removed; call again until both are 0."""

    documents: int
    changes: int


class Finding(NamedTuple):
    """One thing that was looked at, and what to do about it."""

    name: str
    level: Literal["fine", "warning", "bad"]
    told: str
    advice: str | None = None  # what to do, unless it is fine


class PackedQueue(NamedTuple):
    """Where a queue's own counters stand."""

    rules: Rules
    clocks: tuple[int, ...]  # V of priorities 1 to 9
    dispatches: int
    last_number: int
    last_change: int
    last_record: int


class PackedCustomer(NamedTuple):
    """A customer, and how many of its documents have ended, those that were purged included."""

    id: str
    standing: Standing
    terms: Terms
    terms_version: int
    done: int
    failed: int
    cancelled: int


class PackedDocument(NamedTuple):
    """A document with everything that only the store knows of it."""

    snapshot: Document
    digest: str | None  # of its key
    weight: int  # at its check
    resets: int  # at its check
    payload: str
    result: str | None


class PackedLane(NamedTuple):
    """The tags of a lane."""

    customer: str
    kind: str
    priority: int
    start: int | None
    finish: int


class Packed(NamedTuple):
    """Some of what a queue holds, to be unpacked in another store in the order in which it was packed."""

    mark: str | None  # where to go on; None: that was all
    queue: PackedQueue | None = None
    customers: tuple[PackedCustomer, ...] = ()
    documents: tuple[PackedDocument, ...] = ()
    lanes: tuple[PackedLane, ...] = ()
    records: tuple[Record, ...] = ()


class Engine(Protocol):
    """The verbs. No engine has more or fewer."""

    @property
    def durability(self) -> str:
        """What an acknowledgement is worth, in one sentence."""

    def migrate(self) -> None:
        """Bring the store to this version's form; idempotent, and safe for many at once."""

    def close(self) -> None:
        """Let go of the store; a closed engine is not used again."""

    def examine(self) -> list[Finding]:
        """What the store is like: its version, what its acknowledgements are worth, its clock, missing indexes, room."""

    # -- documents ---------------------------------------------------------------------------------------------------

    def check(self, customer: str, cost: int, *, now_ms: int | None = None) -> Check:
        """One check of a customer without a document."""

    def submit(self, submissions: Sequence[Submission], *, now_ms: int | None = None) -> list[Receipt]:
        """All or none: for each, in order, check, priority and insert in one step; a known key returns its first
        receipt and moves nothing, or raises KeyConflict if its digest is another one. A document made from another
        one of its customer inherits what that one's check decided, and moves nothing either."""

    def claim(
        self,
        worker: str,
        limit: int,
        lease_ms: int,
        kinds: Mapping[str, int] | None = None,
        *,
        now_ms: int | None = None,
    ) -> list[Claim]:
        """Up to `limit` documents in dispatch order, each with a lease, a fresh token and one more attempt counted;
        `kinds` says which kinds are wanted and how many attempts each has (None: all, with the default).
        Delayed documents that are due become ready first, at most DUE_MAX of them."""

    def extend(self, claims: Sequence[Claim], lease_ms: int, *, now_ms: int | None = None) -> list[Claim]:
        """Longer leases, never shorter ones; returns the claims that were lost."""

    def settle(self, settlements: Sequence[tuple[Claim, Outcome]], *, now_ms: int | None = None) -> list[Claim]:
        """Each claim ends with its outcome; returns the claims that were lost, for which nothing was changed."""

    def reclaim(self, limit: int, *, now_ms: int | None = None) -> int:
        """Up to `limit` documents whose lease ran out go back to their lane, or fail if their attempts are spent;
        returns how many."""

    def cancel(self, ids: Sequence[str], *, now_ms: int | None = None) -> list[str]:
        """Documents that have not ended end as cancelled, running ones too; returns the ids that did."""

    def retry(self, id: str, *, now_ms: int | None = None) -> bool:
        """A failed document becomes ready with fresh attempts, without a check; False if it is not failed."""

    def purge(self, age_ms: int, limit: int, *, now_ms: int | None = None) -> Purged:
        """Forget changes that are at least that old, and then documents that ended as long ago; at most `limit` of each."""

    def wait(self, timeout_seconds: float, kinds: Sequence[str] | None = None) -> bool:
        """Return True as soon as a document may be ready, or False after the timeout."""

    # -- customers and rules -----------------------------------------------------------------------------------------

    def rules(self) -> Rules:
        """What holds for everybody."""

    def configure(self, rules: Rules, *, now_ms: int | None = None) -> Rules | None:
        """Replace the rules from the next check or claim, under the next version; None, and no change, if
        `rules.version` is not the current one."""

    def tune(self, customer: str, terms: Terms, version: int, *, now_ms: int | None = None) -> int | None:
        """Replace a customer's terms from the next check or claim; returns their new version, or None and no change
        if `version` is not the current one (0: no terms yet)."""

    def reset(self, customer: str, *, now_ms: int | None = None) -> None:
        """The customer stands as never seen; its documents are not touched."""

    def forget(self, customer: str, limit: int, *, now_ms: int | None = None) -> int:
        """Erase up to `limit` documents of a customer in whatever state; when none is left, everything else that names
        the customer. Returns how many documents went; call again until it is 0."""

    # -- looking: moves nothing --------------------------------------------------------------------------------------

    def customer(self, customer: str, *, now_ms: int | None = None) -> Customer:
        """One customer; one never seen looks like itself before its first check."""

    def customers(self, after: str, limit: int, *, now_ms: int | None = None) -> list[Customer]:
        """Customers by id, those after `after`."""

    def document(self, id: str) -> Document | None:
        """One document."""

    def documents(self, customer: str | None, state: State | None, before: int | None, limit: int) -> list[Document]:
        """Documents, newest first, those with a number below `before`."""

    def body(self, id: str) -> Body | None:
        """What was handed in and what came out."""

    def outlook(self, id: str, *, now_ms: int | None = None) -> Outlook | None:
        """What stands before a waiting document; None if it does not wait."""

    def changes(self, after: int | None, limit: int) -> list[Change]:
        """What changed after that number (None: from the oldest kept), in the order of commits, skipping none; raises
        Unknown if changes after that number were purged."""

    # -- records -----------------------------------------------------------------------------------------------------

    def records(self, group: str, after: str, limit: int) -> list[Record]:
        """The values of a group by key, those after `after`."""

    def record(self, group: str, key: str) -> Record | None:
        """One value."""

    def put_record(self, group: str, key: str, value: str | None, version: int | None = None) -> int | None:
        """Set a value (None: remove it); with `version` only if that is the current one (0: not there). Returns the new
        version (0: removed), or None and no change if `version` is not the current one."""

    # -- moving to another store -------------------------------------------------------------------------------------

    def pack(self, mark: str | None, limit: int) -> Packed:
        """Of a frozen queue in which nothing runs: up to `limit` rows from that mark on (None: from the beginning), in the
        order queue, customers, documents, lanes, records. The feed stays behind."""

    def unpack(self, packed: Packed) -> None:
        """Into a frozen queue: what was packed elsewhere; the same rows again change nothing."""
