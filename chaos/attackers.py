"""Hostile clients of a service: each kind of attack is one connection that does one unpleasant thing until it is cut off.

As `python -m chaos.attackers` it reads a plan in JSON from its input, attacks until the input ends, and prints a line when
every kind of attack has begun, and what it did at the end.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
import socket
import ssl
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from itertools import cycle, islice

import uvloop

CUT_OFF = (OSError, ssl.SSLError, asyncio.IncompleteReadError, asyncio.LimitOverrunError)
CONNECT_SECONDS = 20.0
BEGIN_SECONDS = 120.0  # until every kind of attack has begun
READ_BYTES = 65_536
SMALL_BUFFER = 4096  # bytes that the kernel keeps for somebody who reads slowly
FILE_BYTES = 20_000_000  # of an upload that takes for ever
OPEN_FILES_SPARE = 200


@dataclass(frozen=True)
class Plan:
    """Whom to attack, from where, and with what."""

    port: int
    is_tls: bool
    connections: int
    addresses: tuple[str, ...]  # of this machine, from which connections come
    pause_seconds: float  # before a connection that was cut off is opened again
    key: str | None = None  # None: the attackers have none
    ids: tuple[str, ...] = ()  # documents of the key's customer; the first one has a large file
    seed: int = 1
    only: tuple[str, ...] = ()  # kinds of attack; empty: all

    def to_json(self) -> str:
        """Encode it for an attacker's input."""
        return json.dumps(asdict(self))


