"""Receivers of webhooks: one that answers as it should, and tarpits, which keep their callers for as long as they can."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from .running import Server
from .test_tls import Pair

PACE_SECONDS = 0.02  # between two bytes of a tarpit


class ServerSocket(ssl.SSLSocket):
    """A socket that is closed when nobody has it: Python loses it if the caller is gone before the handshake begins."""

    def __del__(self) -> None:
        self.close()


def server_context(pair: Pair) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sslsocket_class = ServerSocket
    context.load_cert_chain(pair.certificate, pair.key)
    return context


class Listener(ThreadingHTTPServer):
    """Somebody else's server: notes what it is sent, and answers with the statuses it is given."""

    daemon_threads = True

    def __init__(self, pair: Pair | None = None) -> None:
        self.calls: list[tuple[dict[str, str], bytes]] = []
        self.statuses: list[int] = []  # of the next answers; then 200
        self.before_answer: Callable[[int], object] = lambda _: None  # called with the number of the call, from 1
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}/hook?x=1"
        if pair is not None:
            self.socket = server_context(pair).wrap_socket(self.socket, server_side=True)
            self.url = f"https://localhost:{self.server_address[1]}/hook?x=1"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Listener)
        length = int(self.headers["Content-Length"])
        body = self.rfile.read(length)
        if len(body) < length:  # the sender died meanwhile
            self.close_connection = True
            return
        self.server.calls.append(({**dict(self.headers), "path": self.path}, body))
        status = self.server.statuses.pop(0) if self.server.statuses else 200
        self.server.before_answer(len(self.server.calls))
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def listening(pair: Pair | None = None) -> Iterator[Listener]:
    with Listener(pair) as listener:
        thread = threading.Thread(target=listener.serve_forever)
        thread.start()
        try:
            yield listener
        finally:
            listener.shutdown()
            thread.join()


class Tarpit:
    """A server with TLS that keeps every caller, until the caller gives up or the test ends."""

    def __init__(self, pair: Pair, behave: Callable[[Tarpit, ssl.SSLSocket], None] | None = None) -> None:
        self._context = server_context(pair)
        self._behave = behave  # None: not even the handshake is answered
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=200)
        self._threads = [threading.Thread(target=self._accept)]
        self._connections: list[socket.socket] = []
        self.is_closed = threading.Event()
        self.opened, self.ended = 0, 0
        self.url = f"https://localhost:{self._listening.getsockname()[1]}/"
        self._threads[0].start()

    def trickle(self, connection: ssl.SSLSocket, first: bytes, pieces: bytes) -> None:
        """Send the beginning of a response, and then the same pieces again and again, slowly, to a caller that stays."""
        connection.recv(65536)
        connection.sendall(first)
        while not self.is_closed.wait(PACE_SECONDS):
            connection.sendall(pieces)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                self._connections.append(connection.dup())  # TLS takes the other one over
                self.opened += 1
                self._threads.append(threading.Thread(target=self._keep, args=(connection,)))
                self._threads[-1].start()

    def _keep(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            if self._behave is None:
                while connection.recv(65536):
                    pass
            else:
                with self._context.wrap_socket(connection, server_side=True) as encrypted:
                    self._behave(self, encrypted)
        self.ended += 1

    def close(self) -> None:
        self.is_closed.set()
        self._listening.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()  # from here on there are no new connections
        for connection in self._connections:
            with connection, suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join()
        self._listening.close()


@contextmanager
def tarpit(pair: Pair, behave: Callable[[Tarpit, ssl.SSLSocket], None] | None = None) -> Iterator[Tarpit]:
    made = Tarpit(pair, behave)
    try:
        yield made
    finally:
        made.close()


@contextmanager
def serving(folder: Path, *options: str, **settings: Any) -> Iterator[Server]:
    server = Server(folder, *options, **settings)
    try:
        yield server
    finally:
        server.close()


def hooked(server: Server, customer: str, url: str) -> str:
    """Set a webhook as an operator; returns its secret."""
    with server.client(server.operator) as client:
        answer = client.put("/v1/webhook", params={"customer": customer}, json={"url": url})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["secret"])
