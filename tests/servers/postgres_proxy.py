"""PostgreSQL proxies for tests: a transaction pooler, and one that cuts the connection at a chosen message.

Both speak just enough of the protocol: a message is a letter, a length and a body; ReadyForQuery (Z) ends a response, and says
whether a transaction is open.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType

SSL_REQUEST, CANCEL_REQUEST = 80877103, 80877102


def read_exactly(source: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = source.recv(size - len(parts))
        if not part:
            raise ConnectionError("closed")
        parts += part
    return bytes(parts)


def read_message(source: socket.socket) -> tuple[bytes, bytes]:
    """Read a message; returns its letter, and all of it."""
    head = read_exactly(source, 5)
    return head[:1], head + read_exactly(source, struct.unpack("!I", head[1:])[0] - 4)


def read_startup(source: socket.socket) -> bytes:
    """Read a client's first message, which has no letter; decline encryption."""
    while True:
        length = read_exactly(source, 4)
        body = read_exactly(source, struct.unpack("!I", length)[0] - 4)
        if struct.unpack("!I", body[:4])[0] != SSL_REQUEST:
            return length + body
        source.sendall(b"N")


class PostgresProxy:
    """Listens on a port of its own; every client is served by a thread."""

    def __init__(self, port: int) -> None:
        self._server = ("127.0.0.1", port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self, schema: str) -> str:
        return f"postgresql://fairlane@127.0.0.1:{self.port}/postgres?schema={schema}"

    def __enter__(self) -> PostgresProxy:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listening.close()
        for open_socket in self._sockets:
            with contextlib.suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)
            open_socket.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._listening.accept()[0]
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._sockets.append(client)
                threading.Thread(target=self._serve_quietly, args=(client,), daemon=True).start()

    def _serve_quietly(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError, ConnectionError):
            self.serve(client)

    def backend(self, startup: bytes) -> tuple[socket.socket, bytes]:
        """Connect to the server with a client's first message; returns the connection and the response."""
        backend = socket.create_connection(self._server)
        backend.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sockets.append(backend)
        backend.sendall(startup)
        response = b""
        while True:
            letter, message = read_message(backend)
            response += message
            if letter == b"Z":
                return backend, response

    def serve(self, client: socket.socket) -> None:
        raise NotImplementedError


class Pooler(PostgresProxy):
    """A transaction pooler: each transaction runs on the next of three backends, whoever sends it."""

    def __init__(self, port: int, backends: int = 3) -> None:
        self._count = backends
        self._lock = threading.Lock()
        self._backends: list[tuple[socket.socket, threading.Lock]] = []
        self._turn = itertools.count()
        self._welcome = b""
        self.transactions = 0
        super().__init__(port)

    def serve(self, client: socket.socket) -> None:
        startup = read_startup(client)
        with self._lock:
            while len(self._backends) < self._count:
                backend, self._welcome = self.backend(startup)
                self._backends.append((backend, threading.Lock()))
        client.sendall(self._welcome)
        while True:
            letter, message = read_message(client)
            if letter == b"X":
                return
            backend, lock = self._backends[next(self._turn) % self._count]
            with lock:
                self._transact(client, backend, message, letter)
                self.transactions += 1

    @staticmethod
    def _transact(client: socket.socket, backend: socket.socket, message: bytes, letter: bytes) -> None:
        """Pass messages until the backend is ready and no transaction is open."""
        while True:
            backend.sendall(message)
            while letter not in b"SQ":  # a query in parts ends with Sync
                letter, message = read_message(client)
                backend.sendall(message)
            while True:
                letter, response = read_message(backend)
                client.sendall(response)
                if letter == b"Z":
                    break
            if response[5:6] == b"I":
                return
            letter, message = read_message(client)


class Cutter(PostgresProxy):
    """Cuts the connection where `cuts` says so: before a client's message reaches the server, or before its response."""

    def __init__(self, port: int) -> None:
        self.cuts: Callable[[bytes], str | None] = lambda _: None  # "before", "after" or None
        super().__init__(port)

    def serve(self, client: socket.socket) -> None:
        backend, welcome = self.backend(read_startup(client))
        client.sendall(welcome)
        cut: str | None = None
        while True:
            letter, message = read_message(client)
            cut = cut or self.cuts(message)
            if cut == "before":
                break
            backend.sendall(message)
            if letter not in b"SQ":
                continue
            while True:
                letter, response = read_message(backend)
                if cut is None:
                    client.sendall(response)
                if letter == b"Z":
                    break
            if cut:
                break
        client.close()
        backend.close()
