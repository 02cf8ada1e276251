"""Is every upload that was acknowledged worked off exactly once, whatever dies?

`python -m chaos.service` sends 50,000 files of 500 customers over 64 connections, while the server (with its worker) or the
worker alone is killed with -9 and begun again, 20 times. Senders repeat what was not acknowledged, with the same key. In the
end: as many documents as uploads, each acknowledged id among them, each with one ending in the feed, and each file's bytes the
ones that were sent.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from fairlane import Queue
from fairlane.core.document import ENDED
from fairlane.http import keys

CONNECTIONS = 64
AGAIN_SECONDS = 0.1
GIVE_UP_SECONDS = 3600
LIMITS = ("requests_a_second=100000", "requests_burst=100000")


class Plan(NamedTuple):
    """How much, by how many, and how often something dies."""

    uploads: int = 50_000
    customers: int = 500
    kills: int = 20
    slots: int = 4


class Served:
    """A server that is killed and begun again on the same port."""

    def __init__(self, folder: Path, slots: int) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.url = f"sqlite:///{folder}/queue.db"
        self._log = folder / "log"
        self._slots = slots
        self.start()

    def start(self) -> None:
        limits = [part for one in LIMITS for part in ("--limit", one)]
        command = ["serve", "--url", self.url, "--port", str(self.port), "--json", "--slots", str(self._slots), *limits]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "fairlane.cli", *command], stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self.process.stdout is not None
        assert self.process.stdout.readline(), self._log.read_text()[-2000:]

    def kill_server(self) -> None:
        """And its worker, which dies with it."""
        self.process.kill()
        self._gone()
        self.start()

    def kill_worker(self) -> None:
        """It is begun again by the server."""
        lines = (json.loads(line) for line in self._log.read_text().splitlines() if '"worker started"' in line)
        for pid in [line["pid"] for line in lines][-1:]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def end(self) -> None:
        self.process.terminate()
        self._gone()

    def _gone(self) -> None:
        self.process.wait(timeout=120)
        assert self.process.stdout is not None
        self.process.stdout.close()


class Senders:
    """Threads that upload until everything was acknowledged."""

    def __init__(self, port: int, shown: list[str], plan: Plan, advance: Callable[[], None]) -> None:
        self._port = port
        self._shown = shown
        self._left: Iterator[int] = iter(range(plan.uploads))
        self._advance = advance
        self._mutex = threading.Lock()
        self.ids: dict[int, str] = {}
        self.statuses: Counter[int] = Counter()
        self.broken = 0
        self.errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run) for _ in range(CONNECTIONS)]
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()
        if self.errors:
            raise self.errors[0]

    def _run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            while (number := self._next()) is not None:
                self._upload(connection, number)
        except BaseException as error:  # noqa: BLE001 told by join
            self.errors.append(error)
        finally:
            connection.close()

    def _next(self) -> int | None:
        with self._mutex:
            return None if self.errors else next(self._left, None)

    def _upload(self, connection: http.client.HTTPConnection, number: int) -> None:
        """One file, sent until it is acknowledged."""
        headers = {
            "Authorization": f"Bearer {self._shown[number % len(self._shown)]}", "Content-Type": "text/plain",
            "Idempotency-Key": f"upload-{number}",
        }  # fmt: skip
        pause = threading.Event()
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while time.monotonic() < deadline:
            try:
                connection.request("POST", "/v1/documents", content_of(number), headers)
                answer = connection.getresponse()
                told = answer.read()
            except (OSError, http.client.HTTPException):
                connection.close()
                self.broken += 1
                pause.wait(AGAIN_SECONDS)
                continue
            self.statuses[answer.status] += 1
            if answer.status == 202:
                self.ids[number] = json.loads(told)["id"]
                return self._advance()
            assert answer.status in (429, 503), (answer.status, told)
            pause.wait(AGAIN_SECONDS)
        raise AssertionError(f"upload {number} was never acknowledged")


def content_of(number: int) -> bytes:
    """The bytes of an upload: its own, so that nothing can be mixed up unseen."""
    return f"this is upload {number} and it has {number % 50} words\n".encode() * (1 + number % 5)


def storm(folder: Path, plan: Plan, advance: Callable[[], None]) -> dict[str, object]:
    """Run it and check everything; returns what happened."""
    with Queue(f"sqlite:///{folder}/queue.db") as queue:
        shown = [keys.create(queue.engine, customer=f"customer {number:03}")[0] for number in range(plan.customers)]
        served = Served(folder, plan.slots)
        try:
            senders = Senders(served.port, shown, plan, advance)
            killed = _kill(served, senders, plan)
            senders.join()
            _wait_for_endings(queue, plan)
        finally:
            served.end()
        _check(queue, senders, plan)
    return {"uploads": len(senders.ids), "killed": killed, "broken": senders.broken, "statuses": dict(senders.statuses)}


def _kill(served: Served, senders: Senders, plan: Plan) -> dict[str, int]:
    """Spread over the uploads: the server, then the worker, then the server ..."""
    killed: Counter[str] = Counter()
    pause = threading.Event()
    for number in range(plan.kills):
        while len(senders.ids) < (number + 1) * plan.uploads // (plan.kills + 1) and not senders.errors:
            pause.wait(0.01)
        if number % 2:
            served.kill_worker()
        else:
            served.kill_server()
        killed["worker" if number % 2 else "server"] += 1
    return dict(killed)


def _wait_for_endings(queue: Queue, plan: Plan) -> None:
    pause = threading.Event()
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while any(look.waiting or look.running for look in queue.customers()):
        assert time.monotonic() < deadline, "not everything ended"
        pause.wait(0.2)


def _check(queue: Queue, senders: Senders, plan: Plan) -> None:
    documents = {one.id: one for one in queue.documents()}
    assert len(documents) == plan.uploads, f"{len(documents):,} documents of {plan.uploads:,} uploads"
    assert set(senders.ids.values()) == set(documents), "an acknowledged document is not there"
    endings: Counter[str] = Counter()
    after = 0
    while changes := queue.changes(after, 1000):
        endings.update(one.document for one in changes if one.what in ENDED and one.document is not None)
        after = changes[-1].number
    assert endings == dict.fromkeys(documents, 1), "a document has not exactly one ending"
    sent = Counter(number % plan.customers for number in range(plan.uploads))
    for number, customer in zip(count(), sorted(queue.customers(), key=lambda look: look.customer), strict=False):
        assert customer.done + customer.failed == sent[number], customer
    for number in range(0, plan.uploads, max(1, plan.uploads // 500)):
        with queue.file(senders.ids[number]) as file:
            assert file.read() == content_of(number)


@click.command()
@click.option("--uploads", default=Plan().uploads, show_default=True)
@click.option("--kills", default=Plan().kills, show_default=True)
def main(uploads: int, kills: int) -> None:
    """Uploads while the server and its worker are killed."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        tempfile.TemporaryDirectory(prefix="fairlane-chaos-") as folder,
        Progress(*columns, console=Console(stderr=True)) as progress,
    ):
        task = progress.add_task("uploads", total=uploads)
        told = storm(Path(folder), Plan(uploads, kills=kills), lambda: progress.advance(task))
    click.echo(json.dumps(told))


if __name__ == "__main__":
    main()
