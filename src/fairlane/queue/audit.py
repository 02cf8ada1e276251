"""The audit log: who changed what, from where, with what was there before and after; kept as records of the store.

Laws:
- An entry is written before the change and completed after it. A process that is killed in between leaves an entry that says
  `begun`: the change may have been made. No change is made without an entry.
- Entries hold ids, names, settings and counts; never a key, a secret, a payload or the text of an error.
- Order and times are the store's. Keys fall as time goes on, so that the newest entries come first.
- Entries outlive the feed: `purge_audit` alone deletes them. They move with the queue, and are in its backups.
"""

from __future__ import annotations

import json
import os
import pwd
import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import count
from typing import Any, Literal, NamedTuple

from fairlane.core.document import Record
from fairlane.core.errors import StoreError
from fairlane.core.policy import TIME_MAX_MS
from fairlane.engine import Engine
from fairlane.engine.protocol import RECORD_BYTES_MAX

from .models import to_datetime

AUDIT = "audit"  # the group of records
RETENTION_SECONDS = 365 * 86400.0
PAGE_SIZE = 500
SCAN_MAX = 5000  # entries that are examined for one page

AuditOutcome = Literal["begun", "done", "failed"]
ActorKind = Literal["key", "person", "cli", "server"]


_entries = count()  # that this process has begun


class Actor(NamedTuple):
    """Who makes a change, and from where."""

    kind: ActorKind
    id: str  # the public part of a key, a person, or the user of the operating system
    name: str = ""  # of the key, or the host of the command line
    role: str = ""
    address: str = ""  # of the client


class AuditRow(NamedTuple):
    """One entry; `id` is the key of its record."""

    id: str
    at_ms: int
    who: Actor
    action: str  # as in `customer.tune`
    target: str | None = None  # what it was done to: the id of a document, a key, a worker
    customer: str | None = None  # whose that is
    before: Any = None
    after: Any = None
    outcome: AuditOutcome = "begun"
    error: str | None = None  # the sort of error that ended it


class AuditEntry(NamedTuple):
    """One entry of the audit log, as programs see it."""

    id: str
    at: datetime
    who: Actor
    action: str
    target: str | None
    customer: str | None
    before: Any
    after: Any
    outcome: AuditOutcome
    error: str | None


class AuditFilter(NamedTuple):
    """Which entries: those for which everything holds that is not None."""

    who: str | None = None  # the id or the name of an actor
    what: str | None = None  # an action, or the word before its dot
    customer: str | None = None
    since_ms: int | None = None  # begun then or later
    until_ms: int | None = None  # begun before

    def matches(self, row: AuditRow) -> bool:
        return (
            (self.who is None or self.who in (row.who.id, row.who.name))
            and (self.what is None or self.what in (row.action, row.action.partition(".")[0]))
            and self.customer in (None, row.customer)
        )


class AuditPage(NamedTuple):
    """A page of entries, newest first; it may be short, or empty, although there are more."""

    entries: list[AuditEntry]
    next: str | None  # read on after this id; None: there are no more


class AuditedChange:
    """A change under way: set `after` before it ends."""

    def __init__(self) -> None:
        self.after: Any = None


def cli_actor() -> Actor:
    """Return who runs this command: the user of the operating system, and the one behind sudo."""
    try:
        user = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a container runs as a number without a name
        user = str(os.geteuid())
    behind = os.environ.get("SUDO_USER", "")
    return Actor("cli", f"{user} (sudo: {behind[:100]})" if behind and os.geteuid() == 0 else user, socket.gethostname())


def actor_name(actor: Actor) -> str:
    """Return an actor as the feed names it: the name of a person or a key, the user of the command line."""
    return actor.id if actor.kind == "cli" else actor.name or actor.id


# -- writing ---------------------------------------------------------------------------------------------------------


@contextmanager
def recorded(
    engine: Engine,
    actor: Actor | None,
    action: str,
    *,
    target: str | None = None,
    customer: str | None = None,
    before: Any = None,
    also: Callable[[], Engine | None] = lambda: None,
) -> Iterator[AuditedChange]:
    """Record a change while it is made; without an actor nothing is recorded. `also` is a store to complete it in, too."""
    change = AuditedChange()
    if actor is None:
        yield change
        return
    row = begin(engine, actor, action, target=target, customer=customer, before=before)
    try:
        yield change
    except StoreError:  # whether it was made is not known, and the store may not answer: the entry stays as it is
        raise
    except BaseException as error:
        _complete(engine, row, None, "failed", getattr(error, "type", None) or type(error).__name__)
        raise
    for store in (engine, also()):
        if store is not None:
            _complete(store, row, change.after, "done", None)


def begin(
    engine: Engine, actor: Actor, action: str, *, target: str | None = None, customer: str | None = None, before: Any = None
) -> AuditRow:
    """Write an entry for a change that is about to be made."""
    return _add(engine, AuditRow("", 0, actor, action, target, customer, before))


def note(
    engine: Engine,
    actor: Actor,
    action: str,
    *,
    customer: str | None = None,
    after: Any = None,
    error: str | None = None,
) -> None:
    """Write an entry for something that is over; with an error it failed."""
    outcome: AuditOutcome = "done" if error is None else "failed"
    _add(engine, AuditRow("", 0, actor, action, None, customer, None, after, outcome, error))


def _add(engine: Engine, row: AuditRow) -> AuditRow:
    """Store a new entry under the time of this moment; of one moment the later entry comes first, too."""
    while True:
        at_ms = engine.now()
        tie = f"{0xFFFF_FFFF - next(_entries) % 2**32:08x}{secrets.token_hex(4)}"
        added = row._replace(id=f"{entry_key(at_ms)}-{tie}", at_ms=at_ms)
        if engine.put_record(AUDIT, added.id, _encode(added), 0) is not None:
            return added


