"""The registry of workers: who works on this queue, what runs where since when, and which of them shall claim no more.

Laws:
- It is for people, dashboards and autoscalers. Who owns a document is decided by its lease alone, never by this registry.
- A worker writes its own record: when it starts, every few seconds, and when its state changes; it removes it at a clean end.
- All times are the store's. A record that was not renewed for GONE_MS counts as gone; workers remove it after REMOVE_MS.
- Every run of a worker has an instance id, so that workers of the same name do not hide each other.
- An operator writes `drain`, the worker everything else; both replace only the version that they have read.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from fairlane.core.document import DocumentRow, validate_text
from fairlane.core.errors import Unknown
from fairlane.engine.protocol import RECORD_BYTES_MAX, DocumentFilter, Engine
from fairlane.engine.walk import walk_documents

from .models import RunningDocument, UnservedKind, WorkerState, WorkerStatus, to_datetime

WORKERS = "workers"  # the group of records; the key is the instance id
GONE_MS = 35_000  # three beats and a half
REMOVE_MS = 3_600_000
PAGE_SIZE = 1000

Service = Literal["served", "draining", "unserved"]  # of a kind: draining: only workers that claim no more take it


class WorkerRecord(NamedTuple):
    """What a worker writes about itself."""

    name: str
    host: str
    pid: int
    version: str  # of Fairlane
    schema: int  # the newest that it knows
    kinds: tuple[str, ...] | None  # None: too many for a record, so it may take any
    slots: int
    started_ms: int
    seen_ms: int
    state: WorkerState  # as far as the worker knows; never gone
    running: Mapping[str, int]  # document id: since when
    drain: bool  # an operator wants it to claim no more
    kind_slots: Mapping[str, int] = MappingProxyType({})  # of a kind of which fewer run at once, because of what they need

    def slots_for(self, kind: str | None) -> int:
        """Return how many documents of a kind, or of all kinds, it runs at once."""
        if kind is None or self.kinds is None:
            return self.slots
        return self.kind_slots.get(kind, self.slots) if kind in self.kinds else 0

    def encode(self) -> str:
        """Return it as JSON; without its kinds if they do not fit into a record."""
        members = {**self._asdict(), "kind_slots": dict(self.kind_slots)}
        text = json.dumps(members)
        return text if len(text) <= RECORD_BYTES_MAX else json.dumps({**members, "kinds": None, "kind_slots": {}})


class _Entry(NamedTuple):
    """A record, its key and its version, and whether its worker is gone."""

    instance: str
    version: int
    record: WorkerRecord
    is_gone: bool

    @property
    def state(self) -> WorkerState:
        record = self.record
        if self.is_gone:
            return "gone"
        if record.drain and record.state == "drained":
            return "drained"
        return "draining" if record.drain or record.state != "working" else "working"


def decode_record(text: str) -> WorkerRecord:
    """Parse a record; members that a newer version added are ignored."""
    members: dict[str, Any] = json.loads(text)
    kinds = members["kinds"]
    return WorkerRecord(
        **{name: members[name] for name in WorkerRecord._fields if name != "kinds" and name in members},
        kinds=None if kinds is None else tuple(kinds),
    )


def _entries(engine: Engine) -> Iterator[_Entry]:
    now_ms, after = engine.now(), ""
    while page := engine.records(WORKERS, after, PAGE_SIZE):
        for row in page:
            record = decode_record(row.value)
            # One from the future was written before the store's clock was set back: whoever is alive will soon write again.
            yield _Entry(row.key, row.version, record, not -GONE_MS <= now_ms - record.seen_ms <= GONE_MS)
        after = page[-1].key


def read_workers(engine: Engine) -> list[WorkerStatus]:
    """Return every registered worker by name, with the documents that run on it."""
    now_ms, schema = engine.now(), engine.store_schema()
    entries = sorted(_entries(engine), key=lambda entry: (entry.record.name, entry.record.started_ms, entry.instance))
    documents = _assign(walk_documents(engine, DocumentFilter(state="running")), entries)
    return [_status(entry, documents[entry.instance], now_ms, schema) for entry in entries]


def _assign(documents: Iterable[DocumentRow], entries: Sequence[_Entry]) -> dict[str, list[DocumentRow]]:
    """Assign running documents to instances: by name, and among workers of one name to the one that has it in its record."""
    named: dict[str, list[_Entry]] = defaultdict(list)
    for entry in sorted(entries, key=lambda entry: (entry.is_gone, -entry.record.seen_ms)):
        named[entry.record.name].append(entry)
    assigned: dict[str, list[DocumentRow]] = defaultdict(list)
    for document in documents:
        candidates = named.get(document.worker or "", [])
        owner = next((entry for entry in candidates if document.id in entry.record.running), None)
        if candidates:
            assigned[(owner or candidates[0]).instance].append(document)
    return assigned


def _status(entry: _Entry, documents: list[DocumentRow], now_ms: int, schema: int) -> WorkerStatus:
    record = entry.record
    running = []
    for document in sorted(documents, key=lambda document: document.number):
        since_ms = record.running.get(document.id)
        running_for = None if since_ms is None else timedelta(milliseconds=max(0, now_ms - since_ms))
        running.append(RunningDocument(document.id, document.customer, document.kind, running_for))
    return WorkerStatus(
        record.name, entry.instance, entry.state, record.host, record.pid, record.version, record.schema < schema,
        record.kinds, record.slots, to_datetime(record.started_ms), timedelta(milliseconds=max(0, now_ms - record.seen_ms)),
        tuple(running),
    )  # fmt: skip


class Fleet:
    """The workers at one moment: how many in which state, with how many slots, and which kinds they take."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        entries = list(_entries(engine))
        self._names = {entry.record.name for entry in entries}
        self._states = [(entry.record.kinds, entry.state) for entry in entries if not entry.is_gone]
        self.working = [entry.record for entry in entries if entry.state == "working"]
        self._kinds = {record.name: frozenset(record.kinds) for record in self.working if record.kinds is not None}
        self.now_ms = engine.now()
        self.counts = Counter(entry.state for entry in entries)
        self.outdated = sum(entry.record.schema < engine.schema for entry in entries if not entry.is_gone)

    def kinds_of(self, worker: str) -> frozenset[str] | None:
        """Return the kinds that a working worker takes; None: not known."""
        return self._kinds.get(worker)

    def slots(self, kind: str | None = None) -> int:
        """Return the slots of working workers that take this kind, or of all that work."""
        return sum(record.slots_for(kind) for record in self.working)

    def service_of(self, kind: str) -> Service:
        """Return whether workers take documents of this kind."""
        states = {state for kinds, state in self._states if kinds is None or kind in kinds}
        if "working" in states or self._has_unregistered:
            return "served"
        return "draining" if states else "unserved"

    @cached_property
    def _has_unregistered(self) -> bool:
        """Whether programs claim without a record here; what they take is not known."""
        return any(
            document.worker not in self._names for document in walk_documents(self._engine, DocumentFilter(state="running"))
        )


