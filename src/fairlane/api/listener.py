"""Accepts connections: each is counted before TLS, by its address, and has a limited time for the handshake.

uvloop's own server would accept whatever comes, and count nothing before the handshake has ended.

Laws:
- A handshake that takes longer than `handshake_seconds` is cut off.
- An address that opens more connections than it may without showing a key is turned away before the handshake.
- Of the others so many are opened in a second, those of addresses with few connections first; the rest waits.
- When no more files can be opened, nothing new is accepted for a moment; the connections there are stay.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from .arrivals import Arrivals
from .client_address import plain_address
from .connection_limits import LimitedConnection, encode_response, too_many
from .connection_table import ConnectionTable
from .limits import ServiceLimits
from .lingering import TLS_CLOSE_SECONDS
from .logging import Log
from .problems import Problem, too_many_strangers
from .token_buckets import TokenBuckets

BACKLOG = 2048
ACCEPTED_A_TURN = 64  # connections, before other things have their turn
OPENED_EVERY_SECONDS = 0.005  # as long as connections wait to be opened
PAUSE_SECONDS = 0.2  # when no more files can be opened
KEEPALIVE_SECONDS = 60
UNSENT_BYTES = 256 * 1024  # of a response in the system's memory, for a client that does not read
UNACKNOWLEDGED_MS = 60_000  # a client that has gone without a word is noticed after so long


class AcceptedSocket(NamedTuple):
    """A connection that was accepted."""

    accepted: socket.socket
    address: str


class Listener:
    """Accepts the connections of one socket."""

    def __init__(
        self,
        listening: socket.socket,
        make_connection: Callable[[], LimitedConnection],
        table: ConnectionTable,
        group_of: Callable[[str], str],
        strangers: TokenBuckets,
        limits: ServiceLimits,
        tls: ssl.SSLContext | None,
        log: Log,
    ) -> None:
        self._listening = listening
        self._make_connection = make_connection
        self._table = table
        self._group_of = group_of  # empty: connections of this address are not counted by address
        self._strangers = strangers
        self._tls = tls
        self._handshake_seconds = limits.handshake_seconds
        self._arrivals: Arrivals[AcceptedSocket] = Arrivals(limits.new_connections_a_second, table.strangers_of)
        self._opening_later: asyncio.TimerHandle | None = None
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._opening: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin to accept."""
        self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # connections inherit these
        self._listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_SECONDS)
        self._listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS)
        self._listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
        self._listening.setblocking(False)
        self._listening.listen(BACKLOG)
        self._resume()

    def close(self) -> None:
        """Accept no more, and give up handshakes in progress."""
        if self._listening.fileno() >= 0:
            self._loop.remove_reader(self._listening.fileno())
            self._listening.close()
        for arrival in self._arrivals.clear():
            arrival.accepted.close()
        for task in self._opening:
            task.cancel()

    def _resume(self) -> None:
        if self._listening.fileno() >= 0:
            self._loop.add_reader(self._listening.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_A_TURN):
            try:
                accepted, peer = self._listening.accept()
            except (BlockingIOError, ConnectionAbortedError, InterruptedError):
                return
            except OSError as error:  # the process, or the system, has too many open files
                self._log.event("not accepting", told=error.strerror or "")
                self._loop.remove_reader(self._listening.fileno())
                self._loop.call_later(PAUSE_SECONDS, self._resume)
                return
            self._arrive(AcceptedSocket(accepted, plain_address(peer[0])))

    def _arrive(self, arrival: AcceptedSocket) -> None:
        group = self._group_of(arrival.address)
        if not group:
            return self._open(arrival, group)
        if not self._strangers.take(group):
            return self._turn_away(arrival, too_many_strangers())
        excess = self._arrivals.add(group, arrival)
        if excess is not None:
            self._turn_away(excess, too_many())
        if self._opening_later is None:
            self._open_arrivals()
        return None

    def _open_arrivals(self) -> None:
        """Open the connections whose time has come, and the others later."""
        self._opening_later = None
        while (arrival := self._arrivals.next()) is not None:
            self._open(arrival, self._group_of(arrival.address))
        if len(self._arrivals) and self._listening.fileno() >= 0:
            self._opening_later = self._loop.call_later(OPENED_EVERY_SECONDS, self._open_arrivals)

    def _open(self, arrival: AcceptedSocket, group: str) -> None:
        accepted = arrival.accepted
        connection = self._make_connection()
        connection.group = group
        connection.is_admitted = self._table.admit(connection, group)
        task = self._loop.create_task(self._connect(accepted, connection))
        connection.opening = task
        self._opening.add(task)
        task.add_done_callback(partial(self._opened, accepted, connection))

    def _turn_away(self, arrival: AcceptedSocket, problem: Problem) -> None:
        """Close a connection of an address that opens too many; where that costs no handshake, say why."""
        self._log.refused(client=arrival.address, problem=problem.type)
        if self._tls is None:
            with contextlib.suppress(OSError):
                arrival.accepted.setblocking(False)
                arrival.accepted.send(encode_response(problem))
        arrival.accepted.close()

    async def _connect(self, accepted: socket.socket, connection: LimitedConnection) -> None:
        options = {}
        if self._tls is not None:
            options = {"ssl_handshake_timeout": self._handshake_seconds, "ssl_shutdown_timeout": TLS_CLOSE_SECONDS}
        await self._loop.connect_accepted_socket(lambda: connection, accepted, ssl=self._tls, **options)

    def _opened(self, accepted: socket.socket, connection: LimitedConnection, task: asyncio.Task[None]) -> None:
        self._opening.discard(task)
        connection.opening = None
        if task.cancelled() or task.exception() is not None:  # no TLS, too slow, gone, or it has made room for another one
            self._table.remove(connection)
            accepted.close()
            if not (task.cancelled() or isinstance(task.exception(), OSError)):
                self._log.failed("a connection", task.exception() or RuntimeError())
