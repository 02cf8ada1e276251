"""The engine contract: the verbs that every store implements, a sentence each; the memory engine is their specification.

Laws for every engine:
- Every verb is atomic: it happens wholly or not at all, as if all verbs ran one after the other.
- Every change of state is one conditional write on (id, state, token).
- Only the store's clock decides. `now_ms` replaces it in tests and replays, and nowhere else.
- A submission is acknowledged after a durable commit, or `durability` says that the engine is not durable.
- Queue and Worker validate values before they reach an engine; an engine adds, compares and remembers.
- While the rules are frozen, verbs that begin or change something raise StoreFrozen. What runs may still end: `extend`,
  `take_over`, `settle` and `reclaim` go on, as do `configure`, which thaws, `put_record`, `rewrite`, and every verb of
  `Reader` and `Transfer`.
- Opening an engine brings its store to this version's schema; idempotent, safe for many processes at once, and while others
  use it. A store whose schema is too new for this program is refused with StoreUnfit, when it is opened and by every verb.
- An engine implements all four groups. That is more than 25 members in one class, and on purpose: callers hold one object,
  no verb can be said by another one, and the work of each verb is a function in the engine's module of that name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from fairlane.core.dispatch import Bucket, KindSet
from fairlane.core.document import (
    ChangeRow,
    CheckRow,
    Claim,
    Customer,
    DocumentRow,
    Outcome,
    Outlook,
    PartRow,
    ReceiptRow,
    Record,
    State,
    Submission,
    Totals,
)
from fairlane.core.policy import KindLimit, Rules, Standing, Terms

RECORD_BYTES_MAX = 64 * 1024
DUE_MAX = 1000  # delayed documents that one claim makes ready, at most
SCAN_MAX = 5000  # documents that are examined for one page, at most

# Groups of records that belong to documents, and are deleted with them.
PROGRESS = "progress"  # by document id
ATTEMPTS = "attempts"  # details of failed attempts, by `attempt_key`
ATTEMPTS_KEPT = 10  # of a document: those of its last tokens

EXPIRED = "the worker stopped or died: its lease ran out on attempt {attempts} of {attempts_max}"
PART_FAILED = "its part {id} failed: {reason}"
SPENT = "attempt {attempts} of {attempts_max} failed: {reason}"


def attempt_key(id: str, token: int) -> str:
    """Return the key of an attempt's details; those of one document follow each other, oldest first."""
    return f"{id}:{token:016d}"


class DocumentBody(NamedTuple):
    """A document's payload and result, as JSON text."""

    payload: str
    result: str | None


class DocumentFilter(NamedTuple):
    """Which documents to read: those for which everything holds that is not None."""

    customer: str | None = None
    state: State | None = None
    kind: str | None = None
    reason: str | None = None  # a part of the reason; only failed documents have one
    since_ms: int | None = None  # submitted then or later
    until_ms: int | None = None  # submitted earlier

    def matches(self, document: DocumentRow) -> bool:
        return (
            self.customer in (None, document.customer)
            and self.state in (None, document.state)
            and self.kind in (None, document.kind)
            and (self.reason is None or self.reason in (document.reason or ""))
            and (self.since_ms is None or document.submitted_ms >= self.since_ms)
            and (self.until_ms is None or document.submitted_ms < self.until_ms)
        )


class DocumentPage(NamedTuple):
    """A page of documents, newest first; it may be short, or empty, although there are more."""

    documents: list[DocumentRow]
    next: int | None  # read on below this number; None: there are no more


class Removed(NamedTuple):
    """A document that was purged or forgotten: what the caller needs to remove its files."""

    id: str
    customer: str
    token: int  # its newest; those before it were 1, 2, …


TextPart = Literal["payload", "result", "reason", "digest", "note"]


class Rewrite(NamedTuple):
    """A stored text to be replaced: of the document with that number, or, if it is a note, of that line of the feed."""

    number: int
    before: str
    after: str


class ReadyKind(NamedTuple):
    """A kind of which documents compete for a worker."""

    kind: str
    oldest_ready_ms: int  # when its longest-ready head became ready


