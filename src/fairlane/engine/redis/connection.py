"""Connections to a Redis or Valkey server: run scripts, and decide what may be sent again after a failure.

Laws:
- A call has one deadline, which covers connecting, sending, the reply and every try.
- What was never sent changed nothing, and the error says so (StoreUnreachable).
- What was sent and not answered may have happened. It is sent again only if the verb allows that: because it only reads,
  because twice has the same effect as once, or because its second argument marks it as a repetition and the script finds
  what the first one did. Otherwise the error says that the outcome is unknown.
- A server that is still loading its data has done nothing yet, and is waited for.
- With `replicas` in the URL a write is acknowledged when so many replicas have it. While they are silent nothing is written.
"""

from __future__ import annotations

import contextlib
import random
import re
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from hiredis import pack_command
from redis import exceptions
from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.retry import Retry

from fairlane.core.errors import StoreBusy, StoreError, StoreFrozen, StoreUnfit, StoreUnreachable
from fairlane.engine.connection_pool import ConnectionPool, NotConnected, PoolClosed
from fairlane.engine.deadline import (
    CONNECT_SECONDS,
    KEEPALIVE_COUNT,
    KEEPALIVE_IDLE_SECONDS,
    KEEPALIVE_INTERVAL_SECONDS,
    SILENCE_SECONDS,
    Deadline,
)
from fairlane.engine.schema import Schema, mark_of

from .errors import NotReplicated, translate_error
from .scripts import READING, SCHEMA, load_script
from .url import RedisUrl

PAUSE_FIRST, PAUSE_LAST = 0.01, 0.5
CONNECTIONS_MAX = 64
KEEPALIVE = {  # what the platform does not know is left out
    getattr(socket, name): value
    for name, value in {
        "TCP_KEEPIDLE": KEEPALIVE_IDLE_SECONDS, "TCP_KEEPINTVL": KEEPALIVE_INTERVAL_SECONDS, "TCP_KEEPCNT": KEEPALIVE_COUNT,
        "TCP_USER_TIMEOUT": SILENCE_SECONDS * 1000,
    }.items()
    if hasattr(socket, name)
}  # fmt: skip

REPLICAS_RETRY_SECONDS = 1.0  # how long a call waits for replicas that were silent the last time
# What these write may be lost at a failover without harm: leases end early, expired ones are found again, purges are repeated.
UNCONFIRMED = {*READING, "migrate", "upgrade", "count", "sweep", "extend", "reclaim", "purge"}

RawConnection = Any  # a connection of redis-py, whose methods carry no types
Repeat = Literal["never", "same", "marked"]  # not at all, with the same arguments, with a 1 as second argument
ReplyErrors = (exceptions.ResponseError, exceptions.AuthenticationError, exceptions.AuthorizationError)
LostErrors = (exceptions.ConnectionError, exceptions.TimeoutError, OSError)


