"""No upload that got a response is lost or doubled when the server and the workers are killed under load.

64 senders upload files of 500 customers through one `Client` to a real server, on a SQLite file with its files beside it, while
workers read them. Again and again the server and a worker are killed with kill -9 and started again. The client repeats what
was cut off, with the key of the first try; some files are sent twice at once with one key on purpose. Somebody follows the
events all along. At the end every upload that was answered must have ended once, its bytes must be those that were sent, no key
may have made two documents, and the events must have told each ending once, in order.

As `python -m chaos.uploads worker NAME FOLDER` it is one of the workers.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from fairlane import Backoff, Client, Queue, Worker
from fairlane.core.document import ENDED
from fairlane.core.errors import FairlaneError
from fairlane.engine.protocol import DocumentFilter
from fairlane.engine.walk import walk_documents
from fairlane.procs import reaper
from fairlane.queue import Change
from fairlane.worker import Document
from fairlane.worker import Event as WorkerEvent

from .checker import check_at_rest
from .history import ClientLog, Clients, snapshot
from .processes import ROOT, Child

KIND = "chaos"
LEASE_SECONDS = 3.0
RUN_SECONDS = 0.2  # of a handler, at most: so that workers die with documents in their hands
WAIT_SECONDS = 120.0
PATIENCE_SECONDS = 300.0  # a sender waits for a server that is being killed
SIZES = (200, 200, 2_000, 2_000, 20_000, 400_000)  # bytes of files; the largest are still being sent when the server dies
TWICE = 0.02  # the share that is sent twice at once, with one key
LIMITS = ("requests_a_second=100000", "requests_burst=100000")


@dataclass(frozen=True)
class Options:
    """Everything that a run depends on."""

    uploads: int = 50_000
    customers: int = 500
    connections: int = 64
    kills: int = 20
    workers: int = 3
    seed: int = 1


@dataclass
class Report:
    """What a run did, and what was wrong."""

    options: Options
    faults: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)


def content_of(seed: int, number: int) -> bytes:
    """Return the bytes of one upload, always the same for its key."""
    dice = random.Random(f"{seed} {number}")
    return dice.randbytes(dice.choice(SIZES))


# -- a worker ----------------------------------------------------------------------------------------------------------


def work(name: str, folder: Path) -> None:
    """A worker that answers with the hash of what it read."""
    log = ClientLog(folder / f"{name}.log")
    worker = Worker(_url(folder), slots=8, lease=LEASE_SECONDS, name=name, backoff=Backoff(0, ceiling=0))

    @worker.handler(KIND, attempts=1000)
    async def read(document: Document) -> str:
        await asyncio.sleep(random.uniform(0, RUN_SECONDS))
        with document.open() as file:
            return hashlib.sha256(file.read()).hexdigest()

    def claimed(event: WorkerEvent) -> None:
        log.write("claimed", [(event.id, event.token)])

    worker.on("began", claimed)
    worker.on("started", lambda event: log.write("started", event.worker))
    worker.run()


def _url(folder: Path) -> str:
    return f"sqlite:///{folder / 'queue.db'}"


# -- the server --------------------------------------------------------------------------------------------------------


class Server:
    """A server that is killed and comes back at the same address."""

    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self._folder = folder
        limits = [part for limit in LIMITS for part in ("--limit", limit)]
        self._command = [sys.executable, "-m", "fairlane.cli", "serve", "--no-work", "--json", "--url", _url(folder),
                         "--port", str(self._port), "--kind", KIND, *limits]  # fmt: skip
        self.key = ""
        self.start()

    def start(self) -> None:
        """Begin, and wait until it answers."""
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(self._command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the server did not start: {(self._folder / 'server.log').read_text()[-500:]}")
        started = json.loads(line)
        self.address = started["address"]
        if started["admin_key_file"] is not None:
            self.key = Path(started["admin_key_file"]).read_text().strip()

    def stop(self, number: signal.Signals) -> int:
        """End it by this signal; returns its exit code."""
        self._process.send_signal(number)
        code = self._process.wait(WAIT_SECONDS)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code


# -- the senders and the watcher ---------------------------------------------------------------------------------------


class Senders:
    """Threads that upload, each file under a key of its own."""

    def __init__(self, options: Options, client: Client, advance: Callable[[], None]) -> None:
        self._options = options
        self._client = client
        self._advance = advance
        self._lock = threading.Lock()
        self.clients = Clients()
        self.counts: Counter[str] = Counter()
        self.told_as_new: Counter[str] = Counter()  # by key: the first answer alone may say that the document is new
        self.wrong: list[str] = []
        self.is_over = threading.Event()

    @property
    def answered(self) -> int:
        return self.counts["answered"]

    def run(self) -> None:
        """Until everything is sent."""
        try:
            with ThreadPoolExecutor(self._options.connections, thread_name_prefix="sender") as pool:
                list(pool.map(self._send, range(self._options.uploads)))
        finally:
            self.is_over.set()

    def _send(self, number: int) -> None:
        dice = random.Random(f"{self._options.seed} send {number}")
        customer, key = f"customer-{dice.randrange(self._options.customers)}", f"upload-{number}"
        content = content_of(self._options.seed, number)
        with self._lock:
            self.clients.attempted.add((customer, key))
        if dice.random() < TWICE:
            twin = threading.Thread(target=self._upload, args=(customer, key, content))
            twin.start()
            self._upload(customer, key, content)
            twin.join()
            self.counts["sent twice at once"] += 1
        else:
            self._upload(customer, key, content)
        self._advance()

    def _upload(self, customer: str, key: str, content: bytes) -> None:
        try:
            receipt = self._client.submit(content=content, name=f"{key}.bin", kind=KIND, key=key, customer=customer)
        except FairlaneError as error:
            with self._lock:
                self.wrong.append(f"{key} of {customer} was given up: {error}")
            return
        with self._lock:
            self.clients.acknowledged.append((customer, key, receipt.id))
            self.counts["answered"] += 1
            self.counts["found by their key"] += receipt.repeated
            self.told_as_new[key] += not receipt.repeated


class Watcher:
    """Follows the events over every death of the server."""

    def __init__(self, client: Client) -> None:
        self.events = client.events(after=0)
        self.seen: list[Change] = []
        self.error: FairlaneError | None = None
        self._thread = threading.Thread(target=self._read, name="watcher")
        self._thread.start()

    def _read(self) -> None:
        try:
            self.seen.extend(self.events)
        except FairlaneError as error:
            self.error = error

    def end(self) -> None:
        self.events.close()
        self._thread.join(WAIT_SECONDS)


# -- the supervisor ----------------------------------------------------------------------------------------------------


class Supervisor:
    """Starts everything, kills, waits, and checks."""

    def __init__(self, options: Options, folder: Path) -> None:
        self.report = Report(options)
        self._dice = random.Random(options.seed)
        self._folder = folder
        self._server = Server(folder)
        self._queue = Queue(_url(folder), create=False)
        self._workers = [Child("worker", f"worker-{number}", folder, (), "chaos.uploads") for number in range(options.workers)]

    def run(self, advance: Callable[[], None]) -> Report:
        """Everything is sent under kills, then worked off, then looked at."""
        for worker in self._workers:
            worker.wait_for_work()
        options, began = self.report.options, time.monotonic()
        with Client(self._server.address, self._server.key, timeout=60, patience=PATIENCE_SECONDS) as client:
            senders, watcher = Senders(options, client, advance), Watcher(client)
            sending = threading.Thread(target=senders.run, name="senders")
            sending.start()
            try:
                self._kill_all_along(senders)
                sending.join()
                self.report.figures["seconds of sending"] = round(time.monotonic() - began, 1)
                self._finish(senders, watcher)
            finally:
                watcher.end()
                for worker in self._workers:
                    worker.kill()
        self._check(senders, watcher)
        return self.report

    def _kill_all_along(self, senders: Senders) -> None:
        options = self.report.options
        for number in range(options.kills):
            due = options.uploads * (number + 1) // (options.kills + 1)
            while senders.answered < due and not senders.is_over.wait(0.002):
                pass
            time.sleep(self._dice.uniform(0, 0.2))
            worker = self._dice.choice([worker for worker in self._workers if self._holds(worker)] or self._workers)
            if problem := worker.unexpected_exit():
                self.report.wrong.append(problem)
            when = "while files were sent" if not senders.is_over.is_set() else "after everything was sent"
            self.report.faults[f"kill -9 of the server {when}"] += 1
            if self._dice.random() < 0.5:
                self._kill(worker)
                self._server.stop(signal.SIGKILL)
            else:
                self._server.stop(signal.SIGKILL)
                self._kill(worker)
            self._server.start()

    def _holds(self, worker: Child) -> bool:
        return any(
            document.worker == worker.name for document in walk_documents(self._queue.engine, DocumentFilter(state="running"))
        )

    def _kill(self, worker: Child) -> None:
        self.report.faults[f"kill -9 of a worker {'holding documents' if self._holds(worker) else 'holding nothing'}"] += 1
        family = reaper.children_of(worker.pid)
        worker.kill()
        for pid in family:
            _await(lambda pid=pid: not Path(f"/proc/{pid}").exists(), "the children of a killed worker to end")  # type: ignore[misc]
        worker.start()

    def _finish(self, senders: Senders, watcher: Watcher) -> None:
        seconds = WAIT_SECONDS + self.report.options.uploads / 50
        _await(lambda: not any(look.waiting or look.running for look in self._queue.customers()), "everything to end", seconds)
        ids = {id for _, _, id in senders.clients.acknowledged}
        _await(
            lambda: sum(event.event in ENDED for event in watcher.seen) >= len(ids) or watcher.error,
            "the watcher to see the last event",
        )
        for worker in self._workers:
            worker.terminate()
        self.report.wrong += [problem for worker in self._workers if (problem := worker.wait_for_exit())]
        code = self._server.stop(signal.SIGTERM)
        if code != 0:
            self.report.wrong.append(f"the server ended with {code} when it was asked to stop")

    def _check(self, senders: Senders, watcher: Watcher) -> None:
        report, store = self.report, snapshot(self._folder / "queue.db")
        report.wrong += senders.wrong + check_at_rest(store, senders.clients)
        report.wrong += [f"{key} was told as new {times} times" for key, times in senders.told_as_new.items() if times > 1]
        hashes = {
            f"upload-{number}": hashlib.sha256(content_of(report.options.seed, number)).hexdigest()
            for number in range(report.options.uploads)
        }
        for document in store.documents:
            if document.state != "done" or json.loads(document.result or "null") != hashes.get(document.key or ""):
                report.wrong.append(f"document {document.number} is {document.state}, and what was read is not what was sent")
        if len(store.documents) != report.options.uploads:
            report.wrong.append(f"{report.options.uploads} files became {len(store.documents)} documents")
        report.wrong += self._wrong_events(watcher, {document.id for document in store.documents})
        swept, kept = self._queue.sweep(grace=0), self._queue.sweep(grace=0)
        self._queue.close()
        if (kept.looked, kept.removed) != (len(store.documents), 0):
            report.wrong.append(f"{kept.looked} files are kept for {len(store.documents)} documents")
        report.figures |= {
            "documents": len(store.documents), **senders.counts, "files of nobody, swept": swept.removed,
            "leases run out": sum(line.what == "expired" for line in store.changes), "events": len(watcher.seen),
        }  # fmt: skip
        for fault in ("kill -9 of the server while files were sent", "kill -9 of a worker holding documents"):
            if report.options.kills and not report.faults[fault]:
                report.wrong.append(f"there was no {fault}: nothing was proved")

    def _wrong_events(self, watcher: Watcher, ids: set[str]) -> list[str]:
        numbers = [event.number for event in watcher.seen]
        wrong = [] if watcher.error is None else [f"the watcher was let go: {watcher.error}"]
        if numbers != sorted(set(numbers)):
            wrong.append("the events came out of order, or twice")
        for word, names in (("submitted", ("submitted",)), ("ended", ENDED)):
            counts = Counter(event.document for event in watcher.seen if event.event in names)
            if set(counts) != ids or any(count != 1 for count in counts.values()):
                wrong.append(
                    f"the events tell of {len(counts)} documents {word}, {sum(counts.values())} times; there are {len(ids)}"
                )
        return wrong


def _await(holds: Callable[[], object], what: str, seconds: float = WAIT_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:g} s for {what}")
        time.sleep(0.05)


def run(options: Options, folder: Path, advance: Callable[[], None] = lambda: None) -> Report:
    """One whole run; the folder must be empty."""
    return Supervisor(options, folder).run(advance)


@click.command()
@click.option("--uploads", default=Options.uploads, show_default=True)
@click.option("--customers", default=Options.customers, show_default=True)
@click.option("--connections", default=Options.connections, show_default=True)
@click.option("--kills", default=Options.kills, show_default=True)
@click.option("--workers", default=Options.workers, show_default=True)
@click.option("--seed", type=int, help="Repeat a run's choices; left out, a new one is drawn and shown.")
def main(seed: int | None, **chosen: int) -> None:
    """kill -9 of the server and of workers while files are uploaded, on one SQLite file."""
    options = Options(seed=random.randrange(10**6) if seed is None else seed, **chosen)
    print(f"uploads, seed {options.seed}")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with tempfile.TemporaryDirectory(prefix="fairlane-chaos-") as folder, Progress(
        *columns, console=Console(stderr=True)
    ) as progress:  # fmt: skip
        task = progress.add_task("uploads", total=options.uploads)
        report = run(options, Path(folder), lambda: progress.advance(task))
    summary = {"options": asdict(options), "faults": dict(report.faults), "figures": report.figures, "wrong": report.wrong[:50]}
    print(json.dumps(summary | {"is_good": not report.wrong}, indent=2))
    sys.exit(1 if report.wrong else 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        work(sys.argv[2], Path(sys.argv[3]))
    else:
        main()
