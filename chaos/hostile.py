"""2,000 hostile connections without a key and 50 with one: another customer's uploads go on, and memory stays bounded.

A real server with TLS on a SQLite file, with its default limits. Another customer uploads at a fixed rate, nine times in ten on
connections that it keeps and else on a new one, first in quiet, then while attackers do everything at once for five minutes. An
upload counts from the moment it was due, whether or not the one before it was answered. What was accepted must be in the queue.
"""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import click
import httpx
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fairlane import Queue
from fairlane.api import auth

from .attackers import FILE_BYTES, KINDS, Plan
from .processes import ROOT

UPLOAD_BYTES = 50_000
NEW_EVERY = 10  # uploads: one of so many has a connection of its own
THREADS = 32  # uploads under way at once, at most
SAMPLE_SECONDS = 0.5
WARM_UP = 50  # uploads that are not counted
ANSWER_SECONDS = 60.0
WAIT_SECONDS = 60.0
RATIO_MAX = 2.0
MEMORY_GROWTH_MAX = (
    1024 * 384 * 1024
)  # bytes: so many connections, each with a buffer of 256 kB for TLS and what it has to send
NO_PROXY = ("--trusted-proxy", "127.0.0.99")  # limits by address hold for clients on this machine too
VICTIM, HOSTILE = "victim", "hostile"


@dataclass(frozen=True)
class Options:
    """Everything that a run depends on."""

    strangers: int = 2000  # hostile connections without a key
    keyed: int = 50  # hostile connections with a key
    seconds: int = 300
    quiet_seconds: int = 60
    rate: int = 10  # uploads a second
    addresses: int = 20  # from which the attack comes
    pause: float = 1.0  # seconds, before a connection that was cut off is opened again
    documents: int = 5000  # of the hostile customer, to be searched
    tls: bool = True
    seed: int = 1
    only: tuple[str, ...] = ()  # kinds of attack; empty: all


class Upload(NamedTuple):
    """One upload: how long it took from when it was due, and its status; 0: there was no response."""

    seconds: float
    status: int
    is_new: bool  # with a connection of its own


@dataclass
class Phase:
    """What was measured in one phase of a run."""

    uploads: list[Upload] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)  # of the server, in bytes
    unready: int = 0  # times that it did not call itself ready
    processor_seconds: float = 0.0  # of the server

    @property
    def errors(self) -> Counter[str]:
        return Counter(str(upload.status or "no response") for upload in self.uploads if upload.status != 202)

    def figures(self) -> dict[str, Any]:
        """Return the figures of the phase."""
        return {
            "uploads": len(self.uploads),
            "errors": dict(self.errors),
            "p50_ms": quantile(self.uploads, 0.5),
            "p99_ms": quantile(self.uploads, 0.99),
            "max_ms": quantile(self.uploads, 1),
            "p99_ms_kept_connection": quantile([upload for upload in self.uploads if not upload.is_new], 0.99),
            "p99_ms_new_connection": quantile([upload for upload in self.uploads if upload.is_new], 0.99),
            "memory_mb": round(max(self.memory) / 2**20),
            "unready": self.unready,
            "processor_seconds": round(self.processor_seconds, 1),
        }


def quantile(uploads: list[Upload], share: float) -> float:
    """Return in milliseconds how long this share of the uploads took at most."""
    times = sorted(upload.seconds for upload in uploads)
    return round(times[min(len(times) - 1, int(len(times) * share))] * 1000, 1) if times else 0.0


