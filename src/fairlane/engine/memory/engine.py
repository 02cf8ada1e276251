"""The memory engine: everything in this process, nothing on disk. What it does is what every engine must do.

Read it beside protocol.py. One lock makes every verb atomic; the work of each verb is in the module of its name.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from fairlane.core.dispatch import kind_set
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
    Submission,
    Totals,
)
from fairlane.core.policy import KindLimit, Rules, Terms
from fairlane.engine.errors import refuse_frozen
from fairlane.engine.protocol import (
    SCAN_MAX,
    DocumentBody,
    DocumentFilter,
    DocumentPage,
    Finding,
    KindRow,
    Packed,
    Purged,
    ReadyKind,
    Removed,
    Reprioritized,
    Rewrite,
    TextPart,
)

from . import admin, claim, read, settle, submit, transfer
from .state import QueueState, system_clock_ms


class MemoryEngine:
    """A queue that lives and dies with this process."""

    durability = "not durable: everything is gone when this process ends"
    schema = 1

    def __init__(self, clock: Callable[[], int] = system_clock_ms) -> None:
        self.clock = clock
        self._lock = threading.RLock()
        self._arrival = threading.Condition(self._lock)
        self._state = QueueState()

    def _time_ms(self, now_ms: int | None) -> int:
        """Return the store's clock, or the time that a test passed in."""
        return self.clock() if now_ms is None else now_ms

    @contextmanager
    def _lock_unless_frozen(self) -> Iterator[None]:
        """Take the lock for a verb that begins or changes something."""
        with self._lock:
            refuse_frozen(self._state.rules)
            yield

    # -- Store -------------------------------------------------------------------------------------------------------

    def check(self, customer: str, cost: int, *, now_ms: int | None = None) -> CheckRow:
        with self._lock_unless_frozen():
            return submit.check(self._state, customer, cost, self._time_ms(now_ms))

    def submit(self, submissions: Sequence[Submission], *, now_ms: int | None = None) -> list[ReceiptRow]:
        with self._lock_unless_frozen():
            receipts = submit.submit(self._state, submissions, self._time_ms(now_ms))
            self._arrival.notify_all()
            return receipts

    def claim(
        self,
        worker: str,
        limit: int,
        lease_ms: int,
        kinds: Mapping[str, int] | None = None,
        *,
        now_ms: int | None = None,
    ) -> list[Claim]:
        with self._lock_unless_frozen():
            return claim.claim(self._state, worker, limit, lease_ms, kinds, self._time_ms(now_ms))

    def extend(self, claims: Sequence[Claim], lease_ms: int, *, now_ms: int | None = None) -> list[Claim]:
        with self._lock:
            return settle.extend(self._state, claims, self._time_ms(now_ms) + lease_ms)

    def take_over(
        self, handed: Sequence[tuple[str, int]], worker: str, lease_ms: int, *, now_ms: int | None = None
    ) -> list[Claim | None]:
        with self._lock:
            at_ms = self._time_ms(now_ms)
            return [settle.take_over(self._state, id, token, worker, at_ms + lease_ms, at_ms) for id, token in handed]

    def settle(self, settlements: Sequence[tuple[Claim, Outcome]], *, now_ms: int | None = None) -> list[Claim]:
        with self._lock:
            lost = settle.settle(self._state, settlements, self._time_ms(now_ms))
            self._arrival.notify_all()
            return lost

    def reclaim(self, limit: int, *, now_ms: int | None = None) -> int:
        with self._lock:
            count = settle.reclaim(self._state, limit, self._time_ms(now_ms))
            self._arrival.notify_all()
            return count

    def cancel(self, ids: Sequence[str], *, now_ms: int | None = None) -> list[str]:
        with self._lock_unless_frozen():
            return settle.cancel(self._state, ids, self._time_ms(now_ms))

    def retry(self, id: str, *, as_customer: bool = False, now_ms: int | None = None) -> bool:
        with self._lock_unless_frozen():
            is_revived = settle.retry(self._state, id, as_customer, self._time_ms(now_ms))
            self._arrival.notify_all()
            return is_revived

    def wait(self, timeout_seconds: float, kinds: Sequence[str] | None = None) -> bool:
        deadline, taken_kinds = time.monotonic() + timeout_seconds, kind_set(kinds)
        with self._arrival:
            while True:
                now_ms = self.clock()
                claim.update_kinds(self._state, now_ms)
                due_ms = read.next_due_ms(self._state, now_ms)
                if self._state.lanes.next(taken_kinds) is not None or (due_ms is not None and due_ms <= 0):
                    return True
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._arrival.wait(left if due_ms is None else min(left, due_ms / 1000))

    # -- Reader ------------------------------------------------------------------------------------------------------

    def store_schema(self) -> int:
        return self.schema

    def now(self) -> int:
        return self.clock()

    def rules(self) -> Rules:
        return self._state.rules

    def customer(self, customer: str, *, now_ms: int | None = None) -> Customer:
        with self._lock:
            return read.customer(self._state, customer, self._time_ms(now_ms))

    def customers(self, after: str, limit: int, *, now_ms: int | None = None) -> list[Customer]:
        with self._lock:
            return read.customers(self._state, after, limit, self._time_ms(now_ms))

    def document(self, id: str) -> DocumentRow | None:
        with self._lock:
            return read.document(self._state, id)

    def documents(self, filter: DocumentFilter, before: int | None, limit: int, scan_max: int = SCAN_MAX) -> DocumentPage:
        with self._lock:
            return read.documents(self._state, filter, before, limit, scan_max)

    def body(self, id: str) -> DocumentBody | None:
        with self._lock:
            return read.body(self._state, id)

    def parts(self, id: str) -> list[PartRow]:
        with self._lock:
            return read.parts(self._state, id)

    def outlook(self, id: str, *, now_ms: int | None = None) -> Outlook | None:
        with self._lock:
            return read.outlook(self._state, id, self._time_ms(now_ms))

    def totals(self) -> Totals:
        with self._lock:
            return read.totals(self._state)

    def kind(self, kind: str) -> KindRow:
        with self._lock:
            return read.kind(self._state, kind)

    def kinds(self, after: str, limit: int) -> list[KindRow]:
        with self._lock:
            return read.kinds(self._state, after, limit)

    def ready_kinds(self, after: str, limit: int) -> list[ReadyKind]:
        with self._lock:
            return read.ready_kinds(self._state, after, limit)

    def changes(self, after: int | None, limit: int) -> list[ChangeRow]:
        with self._lock:
            return read.changes(self._state, after, limit)

    def record(self, group: str, key: str) -> Record | None:
        with self._lock:
            return read.record(self._state, group, key)

    def records(self, group: str, after: str, limit: int) -> list[Record]:
        with self._lock:
            return read.records(self._state, group, after, limit)

    # -- Admin -------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        pass  # there is nothing to close

    def diagnose(self) -> list[Finding]:
        advice = "for documents that matter use sqlite:///fairlane.db"
        return [Finding("durability", "warning", self.durability, advice)]

    def configure(self, rules: Rules, *, now_ms: int | None = None) -> Rules | None:
        with self._lock:
            return admin.configure(self._state, rules, self._time_ms(now_ms))

    def tune(self, customer: str, terms: Terms, version: int, *, now_ms: int | None = None) -> int | None:
        with self._lock_unless_frozen():
            new_version = admin.tune(self._state, customer, terms, version, self._time_ms(now_ms))
            self._arrival.notify_all()
            return new_version

    def limit_kind(self, kind: str, limit: KindLimit, version: int, *, now_ms: int | None = None) -> int | None:
        with self._lock_unless_frozen():
            new_version = admin.limit_kind(self._state, kind, limit, version, self._time_ms(now_ms))
            self._arrival.notify_all()
            return new_version

    def prioritize(self, ids: Sequence[str], priority: int, by: str, *, now_ms: int | None = None) -> list[str]:
        with self._lock_unless_frozen():
            return admin.prioritize(self._state, ids, priority, by, self._time_ms(now_ms))

    def reprioritize(self, customer: str, after: int, limit: int, *, recheck: bool, now_ms: int | None = None) -> Reprioritized:
        with self._lock_unless_frozen():
            return admin.reprioritize(self._state, customer, after, limit, recheck, self._time_ms(now_ms))

    def reset(self, customer: str, *, now_ms: int | None = None) -> None:
        with self._lock_unless_frozen():
            admin.reset(self._state, customer, self._time_ms(now_ms))

    def put_record(self, group: str, key: str, value: str | None, version: int | None = None) -> int | None:
        with self._lock:
            return admin.put_record(self._state, group, key, value, version)

    def rewrite(self, part: TextPart, texts: Sequence[Rewrite]) -> int:
        with self._lock:
            return admin.rewrite(self._state, part, texts)

    def purge(self, age_ms: int, limit: int, *, now_ms: int | None = None) -> Purged:
        with self._lock_unless_frozen():
            return admin.purge(self._state, self._time_ms(now_ms) - age_ms, limit)

    def forget(self, customer: str, limit: int, *, now_ms: int | None = None) -> list[Removed]:
        with self._lock_unless_frozen():
            return admin.forget(self._state, customer, limit, self._time_ms(now_ms))

    # -- Transfer ----------------------------------------------------------------------------------------------------

    def pack(self, cursor: str | None, limit: int) -> Packed:
        with self._lock:
            return transfer.pack(self._state, cursor, limit)

    def unpack(self, packed: Packed) -> None:
        with self._lock:
            transfer.unpack(self._state, packed)
