"""Records of a run: a snapshot of the store, and the logs of its clients.

A client writes a line to its own log before and after every call; a line that was written survives kill -9. A call without a
response in the log has an unknown outcome: it happened once or not at all.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from fairlane.core.document import ChangeRow, State
from fairlane.engine.protocol import Reader
from fairlane.engine.walk import PAGE_SIZE


class Document(NamedTuple):
    """A document's row."""

    number: int
    id: str
    customer: str
    kind: str
    state: State
    priority: int
    counter: int
    checked_ms: int
    key: str | None
    ready_ms: int
    attempts: int
    attempts_max: int
    token: int
    result: str | None
    whole: str | None = None  # the document that it is a part of
    parts_left: int = 0


class Customer(NamedTuple):
    """A customer's row, with its counts, which the store keeps by lane."""

    id: str
    counter: int
    updated_ms: int | None
    waiting: int
    running: int
    done: int
    failed: int
    cancelled: int


class Lane(NamedTuple):
    """A lane's row."""

    customer: str
    kind: str
    priority: int
    head: int | None
    head_ready_ms: int | None
    start: int | None
    cross: int | None = None
    competing: int | None = None


class Ready(NamedTuple):
    """A ready document's row in its lane."""

    customer: str
    kind: str
    priority: int
    number: int
    ready_ms: int


class Kind(NamedTuple):
    """A kind's row: its clocks by priority, its first lane in the order of turns, and its head that was ready first."""

    kind: str
    clocks: tuple[int, ...]
    first: tuple[int, ...] | None  # priority, start tag, cross tag, number
    oldest: tuple[int, ...] | None  # ready since, number


class Priority(NamedTuple):
    """A priority's row."""

    priority: int
    ready: int
    lanes: int


@dataclass
class StoreSnapshot:
    """A consistent snapshot of everything in the store."""

    documents: list[Document] = field(default_factory=list)
    customers: list[Customer] = field(default_factory=list)
    lanes: list[Lane] = field(default_factory=list)
    ready: list[Ready] = field(default_factory=list)
    priorities: list[Priority] = field(default_factory=list)
    changes: list[ChangeRow] = field(default_factory=list)
    dispatches: int = 0
    integrity: str = "ok"
    kinds: list[Kind] | None = None  # None: of a store whose tags are not read


class Settlement(NamedTuple):
    """A settle call as a client saw it; `mark` is unique and written as its result or reason."""

    mark: str
    id: str
    token: int
    outcome: str
    is_accepted: bool | None = None  # None: unknown, killed before the response


@dataclass
class Clients:
    """The contents of all clients' logs."""

    attempted: set[tuple[str, str]] = field(default_factory=set)  # (customer, key)
    acknowledged: list[tuple[str, str, str]] = field(default_factory=list)  # (customer, key, id)
    claimed: list[tuple[str, int]] = field(default_factory=list)  # (id, token)
    settlements: dict[str, Settlement] = field(default_factory=dict)  # by mark
    cancelled: set[str] = field(default_factory=set)  # ids whose cancel was acknowledged
    unknown: int = 0  # submissions killed before their response; repeated later


def snapshot(path: Path) -> StoreSnapshot:
    """Read everything in one read transaction, so that it is consistent."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    connection.set_busy_timeout(30_000)

    def rows(statement: str) -> list[Any]:
        return connection.execute(statement).fetchall()

    with closing(connection):
        connection.execute("BEGIN")
        return StoreSnapshot(
            [Document(*row) for row in rows(
                "SELECT d.number, d.id, c.id, d.kind, d.state, d.priority, d.counter, d.checked_ms, d.key, d.ready_ms, "
                "d.attempts, d.attempts_max, d.token, r.body, d.whole, d.parts_left FROM documents AS d "
                "JOIN customers AS c ON c.number = d.customer "
                "LEFT JOIN results AS r ON r.number = d.number ORDER BY d.number"
            )],
            [Customer(*row) for row in rows(
                "SELECT c.id, c.counter, c.updated_ms, coalesce(sum(l.waiting), 0), coalesce(sum(l.running), 0), "
                "coalesce(sum(l.done), 0), coalesce(sum(l.failed), 0), coalesce(sum(l.cancelled), 0) "
                "FROM customers AS c LEFT JOIN lanes AS l ON l.customer = c.number GROUP BY c.number"
            )],
            [Lane(*row) for row in rows(
                "SELECT c.id, l.kind, l.priority, l.head, l.ready_ms, l.start, l.cross_tag, l.competing FROM lanes AS l "
                "JOIN customers AS c ON c.number = l.customer WHERE l.part = 0"
            )],
            [Ready(*row) for row in rows(
                "SELECT c.id, l.kind, l.priority, l.number, l.ready_ms FROM lanes AS l "
                "JOIN customers AS c ON c.number = l.customer WHERE l.part = 1"
            )],
            [Priority(*row) for row in rows("SELECT priority, ready, lanes FROM priorities")],
            [ChangeRow(*row) for row in rows(
                "SELECT ch.number, ch.at_ms, ch.what, c.id, d.id, ch.token, ch.note FROM changes AS ch "
                "LEFT JOIN customers AS c ON c.number = ch.customer LEFT JOIN documents AS d ON d.number = ch.document "
                "ORDER BY ch.number"
            )],
            rows("SELECT coalesce(sum(count), 0) FROM dispatches")[0][0],
            "; ".join(str(row[0]) for row in rows("PRAGMA integrity_check")),
            [_kind(*row) for row in rows(
                "SELECT kind, clocks, priority, start, cross_tag, head, ready_ms, oldest FROM kinds"
            )],
        )  # fmt: skip


def walk_changes(engine: Reader, after: int = 0) -> Iterator[ChangeRow]:
    """Yield the lines of the feed after a change number, oldest first."""
    while page := engine.changes(after, PAGE_SIZE):
        yield from page
        after = page[-1].number


def _kind(kind: str, clocks: str, *firsts: int | None) -> Kind:
    first, oldest = (tuple(value for value in values if value is not None) or None for values in (firsts[:4], firsts[4:]))
    return Kind(kind, tuple(json.loads(clocks)), first, oldest)


class ClientLog:
    """A client's own log: a line is on record when `write` returns, whatever happens to the process then."""

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, what: str, *facts: object) -> None:
        """Write one line: the call that begins, or its response."""
        os.write(self._handle, (json.dumps([what, *facts]) + "\n").encode())


def read_log(path: Path) -> list[list[Any]]:
    """Read the complete lines of a log; leave out a last line that was cut off."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]


def read_clients(paths: Iterable[Path]) -> Clients:
    """Read all logs into one record."""
    clients = Clients()
    for path in paths:
        before = ""
        for what, *facts in read_log(path):
            _apply(clients, what, facts)
            clients.unknown += before == "submitting" and what != "submitted"
            before = what
    return clients


def _apply(clients: Clients, what: str, facts: list[Any]) -> None:
    match what:
        case "submitting":
            clients.attempted.update((customer, key) for customer, key in facts[0])
        case "submitted":
            clients.acknowledged += [(customer, key, id) for customer, key, id in facts[0]]
        case "claimed" | "taken_over":
            clients.claimed += [(id, token) for id, token in facts[0]]
        case "settling":
            clients.settlements.update((mark, Settlement(mark, *fields)) for mark, *fields in facts[0])
        case "settled":
            for mark, is_accepted in facts[0]:
                clients.settlements[mark] = clients.settlements[mark]._replace(is_accepted=is_accepted)
        case "cancelled":
            if facts[1]:
                clients.cancelled.add(facts[0])
