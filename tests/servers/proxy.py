"""A proxy between an engine and its server that swallows an answer: the server has done it, and nobody hears of it."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path

CHUNK = 1 << 16


class Proxy:
    """Passes bytes on, to a socket of the server's; after `swallow` the next answer is dropped and its connection cut."""

    def __init__(self, upstream: Path) -> None:
        self._upstream = str(upstream)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._is_swallowing = threading.Event()
        self.swallowed = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def swallow(self) -> None:
        """The next answer is lost."""
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
            while told := client.recv(CHUNK):
                server.sendall(told)
        _cut(client, server)

    def _pass_back(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while told := server.recv(CHUNK):
                if self._is_swallowing.is_set():
                    self._is_swallowing.clear()
                    self.swallowed += 1
                    break
                client.sendall(told)
        _cut(client, server)


def _cut(*sockets: socket.socket) -> None:
    for one in sockets:
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