def kinds_taken(engine: Engine) -> set[str]:
    """Return the kinds that registered workers take, as far as they list them."""
    return {kind for entry in _entries(engine) if not entry.is_gone for kind in entry.record.kinds or ()}


def unserved_kinds(engine: Engine) -> list[UnservedKind]:
    """Return the kinds of which documents wait although no worker takes them, or only workers that are draining."""
    fleet, after = Fleet(engine), ""
    kinds = []
    while page := engine.ready_kinds(after, PAGE_SIZE):
        for row in page:
            if (service := fleet.service_of(row.kind)) != "served":
                oldest_wait = timedelta(milliseconds=max(0, fleet.now_ms - row.oldest_ready_ms))
                kinds.append(UnservedKind(row.kind, service == "draining", oldest_wait))
        after = page[-1].kind
    return kinds


def set_drain(engine: Engine, worker: str, drain: bool) -> list[str]:
    """Let the workers of that name, or the one with that instance id, claim no more, or again; return their instance ids."""
    validate_text("worker", worker)
    entries = [entry for entry in _entries(engine) if worker in (entry.record.name, entry.instance)]
    if not entries:
        raise Unknown(f"there is no worker {worker!r}; `fairlane workers` lists them")
    instances = [entry.instance for entry in entries if not entry.is_gone and _put_drain(engine, entry.instance, drain)]
    if not instances:
        raise Unknown(f"worker {worker!r} is gone, so it claims nothing; its documents return when their leases have expired")
    return instances


def _put_drain(engine: Engine, instance: str, drain: bool) -> bool:
    """Write the wish into a record; return False if the worker has ended meanwhile."""
    while (row := engine.record(WORKERS, instance)) is not None:
        record = decode_record(row.value)
        if record.drain == drain:
            return True
        if engine.put_record(WORKERS, instance, record._replace(drain=drain).encode(), row.version) is not None:
            return True
    return False


def remove_gone(engine: Engine) -> None:
    """Remove the records of workers that have been gone for long."""
    now_ms = engine.now()
    for entry in _entries(engine):
        if entry.is_gone and abs(now_ms - entry.record.seen_ms) > REMOVE_MS:
            engine.put_record(WORKERS, entry.instance, None, entry.version)
