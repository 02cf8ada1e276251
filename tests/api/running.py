"""How tests run the service: as a process of its own on a free port, with a queue on disk unless told otherwise."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from resource import RLIMIT_NOFILE
from typing import Any

import httpx

from fairlane import Queue
from fairlane.api import auth
from fairlane.api.permissions import Role
from fairlane.core.document import Claim, Done

SECONDS_MAX = 40.0
STAFF: tuple[Role, ...] = ("admin", "operator", "viewer")
OPEN_LIMITS = ("requests_a_second=100000", "requests_burst=100000")


def until(holds: Callable[[], Any], what: str = "it") -> Any:
    """Wait for a condition; returns what it gave."""
    deadline = time.monotonic() + SECONDS_MAX
    pause = threading.Event()
    while not (value := holds()):
        assert time.monotonic() < deadline, f"{what} did not happen within {SECONDS_MAX:g} s"
        pause.wait(0.01)
    return value


class Server:
    """A server, its queue, and keys for it."""

    def __init__(
        self,
        folder: Path,
        *options: str,
        work: bool = False,
        limits: tuple[str, ...] = OPEN_LIMITS,
        variables: dict[str, str] | None = None,
        url: str | None = None,
        prefix: tuple[str, ...] = (),  # a program that starts it
        open_files: tuple[int, int] | None = None,
    ) -> None:
        self.folder = folder
        self.url = url or f"sqlite:///{folder}/queue.db"
        self.queue = Queue(self.url)
        self.admin, self.operator, self.viewer = (auth.create(self.queue.engine, role=role)[0] for role in STAFF)
        limit_options = [part for limit in limits for part in ("--limit", limit)]
        command = ["serve", "--port", "0", "--json", *limit_options, *options, *([] if work else ["--no-work"])]
        self.log = folder / "log"
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("FAIRLANE_", "OTEL_"))}
        self._command = [*prefix, sys.executable, "-P", "-m", "fairlane.cli", *command]  # as the script `fairlane` does
        self._environment = environment | {"FAIRLANE_URL": self.url} | (variables or {})
        self._open_files = open_files  # how many the system allows: the soft and the hard limit
        self.start()

    def start(self) -> None:
        """Begin, or begin again."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=log, text=True, env=self._environment, cwd=self.folder,
                preexec_fn=None if self._open_files is None else partial(resource.setrlimit, RLIMIT_NOFILE, self._open_files),
            )  # fmt: skip
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        self.started = json.loads(line)
        self.address = self.started["address"]
        self.port = int(self.address.rpartition(":")[2])

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End it; returns how it ended."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(timeout=60)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def close(self) -> None:
        try:
            self.stop()
        finally:
            self.queue.close()

    def key(self, customer: str | None, **options: Any) -> str:
        """A new key."""
        return auth.create(self.queue.engine, customer=customer, **options)[0]

    def client(self, key: str | None) -> httpx.Client:
        """A client that shows this key; give it back with `close`, or use it in a `with`."""
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        return httpx.Client(base_url=self.address, headers=headers, timeout=60, trust_env=False)

    def logged(self) -> list[dict[str, Any]]:
        """What it has written down so far."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def connect(self, address: str = "127.0.0.1") -> socket.socket:
        """A bare connection from this address of the machine."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS_MAX, source_address=(address, 0))

    def memory(self) -> int:
        """How many bytes of memory the process has."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) * 1024

    def sockets(self) -> int:
        """How many sockets the process has open."""
        folder = Path(f"/proc/{self.process.pid}/fd")
        count = 0
        for handle in folder.iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                count += os.readlink(handle).startswith("socket:")
        return count

    # -- what a worker would do ----------------------------------------------------------------------------------------

    def claim(self, limit: int = 1) -> list[Claim]:
        return self.queue.engine.claim("tester", limit, 600_000)  # no lease ends while a busy machine takes its time

    def finish(self, limit: int = 1, result: Any = None) -> list[Claim]:
        """Take documents and end them as done."""
        claims = self.claim(limit)
        assert not self.queue.engine.settle([(claim, Done(json.dumps(result))) for claim in claims])
        return claims

    # -- bare sockets --------------------------------------------------------------------------------------------------

    def raw(self, data: bytes, then: bytes | None = None) -> bytes:
        """Send bytes as they are; everything that comes back until the server closes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS_MAX) as line:
            try:
                line.sendall(data)
                if then is not None:
                    line.sendall(then)
            except OSError:  # it has seen enough
                pass
            return b"".join(received(line))

    def head(self, key: str | None, method: str = "POST", path: str = "/v1/documents", *more: str) -> bytes:
        """The beginning of a request, up to where more headers may follow."""
        authorization = [f"Authorization: Bearer {key}"] if key else []
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close", *authorization, *more]
        return "".join(f"{line}\r\n" for line in lines).encode()


class HeldRequests:
    """Requests that begin and do not go on, so many at once; what is refused because others were quicker begins again."""

    def __init__(self, server: Server, opened: contextlib.ExitStack, data: bytes, count: int) -> None:
        self._server, self._opened, self._data, self._count = server, opened, data, count
        self.lines: list[socket.socket] = []

    def begin(self) -> bool:
        """Begin as many as are missing; whether none was."""
        answered = select.select(self.lines, [], [], 0)[0]
        self.lines = [line for line in self.lines if line not in answered]
        missing = self._count - len(self.lines)
        for _ in range(missing):
            line = self._opened.enter_context(self._server.connect())
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            line.sendall(self._data)
            self.lines.append(line)
        return not missing


def received(line: socket.socket) -> Iterator[bytes]:
    """What comes, until the other side closes."""
    try:
        while piece := line.recv(65536):
            yield piece
    except ConnectionResetError:
        return


def status_of(answer: bytes) -> int:
    """The status of a raw answer; 0: there was none."""
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0


LIMIT_PROBLEMS = ("too-many-queued", "quota-full", "retries-spent")  # a customer has reached a limit


def problem_of(answer: httpx.Response | bytes) -> str:
    """The word of a problem."""
    if isinstance(answer, bytes):
        problem = json.loads(answer.partition(b"\r\n\r\n")[2])
    else:
        assert answer.headers["content-type"] == "application/problem+json", answer.text
        problem = answer.json()
    figures = {"limit", "used", "adding", "most"} if problem["type"] in LIMIT_PROBLEMS else set()
    assert set(problem) == {"type", "title", "status", "detail"} | figures
    return str(problem["type"])