class Purged(NamedTuple):
    """What one purge removed; call again until there is nothing in it."""

    documents: list[Removed]
    changes: int


class Finding(NamedTuple):
    """One result of a diagnosis, and what to do about it."""

    name: str
    level: Literal["fine", "warning", "bad"]
    message: str
    advice: str | None = None  # what to do, unless it is fine


class KindRow(NamedTuple):
    """A kind and its limit."""

    kind: str
    limit: KindLimit
    version: int  # of its limit; 0: it never had one
    running: int
    next_start_ms: int  # from when on its rate allows another start


class Reprioritized(NamedTuple):
    """One step through a customer's waiting documents."""

    changed: int  # so many have another priority now
    next: int | None  # go on after this number; None: there are no more


class PackedKind(NamedTuple):
    """A kind that has a limit or a clock that moved: its limit, its bucket, and its clocks of priorities 1 to 9."""

    kind: str
    limit: KindLimit
    version: int
    bucket: Bucket
    clocks: tuple[int, ...]


class PackedQueue(NamedTuple):
    """The queue's rules, clocks and counters."""

    rules: Rules
    clocks: tuple[int, ...]  # of priorities 1 to 9
    dispatches: tuple[tuple[KindSet, int], ...]  # by set of kinds, in order, all kinds first
    usual: int | None  # what attempts of everybody usually take
    totals: Totals
    ticked_ms: int  # until then the busy time is counted
    last_number: int
    last_change: int
    last_record: int


class PackedCustomer(NamedTuple):
    """A customer, and how many of its documents have ended, purged ones included."""

    id: str
    standing: Standing
    terms: Terms
    terms_version: int
    done: int
    failed: int
    cancelled: int
    usual: int | None


class PackedDocument(NamedTuple):
    """A document with everything the store keeps of it."""

    snapshot: DocumentRow
    digest: str | None  # of its idempotency key
    weight: int  # at its check
    resets: int  # at its check
    payload: str
    result: str | None
    root: int | None  # the first document of its family, if that is another one ...
    descendants: int  # ... and how many have come out of that one, purged ones included
    parts_from: int = 0  # the number of its first part


class PackedLane(NamedTuple):
    """The tags of a lane, as they are if its kind is at no limit. Without a start tag its cross tag is 0; finish tags neither
    of which is above its clock are 0."""

    customer: str
    kind: str
    priority: int
    start: int | None
    cross: int
    finish: int
    cross_finish: int


class Packed(NamedTuple):
    """One page of a queue, to be unpacked in another store in the order in which the pages were packed."""

    cursor: str | None  # where the next page begins; None: this was the last
    queue: PackedQueue | None = None
    kinds: tuple[PackedKind, ...] = ()
    customers: tuple[PackedCustomer, ...] = ()
    documents: tuple[PackedDocument, ...] = ()
    lanes: tuple[PackedLane, ...] = ()
    records: tuple[Record, ...] = ()


