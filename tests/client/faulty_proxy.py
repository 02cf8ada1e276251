"""A proxy between a client and its server that loses responses, or responds in the server's place."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

PIECE = 1 << 16


class FaultyProxy:
    """Listens on a port of its own and forwards bytes to the server, unless `canned` or `responses_to_lose` is set."""

    def __init__(self, port: int) -> None:
        self.server = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.canned: list[bytes] = []  # responses that are sent without the server
        self.responses_to_lose = 0  # so many responses of the server are lost
        self.lost = 0
        self.requests: list[bytes] = []  # the first bytes of each request
        self._is_flowing = threading.Event()
        self._is_flowing.set()
        self.sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> FaultyProxy:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()
        self.drop_connections()
        self._is_flowing.set()

    def pause(self, is_paused: bool) -> None:
        """Forward nothing, with all connections open; what was sent in the meantime is forwarded later."""
        if is_paused:
            self._is_flowing.clear()
        else:
            self._is_flowing.set()

    def drop_connections(self) -> None:
        """Break every connection now."""
        for connection in self.sockets:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                self.sockets.append(client)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client, socket.create_connection(self.server) as server:
            self.sockets.append(server)
            threading.Thread(target=_forward, args=(server, client, self._may_forward), daemon=True).start()
            while request := client.recv(PIECE):
                self._is_flowing.wait()
                if request.startswith((b"GET ", b"POST ", b"PUT ", b"PATCH ", b"DELETE ")):
                    self.requests.append(request)
                    if self.canned:
                        canned = self.canned.pop(0)
                        client.sendall(canned)
                        if b"Connection: close" in canned:
                            return
                        continue
                server.sendall(request)

    def _may_forward(self) -> bool:
        self._is_flowing.wait()
        if self.responses_to_lose:
            self.responses_to_lose -= 1
            self.lost += 1
            return False
        return True


def _forward(source: socket.socket, target: socket.socket, may_forward: Callable[[], bool]) -> None:
    with contextlib.suppress(OSError):
        while (data := source.recv(PIECE)) and may_forward():
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


def response(status: int, body: bytes = b"", media_type: str = "application/problem+json", *more: str) -> bytes:
    """Return the bytes of a whole response."""
    lines = [f"HTTP/1.1 {status} Canned", f"Content-Type: {media_type}", f"Content-Length: {len(body)}", *more, "", ""]
    return "\r\n".join(lines).encode() + body


def problem(status: int, code: str, *more: str) -> bytes:
    """Return the bytes of a problem response like the server's."""
    body = f'{{"type":"{code}","title":"No","status":{status},"detail":"the reason is {code}"}}'
    return response(status, body.encode(), "application/problem+json", *more)
