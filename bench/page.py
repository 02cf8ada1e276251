"""The cost and the delay of the live page: `python -m bench.page`, `--quick` for a small queue.

A server on SQLite with 100,000 customers and 300,000 waiting documents, while another process submits and processes documents
all the time: the CPU time of the server with no viewer, one and fifty, how long the first frame takes, and how long after its
commit a change is in a frame. Then a real Chromium opens the page (`browser.py`).
"""

from __future__ import annotations

import json
import os
import re
import selectors
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import httpx

from fairlane import Queue
from fairlane.api import auth
from fairlane.core.document import Done, Submission
from fairlane.queue import new_ids
from tests.system import why_missing

from .browser import measure_browser
from .figures import Figure, Goal, show

VIEWERS = 50
FIRST_GOAL, MORE_GOAL, DELAY_GOAL = 0.05, 0.001, 2.0
TICK = os.sysconf("SC_CLK_TCK")


class Load:
    """Submits and processes documents at a steady rate, as other processes would."""

    def __init__(self, url: str, customers: int, a_second: int) -> None:
        self._queue = Queue(url)
        self._customers = customers
        self._a_second = a_second
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.documents = 0

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._queue.close()

    def _run(self) -> None:
        engine, size = self._queue.engine, max(1, self._a_second // 10)
        while not self._stop.wait(0.1):
            self.documents += size
            engine.submit(_submissions(self._customers, self.documents, size))
            claims = engine.claim("worker", size, 60_000)
            engine.settle([(claim, Done()) for claim in claims])


def _submissions(customers: int, start: int, count: int) -> list[Submission]:
    names = (f"customer {(start + number) * 7919 % customers:06}" for number in range(count))
    return [Submission(id, name, "extract", "null") for id, name in zip(new_ids(count), names, strict=True)]


class Viewers:
    """Streams of frames, read by one thread; records when each change first arrived."""

    def __init__(self, port: int, cookie: str, count: int) -> None:
        self._selector = selectors.DefaultSelector()
        self._sockets = []
        self.arrivals: list[tuple[float, int]] = []
        self.bytes = 0
        self._stop = False
        for _ in range(count):
            connection = socket.create_connection(("127.0.0.1", port))
            connection.sendall(f"GET /page/frames HTTP/1.1\r\nHost: x\r\nCookie: {cookie}\r\n\r\n".encode())
            self._selector.register(connection, selectors.EVENT_READ)
            self._sockets.append(connection)
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        first = self._sockets[0]
        while not self._stop:
            for key, _ in self._selector.select(0.1):
                assert isinstance(key.fileobj, socket.socket)
                piece = key.fileobj.recv(1_000_000)
                self.bytes += len(piece)
                if key.fileobj is first:
                    self.arrivals += [(time.monotonic(), int(number)) for number in re.findall(rb"\nid: (\d+)\n", piece)]

    def close(self) -> None:
        self._stop = True
        self._thread.join()
        for connection in self._sockets:
            connection.close()


def _fill(url: str, customers: int, documents: int) -> None:
    with Queue(url) as queue:
        for start in range(0, documents, 2000):
            queue.engine.submit(_submissions(customers, start, min(2000, documents - start)))


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def _cpu_share(pid: int, seconds: float) -> float:
    """Measure the share of a core that a process uses."""
    before, at = _cpu_seconds(pid), time.monotonic()
    time.sleep(seconds)
    return (_cpu_seconds(pid) - before) / (time.monotonic() - at)


def _measure_delays(queue: Queue, viewers: Viewers, times: int) -> list[float]:
    """Measure how long after its commit a change is in a frame."""
    delays = []
    for _ in range(times):
        queue.submit("marker", 1)
        at = time.monotonic()
        number = queue.engine.changes(None, 1)[0].number  # the oldest; the newest is searched from the last arrival
        number = max(number, viewers.arrivals[-1][1] if viewers.arrivals else 0)
        while page := queue.engine.changes(number, 10_000):
            number = page[-1].number
        while not (arrivals := [when for when, change in viewers.arrivals if change >= number]):
            time.sleep(0.005)
        delays.append(arrivals[0] - at)
    return delays


def measure(folder: Path, customers: int, documents: int, a_second: int, seconds: float) -> list[Figure]:
    """Measure everything on one server."""
    url = f"sqlite:///{folder}/queue.db"
    _fill(url, customers, documents)
    with Queue(url) as queue:
        key, _ = auth.create(queue.engine, customer=None)
        with _serve(folder, url) as (pid, address), httpx.Client(base_url=address, trust_env=False, timeout=60) as client:
            client.post("/page/session", json={"key": key}).raise_for_status()
            cookie = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
            with Load(url, customers, a_second):
                figures = _measure_server(pid, int(address.rpartition(":")[2]), cookie, queue, client, seconds)
        if (missing := why_missing("chromium")) is not None:
            click.echo(missing)
            return figures
        with _serve(folder, url) as (_, address), Load(url, customers, a_second):
            return figures + measure_browser(address, key, queue)


@contextmanager
def _serve(folder: Path, url: str) -> Iterator[tuple[int, str]]:
    """Run a server without a read model yet; its process and its address."""
    command = [sys.executable, "-m", "fairlane.cli", "serve", "--url", url, "--port", "0", "--json", "--no-work"]
    command += ["--limit", "viewers_a_key=100"]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert server.stdout is not None
        yield server.pid, json.loads(server.stdout.readline())["address"]
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()


def _measure_server(pid: int, port: int, cookie: str, queue: Queue, client: httpx.Client, seconds: float) -> list[Figure]:
    time.sleep(2)
    idle = _cpu_share(pid, seconds)
    started, cpu_before = time.monotonic(), _cpu_seconds(pid)
    viewer = Viewers(port, cookie, 1)
    waits = []
    while not viewer.arrivals:  # the server must go on answering meanwhile
        at = time.monotonic()
        client.get("/healthz")
        waits.append(time.monotonic() - at)
        time.sleep(0.02)
    first_frame, load_cpu = time.monotonic() - started, _cpu_seconds(pid) - cpu_before
    time.sleep(2)
    first = _cpu_share(pid, seconds) - idle
    delays = _measure_delays(queue, viewer, 10)
    many = Viewers(port, cookie, VIEWERS)
    time.sleep(3)
    more = (_cpu_share(pid, seconds) - idle - first) / VIEWERS
    delays_many = _measure_delays(queue, viewer, 10)
    many.close()
    assert many.bytes > VIEWERS * seconds * 1000, "the viewers got their frames"
    lists = []
    for sort in ("waiting", "next_priority", "wait_p95"):
        at = time.monotonic()
        client.get("/page/customers", params={"sort": sort}).raise_for_status()
        lists.append(time.monotonic() - at)
    viewer.close()
    size = viewer.bytes / max(1, len(viewer.arrivals))
    memory = int(re.findall(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[0]) / 1024
    at_most, median = Goal(1, is_least=False), f"median {statistics.median(delays):.2f}"
    return [
        Figure("page: CPU, no viewer", 100 * idle, "% of a core", 100.0),
        Figure("page: CPU, first viewer more", 100 * first, "% of a core", 100 * FIRST_GOAL, at_most),
        Figure("page: CPU, each further viewer", 100 * more, "% of a core", 100 * MORE_GOAL, at_most),
        Figure("page: latest update, one viewer", max(delays), "s", DELAY_GOAL, at_most, median),
        Figure(f"page: latest update, {VIEWERS} viewers", max(delays_many), "s", DELAY_GOAL, at_most),
        Figure("page: first frame, CPU", load_cpu, "s", 10.0, at_most, f"after {first_frame:.1f} s"),
        Figure("page: slowest response meanwhile", max(waits), "s", 1.0, at_most),
        Figure("page: slowest list of customers", max(lists), "s", 1.0, at_most),
        Figure("page: size of a frame", size / 1000, "kB", 20.0),
        Figure("page: memory of the server", memory, "MB", 1000.0),
    ]  # fmt: skip


@click.command()
@click.option("--quick", "is_quick", is_flag=True, help="A small queue and short rounds.")
@click.option("--rate", default=100, show_default=True, help="Documents submitted and processed a second.")
def main(is_quick: bool, rate: int) -> None:
    """Measure, and show it.

    Example: python -m bench.page --quick
    """
    customers, documents, seconds = (2000, 6000, 2.0) if is_quick else (100_000, 300_000, 15.0)
    with tempfile.TemporaryDirectory(prefix="fairlane-page-") as folder:
        show(measure(Path(folder), customers, documents, rate, seconds))


if __name__ == "__main__":
    main()