class Store(Protocol):
    """Documents from submission to settlement."""

    def check(self, customer: str, cost: int, *, now_ms: int | None = None) -> CheckRow:
        """Check a customer without submitting a document."""

    def submit(self, submissions: Sequence[Submission], *, now_ms: int | None = None) -> list[ReceiptRow]:
        """Submit all or none: for each, in order, check, priority and insert in one step. A known key returns its first
        receipt and moves nothing, or raises KeyConflict if the digest differs. A document made from another document of its
        customer inherits the check of that one, and moves nothing either. Raises LimitReached if a customer, or a family of
        documents, would have more than its limits allow."""

    def claim(
        self,
        worker: str,
        limit: int,
        lease_ms: int,
        kinds: Mapping[str, int] | None = None,
        *,
        now_ms: int | None = None,
    ) -> list[Claim]:
        """Claim up to `limit` documents in dispatch order, each with a lease, a new token and one more attempt counted.
        `kinds` maps the kinds to claim to their maximum attempts (None: all kinds, the default attempts). Delayed documents
        that are due become ready first, at most DUE_MAX of them."""

    def extend(self, claims: Sequence[Claim], lease_ms: int, *, now_ms: int | None = None) -> list[Claim]:
        """Extend leases, never shorten them; return the claims that were lost."""

    def take_over(
        self, handed: Sequence[tuple[str, int]], worker: str, lease_ms: int, *, now_ms: int | None = None
    ) -> list[Claim | None]:
        """Take running claims, each an id and a token, over from the worker that has them, in order: each gets a new token,
        this worker, and a lease that may be shorter or longer; all else stays, when it was claimed and what it paid too.
        Return for each the claim, or None, and change nothing of it, if the claim with that token was lost."""

    def settle(self, settlements: Sequence[tuple[Claim, Outcome]], *, now_ms: int | None = None) -> list[Claim]:
        """End each claim with its outcome, and keep the outcome's details; return the claims that were lost, for which
        nothing was changed. A document that goes on as another kind joins the lane of that kind; one that is split is delayed
        until its last part is done, and ends with the first part that fails or is cancelled, as all its parts do."""

    def reclaim(self, limit: int, *, now_ms: int | None = None) -> int:
        """Return up to `limit` documents with an expired lease to their lane, or fail them if their attempts are spent;
        return how many."""

    def cancel(self, ids: Sequence[str], *, now_ms: int | None = None) -> list[str]:
        """Cancel documents that have not ended, running ones too, and the parts of these; return the ids of those that were
        named. With a part its whole is cancelled."""

    def retry(self, id: str, *, as_customer: bool = False, now_ms: int | None = None) -> bool:
        """Make a failed document ready with fresh attempts; return False if it is not failed, or a part: the whole is retried,
        and with it the parts that are not done. An operator's retry keeps its
        priority. Its customer's is a check as of a new document: the counter moves, and the document joins the lane of its
        new priority by its number. Raises LimitReached if the customer has too many waiting, or retried it too often."""

    def wait(self, timeout_seconds: float, kinds: Sequence[str] | None = None) -> bool:
        """Return True as soon as a document may be ready, or False after the timeout."""


class Reader(Protocol):
    """Reading: no verb here changes anything."""

    def now(self) -> int:
        """Return the store's clock, in milliseconds since the epoch."""

    def rules(self) -> Rules:
        """Return the rules that hold for every customer."""

    def customer(self, customer: str, *, now_ms: int | None = None) -> Customer:
        """Return one customer; one never seen is returned as it would be before its first check."""

    def customers(self, after: str, limit: int, *, now_ms: int | None = None) -> list[Customer]:
        """Return customers ordered by id, those with an id above `after`."""

    def document(self, id: str) -> DocumentRow | None:
        """Return one document."""

    def documents(self, filter: DocumentFilter, before: int | None, limit: int, scan_max: int = SCAN_MAX) -> DocumentPage:
        """Return documents that match, newest first, those with a number below `before`: up to `limit`, found among at most
        `scan_max` of them, so that a filter which matches little costs no more than one which matches everything."""

    def body(self, id: str) -> DocumentBody | None:
        """Return a document's payload and result."""

    def parts(self, id: str) -> list[PartRow]:
        """Return the parts into which a document was split last, in order."""

    def outlook(self, id: str, *, now_ms: int | None = None) -> Outlook | None:
        """Return how many documents are ahead of a waiting one and how fast they are taken; None if it does not wait."""

    def totals(self) -> Totals:
        """Return the counts from which rates are made."""

    def kind(self, kind: str) -> KindRow:
        """Return a kind; one without a limit is returned as such."""

    def kinds(self, after: str, limit: int) -> list[KindRow]:
        """Return the kinds that have, or had, a limit, ordered, those above `after`."""

    def ready_kinds(self, after: str, limit: int) -> list[ReadyKind]:
        """Return the kinds of which a head competes for a worker now, ordered, those above `after`."""

    def changes(self, after: int | None, limit: int) -> list[ChangeRow]:
        """Return the feed after that number (None: from the oldest kept), in the order of commits, skipping none; raise
        Unknown if changes after that number were purged."""

    def record(self, group: str, key: str) -> Record | None:
        """Return one record."""

    def records(self, group: str, after: str, limit: int) -> list[Record]:
        """Return the records of a group ordered by key, those with a key above `after`."""


