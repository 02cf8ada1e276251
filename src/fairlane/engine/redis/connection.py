"""Connections to a Redis or Valkey server: run scripts, and decide what may be sent again after a failure.

Laws:
- What was never sent may be sent again: a connection that cannot be made is tried again with growing pauses.
- What was sent and not answered may have happened. It is sent again only if the verb allows that: because it only reads,
  because twice has the same effect as once, or because its second argument marks it as a repetition and the script finds
  what the first one did. Otherwise the error says that the outcome is unknown.
- A server that is still loading its data has done nothing yet, and is waited for.
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

from .errors import translate_error
from .scripts import load_script
from .url import RedisUrl

CONNECT_SECONDS = 5.0
REPLY_SECONDS = 60.0  # then the server is given up
REACH_SECONDS = 30.0  # how long a server that cannot be reached is tried
LOADING_SECONDS = 600.0  # how long a server that loads its data is waited for
PAUSE_FIRST, PAUSE_LAST = 0.01, 1.0
IDLE_MAX = 64  # connections kept for the next call

RawConnection = Any  # a connection of redis-py, whose methods carry no types
Repeat = Literal["never", "same", "marked"]  # not at all, with the same arguments, with a 1 as second argument
ReplyErrors = (exceptions.ResponseError, exceptions.AuthenticationError, exceptions.AuthorizationError)
LostErrors = (exceptions.ConnectionError, exceptions.TimeoutError, OSError)

_inherited: list[object] = []  # connections of a parent process: a forked child must neither use nor close them


class NotSent(Exception):
    """The server was not reached, so it cannot have done anything."""


class RedisPool:
    """Connections to one server, and scripts run over them."""

    def __init__(self, url: RedisUrl) -> None:
        self.url = url
        self.has_flags = False  # whether the server knows the flags of scripts
        self.is_patient = False  # while a queue is being opened, an unreachable server is an error at once
        self._is_closed = False
        self._open()

    def _open(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[RawConnection] = []
        self._listeners: list[RawConnection] = []
        self._process = os.getpid()

    def close(self) -> None:
        """Close all idle connections; those in use are closed when they are released."""
        self._leave_parents_connections()
        self._is_closed = True
        with self._lock:
            for connection in self._idle + self._listeners:
                connection.disconnect()
            self._idle, self._listeners = [], []

    def _leave_parents_connections(self) -> None:
        if self._process != os.getpid():
            _inherited.append((self._idle, self._listeners))
            self._open()

    # -- connections -------------------------------------------------------------------------------------------------

    def _new(self) -> RawConnection:
        settings: dict[str, Any] = {
            "socket_connect_timeout": CONNECT_SECONDS, "socket_timeout": REPLY_SECONDS, "decode_responses": True,
            "retry": Retry(NoBackoff(), 0), "protocol": 2, "driver_info": None, "client_name": "fairlane",
            **self.url.settings,
        }  # fmt: skip
        if self.url.socket_path is not None:
            connection_class: Any = UnixDomainSocketConnection
            return connection_class(self.url.socket_path, **settings)
        connection_class = SSLConnection if self.url.is_encrypted else Connection
        return connection_class(socket_keepalive=True, **settings)

    def _acquire(self, idle: list[RawConnection]) -> RawConnection:
        with self._lock:
            return idle.pop() if idle else self._new()

    def _release(self, idle: list[RawConnection], connection: RawConnection) -> None:
        with self._lock:
            if not self._is_closed and len(idle) < IDLE_MAX:
                idle.append(connection)
                return
        connection.disconnect()

    @staticmethod
    def _ensure_connected(connection: RawConnection) -> None:
        """Connect unless connected; an idle connection with something to read was closed by the server."""
        if connection.is_connected:
            if not _has_input(connection):
                return
            connection.disconnect()
        try:
            connection.connect()
        except (*ReplyErrors, exceptions.BusyLoadingError):
            raise
        except LostErrors as error:
            raise NotSent(str(error)) from error

    # -- scripts -----------------------------------------------------------------------------------------------------

    def run(self, verb: str, arguments: Sequence[Any], repeat: Repeat) -> Any:
        """Run a verb's script and return its reply."""
        self._leave_parents_connections()
        began, pause, is_unknown = time.monotonic(), PAUSE_FIRST, False
        while True:
            try:
                return self._attempt(verb, arguments)
            except exceptions.BusyLoadingError as error:  # nothing was done
                if time.monotonic() - began > LOADING_SECONDS:
                    raise StoreBusy(f"the server at {self.url.display} is still loading its data; try again later") from error
            except StoreFrozen as error:  # an attempt that was not answered may have happened before the freeze
                if is_unknown and repeat == "same":
                    raise StoreError(self._unknown_outcome(verb, error)) from error
                raise
            except (NotSent, *LostErrors) as error:
                is_sent = not isinstance(error, NotSent)
                is_unknown = is_unknown or is_sent
                waited = time.monotonic() - began
                if is_unknown and (repeat == "never" or waited > REACH_SECONDS):
                    raise StoreError(self._unknown_outcome(verb, error)) from error
                if waited > (REACH_SECONDS if self.is_patient else 0):
                    raise self._unreachable(error) from error
                if is_sent and repeat == "marked":
                    arguments = [arguments[0], 1, *arguments[2:]]
            time.sleep(pause * random.uniform(0.5, 1))
            pause = min(PAUSE_LAST, 2 * pause)

    def _attempt(self, verb: str, arguments: Sequence[Any]) -> Any:
        """Run a script once; the exception says whether the server may have received it."""
        if self._is_closed:
            raise StoreError(f"the queue at {self.url.display} was closed; open it again")
        connection = self._acquire(self._idle)
        try:
            self._ensure_connected(connection)
            reply = self._evalsha(connection, verb, arguments)
        except ReplyErrors as error:
            self._release(self._idle, connection)
            raise translate_error(error, self.url) from error
        except BaseException:  # a reply that comes late must not be read by the next call
            connection.disconnect()
            raise
        self._release(self._idle, connection)
        return reply

    def _evalsha(self, connection: RawConnection, verb: str, arguments: Sequence[Any]) -> Any:
        text, sha = load_script(verb, self.has_flags)
        try:
            return _execute(connection, "EVALSHA", sha, 1, self.url.prefix + "queue", *arguments)
        except exceptions.NoScriptError:  # a new server, a restarted one, or one whose scripts were flushed
            _execute(connection, "SCRIPT", "LOAD", text)
            return _execute(connection, "EVALSHA", sha, 1, self.url.prefix + "queue", *arguments)

    def execute(self, *command: Any) -> Any:
        """Execute one command that only reads, once."""
        connection = self._acquire(self._idle)
        try:
            self._ensure_connected(connection)
            reply = _execute(connection, *command)
        except ReplyErrors as error:
            self._release(self._idle, connection)
            raise translate_error(error, self.url) from error
        except (NotSent, *LostErrors) as error:
            connection.disconnect()
            raise self._unreachable(error) from error
        self._release(self._idle, connection)
        return reply

    def _unknown_outcome(self, verb: str, error: Exception) -> str:
        return (
            f"the connection to {self.url.display} was lost during {verb} ({error}); whether it took effect is not known: "
            "look, and then repeat it if need be"
        )

    def _unreachable(self, error: Exception) -> StoreError:
        return StoreError(
            f"the server at {self.url.display} cannot be reached ({error}); check that it runs, the host and port of the URL, "
            "and whether it wants encryption (rediss://, valkeys://)"
        )

    # -- signals -----------------------------------------------------------------------------------------------------

    @contextmanager
    def listener(self) -> Iterator[WakeListener]:
        """Lend a connection that receives the queue's signals."""
        self._leave_parents_connections()
        connection = self._acquire(self._listeners)
        try:
            yield WakeListener(connection, self.url.prefix + "signal")
        finally:
            self._release(self._listeners, connection)