@dataclass
class Report:
    """What a run measured, and what was wrong whatever the times were."""

    options: Options
    quiet: Phase = field(default_factory=Phase)
    attack: Phase = field(default_factory=Phase)
    attacks: dict[str, dict[str, int]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        return round(quantile(self.attack.uploads, 0.99) / max(0.001, quantile(self.quiet.uploads, 0.99)), 2)

    @property
    def memory_growth(self) -> int:
        return max(self.attack.memory) - max(self.quiet.memory)

    @property
    def is_good(self) -> bool:
        return not self.wrong and self.ratio <= RATIO_MAX

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        half = len(self.attack.memory) // 2
        return {
            "options": asdict(self.options),
            "quiet": self.quiet.figures(),
            "attack": self.attack.figures(),
            "ratio": self.ratio,
            "memory_mb_first_half": round(max(self.attack.memory[:half]) / 2**20),
            "memory_mb_second_half": round(max(self.attack.memory[half:]) / 2**20),
            "attacks": self.attacks,
            "wrong": self.wrong,
            "is_good": self.is_good,
        }

    def verdict(self) -> str:
        """Say in one line how it went."""
        quiet, attack = self.quiet.figures(), self.attack.figures()
        return (
            f"{'held' if self.is_good else 'NOT HELD'}: p99 of uploads {quiet['p99_ms']:g} ms quiet,"
            f" {attack['p99_ms']:g} ms under attack ({self.ratio:g} times, at most {RATIO_MAX:g});"
            f" {self.attack.errors.total()} of {attack['uploads']:,} failed;"
            f" memory {quiet['memory_mb']} -> {attack['memory_mb']} MB"
        )


class Server:
    """The server that is attacked."""

    def __init__(self, options: Options, folder: Path, limits: tuple[str, ...] = ()) -> None:
        self.folder, self.url = folder, f"sqlite:///{folder / 'queue.db'}"
        tls = _certificate(folder) if options.tls else ()
        chosen = [part for limit in limits for part in ("--limit", limit)]
        command = [sys.executable, "-m", "fairlane.cli", "serve", "--no-work", "--json", "--url", self.url, "--port", "0",
                   *NO_PROXY, *tls, *chosen]  # fmt: skip
        with (folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the server did not start: {(folder / 'server.log').read_text()[-500:]}")
        self.port = int(json.loads(line)["address"].rpartition(":")[2])
        self.address = f"{'https' if options.tls else 'http'}://localhost:{self.port}"
        self.trust: ssl.SSLContext | bool = (
            ssl.create_default_context(cafile=folder / "certificate.pem") if options.tls else False
        )

    def client(self, key: str | None) -> httpx.Client:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        return httpx.Client(base_url=self.address, headers=headers, verify=self.trust, timeout=ANSWER_SECONDS, trust_env=False)

    def memory(self) -> int:
        """How many bytes of memory the process has."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) * 1024

    def processor_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> int:
        """End it; returns its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(WAIT_SECONDS)
        finally:
            self.process.kill()
            assert self.process.stdout is not None
            self.process.stdout.close()


def _certificate(folder: Path) -> tuple[str, ...]:
    """Make a certificate for localhost; the server's options for it."""
    certificate, key = str(folder / "certificate.pem"), str(folder / "certificate-key.pem")
    command = [
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-days", "2", "-nodes",
        "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate,
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    return ("--tls-certificate", certificate, "--tls-key", key)


class Uploader:
    """The other customer: uploads at a fixed rate, whatever happens."""

    def __init__(self, server: Server, key: str, rate: int) -> None:
        self._server = server
        self._key = key
        self._rate = rate
        self._kept = server.client(key)
        self._number = 0
        self._lock = threading.Lock()
        self.accepted: list[str] = []

    def run(self, seconds: float, phase: Phase, tick: Callable[[], None]) -> None:
        """Upload for so long."""
        count, began = int(seconds * self._rate), time.monotonic()
        with ThreadPoolExecutor(THREADS, thread_name_prefix="upload") as pool:
            for index in range(count):
                due = began + index / self._rate
                time.sleep(max(0.0, due - time.monotonic()))
                pool.submit(self._upload, due, phase)
                tick()

    def _upload(self, due: float, phase: Phase) -> None:
        with self._lock:
            self._number += 1
            number = self._number
        is_new, status, id = number % NEW_EVERY == 0, 0, None
        content = number.to_bytes(8) + bytes(UPLOAD_BYTES - 8)
        try:
            with self._server.client(self._key) if is_new else _kept(self._kept) as client:
                answer = client.post("/v1/documents", content=content, headers={"Content-Type": "application/octet-stream"})
            status, id = answer.status_code, answer.json().get("id")
        except httpx.HTTPError:
            pass
        upload = Upload(time.monotonic() - due, status, is_new)
        with self._lock:
            phase.uploads.append(upload)
            if status == 202 and id is not None:
                self.accepted.append(id)

    def close(self) -> None:
        self._kept.close()


@contextmanager
def _kept(client: httpx.Client) -> Iterator[httpx.Client]:
    yield client  # and leave it open


class Sampler:
    """Looks at the server's memory, and asks whether it is ready, until it is closed."""

    def __init__(self, server: Server, phase: Phase) -> None:
        self._server, self._phase = server, phase
        self._is_over = threading.Event()
        self._began_with = server.processor_seconds()
        self._thread = threading.Thread(target=self._run, name="sampler")

    def __enter__(self) -> Sampler:
        self._phase.memory.append(self._server.memory())
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._phase.memory.append(self._server.memory())
        self._phase.processor_seconds = self._server.processor_seconds() - self._began_with

    def _run(self) -> None:
        while not self._is_over.wait(SAMPLE_SECONDS):
            self._phase.memory.append(self._server.memory())
            try:
                with self._server.client(None) as client:
                    is_ready = client.get("/readyz").status_code == 200
            except httpx.HTTPError:
                is_ready = False
            self._phase.unready += not is_ready


class Attack:
    """The attackers, as processes of their own."""

    def __init__(self, plans: dict[str, Plan], report: Report) -> None:
        self._plans, self._report = plans, report
        self._processes: dict[str, subprocess.Popen[str]] = {}

    def __enter__(self) -> Attack:
        for name, plan in self._plans.items():
            process = subprocess.Popen(
                [sys.executable, "-m", "chaos.attackers"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            self._processes[name] = process
            assert process.stdin is not None
            process.stdin.write(plan.to_json() + "\n")
            process.stdin.flush()
        for name, process in self._processes.items():
            assert process.stdout is not None
            if process.stdout.readline() != "begun\n":
                self.__exit__()
                raise RuntimeError(f"the attack {name} did not begin")
        return self

    def __exit__(self, *_: object) -> None:
        for name, process in self._processes.items():
            try:
                output = process.communicate(timeout=WAIT_SECONDS)[0]  # its input ends, and so does it
                done = json.loads(output or "{}")
                self._report.attacks |= {f"{name}, {what}": counts for what, counts in done.items()}
            finally:
                process.kill()


def run(options: Options, folder: Path, limits: tuple[str, ...] = (), tick: Callable[[str], None] = lambda _: None) -> Report:
    """One whole run; the folder must be empty."""
    report, url = Report(options), f"sqlite:///{folder / 'queue.db'}"
    with ExitStack() as opened:
        queue = opened.enter_context(Queue(url))
        hostile = queue.submit(HOSTILE, content=bytes(FILE_BYTES), kind="extract").id
        ids = [hostile, *(queue.submit(HOSTILE, number).id for number in range(options.documents))]
        victim_key, _ = auth.create(queue.engine, customer=VICTIM)
        hostile_key, _ = auth.create(queue.engine, customer=HOSTILE)
        server = Server(options, folder, limits)
        opened.callback(server.stop)
        uploader = Uploader(server, victim_key, options.rate)
        opened.callback(uploader.close)
        uploader.run(WARM_UP / options.rate, Phase(), lambda: tick("warm-up"))
        with Sampler(server, report.quiet):
            uploader.run(options.quiet_seconds, report.quiet, lambda: tick("quiet"))
        addresses = tuple(f"127.0.{1 + number // 250}.{1 + number % 250}" for number in range(options.addresses))
        common: dict[str, Any] = {
            "port": server.port, "is_tls": options.tls, "pause_seconds": options.pause, "seed": options.seed,
            "only": options.only,
        }  # fmt: skip
        plans = {
            "without a key": Plan(connections=options.strangers, addresses=addresses, **common),
            "with a key": Plan(
                connections=options.keyed, addresses=("127.0.9.1",), key=hostile_key, ids=tuple(ids[:100]), **common
            ),
        }
        with Attack(plans, report), Sampler(server, report.attack):
            uploader.run(options.seconds, report.attack, lambda: tick("attack"))
        code = server.stop()
        report.wrong += _wrong(report, code, queue, uploader)
    return report


def _wrong(report: Report, code: int, queue: Queue, uploader: Uploader) -> list[str]:
    """Return what must never be, however long things took."""
    wrong = [] if code == 0 else [f"the server ended with {code} when it was asked to stop"]
    for name, phase in (("in quiet", report.quiet), ("under attack", report.attack)):
        wrong += [f"{count} uploads {name}: {error}" for error, count in phase.errors.items()]
        if phase.unready:
            wrong.append(f"{name} the server did not call itself ready {phase.unready} times")
    look = queue.look(VICTIM)
    if look.documents != len(set(uploader.accepted)):
        wrong.append(f"{len(set(uploader.accepted))} uploads were accepted, and {look.documents} are in the queue")
    if report.memory_growth > MEMORY_GROWTH_MAX:
        wrong.append(f"memory grew by {report.memory_growth // 2**20} MB, more than {MEMORY_GROWTH_MAX // 2**20} MB")
    return wrong


@click.command()
@click.option("--strangers", default=Options.strangers, show_default=True, help="Hostile connections without a key.")
@click.option("--keyed", default=Options.keyed, show_default=True, help="Hostile connections with a key.")
@click.option("--seconds", default=Options.seconds, show_default=True, help="Of attack.")
@click.option("--quiet-seconds", default=Options.quiet_seconds, show_default=True)
@click.option("--rate", default=Options.rate, show_default=True, help="Uploads a second.")
@click.option("--addresses", default=Options.addresses, show_default=True, help="From which the attack comes.")
@click.option("--pause", default=Options.pause, show_default=True, help="Seconds before a hostile connection comes back.")
@click.option("--documents", default=Options.documents, show_default=True, help="Of the hostile customer.")
@click.option("--tls/--no-tls", default=True, show_default=True)
@click.option("--seed", default=Options.seed, show_default=True)
@click.option("--only", multiple=True, type=click.Choice(KINDS), help="Attack in this way only; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def main(as_json: bool, **chosen: Any) -> None:
    """Attack a server with thousands of hostile connections while another customer uploads."""
    options = Options(**chosen)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    total = WARM_UP + (options.quiet_seconds + options.seconds) * options.rate
    with (
        tempfile.TemporaryDirectory(prefix="fairlane-chaos-") as folder,
        Progress(*columns, console=Console(stderr=True)) as progress,
    ):
        task = progress.add_task("start", total=total)
        report = run(options, Path(folder), tick=lambda phase: progress.update(task, advance=1, description=phase))
    if as_json:
        click.echo(json.dumps(report.as_json(), indent=2))
    else:
        for line in report.wrong:
            click.echo(f"WRONG: {line}")
        click.echo(report.verdict())
    sys.exit(0 if report.is_good else 1)


if __name__ == "__main__":
    main()
