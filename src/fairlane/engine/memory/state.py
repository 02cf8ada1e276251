"""What the memory engine keeps: customers, documents, lanes, the feed and records, in plain dictionaries."""

from __future__ import annotations

import time
from heapq import heappush

from fairlane.core.dispatch import Bucket, is_kind_blocked
from fairlane.core.document import ATTEMPTS_DEFAULT, CheckRow, DocumentRow, Hold, ReceiptRow, Record, State, Submission
from fairlane.core.lanes import Lanes
from fairlane.core.policy import LEVELS_MAX, KindLimit, Rules, Standing, Terms, weight_of
from fairlane.engine.limits import submission_bytes
from fairlane.engine.protocol import ATTEMPTS, PROGRESS, attempt_key


def system_clock_ms() -> int:
    """Return this machine's clock."""
    return time.time_ns() // 1_000_000


class CustomerState:
    """A customer: its counter, its terms, and how many documents it has in each state."""

    __slots__ = (
        "bytes", "cancelled", "documents", "done", "failed", "id", "running", "standing", "terms", "terms_version", "usual",
        "waiting",
    )  # fmt: skip

    def __init__(self, id: str) -> None:
        self.id = id
        self.standing = Standing()
        self.terms = Terms()
        self.terms_version = 0
        self.waiting = self.running = self.done = self.failed = self.cancelled = 0
        self.documents = self.bytes = 0  # that are kept
        self.usual: int | None = None  # what its attempts usually take, in thousandths of a millisecond

    def hold(self) -> Hold | None:
        """Return what keeps its lanes from competing."""
        if self.terms.paused:
            return "paused"
        return "cap" if self.terms.cap is not None and self.running >= self.terms.cap else None


class KindState:
    """A kind: its limit, and what counts towards it."""

    __slots__ = ("bucket", "limit", "running", "version")

    def __init__(self) -> None:
        self.limit = KindLimit()
        self.version = self.running = 0
        self.bucket = Bucket()


class DocumentState:
    """A document, its check, and its current or last claim."""

    __slots__ = (
        "attempts", "attempts_max", "bytes", "check", "claimed_ms", "cost", "customer", "digest", "ended_ms", "id",
        "is_set_by_hand", "key", "kind", "lease_ms", "no_better_than", "number", "paid", "parts", "parts_from", "parts_left",
        "payload", "priority", "ready_ms", "reason", "resets", "result", "retries", "root", "state", "submitted_ms", "token",
        "weight", "whole", "worker",
    )  # fmt: skip

    def __init__(self, number: int, submission: Submission, customer: CustomerState, check: CheckRow) -> None:
        self.number = number
        self.id = submission.id
        self.kind = submission.kind
        self.payload = submission.payload
        self.key = submission.key
        self.digest = submission.digest
        self.customer = customer
        self.check = check
        self.priority = check.priority
        self.no_better_than = submission.no_better_than
        self.is_set_by_hand = False
        self.resets = customer.standing.resets
        self.weight = weight_of(customer.terms)
        self.cost = submission.cost
        self.bytes = submission_bytes(submission)
        self.root: int | None = None
        self.retries = 0
        self.submitted_ms = check.checked_ms
        self.state: State = "delayed" if submission.delay_ms else "ready"
        self.ready_ms = check.checked_ms + submission.delay_ms
        self.attempts = self.token = 0
        self.attempts_max = ATTEMPTS_DEFAULT
        self.worker: str | None = None
        self.claimed_ms: int | None = None
        self.paid: int | None = None  # for the turn that took it, in milliseconds; None: it will not be trued up
        self.lease_ms: int | None = None
        self.ended_ms: int | None = None
        self.reason: str | None = None
        self.result: str | None = None
        self.whole: str | None = None  # the document that it is a part of
        self.parts_from = 0  # the number of its first part: they follow each other
        self.parts = self.parts_left = 0

    def receipt(self) -> ReceiptRow:
        return ReceiptRow(self.id, self.number, self.check)

    def snapshot(self) -> DocumentRow:
        return DocumentRow(
            self.id, self.number, self.customer.id, self.kind, self.state, self.check, self.cost, self.key,
            self.ready_ms, self.attempts, self.attempts_max, self.token, self.worker, self.lease_ms, self.ended_ms,
            self.reason, self.priority, self.no_better_than, self.is_set_by_hand, self.claimed_ms, self.bytes, self.retries,
            self.submitted_ms, self.whole, self.parts, self.parts_left,
        )  # fmt: skip


class Family:
    """How many documents have come out of one, and how many of all of them are left."""

    __slots__ = ("descendants", "kept")

    def __init__(self) -> None:
        self.descendants, self.kept = 0, 1


