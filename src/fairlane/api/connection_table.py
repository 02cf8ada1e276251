"""The table of open connections: how many there are, and which one makes room for a new one.

Laws:
- A connection counts from the moment it is accepted, before TLS and before its first byte.
- A connection on which a request with a valid key is being answered is never closed for another one. Of the others, those that
  have not shown a key go first, then those that are idle; each time the oldest of whoever has most.
- An address has so many connections that have not shown a key; the next one takes the place of its oldest.
- Connections that are being closed do not count, but they are few: a further one cuts the oldest of them off.
- So nobody without a key can keep others out, and whoever sends requests with a key gets in.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, Literal, Protocol, TypeVar

CLOSING_MAX = 128  # connections beyond the limit: their last response or refusal is on its way

State = Literal["stranger", "idle", "busy", "closing"]
T = TypeVar("T", bound=Hashable)


class OpenConnection(Hashable, Protocol):
    """What the table needs of a connection."""

    def make_room(self) -> None:
        """End, in favour of another connection."""

    def abort(self) -> None:
        """End at once."""


class Groups(Generic[T]):
    """Members of groups, in the order in which they came; knows which group is the largest."""

    def __init__(self) -> None:
        self._members: dict[str, dict[T, None]] = {}
        self._by_size: dict[int, dict[str, None]] = {}
        self._largest = 0

    def add(self, group: str, member: T) -> None:
        members = self._members.setdefault(group, {})
        self._move(group, len(members), len(members) + 1)
        members[member] = None

    def remove(self, group: str, member: T) -> None:
        members = self._members[group]
        del members[member]
        self._move(group, len(members) + 1, len(members))
        if not members:
            del self._members[group]

    def _move(self, group: str, before: int, after: int) -> None:
        if before:
            del self._by_size[before][group]
            if not self._by_size[before]:
                del self._by_size[before]
        if after:
            self._by_size.setdefault(after, {})[group] = None
        self._largest = max(self._largest, after)
        while self._largest and self._largest not in self._by_size:
            self._largest -= 1

    def count(self, group: str) -> int:
        return len(self._members.get(group, ()))

    def names(self) -> Iterable[str]:
        """Return the groups that have members."""
        return self._members.keys()

    def oldest_of(self, group: str) -> T:
        return next(iter(self._members[group]))

    def oldest_of_largest(self) -> T | None:
        """Return the oldest member of the largest group; of equal ones, of that which has had its size for longest."""
        return self.oldest_of(next(iter(self._by_size[self._largest]))) if self._largest else None


class ConnectionTable:
    """Every open connection, by whether it has shown a key and whether it is busy."""

    def __init__(self, connections_max: int, strangers_max: int) -> None:
        self._connections_max = connections_max
        self._strangers_max = strangers_max  # of one address
        self._states: dict[OpenConnection, tuple[State, str]] = {}
        self._strangers: Groups[OpenConnection] = Groups()
        self._idle: Groups[OpenConnection] = Groups()
        self._closing: dict[OpenConnection, None] = {}

    def __len__(self) -> int:
        return len(self._states)

    @property
    def open(self) -> int:
        """How many connections are open, without those that are being closed."""
        return len(self._states) - len(self._closing)

    def strangers_of(self, group: str) -> int:
        """How many connections of an address have not shown a key."""
        return self._strangers.count(group)

    def admit(self, connection: OpenConnection, group: str) -> bool:
        """Add a connection that was accepted, from an address (empty: it is not counted); False: there is no room for it."""
        if group and self._strangers.count(group) >= self._strangers_max:
            self._end(self._strangers.oldest_of(group))
        elif self.open >= self._connections_max:
            oldest = self._strangers.oldest_of_largest() or self._idle.oldest_of_largest()
            if oldest is None:
                self._put(connection, "closing", group)
                return False
            self._end(oldest)
        self._put(connection, "stranger", group)
        return True

    def show_key(self, connection: OpenConnection, holder: str) -> None:
        """A request on this connection has a valid key of this holder, and is being answered."""
        if self._states.get(connection, ("closing",))[0] != "closing":
            self._put(connection, "busy", holder)

    def set_idle(self, connection: OpenConnection) -> None:
        """The request on this connection has its response."""
        state, group = self._states.get(connection, ("closing", ""))
        if state == "busy":
            self._put(connection, "idle", group)

    def set_closing(self, connection: OpenConnection) -> None:
        """This connection is being closed; it does not count any more."""
        if self._states.get(connection, ("closing",))[0] != "closing":
            self._put(connection, "closing", "")

    def remove(self, connection: OpenConnection) -> None:
        """This connection is closed."""
        self._take(connection)

    def _end(self, connection: OpenConnection) -> None:
        self._put(connection, "closing", "")
        connection.make_room()

    def _put(self, connection: OpenConnection, state: State, group: str) -> None:
        self._take(connection)
        self._states[connection] = (state, group)
        if state == "stranger":
            self._strangers.add(group, connection)
        elif state == "idle":
            self._idle.add(group, connection)
        elif state == "closing":
            self._closing[connection] = None
            if len(self._closing) > CLOSING_MAX:
                oldest = next(iter(self._closing))
                self._take(oldest)
                oldest.abort()

    def _take(self, connection: OpenConnection) -> None:
        state, group = self._states.pop(connection, (None, ""))
        if state == "stranger":
            self._strangers.remove(group, connection)
        elif state == "idle":
            self._idle.remove(group, connection)
        elif state == "closing":
            del self._closing[connection]
