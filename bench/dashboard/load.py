"""Some minutes of a service with workers: light customers all along, and a flood, a pause, a dead worker and an outage.

Everything goes through the server with a key, as it does for real customers. What happens when is in `Scene`.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from rich.progress import track

from fairlane import Client, Queue
from fairlane.api import auth
from fairlane.core.errors import FairlaneError

from . import handlers

ROOT = Path(__file__).parents[2]
BIG, PAUSED, FAX_SENDER = "northwind", "garage", "notary"
LIGHT = [f"office-{number:03}" for number in range(300)]
BURSTY = ("ada-law", "bakery", "clinic", "dentist", "florist", "hotel", "ink-studio", "jeweller")
WITH_WEBHOOK = ("clinic", "hotel")
SECONDS = {"letters": 0.2, "invoices": 0.5, "scans": 1.2, "faxes": 0.5}  # that a document takes, about
WORKERS = {"worker-1": "worker", "worker-2": "worker", "worker-3": "faxes"}
LIGHT_A_SECOND, FAXES_A_SECOND, BURST = 3.0, 0.2, (6, 20)
FLOOD, FLOOD_BATCHES, PAUSED_DOCUMENTS = 750, 2, 40


class Scene(NamedTuple):
    """When something happens, as a share of the whole run."""

    flood: float = 0.14
    pause: float = 0.22
    kill: float = 0.24  # of the only worker that takes faxes
    outage: tuple[float, float] = (0.6, 0.75)  # of what handlers need, and of one receiver of webhooks
    resume: float = 0.7


class Load(NamedTuple):
    """What Prometheus scrapes: the address of the service with a key, and the workers' addresses by name."""

    service: str
    key: str
    workers: dict[str, str]