def _complete(engine: Engine, row: AuditRow, after: Any, outcome: AuditOutcome, error: str | None) -> None:
    """Complete an entry as it is stored: a customer that it names may have been forgotten meanwhile."""
    with suppress(StoreError):  # the change was made and must not look as if it failed; the entry says `begun`
        while True:
            record = engine.record(AUDIT, row.id)
            known = row if record is None else _decode(record)
            ended = known._replace(after=after, outcome=outcome, error=error)
            if engine.put_record(AUDIT, row.id, _encode(ended), 0 if record is None else record.version) is not None:
                return


def entry_key(at_ms: int) -> str:
    """Return what the keys of entries of this moment begin with; those of later moments are before them."""
    return f"{TIME_MAX_MS - at_ms:016d}"


def _encode(row: AuditRow) -> str:
    """Return an entry as JSON; without what makes it larger than a record may be."""
    members = {name: value for name, value in row._asdict().items() if name != "id"} | {"who": row.who._asdict()}
    text = json.dumps(members)
    if len(text) <= RECORD_BYTES_MAX:
        return text
    return json.dumps(members | {"before": "too large to keep", "after": "too large to keep"})


def _decode(record: Record) -> AuditRow:
    """Parse an entry; members that a newer version added are ignored."""
    members = json.loads(record.value)
    who = Actor(**{name: value for name, value in members["who"].items() if name in Actor._fields})
    fields = {name: value for name, value in members.items() if name in AuditRow._fields}
    return AuditRow(**fields | {"id": record.key, "who": who})


# -- reading ---------------------------------------------------------------------------------------------------------


def audit_page(engine: Engine, filter: AuditFilter, after: str | None, limit: int, scan_max: int = SCAN_MAX) -> AuditPage:
    """Read entries that match, newest first, after the one with that id: up to `limit`, among at most `scan_max`."""
    start = "" if filter.until_ms is None else entry_key(filter.until_ms - 1)
    position, entries = max(start, after or ""), list[AuditEntry]()
    for _ in range(0, scan_max, PAGE_SIZE):
        page = engine.records(AUDIT, position, PAGE_SIZE)
        for record in page:
            row = _decode(record)
            if filter.since_ms is not None and row.at_ms < filter.since_ms:
                return AuditPage(entries, None)
            position = record.key
            if filter.matches(row):
                entries.append(entry_from(row))
            if len(entries) == limit:
                return AuditPage(entries, position)
        if len(page) < PAGE_SIZE:
            return AuditPage(entries, None)
    return AuditPage(entries, position)


def walk_audit(engine: Engine, filter: AuditFilter) -> Iterator[AuditEntry]:
    """Yield every entry that matches, newest first."""
    after: str | None = ""
    while after is not None:
        page = audit_page(engine, filter, after, PAGE_SIZE)
        yield from page.entries
        after = page.next


def entry_from(row: AuditRow) -> AuditEntry:
    return AuditEntry(row.id, to_datetime(row.at_ms), *row[2:])


def audit_json(entry: AuditEntry) -> dict[str, Any]:
    """Return an entry as JSON members; `at` is in seconds since the epoch."""
    return entry._asdict() | {"at": entry.at.timestamp(), "who": entry.who._asdict()}


# -- deleting --------------------------------------------------------------------------------------------------------


def has_older(engine: Engine, seconds: float) -> bool:
    """Return whether there are entries that are older."""
    return bool(engine.records(AUDIT, entry_key(engine.now() - round(seconds * 1000)), 1))


def purge_audit(engine: Engine, older_seconds: float) -> int:
    """Delete the entries that are older; return how many."""
    after, deleted = entry_key(engine.now() - round(older_seconds * 1000)), 0
    while page := engine.records(AUDIT, after, PAGE_SIZE):
        for record in page:
            engine.put_record(AUDIT, record.key, None)
        deleted, after = deleted + len(page), page[-1].key
    return deleted


def forget_in_audit(engine: Engine, customer: str) -> int:
    """Let no entry name a customer any more, a random word stands there instead; return how many were changed.

    Of entries about it there is left who did what and when. Its own keys and addresses go too, and the ids of its documents.
    """
    after, changed, replacement = "", 0, f"forgotten-{secrets.token_hex(4)}"
    while page := engine.records(AUDIT, after, PAGE_SIZE):
        after = page[-1].key
        for record in page:
            changed += _forget_in_entry(engine, record, customer, replacement)
    return changed


def _forget_in_entry(engine: Engine, record: Record | None, customer: str, replacement: str) -> bool:
    while record is not None:
        row = _decode(record)
        if row.customer == customer:
            who = row.who._replace(id=replacement, name="", address="") if row.who.role == "customer" else row.who
            cleaned = row._replace(who=who, customer=replacement, target=row.target and replacement, before=None, after=None)
        else:
            before, after = _without(row.before, customer, replacement), _without(row.after, customer, replacement)
            cleaned = row._replace(before=before, after=after)
        if cleaned == row:
            return False
        if engine.put_record(AUDIT, record.key, _encode(cleaned), record.version) is not None:
            return True
        record = engine.record(AUDIT, record.key)  # completed meanwhile
    return False


def _without(value: Any, customer: str, replacement: str) -> Any:
    """Return JSON with every text that is a customer's id replaced."""
    if isinstance(value, dict):
        return {name: _without(item, customer, replacement) for name, item in value.items()}
    if isinstance(value, list):
        return [_without(item, customer, replacement) for item in value]
    return replacement if value == customer else value