class Line:
    """One hostile connection."""

    def __init__(self, plan: Plan, dice: random.Random, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.plan = plan
        self.dice = dice
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()
        await asyncio.sleep(0)  # draining yields nothing while the buffer has room: the loop would never learn of the end

    async def trickle(self, data: bytes, seconds: float) -> None:
        """Send byte after byte, so many seconds apart, over and over until cut off."""
        for byte in cycle(data):
            await self.send(bytes((byte,)))
            await asyncio.sleep(seconds)

    async def read_all(self) -> None:
        """Read until the other side closes."""
        while await self.reader.read(READ_BYTES):
            pass
        raise ConnectionResetError

    async def read_slowly(self) -> None:
        """Read as little as possible, until the other side gives up."""
        while await self.reader.read(100):
            await asyncio.sleep(1)
        raise ConnectionResetError

    async def response(self) -> None:
        """Read one response with a length."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        lengths = [line.partition(b":")[2] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        await self.reader.readexactly(int(lengths[0]) if lengths else 0)

    def head(self, method: str, path: str, *headers: str) -> bytes:
        """Return the head of a request, with the key if there is one."""
        key = () if self.plan.key is None else (f"Authorization: Bearer {self.plan.key}",)
        return "\r\n".join((f"{method} {path} HTTP/1.1", "Host: localhost", *key, *headers, "", "")).encode()


# -- without a key -----------------------------------------------------------------------------------------------------


async def slow_handshake(line: Line) -> None:
    """Begin TLS and never come to its end; without TLS, it is the first line of a request."""
    await line.trickle(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200) if line.plan.is_tls else b"GET /", 2)


async def slow_headers(line: Line) -> None:
    await line.send(b"GET /v1/documents HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
    await line.trickle(b"x", 1)


async def slow_sign_in(line: Line) -> None:
    await line.send(line.head("POST", "/page/session", "Content-Type: application/json", "Content-Length: 900"))
    await line.trickle(b" ", 1)


async def slow_body(line: Line) -> None:
    """Upload without a key: refused at once, and goes on nevertheless."""
    await line.send(line.head("POST", "/v1/documents", "Content-Type: application/pdf", "Content-Length: 90000000"))
    await line.trickle(b"%PDF-1.7 ", 0.5)


async def endless_trailers(line: Line) -> None:
    await line.send(line.head("POST", "/page/session", "Content-Type: application/json", "Transfer-Encoding: chunked"))
    await line.send(b"2\r\n{}\r\n0\r\n")
    while True:
        await line.send(b"X-Trailer: " + b"x" * 8000 + b"\r\n")


async def garbage(line: Line) -> None:
    await line.send(line.dice.randbytes(20_000))
    await line.read_all()


async def pipelining(line: Line) -> None:
    """Send requests ahead, by the thousand, and read no response."""
    while True:
        await line.send(line.head("GET", "/healthz") * 100)


async def slow_reader(line: Line) -> None:
    await line.send(line.head("GET", "/v1/openapi.json") * 8)
    await line.read_slowly()


async def wrong_keys(line: Line) -> None:
    while True:
        key = f"fl_{line.dice.randbytes(8).hex()}_{'x' * 43}"
        await line.send(line.head("GET", "/v1/me", f"Authorization: Bearer {key}"))
        await line.response()
        await asyncio.sleep(1)


async def silence(line: Line) -> None:
    await line.read_all()


# -- with a key --------------------------------------------------------------------------------------------------------


async def slow_upload(line: Line) -> None:
    """Upload as slowly as is tolerated, and somewhat slower."""
    await line.send(line.head("POST", "/v1/documents", "Content-Type: application/pdf", f"Content-Length: {FILE_BYTES}"))
    rate = line.dice.choice((1500, 4000, 5000))  # bytes a second
    while True:
        await line.send(bytes(rate))
        await asyncio.sleep(1)


async def long_wait(line: Line) -> None:
    while True:
        await line.send(line.head("GET", f"/v1/documents/{line.dice.choice(line.plan.ids)}?wait=60"))
        await line.response()


async def searches(line: Line) -> None:
    """Search for what is nowhere, over and over."""
    while True:
        await line.send(line.head("GET", "/v1/documents?reason=nothing&limit=500"))
        await line.response()


async def slow_download(line: Line) -> None:
    await line.send(line.head("GET", f"/v1/documents/{line.plan.ids[0]}/file"))
    while await line.reader.readexactly(2500):
        await asyncio.sleep(0.5)


Attack = Callable[[Line], Awaitable[None]]
WITHOUT_KEY: tuple[Attack, ...] = (
    slow_handshake, slow_headers, slow_sign_in, slow_body, endless_trailers, garbage, pipelining, slow_reader, wrong_keys,
    silence,
)  # fmt: skip
WITH_KEY: tuple[Attack, ...] = (slow_upload, long_wait, searches, slow_download)
KINDS = tuple(kind.__name__ for kind in WITHOUT_KEY + WITH_KEY)
BEFORE_TLS = (slow_handshake, silence)


class Attackers:
    """Keeps so many hostile connections open, of each kind about as many."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.opened: Counter[str] = Counter()  # by kind of attack
        self.refused: Counter[str] = Counter()  # before the attack could begin
        self.begun = asyncio.Event()  # every kind of attack

    async def run(self, over: asyncio.Event) -> None:
        """Attack until it is over."""
        kinds = [
            kind
            for kind in (WITHOUT_KEY if self.plan.key is None else WITH_KEY)
            if not self.plan.only or kind.__name__ in self.plan.only
        ]
        self._missing = {kind.__name__ for kind in kinds[: self.plan.connections]}
        tasks = [
            asyncio.create_task(
                self._attack(number, kind, self.plan.addresses[number // len(kinds) % len(self.plan.addresses)])
            )
            for number, kind in enumerate(islice(cycle(kinds), self.plan.connections if kinds else 0))
        ]
        if not self._missing:
            self.begun.set()
        await over.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _attack(self, number: int, kind: Attack, address: str) -> None:
        """One connection after the other, all of one kind."""
        plan, dice = self.plan, random.Random(f"{self.plan.seed} {number}")
        await asyncio.sleep(dice.random() * plan.pause_seconds)
        while True:
            try:
                async with _connected(plan, address, dice, is_tls=plan.is_tls and kind not in BEFORE_TLS) as line:
                    self._count(kind.__name__)
                    await kind(line)
            except (*CUT_OFF, TimeoutError) as error:
                if not isinstance(error, CUT_OFF) or isinstance(error, (ConnectionRefusedError, ssl.SSLError)):
                    self.refused[kind.__name__] += 1
            await asyncio.sleep(plan.pause_seconds * (0.5 + dice.random()))

    def _count(self, kind: str) -> None:
        self.opened[kind] += 1
        self._missing.discard(kind)
        if not self._missing:
            self.begun.set()


@asynccontextmanager
async def _connected(plan: Plan, address: str, dice: random.Random, *, is_tls: bool) -> AsyncIterator[Line]:
    bare = socket.socket()
    try:
        bare.setblocking(False)
        bare.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
        bare.bind((address, 0))
        async with asyncio.timeout(CONNECT_SECONDS):
            await asyncio.get_running_loop().sock_connect(bare, ("127.0.0.1", plan.port))
            options = {"ssl": _trusting(), "server_hostname": "localhost"} if is_tls else {}
            reader, writer = await asyncio.open_connection(sock=bare, **options)  # type: ignore[arg-type]
    except BaseException:
        bare.close()
        raise
    try:
        yield Line(plan, dice, reader, writer)
    finally:
        writer.transport.abort()


_CONTEXTS: list[ssl.SSLContext] = []


def _trusting() -> ssl.SSLContext:
    """Attackers look at no certificate."""
    if not _CONTEXTS:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        _CONTEXTS.append(context)
    return _CONTEXTS[0]


async def _main(plan: Plan) -> None:
    attackers, over = Attackers(plan), asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), over.set)  # nothing comes but its end
    attacking = asyncio.create_task(attackers.run(over))
    async with asyncio.timeout(BEGIN_SECONDS):
        await attackers.begun.wait()
    print("begun", flush=True)
    await attacking
    print(json.dumps({"opened": attackers.opened, "refused": attackers.refused}))


if __name__ == "__main__":
    chosen = Plan(**json.loads(sys.stdin.readline()))
    wanted = chosen.connections + OPEN_FILES_SPARE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(wanted, hard)), hard))
    os.nice(19)  # other machines attack in truth: those would not take the service's processor
    uvloop.run(_main(chosen))
