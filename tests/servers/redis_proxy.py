"""A Redis proxy for tests that loses a reply: the server has run the command, and the client never learns it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from pathlib import Path

CHUNK = 1 << 16


class LossyProxy:
    """Passes bytes to the server's socket and back; after `swallow` it drops the next reply and cuts its connection."""

    def __init__(self, upstream: Path) -> None:
        self._upstream = str(upstream)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._is_swallowing = threading.Event()
        self._then: Callable[[], object] = lambda: None
        self.swallowed = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def swallow(self, then: Callable[[], object] = lambda: None) -> None:
        """Lose the next reply; call `then` when the server has sent it and before the connection is cut."""
        self._then = then
        self._is_swallowing.set()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server:
            server.connect(self._upstream)
            forth = threading.Thread(target=self._pass_on, args=(client, server), daemon=True)
            forth.start()
            self._pass_back(server, client)
            forth.join()

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while chunk := client.recv(CHUNK):
                server.sendall(chunk)
        _cut(client, server)

    def _pass_back(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while chunk := server.recv(CHUNK):
                if self._is_swallowing.is_set():
                    self._is_swallowing.clear()
                    self.swallowed += 1
                    self._then()
                    break
                client.sendall(chunk)
        _cut(client, server)


def _cut(*sockets: socket.socket) -> None:
    for each in sockets:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
