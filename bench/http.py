"""The rate of submissions over HTTP, beside a bare server.

Submissions of JSON, each acknowledged after a durable commit on SQLite, beside the bare server echoing the same bodies in the
same run: the same uvicorn, uvloop, httptools and FastAPI with one route that takes JSON and returns it. Without a goal it is
shown beside the naked server too, the same without the framework. All are processes of their own, and so are the senders:
bare sockets, 64 connections, requests written beforehand. Short rounds take turns, and the medians are compared.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, cast

import uvicorn
from fastapi import Body, FastAPI

from fairlane import Queue
from fairlane.api import auth

from .figures import Figure, Goal

CONNECTIONS = 64
CUSTOMERS = 100
GOAL = Goal(0.5)
ROUNDS, ROUNDS_QUICK = 7, 2
OPEN_LIMITS = ("requests_a_second=1000000", "requests_burst=1000000")
PAYLOAD = {"order": 17, "lines": ["A4", "A5", "A6"], "note": "please hurry", "from": "a customer of ours"}


async def naked(scope: dict[str, Any], receive: Callable[[], Any], send: Callable[[dict[str, Any]], Any]) -> None:
    """The naked server: it responds with what it was sent."""
    message = await receive()
    body = message["body"]
    while message.get("more_body"):
        message = await receive()
        body += message["body"]
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 202, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _serve(app: Any) -> None:
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    print(json.dumps({"address": f"http://127.0.0.1:{listening.getsockname()[1]}"}), flush=True)
    config = uvicorn.Config(app, loop="uvloop", http="httptools", lifespan="off", log_config=None, access_log=False)
    uvicorn.Server(config).run([listening])


def _bare() -> None:
    app = FastAPI(openapi_url=None)

    @app.post("/v1/documents", status_code=202)
    async def echoed(body: Annotated[dict[str, Any], Body()]) -> dict[str, Any]:
        return body

    _serve(app)


class _Sender(asyncio.Protocol):
    """One connection that sends its requests one after the other."""

    def __init__(self, requests: list[bytes], left: Iterator[int], done: asyncio.Future[None]) -> None:
        self._requests = requests
        self._left = left
        self._done = done
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._next()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, end, body = self._buffer.partition(b"\r\n\r\n")
        if not end:
            return
        assert head.startswith(b"HTTP/1.1 202"), self._buffer[:500]
        at = head.index(b"content-length: ") + 16
        length = int(head[at:].partition(b"\r\n")[0])
        if len(body) >= length:
            self._buffer = body[length:]
            self._next()

    def _next(self) -> None:
        number = next(self._left, None)
        if number is not None:
            self._transport.write(self._requests[number % len(self._requests)])
        elif not self._done.done():
            self._done.set_result(None)


async def _send(port: int, requests: list[bytes], number: int) -> float:
    loop = asyncio.get_running_loop()
    left = iter(range(number))
    ends = [loop.create_future() for _ in range(CONNECTIONS)]
    began = time.perf_counter()
    for end in ends:
        await loop.create_connection(lambda end=end: _Sender(requests, left, end), "127.0.0.1", port)  # type: ignore[misc]
    await asyncio.gather(*ends)
    return number / (time.perf_counter() - began)


def _load() -> None:
    """Send as many requests as a line on standard input says; print how many a second."""
    import uvloop

    port, keys = int(sys.argv[2]), json.loads(sys.argv[3])
    body = json.dumps({"payload": PAYLOAD}).encode()
    requests = [
        b"POST /v1/documents HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAuthorization: Bearer "
        + key.encode() + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        for key in keys
    ]  # fmt: skip
    for line in sys.stdin:
        rate = uvloop.run(_send(port, requests, int(line)))
        print(json.dumps({"rate": rate}), flush=True)


class _Program:
    """A process that prints JSON lines, and reads how many requests to send."""

    def __init__(self, *arguments: str, **options: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options
        )

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def rate(self, number: int) -> float:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{number}\n")
        self.process.stdin.flush()
        return float(self.read()["rate"])

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=60)


def _port(program: _Program) -> str:
    return str(program.read()["address"].rpartition(":")[2])


def measure(is_quick: bool, folder: Path, advance: Callable[[], None]) -> list[Figure]:
    """Rounds of ours and of the bare server, taking turns."""
    folder.mkdir(parents=True, exist_ok=True)
    url = f"sqlite:///{folder}/http.db"
    with Queue(url) as queue:
        queue.configure(waiting_max=None)
        keys = [auth.create(queue.engine, customer=f"customer-{number:03}")[0] for number in range(CUSTOMERS)]
    limits = [part for limit in OPEN_LIMITS for part in ("--limit", limit)]
    root = Path(__file__).parents[1]
    number, rounds = (300, ROUNDS_QUICK) if is_quick else (6000, ROUNDS)
    serve = ("-m", "fairlane.cli", "serve", "--url", url, "--port", "0", "--json", "--no-work", *limits)
    with ExitStack() as running, open(os.devnull, "w") as nothing:
        servers = [
            _Program(*serve, stderr=nothing),
            *(_Program("-m", "bench.http", name, cwd=root) for name in ("bare", "naked")),
        ]
        for server in servers:
            running.callback(server.end)
        senders = [_Program("-m", "bench.http", "load", _port(server), json.dumps(keys), cwd=root) for server in servers]
        for sender in senders:
            running.callback(sender.end)
            sender.rate(number)
        rates: list[list[float]] = [[], [], []]
        for _ in range(rounds):
            for sender, kept in zip(senders, rates, strict=True):
                kept.append(sender.rate(number))
            advance()
    ours, bare, without = map(statistics.median, rates)
    note = f"{CONNECTIONS} connections; ours {min(rates[0]):,.0f} to {max(rates[0]):,.0f}"
    return [
        Figure("submit over HTTP", ours, "documents/s", bare, GOAL, f"beside the bare server echoing; {note}"),
        Figure("submit over HTTP", ours, "documents/s", without, None, "beside uvicorn without a framework"),
    ]


if __name__ == "__main__":
    {"bare": _bare, "naked": lambda: _serve(naked), "load": _load}[sys.argv[1]]()