class WakeListener:
    """Receives signals that a document may be ready; a signal may be lost, so a waiter also polls now and then."""

    def __init__(self, connection: RawConnection, channel: str) -> None:
        self._connection = connection
        self._channel = channel

    def subscribe(self) -> None:
        """Subscribe, and drop signals received before: from now on none is missed while the connection lasts."""
        try:
            while self._connection.is_connected and self._connection.can_read(0):
                self._connection.read_response()
        except LostErrors:
            self._connection.disconnect()
        if not self._connection.is_connected:
            try:
                self._connection.connect()
                _execute(self._connection, "SUBSCRIBE", self._channel)
            except (*LostErrors, exceptions.ResponseError):  # the server cannot be reached, or forbids channels
                self._connection.disconnect()

    def wait(self, seconds: float, unsubscribed_seconds: float) -> None:
        """Wait for a signal or the end of the time, which is shorter without a subscription."""
        if not self._connection.is_connected:
            time.sleep(min(seconds, unsubscribed_seconds))
            return
        try:
            self._connection.can_read(seconds)
        except LostErrors:
            self._connection.disconnect()


def _has_input(connection: RawConnection) -> bool:
    try:
        return bool(connection.can_read(0))
    except LostErrors:
        return True


def _execute(connection: RawConnection, *command: Any) -> Any:
    connection.send_packed_command((pack_command(command),), check_health=False)
    return connection.read_response()