class QueueState:
    """Everything that a queue in memory holds."""

    def __init__(self) -> None:
        self.rules = Rules()
        self.lanes = Lanes(self.rules.dispatch, self.rules.open_turn_every)
        self.kinds: dict[str, KindState] = {}
        self.usual: int | None = None  # what attempts of everybody usually take
        self.taken = [0] * LEVELS_MAX  # documents that had waited, by priority
        self.busy_ms = self.ticked_ms = 0
        self.customers: dict[str, CustomerState] = {}
        self.documents: dict[int, DocumentState] = {}  # by submission number
        self.numbers: dict[str, int] = {}  # document id: number
        self.keys: dict[tuple[str, str], int] = {}  # (customer, idempotency key): number
        self.families: dict[int, Family] = {}  # by the number of the first document, which may be gone
        self.delayed: list[tuple[int, int]] = []  # heap of (ready at, number); entries may be stale
        self.leases: list[tuple[int, int]] = []  # heap of (lease end, number); entries may be stale
        self.last_number = 0
        self.changes: dict[int, tuple[int, str, str | None, int | None, int | None, str | None]] = {}
        self.last_change = 0
        self.changes_floor = 0
        self.records: dict[tuple[str, str], Record] = {}
        self.last_record = 0

    def customer(self, id: str) -> CustomerState:
        """Return a customer; create it if it was never seen."""
        return self.customers.get(id) or self.customers.setdefault(id, CustomerState(id))

    def document(self, id: str) -> DocumentState | None:
        return self.documents.get(self.numbers.get(id, 0))

    def parts_of(self, whole: DocumentState) -> list[DocumentState]:
        """Return the parts into which a document was split last, in order."""
        numbers = range(whole.parts_from, whole.parts_from + whole.parts)
        return [part for number in numbers if (part := self.documents.get(number)) and part.whole == whole.id]

    def enqueue(self, document: DocumentState) -> None:
        """Put a waiting document into its lane, or among the delayed ones."""
        if document.state == "delayed":
            heappush(self.delayed, (document.ready_ms, document.number))
        else:
            self.lanes.add(document.number, document.customer.id, document.kind, document.priority, document.ready_ms)

    def update_block(self, customer: CustomerState) -> None:
        """Block or unblock the customer's lanes, as its pause, its cap and its running documents demand."""
        if customer.hold() is None:
            self.lanes.unblock(customer.id)
        else:
            self.lanes.block(customer.id)

    def update_kind(self, name: str, now_ms: int) -> None:
        """Block or unblock the lanes of a kind, as its limit demands."""
        kind = self.kinds.get(name)
        if kind is None:
            return
        if is_kind_blocked(kind.limit, kind.running, kind.bucket, now_ms):
            self.lanes.block_kind(name)
        else:
            self.lanes.unblock_kind(name)

    def kind_hold(self, name: str, now_ms: int) -> Hold | None:
        """Return which limit keeps the lanes of a kind from competing."""
        kind = self.kinds.get(name)
        if kind is None or not is_kind_blocked(kind.limit, kind.running, kind.bucket, now_ms):
            return None
        return "kind rate" if now_ms < kind.bucket.next_start_ms(kind.limit) else "kind running"

    def stop_running(self, document: DocumentState, now_ms: int) -> None:
        """Count one running document less: its customer and its kind may compete again."""
        document.customer.running -= 1
        self.update_block(document.customer)
        if (kind := self.kinds.get(document.kind)) is not None:
            kind.running -= 1
            self.update_kind(document.kind, now_ms)

    def add(self, document: DocumentState) -> None:
        """Add a document, and count what it takes."""
        self.documents[document.number] = document
        self.numbers[document.id] = document.number
        if document.key is not None:
            self.keys[document.customer.id, document.key] = document.number
        document.customer.documents += 1
        document.customer.bytes += document.bytes

    def delete(self, document: DocumentState) -> None:
        """Delete a document with its idempotency key, its progress and the details of its attempts."""
        del self.documents[document.number], self.numbers[document.id]
        document.customer.documents -= 1
        document.customer.bytes -= document.bytes
        self._leave_family(document.number if document.root is None else document.root)
        self.records.pop((PROGRESS, document.id), None)
        for token in range(1, document.token + 1):
            self.records.pop((ATTEMPTS, attempt_key(document.id, token)), None)
        if document.key is not None:
            del self.keys[document.customer.id, document.key]

    def _leave_family(self, root: int) -> None:
        family = self.families.get(root)
        if family is not None:
            family.kept -= 1
            if family.kept == 0:
                del self.families[root]

    def write_record(self, group: str, key: str, value: str) -> int:
        """Set a record and return its new version."""
        self.last_record += 1
        self.records[group, key] = Record(group, key, value, self.last_record)
        return self.last_record

    def log(
        self,
        at_ms: int,
        what: str,
        customer: CustomerState | None = None,
        document: DocumentState | None = None,
        note: str | None = None,
    ) -> None:
        """Append a line to the feed."""
        self.last_change += 1
        self.changes[self.last_change] = (
            at_ms,
            what,
            customer.id if customer else None,
            document.number if document else None,
            document.token if document else None,
            note,
        )