class Admin(Protocol):
    """What operators and the program that opened the store do with it."""

    @property
    def durability(self) -> str:
        """Say in one sentence what an acknowledgement is worth."""

    @property
    def schema(self) -> int:
        """Return the version of the schema to which this program brings a store."""

    def store_schema(self) -> int:
        """Return the version of the schema that the store has: a newer one, if a newer program that lets this one go on has
        migrated it."""

    def close(self) -> None:
        """Close the store's connections; a closed engine is not used again."""

    def diagnose(self) -> list[Finding]:
        """Report version, durability, clock, indexes and free space of the store."""

    def configure(self, rules: Rules, *, now_ms: int | None = None) -> Rules | None:
        """Replace the rules from the next check or claim, under the next version; return None and change nothing if
        `rules.version` is not the current one."""

    def tune(self, customer: str, terms: Terms, version: int, *, now_ms: int | None = None) -> int | None:
        """Replace a customer's terms from the next check or claim and return their new version; return None and change
        nothing if `version` is not the current one (0: no terms yet)."""

    def limit_kind(self, kind: str, limit: KindLimit, version: int, *, now_ms: int | None = None) -> int | None:
        """Replace a kind's limit from the next claim, with a full bucket, and return its new version; return None and change
        nothing if `version` is not the current one (0: it never had one)."""

    def reset(self, customer: str, *, now_ms: int | None = None) -> None:
        """Set a customer's counter back as if it had never been seen; its documents are not touched."""

    def prioritize(self, ids: Sequence[str], priority: int, by: str, *, now_ms: int | None = None) -> list[str]:
        """Set the priority of waiting documents by hand, until it is set again: each joins the lane of that priority by its
        number, without a check; `by` is who did it. Return the ids of those that wait."""

    def reprioritize(self, customer: str, after: int, limit: int, *, recheck: bool, now_ms: int | None = None) -> Reprioritized:
        """Give up to `limit` waiting documents of a customer the priority that they would have now, in the order of their
        numbers, those above `after`: read again from the counter that their check recorded or, with `recheck`, by another
        check, as if they came now. Those set by hand keep theirs. One made from another document is not checked."""

    def put_record(self, group: str, key: str, value: str | None, version: int | None = None) -> int | None:
        """Set a record (None: delete it), with `version` only if that is the current one (0: no such record). Return the new
        version (0: deleted), or None and change nothing if `version` is not the current one."""

    def rewrite(self, part: TextPart, texts: Sequence[Rewrite]) -> int:
        """Replace texts by others that say the same in another form, each only if it is still what it was; return how many. No
        number is named twice."""

    def purge(self, age_ms: int, limit: int, *, now_ms: int | None = None) -> Purged:
        """Delete changes that are at least that old, then documents that ended as long ago, oldest first; at most `limit` of
        each. Parts are kept as long as their whole is. Files are the caller's to remove, after this returns."""

    def forget(self, customer: str, limit: int, *, now_ms: int | None = None) -> list[Removed]:
        """Erase up to `limit` documents of a customer in any state, oldest first; when none is left, everything else that
        names the customer. Return the documents that were erased; call again until there are none."""


class Transfer(Protocol):
    """Moving a queue to another store, page by page."""

    def pack(self, cursor: str | None, limit: int) -> Packed:
        """Pack up to `limit` rows from that cursor on (None: from the beginning), in the order queue, kinds, customers,
        documents, lanes, records; to be moved, of a frozen queue in which nothing runs. The feed is not moved."""

    def unpack(self, packed: Packed) -> None:
        """Write a page that was packed elsewhere into a frozen queue; the same rows again change nothing."""


class Engine(Store, Reader, Admin, Transfer, Protocol):
    """A store that holds a queue: all verbs, none optional."""