class _Receiver:
    """A receiver of webhooks, which fails while it is told to."""

    def __init__(self) -> None:
        self.status = 204
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(receiver.status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Traffic:
    """Submits documents through the server, and lets the scene happen."""

    def __init__(self, load: Load, operator: str, processes: dict[str, subprocess.Popen[bytes]], scene: Scene) -> None:
        self._client = Client(load.service, operator)
        self._http = httpx.Client(base_url=load.service, headers={"Authorization": f"Bearer {operator}"}, trust_env=False)
        self._processes, self._scene, self._dice = processes, scene, random.Random(1)
        self._receiver = _Receiver()
        for customer in WITH_WEBHOOK:
            answer = self._http.put("/v1/webhook", params={"customer": customer}, json={"url": self._receiver.url})
            answer.raise_for_status()
        self._is_outage = False

    def close(self) -> None:
        self._receiver.close()
        self._http.close()
        self._client.close()

    def run(self, seconds: float) -> None:
        """Send for so many seconds, and show how far it is."""
        due, start = self._incidents(seconds), time.monotonic()
        for tick in track(range(int(seconds)), "the load"):
            while due and due[0][0] <= tick:
                due.pop(0)[1]()
            self._send_some()
            time.sleep(max(0.0, start + tick + 1 - time.monotonic()))

    def _incidents(self, seconds: float) -> list[tuple[float, Any]]:
        scene = self._scene
        bursts = [(self._dice.uniform(0.02, 0.9), lambda name=name: self._burst(name)) for name in BURSTY * 2]
        others = [
            (scene.flood, self._flood),
            (scene.pause, self._pause),
            (scene.kill, lambda: self._processes["worker-3"].send_signal(signal.SIGKILL)),
            (scene.outage[0], lambda: self._set_outage(True)),
            (scene.outage[1], lambda: self._set_outage(False)),
            (scene.resume, lambda: self._client.resume(PAUSED)),
        ]
        return sorted(((share * seconds, happens) for share, happens in [*bursts, *others]), key=lambda pair: pair[0])

    def _send_some(self) -> None:
        dice = self._dice
        for _ in range(self._count(LIGHT_A_SECOND)):
            kind = dice.choices(("letters", "invoices", "scans"), (50, 35, 15))[0]
            self._client.submit(self._payload(kind), kind=kind, customer=dice.choice(LIGHT))
        for _ in range(self._count(FAXES_A_SECOND)):
            receipt = self._client.submit(self._payload("faxes"), kind="faxes", customer=FAX_SENDER)
            self._client.document(receipt.id)
            self._client.look(FAX_SENDER)
        with suppress(FairlaneError):
            self._client.document("00000000-0000-0000-0000-000000000000")

    def _count(self, a_second: float) -> int:
        """Return how many come in this second: about so many, and sometimes more."""
        return sum(self._dice.random() < a_second / 10 for _ in range(10))

    def _payload(self, kind: str) -> dict[str, Any]:
        dice = self._dice
        payload: dict[str, Any] = {"seconds": round(SECONDS[kind] * dice.uniform(0.6, 1.6), 2)}
        if dice.random() < 0.03:
            payload["fails"] = dice.choice(("encrypted: it asks for a password", "corrupt: the file ends too early"))
        elif self._is_outage and dice.random() < 0.5:
            payload["fails"] = "the address register does not answer"
        elif dice.random() < 0.05:
            payload["retries"] = "timed out"
        return payload

    def _flood(self) -> None:
        for _ in range(FLOOD_BATCHES):
            self._client.submit_many([self._payload("scans") for _ in range(FLOOD)], kind="scans", customer=BIG)

    def _burst(self, customer: str) -> None:
        kind = self._dice.choice(("letters", "invoices"))
        payloads = [self._payload(kind) for _ in range(self._dice.randint(*BURST))]
        self._client.submit_many(payloads, kind=kind, customer=customer)

    def _pause(self) -> None:
        self._client.pause(PAUSED)
        payloads = [self._payload("invoices") for _ in range(PAUSED_DOCUMENTS)]
        self._client.submit_many(payloads, kind="invoices", customer=PAUSED)

    def _set_outage(self, is_outage: bool) -> None:
        self._is_outage = is_outage
        self._receiver.status = 503 if is_outage else 204


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as line:
        return int(line.getsockname()[1])


@contextmanager
def running(folder: Path, scene: Scene) -> Iterator[tuple[Load, Traffic]]:
    """Run a service and its workers."""
    url, port = f"sqlite:///{folder}/queue.db", free_port()
    with Queue(url) as queue:
        operator = auth.create(queue.engine, role="operator")[0]
        metrics = auth.create(queue.engine, role="viewer", scopes=("metrics",), name="prometheus")[0]
    command = ["serve", "--no-work", "--port", str(port), "--allow-private-webhooks"]
    command += ["--limit", "requests_a_second=100000", "--limit", "requests_burst=100000"]
    with ExitStack() as stack:
        stack.enter_context(_process("service", command, folder, url))
        ports = {name: free_port() for name in WORKERS}
        processes = {
            name: stack.enter_context(
                _process(name, ["work", "--metrics-port", str(ports[name]), f"{handlers.__name__}:{worker}"], folder, url)
            )
            for name, worker in WORKERS.items()
        }
        addresses = {name: f"127.0.0.1:{number}" for name, number in ports.items()}
        load = Load(f"http://127.0.0.1:{port}", metrics, addresses)
        for path in (f"{load.service}/healthz", *(f"http://{address}/metrics" for address in addresses.values())):
            wait_for(path)
        traffic = Traffic(load, operator, processes, scene)
        stack.callback(traffic.close)
        yield load, traffic


@contextmanager
def _process(name: str, arguments: list[str], folder: Path, url: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command of Fairlane in the background, with its log in the folder."""
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "fairlane.cli", *arguments], cwd=ROOT, stdout=log, stderr=log,
            env=os.environ | {"FAIRLANE_URL": url},
        )  # fmt: skip
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def wait_for(url: str, seconds: float = 60) -> None:
    """Wait until an address answers."""
    deadline = time.monotonic() + seconds
    while True:
        with suppress(httpx.TransportError):
            if httpx.get(url, trust_env=False).is_success:
                return
        if time.monotonic() > deadline:
            raise SystemExit(f"{url} does not answer")
        time.sleep(0.1)
