"""How does a script reach the server, and what is told when it does not?

Laws:
- What was never sent may be sent again: a connection that cannot be made is tried again with growing pauses.
- What was sent and not answered may have happened. It is sent again only if the verb allows that: because it moves nothing,
  because doing it twice is doing it once, or because the script is told that it is a repetition and knows its own traces.
  Otherwise the error says that the outcome is not known.
- A server that is still loading its data did nothing yet, and is waited for.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from hiredis import pack_command
from redis import exceptions
from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.retry import Retry

from fairlane.core.errors import StoreBusy, StoreError, StoreFrozen

from .errors import told_plainly
from .scripts import script
from .url import Place

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 60.0  # a server that says nothing for so long is given up
PATIENCE_SECONDS = 30.0  # how long a server that cannot be reached is tried
LOADING_SECONDS = 600.0  # how long one that loads its data is waited for
PAUSE_FIRST, PAUSE_LAST = 0.01, 1.0
IDLE_MAX = 64  # connections kept for the next call

Line = Any  # a connection of redis-py, whose methods carry no types
Repeat = Literal["never", "plain", "told"]  # not at all, as it is, with a 1 as second argument
Refused = (exceptions.ResponseError, exceptions.AuthenticationError, exceptions.AuthorizationError)
Lost = (exceptions.ConnectionError, exceptions.TimeoutError, OSError)

_left_to_parent: list[object] = []  # connections of a parent process: a forked child may neither use nor close them


class NotSent(Exception):
    """The server was not reached, so it cannot have done anything."""


class Link:
    """Connections to one server, and scripts run over them."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.has_flags = False  # whether the server knows the flags of scripts
        self.patience_seconds = 0.0  # while opening, a wrong address is told at once
        self._is_closed = False
        self._open()

    def _open(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[Line] = []
        self._listeners: list[Line] = []
        self._process = os.getpid()

    def close(self) -> None:
        """Let go of all connections that nobody uses now; those in use are closed when they come back."""
        self._leave_to_parent()
        self._is_closed = True
        with self._lock:
            for connection in self._idle + self._listeners:
                connection.disconnect()
            self._idle, self._listeners = [], []

    def _leave_to_parent(self) -> None:
        if self._process != os.getpid():
            _left_to_parent.append((self._idle, self._listeners))
            self._open()

    # -- connections -------------------------------------------------------------------------------------------------

    def _new(self) -> Line:
        settings: dict[str, Any] = {
            "socket_connect_timeout": CONNECT_SECONDS, "socket_timeout": ANSWER_SECONDS, "decode_responses": True,
            "retry": Retry(NoBackoff(), 0), "protocol": 2, "driver_info": None, "client_name": "fairlane",
            **self.place.settings,
        }  # fmt: skip
        if self.place.path is not None:
            kind: Any = UnixDomainSocketConnection
            return kind(self.place.path, **settings)
        kind = SSLConnection if self.place.is_encrypted else Connection
        return kind(socket_keepalive=True, **settings)

    def _taken(self, idle: list[Line]) -> Line:
        """A connection for one call, which may have to be brought up first."""
        with self._lock:
            return idle.pop() if idle else self._new()

    def _kept(self, idle: list[Line], connection: Line) -> None:
        """A connection that may be used again."""
        with self._lock:
            if not self._is_closed and len(idle) < IDLE_MAX:
                idle.append(connection)
                return
        connection.disconnect()

    @staticmethod
    def _bring_up(connection: Line) -> None:
        """Connect, unless it is; a server that went away shows as something to read."""
        if connection.is_connected:
            if not _has_ended(connection):
                return
            connection.disconnect()
        try:
            connection.connect()
        except (*Refused, exceptions.BusyLoadingError):
            raise
        except Lost as error:
            raise NotSent(str(error)) from error

    # -- scripts -----------------------------------------------------------------------------------------------------

    def run(self, verb: str, arguments: Sequence[Any], repeat: Repeat) -> Any:
        """What a verb's script answers."""
        self._leave_to_parent()
        began, pause, is_unknown = time.monotonic(), PAUSE_FIRST, False
        while True:
            try:
                return self._tried(verb, arguments)
            except exceptions.BusyLoadingError as error:  # nothing was done
                if time.monotonic() - began > LOADING_SECONDS:
                    raise StoreBusy(f"the server at {self.place.shown} is still loading its data; try again later") from error
            except StoreFrozen as error:  # before this sending, or before the one that was not answered?
                if is_unknown and repeat == "plain":
                    raise StoreError(self._unknown(verb, error)) from error
                raise
            except (NotSent, *Lost) as error:
                is_sent = not isinstance(error, NotSent)
                is_unknown = is_unknown or is_sent
                if is_unknown and (repeat == "never" or time.monotonic() - began > PATIENCE_SECONDS):
                    raise StoreError(self._unknown(verb, error)) from error
                if time.monotonic() - began > self.patience_seconds:
                    raise self._unreachable(error) from error
                if is_sent and repeat == "told":
                    arguments = [arguments[0], 1, *arguments[2:]]
            time.sleep(pause * random.uniform(0.5, 1))
            pause = min(PAUSE_LAST, 2 * pause)

    def _tried(self, verb: str, arguments: Sequence[Any]) -> Any:
        """One attempt; tells apart whether the server may have got it."""
        if self._is_closed:
            raise StoreError(f"the queue at {self.place.shown} was closed; open it again")
        connection = self._taken(self._idle)
        try:
            self._bring_up(connection)
            answer = self._evaluate(connection, verb, arguments)
        except Refused as error:
            self._kept(self._idle, connection)
            raise told_plainly(error, self.place) from error
        except BaseException:  # an answer that came late must not be read by the next call
            connection.disconnect()
            raise
        self._kept(self._idle, connection)
        return answer

    def _evaluate(self, connection: Line, verb: str, arguments: Sequence[Any]) -> Any:
        text, sha = script(verb, self.has_flags)
        try:
            return _ask(connection, "EVALSHA", sha, 1, self.place.prefix + "queue", *arguments)
        except exceptions.NoScriptError:  # a new server, a restarted one, or one whose scripts were flushed
            _ask(connection, "SCRIPT", "LOAD", text)
            return _ask(connection, "EVALSHA", sha, 1, self.place.prefix + "queue", *arguments)

    def ask(self, *command: Any) -> Any:
        """One plain command that moves nothing, tried once."""
        connection = self._taken(self._idle)
        try:
            self._bring_up(connection)
            answer = _ask(connection, *command)
        except Refused as error:
            self._kept(self._idle, connection)
            raise told_plainly(error, self.place) from error
        except (NotSent, *Lost) as error:
            connection.disconnect()
            raise self._unreachable(error) from error
        self._kept(self._idle, connection)
        return answer

    def _unknown(self, verb: str, error: Exception) -> str:
        return (
            f"the connection to {self.place.shown} was lost during {verb} ({error}); whether it took effect is not known: "
            "look, and then repeat it if need be"
        )

    def _unreachable(self, error: Exception) -> StoreError:
        return StoreError(
            f"the server at {self.place.shown} cannot be reached ({error}); check that it runs, the host and port of the URL, "
            "and whether it wants encryption (rediss://, valkeys://)"
        )

    # -- signals -----------------------------------------------------------------------------------------------------

    @contextmanager
    def listener(self) -> Iterator[Listener]:
        """A connection that hears the queue's signals."""
        self._leave_to_parent()
        connection = self._taken(self._listeners)
        try:
            yield Listener(connection, self.place.prefix + "signal")
        finally:
            self._kept(self._listeners, connection)


class Listener:
    """Hears that something may be ready; a hint that may be lost, so whoever waits also looks by itself now and then."""

    def __init__(self, connection: Line, channel: str) -> None:
        self._connection = connection
        self._channel = channel

    def begin(self) -> None:
        """From now on no signal is missed while the connection lives; older ones are dropped."""
        try:
            while self._connection.is_connected and self._connection.can_read(0):
                self._connection.read_response()
        except Lost:
            self._connection.disconnect()
        if not self._connection.is_connected:
            try:
                self._connection.connect()
                _ask(self._connection, "SUBSCRIBE", self._channel)
            except (*Lost, exceptions.ResponseError):  # a server that is away, or one that forbids channels
                self._connection.disconnect()

    def listen(self, seconds: float, alone_seconds: float) -> None:
        """Until a signal comes or the time is over; without a connection that time is shorter."""
        if not self._connection.is_connected:
            time.sleep(min(seconds, alone_seconds))
            return
        try:
            self._connection.can_read(seconds)
        except Lost:
            self._connection.disconnect()


def _has_ended(connection: Line) -> bool:
    try:
        return bool(connection.can_read(0))
    except Lost:
        return True


def _ask(connection: Line, *command: Any) -> Any:
    connection.send_packed_command((pack_command(command),), check_health=False)
    return connection.read_response()