class RedisPool:
    """Connections to one server, and scripts run over them."""

    def __init__(self, url: RedisUrl, schema: Schema = SCHEMA) -> None:
        self.url = url
        self._schema = schema
        self.name = f"the queue {url.queue!r} at {url.display}"
        self.has_flags = False  # whether the server knows the flags of scripts
        self._are_replicas_silent = False
        self._pool: ConnectionPool[RawConnection] = ConnectionPool(
            self._connect, _is_usable, _disconnect, CONNECTIONS_MAX, refusals=ReplyErrors
        )
        self._listeners: ConnectionPool[RawConnection] = ConnectionPool(
            self._subscribe, lambda listener: listener.is_connected, _disconnect, CONNECTIONS_MAX
        )

    def be_patient(self) -> None:
        """From now on wait for a server that cannot be reached; while a queue is being opened that is an error at once."""
        self._pool.is_patient = True

    def close(self) -> None:
        """Close all idle connections; those in use are closed when they are released."""
        self._pool.close()
        self._listeners.close()

    # -- connections -------------------------------------------------------------------------------------------------

    def _connect(self) -> RawConnection:
        settings: dict[str, Any] = {
            "socket_connect_timeout": CONNECT_SECONDS, "socket_timeout": CONNECT_SECONDS, "decode_responses": True,
            "retry": Retry(NoBackoff(), 0), "protocol": 2, "driver_info": None, "client_name": "fairlane",
            **self.url.settings,
        }  # fmt: skip
        if self.url.socket_path is not None:
            connection_class: Any = UnixDomainSocketConnection
            connection = connection_class(self.url.socket_path, **settings)
        else:
            connection_class = SSLConnection if self.url.is_encrypted else Connection
            connection = connection_class(socket_keepalive=True, socket_keepalive_options=KEEPALIVE, **settings)
        connection.connect()
        return connection

    def _acquire(self, deadline: Deadline) -> RawConnection:
        """Take a connection whose sends and reads end at the deadline."""
        try:
            connection = self._pool.acquire(deadline)
        except PoolClosed:
            raise StoreError(f"the queue at {self.url.display} was closed; open it again") from None
        except NotConnected as error:
            if isinstance(error.cause, ReplyErrors):
                raise translate_error(error.cause, self.url) from error.cause
            raise
        connection.update_current_socket_timeout(max(deadline.left(), 0.001))  # 0 would mean not to wait at all
        return connection

    # -- scripts -----------------------------------------------------------------------------------------------------

    def run(self, verb: str, arguments: Sequence[Any], repeat: Repeat, is_confirmed: bool = True) -> Any:
        """Run a verb's script and return its reply, which replicas confirm unless it is said that they need not."""
        is_confirmed = is_confirmed and self.url.replicas > 0 and verb not in UNCONFIRMED
        deadline, pause, is_unknown = Deadline(self.url.timeout), PAUSE_FIRST, False
        while True:
            try:
                return self._attempt(verb, arguments, deadline, is_confirmed)
            except exceptions.BusyLoadingError as error:  # nothing was done
                if deadline.is_over:
                    raise StoreBusy(f"the server at {self.url.display} is still loading its data; try again later") from error
            except StoreFrozen as error:  # an attempt that was not answered may have happened before the freeze
                if is_unknown and repeat == "same":
                    raise self._unknown_outcome(verb, error) from error
                raise
            except NotConnected as error:
                raise self._unknown_outcome(verb, error) if is_unknown else self._unreachable(error) from error.cause
            except LostErrors as error:
                is_unknown = verb not in READING
                if repeat == "never" or deadline.is_over:
                    raise self._unknown_outcome(verb, error) if is_unknown else self._unreachable(error) from error
                if repeat == "marked":
                    arguments = [arguments[0], 1, *arguments[2:]]
            deadline.sleep(pause * random.uniform(0.5, 1))
            pause = min(PAUSE_LAST, 2 * pause)

    def _attempt(self, verb: str, arguments: Sequence[Any], deadline: Deadline, is_confirmed: bool) -> Any:
        """Run a script once; NotConnected says that it was not sent, LostErrors that it may have been received."""
        connection = self._acquire(deadline)
        try:
            evalsha = self._evalsha_confirmed if is_confirmed else self._evalsha
            reply = evalsha(connection, verb, arguments, deadline)
        except StoreError:
            self._pool.release(connection)
            raise
        except exceptions.ReadOnlyError as error:  # the primary is another server now: connect anew the next time
            self._pool.discard(connection)
            raise translate_error(error, self.url) from error
        except ReplyErrors as error:
            self._pool.release(connection)
            raise self._translate(error) from error
        except BaseException:  # a reply that comes late must not be read by the next call
            self._pool.discard(connection)
            raise
        self._pool.release(connection)
        return reply

    def _translate(self, error: Exception) -> StoreError:
        """Translate an error of a script; one about the queue's form says which program is too old."""
        if found := re.search(r"FAIRLANE_FORM (\d+) (\d+)", str(error)):
            try:
                self._schema.refuse_newer(self.name, mark_of(*map(int, found.groups())))
            except StoreUnfit as refusal:
                return refusal
        return translate_error(error, self.url)

    def _evalsha_confirmed(self, connection: RawConnection, verb: str, arguments: Sequence[Any], deadline: Deadline) -> Any:
        """Run a script, and wait until enough replicas have what it wrote; write nothing while they are known to be silent."""
        if self._are_replicas_silent and (count := self._count_replicas(connection, deadline)) < self.url.replicas:
            raise StoreUnreachable(
                f"only {count} of {self.url.replicas} replicas of {self.url.display} answer, so nothing was changed: check the "
                "replicas, or lower replicas in the URL"
            )
        reply = self._evalsha(connection, verb, arguments, deadline)
        if (count := self._count_replicas(connection, deadline)) < self.url.replicas:
            raise NotReplicated(self.url, verb, count, reply)
        return reply

    def _count_replicas(self, connection: RawConnection, deadline: Deadline) -> int:
        """Wait until enough replicas have everything written so far; return how many have it in the end.

        WAIT waits for what this connection wrote last. The message makes that the newest write of all, also when a script
        wrote nothing because the document was already there.
        """
        seconds = REPLICAS_RETRY_SECONDS if self._are_replicas_silent else self.url.replicas_timeout
        timeout_ms = max(1, int(1000 * min(seconds, 0.9 * deadline.left())))
        _execute(connection, deadline, "PUBLISH", self.url.prefix + "replicas", "")
        count = int(_execute(connection, deadline, "WAIT", self.url.replicas, timeout_ms))
        self._are_replicas_silent = count < self.url.replicas
        return count

    def _evalsha(self, connection: RawConnection, verb: str, arguments: Sequence[Any], deadline: Deadline) -> Any:
        text, sha = load_script(verb, self.has_flags, self._schema.version)
        command = ("EVALSHA", sha, 1, self.url.prefix + "queue", *arguments)
        try:
            return _execute(connection, deadline, *command)
        except exceptions.NoScriptError:  # a new server, a restarted one, or one whose scripts were flushed
            _execute(connection, deadline, "SCRIPT", "LOAD", text)
            return _execute(connection, deadline, *command)

    def run_text(self, script: str, arguments: Sequence[Any]) -> Any:
        """Run a script that is no verb's, once."""
        return self.execute("EVAL", script, 1, self.url.prefix + "queue", *arguments)

    def execute(self, *command: Any) -> Any:
        """Execute one command, once."""
        deadline = Deadline(self.url.timeout)
        try:
            connection = self._acquire(deadline)
        except NotConnected as error:
            raise self._unreachable(error) from error.cause
        try:
            reply = _execute(connection, deadline, *command)
        except ReplyErrors as error:
            self._pool.release(connection)
            raise translate_error(error, self.url) from error
        except LostErrors as error:
            self._pool.discard(connection)
            raise self._unreachable(error) from error
        self._pool.release(connection)
        return reply

    def _unknown_outcome(self, verb: str, error: Exception) -> StoreError:
        return StoreError(
            f"the connection to {self.url.display} was lost during {verb} ({error}); whether it took effect is not known: "
            "look, and then repeat it if need be"
        )

    def _unreachable(self, error: Exception) -> StoreUnreachable:
        return StoreUnreachable(
            f"the server at {self.url.display} cannot be reached ({error}); nothing was changed: check that it runs, the host "
            "and port of the URL, and whether it wants encryption (rediss://, valkeys://)"
        )

    # -- signals -----------------------------------------------------------------------------------------------------

    def _subscribe(self) -> RawConnection:
        connection = self._connect()
        try:
            _execute(connection, Deadline(CONNECT_SECONDS), "SUBSCRIBE", self.url.prefix + "signal")
        except BaseException:
            connection.disconnect()
            raise
        return connection

    @contextmanager
    def listener(self) -> Iterator[WakeListener]:
        """Lend a receiver of the queue's signals."""
        listener = WakeListener(self._listeners)
        try:
            yield listener
        finally:
            listener.release()


