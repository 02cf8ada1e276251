"""What may stand between a client and its server: a line that loses an answer, and something that answers in its place."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

PIECE = 1 << 16


class Between:
    """Listens on a port of its own and passes bytes on to the server, unless `instead` or `losing` says otherwise."""

    def __init__(self, port: int) -> None:
        self._server = ("127.0.0.1", port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.instead: list[bytes] = []  # answers that are given without asking the server
        self.losing = 0  # so many answers of the server are lost
        self.lost = 0
        self.asked: list[bytes] = []  # the beginning of each request
        self._flows = threading.Event()
        self._flows.set()
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Between:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listening.close()
        self.cut()
        self._flows.set()

    def hush(self, is_silent: bool) -> None:
        """Connections stay open and new ones are taken, but nothing goes either way; what was sent meanwhile goes on later."""
        if is_silent:
            self._flows.clear()
        else:
            self._flows.set()

    def cut(self) -> None:
        """Every connection breaks now."""
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._listening.accept()[0]
                self._sockets.append(client)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client, socket.create_connection(self._server) as server:
            self._sockets.append(server)
            back = threading.Thread(target=_passed, args=(server, client, self._is_passed), daemon=True)
            back.start()
            while told := client.recv(PIECE):
                self._flows.wait()
                if told.startswith((b"GET ", b"POST ", b"PUT ", b"PATCH ", b"DELETE ")):
                    self.asked.append(told)
                    if self.instead:
                        said = self.instead.pop(0)
                        client.sendall(said)
                        if b"Connection: close" in said:
                            return
                        continue
                server.sendall(told)

    def _is_passed(self) -> bool:
        self._flows.wait()
        if self.losing:
            self.losing -= 1
            self.lost += 1
            return False
        return True


def _passed(source: socket.socket, target: socket.socket, is_passed: Callable[[], bool]) -> None:
    with contextlib.suppress(OSError):
        while (told := source.recv(PIECE)) and is_passed():
            target.sendall(told)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


def answer(status: int, body: bytes = b"", media_type: str = "application/problem+json", *more: str) -> bytes:
    """A whole answer, as bytes."""
    lines = [f"HTTP/1.1 {status} Told", f"Content-Type: {media_type}", f"Content-Length: {len(body)}", *more, "", ""]
    return "\r\n".join(lines).encode() + body


def problem(status: int, word: str, *more: str) -> bytes:
    """A problem, as a server of ours tells it."""
    body = f'{{"type":"{word}","title":"No","status":{status},"detail":"told by {word}"}}'
    return answer(status, body.encode(), "application/problem+json", *more)
