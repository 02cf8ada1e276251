"""The service of a drill, those who send to it, and those who follow its events; each remembers what it saw, and when."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import httpx

from fairlane import Client, Queue
from fairlane.api import auth
from fairlane.core.errors import FairlaneError
from tests.servers.postgres import free_port

from .history import ClientLog
from .processes import ROOT

LIMITS = ("requests_a_second=100000", "requests_burst=100000")
REQUEST_SECONDS = 60.0
STOP_SECONDS = 90.0
NO_RESPONSE = 0  # a status


class Service:
    """`fairlane serve`, which comes back at the same address."""

    def __init__(self, folder: Path, url: str, kind: str) -> None:
        self._log = folder / "serve.log"
        limits = [part for limit in LIMITS for part in ("--limit", limit)]
        self._command = [sys.executable, "-m", "fairlane.cli", "serve", "--no-work", "--json", "--port", str(free_port()),
                         "--kind", kind, *limits]  # fmt: skip
        self._environment = {**os.environ, "FAIRLANE_URL": url}
        self.address = ""
        with Queue(url) as queue:
            self.key, _ = auth.create(queue.engine, role="admin")
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True, env=self._environment
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the service did not start: {self._log.read_text()[-500:]}")
        started = json.loads(line)
        self.address = started["address"]

    def stop(self) -> float:
        """Send SIGTERM; return how many seconds it took to end. One that does not end is killed."""
        began_at = time.monotonic()
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)
        seconds = time.monotonic() - began_at
        self.kill()
        return seconds

    def kill(self) -> None:
        """Send SIGKILL, if it still runs."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


class Request(NamedTuple):
    """One request of a sender, on the monotonic clock."""

    began_at: float
    ended_at: float
    status: int


class Senders:
    """Threads that submit at a steady rate, whatever happens, and repeat what got no receipt with its key."""

    def __init__(self, address: str, keys: dict[str, str], kind: str, folder: Path, rate: float, threads: int) -> None:
        self.log = folder / "senders.log"
        self.requests: list[Request] = []
        self._log = ClientLog(self.log)
        self._address, self._keys, self._kind = address, keys, kind
        self._pause = threads / rate
        self._lock = threading.Lock()
        self._count = 0
        self._open: deque[tuple[str, str]] = deque()  # without a receipt
        self._is_over = threading.Event()
        self._is_stopped = threading.Event()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def successes(self) -> list[float]:
        """Return when submissions were acknowledged."""
        return [request.ended_at for request in self.requests if request.status == 202]

    def finish(self, seconds_max: float) -> None:
        """Submit nothing new, and wait until everything that was begun is acknowledged."""
        self._is_over.set()
        deadline = time.monotonic() + seconds_max
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def stop(self) -> None:
        """Stop, whatever is left."""
        self._is_stopped.set()
        self.finish(REQUEST_SECONDS)

    def _run(self) -> None:
        with httpx.Client(base_url=self._address, timeout=REQUEST_SECONDS, trust_env=False) as client:
            while not self._is_stopped.is_set():
                submission = self._next()
                if submission is None:
                    return
                self._send(client, *submission)
                self._is_stopped.wait(self._pause)

    def _next(self) -> tuple[str, str] | None:
        with self._lock:
            if self._open:
                return self._open.popleft()
            if self._is_over.is_set():
                return None
            self._count += 1
            return list(self._keys)[self._count % len(self._keys)], f"document-{self._count}"

    def _send(self, client: httpx.Client, customer: str, key: str) -> None:
        headers = {"Authorization": f"Bearer {self._keys[customer]}", "Idempotency-Key": key}
        began_at, status = time.monotonic(), NO_RESPONSE
        with self._lock:
            self._log.write("submitting", [(customer, key)])
        try:
            response = client.post("/v1/documents", json={"payload": key, "kind": self._kind}, headers=headers)
            status = response.status_code
        except httpx.HTTPError:
            pass
        with self._lock:
            self.requests.append(Request(began_at, time.monotonic(), status))
            if status == 202:
                self._log.write("submitted", [(customer, key, response.json()["id"])])
            else:
                self._open.append((customer, key))


class Follower:
    """Follows the events of the service over its outages."""

    def __init__(self, address: str, key: str) -> None:
        self.numbers: list[int] = []
        self.times: list[float] = []
        self._client = Client(address, key, patience=1)
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_stopped.is_set():
            try:
                with self._client.events(after=self.numbers[-1] if self.numbers else 0) as events:
                    for change in events:
                        self.numbers.append(change.number)
                        self.times.append(time.monotonic())
            except FairlaneError:
                self._is_stopped.wait(0.2)

    def problems(self) -> list[str]:
        """Return what was wrong with the events: they must come once, and in order."""
        pairs = zip(self.numbers, self.numbers[1:], strict=False)
        wrong = [f"event {after} came after {before}" for before, after in pairs if after <= before]
        return wrong + ([] if self.numbers else ["no event came"])

    def stop(self) -> None:
        """Stop following."""
        self._is_stopped.set()
        self._client.close()
        self._thread.join(REQUEST_SECONDS)