class WakeListener:
    """Receives signals that a document may be ready; a signal may be lost, so a waiter also polls now and then."""

    def __init__(self, pool: ConnectionPool[RawConnection]) -> None:
        self._pool = pool
        self._connection: RawConnection | None = None

    def subscribe(self) -> None:
        """Subscribe, and drop signals received before: from now on none is missed while the connection lasts.

        It does not wait for a connection: one that is made meanwhile is taken the next time.
        """
        if self._connection is None:
            with contextlib.suppress(NotConnected, PoolClosed):
                self._connection = self._pool.acquire(Deadline(0))
        if self._connection is not None:
            try:
                while self._connection.can_read(0):
                    self._connection.read_response()
            except LostErrors:
                self._lose()

    def wait(self, seconds: float, unsubscribed_seconds: float) -> None:
        """Wait for a signal or the end of the time, which is shorter without a subscription."""
        if self._connection is None:
            time.sleep(min(seconds, unsubscribed_seconds))
            return
        try:
            self._connection.can_read(seconds)
        except LostErrors:
            self._lose()

    def release(self) -> None:
        """Give back the connection, which stays subscribed."""
        if self._connection is not None:
            self._pool.release(self._connection)

    def _lose(self) -> None:
        self._pool.discard(self._connection)
        self._connection = None


def _is_usable(connection: RawConnection) -> bool:
    """Return whether an idle connection has nothing to read; if it has, the server closed it."""
    try:
        return connection.is_connected and not connection.can_read(0)
    except LostErrors:
        return False


def _disconnect(connection: RawConnection) -> None:
    connection.disconnect()


def _execute(connection: RawConnection, deadline: Deadline, *command: Any) -> Any:
    connection.send_packed_command((pack_command(command),), check_health=False)
    return connection.read_response(timeout=max(deadline.left(), 0.001))  # 0 would mean not to wait at all
