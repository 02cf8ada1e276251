"""Screenshots of every view in five languages, light and dark, wide and narrow, in build/shots/: `python -m bench.shots`.

A server with a made-up hour behind it, in which one customer drops 3,000 documents on 300 light ones, and with files that a
real worker has read. `--docs` draws only the few pictures that the documentation shows. Needs the program chromium.
"""

from __future__ import annotations

import io
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import click
from PIL import Image
from playwright.sync_api import Browser, Page

from fairlane import Queue, __version__
from fairlane.api import auth
from fairlane.core.document import Done, Failed, Outcome
from fairlane.demo.make import make
from fairlane.engine.protocol import DocumentFilter
from fairlane.engine.walk import walk_documents
from fairlane.queue.audit import Actor, cli_actor, note
from fairlane.queue.audited_queue import AuditedQueue
from fairlane.queue.workers import WORKERS, WorkerRecord
from tests.chromium import chromium

ROOT = Path(__file__).parents[1]
BIG, MINE, STEADY = "northwind", "clinic", "Escola São João"
SMALL = ("ada-law", "Bäckerei Grün", "dentist", "florist", "garage", "hotel", "Kancelaria Żak", "ink-studio",
         *(f"office-{number:03}" for number in range(1, 293)))  # fmt: skip
KIND = "letters"
LANGUAGES, SCHEMES, WIDTHS = ("en", "pl", "pt", "es", "de"), ("light", "dark"), (1440, 390)
TICK_MS, HOUR_MS, FLOOD_AT = 5000, 3_600_000, 0.75
REASONS = ("encrypted: it asks for a password", "corrupt: the file ends too early", "timed_out: more than 60 s")
SETTLED_MS = 900


class View(NamedTuple):
    """A view, and whether it is a customer's."""

    name: str
    hash: str
    is_customers: bool = False


class DemoServer(NamedTuple):
    """A running server, keys for it, and its views."""

    address: str
    operator: str
    customer: str
    queue: Queue
    views: tuple[View, ...]


def _payload(dice: random.Random) -> dict[str, str]:
    """A payload that has the name of a file."""
    word, ending = dice.choice(("invoice", "letter", "contract", "report")), dice.choice(("pdf", "docx"))
    return {"path": f"{word}-{dice.randrange(10_000):04}.{ending}"}


def _fill_hour(queue: Queue, dice: random.Random) -> None:
    """Fill the last hour: light customers all along, one that sends in bursts, a flood in its last quarter."""
    now_ms, engine = int(time.time() * 1000), queue.engine
    start_ms = now_ms - HOUR_MS
    submissions = [(start_ms + dice.randrange(HOUR_MS), name) for name in SMALL * 2 for _ in range(dice.choice((1, 1, 2)))]
    submissions += [(start_ms + minute * 60_000 + number * 9000, STEADY) for minute in (3, 31) for number in range(14)]
    submissions += [(start_ms + int(HOUR_MS * FLOOD_AT), BIG)] * 3000
    submissions.sort()
    for at_ms in range(start_ms, now_ms, TICK_MS):
        while submissions and submissions[0][0] < at_ms:
            submitted_ms, name = submissions[0]
            same = submissions.count(submissions[0])
            queue.submit_many(name, [_payload(dice) for _ in range(same)], kind=KIND, now=submitted_ms / 1000)
            del submissions[:same]
        claims = engine.claim("machine-1", 10, 600_000, {KIND: 3}, now_ms=at_ms)
        outcomes: list[Outcome] = [Failed(dice.choice(REASONS)) if dice.random() < 0.006 else Done("null") for _ in claims]
        engine.settle(list(zip(claims, outcomes, strict=True)), now_ms=at_ms + 4000)


def _register(queue: Queue, name: str, running: dict[str, int], silent_ms: int = 1500, drain: bool = False) -> None:
    """Write the record of a worker that is made up; `running` maps documents to milliseconds."""
    engine = queue.engine
    now_ms = engine.now()
    since = {id: now_ms - milliseconds for id, milliseconds in running.items()}
    record = WorkerRecord(
        name, f"{name}.example", 1, __version__, engine.schema, ("invoices", KIND), 4, now_ms - 5 * HOUR_MS, now_ms - silent_ms,
        "working", since, drain,
    )  # fmt: skip
    engine.put_record(WORKERS, name, record.encode())


class Traffic:
    """Submits and processes documents while the screenshots are taken."""

    def __init__(self, url: str) -> None:
        self._queue = Queue(url)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        dice, engine = random.Random(2), self._queue.engine
        slow = engine.claim("machine-2", 2, 600_000, {KIND: 3})  # what a worker that is being drained still has
        while not self._stop.is_set():
            for _ in range(dice.choice((1, 2, 3, 3, 5))):
                self._queue.submit(dice.choice(SMALL), _payload(dice), kind=KIND)
            claims = engine.claim("machine-1", 3, 60_000, {KIND: 3})
            _register(self._queue, "machine-1", {claim.id: 800 for claim in claims})
            _register(self._queue, "machine-2", {claim.id: 95_000 for claim in slow}, drain=True)
            self._stop.wait(0.9)
            engine.settle([(claim, Done("null")) for claim in claims])

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._queue.close()


def _submit_files(queue: Queue, folder: Path) -> str:
    """Submit files of one customer, for the worker of the server; return the id of the last one."""
    make(str(folder), 7, 1, 3, 6, 5)
    last = ""
    for path in sorted((folder / MINE).iterdir()):
        last = queue.submit(MINE, path=path).id
    queue.submit(MINE, content=b"%PDF-1.7 this is no PDF", name="damaged.pdf")
    return last


def _make_keys(queue: Queue) -> None:
    for customer, name, days in ((BIG, "upload server", 90), (STEADY, "", 6), ("Kancelaria Żak", "scanner", 30)):
        auth.create(queue.engine, customer=customer, name=name, expires_seconds=days * 86_400, actor=cli_actor())
    auth.create(queue.engine, role="viewer", scopes=("metrics",), name="prometheus", expires_seconds=None)


def _limit_kinds(queue: Queue) -> None:
    queue.limit_kind("ocr", running_max=1)
    queue.limit_kind("scan", running_max=3, rate=10, burst=5)
    queue.limit_kind("translate", rate=0.5, burst=20)
    queue.submit(STEADY, {"path": "scan-4.tif"}, kind="ocr")
    queue.engine.claim("machine-2", 1, 3_600_000, {"ocr": 3})


def _change_settings(queue: Queue) -> None:
    """Make changes for the audit log, and undo them."""
    audited = AuditedQueue(queue, Actor("person", "ada@example.com", "Ada Lovelace", "operator", "192.0.2.7"))
    note(queue.engine, Actor("key", "5b0c1f9e77a2d384", address="203.0.113.9"), "session.refused", error="unknown")
    for weight, cap, seconds in ((2, 40, 1200), (1, None, 1500)):
        audited.tune(STEADY, weight=weight, cap=cap)
        audited.configure(reset_interval=seconds)
    for paused in (True, False):
        audited.tune("florist", paused=paused)


@contextmanager
def serve(folder: Path) -> Iterator[DemoServer]:
    """Run a server with an hour behind it."""
    url = f"sqlite:///{folder}/queue.db"
    with Queue(url) as queue:
        _fill_hour(queue, random.Random(1))
        done = _submit_files(queue, folder / "inbox")
        _register(queue, "machine-3", {}, silent_ms=9 * 60_000)
        operator, _ = auth.create(queue.engine, role="admin")
        _make_keys(queue)
        _limit_kinds(queue)
        customer, _ = auth.create(queue.engine, customer=MINE)
        command = [sys.executable, "-m", "fairlane.cli", "serve", "--url", url, "--port", "0", "--json", "--slots", "1",
                   "--limit", "requests_a_second=100000", "--limit", "requests_burst=100000"]  # fmt: skip
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=folder)
        traffic = Traffic(url)
        try:
            assert server.stdout is not None
            address = json.loads(server.stdout.readline())["address"]
            while queue.document(done).state != "done":
                time.sleep(0.2)
            waiting = next(walk_documents(queue.engine, DocumentFilter(customer=BIG, state="ready"))).id
            views = (
                View("sign-in", ""), View("lanes", "lanes"), View("customers", "customers"),
                View("customer", f"customers/{quote(STEADY)}"), View("documents", "documents"), View("workers", "workers"),
                View("kinds", "kinds"),
                View("document", f"documents/{waiting}"), View("waits", "waits"), View("what-if", "what-if"),
                View("keys", "keys"), View("audit", "audit"),
                View("mine", "mine", True), View("result", f"mine/{done}", True), View("how", "how", True),
                View("webhook", "webhook", True),
            )  # fmt: skip
            yield DemoServer(address, operator, customer, queue, views)
        finally:
            traffic.close()
            server.terminate()
            server.wait()


def sign_in(page: Page, server: DemoServer, is_customers: bool) -> None:
    """Exchange a key for a cookie, as the form does."""
    key = server.customer if is_customers else server.operator
    page.goto(server.address)
    page.evaluate(
        """key => fetch("/page/session", { method: "POST", headers: { "Content-Type": "application/json" },
                    body: JSON.stringify({ key }) }).then((response) => { if (!response.ok) throw Error(response.status) })""",
        key,
    )


def _screenshot(page: Page, server: DemoServer, view: View) -> tuple[bytes, int]:
    """Take a screenshot of a view; return also by how many pixels it is too wide."""
    fax = server.queue.submit(STEADY, {"path": "fax-17.tif"}, kind="faxes") if view.name == "workers" else None
    if view.name == "audit":
        _change_settings(server.queue)
    page.goto(f"{server.address}/#/{view.hash}")
    page.reload()
    if view.name in ("keys", "audit"):
        page.locator("tbody tr").first.wait_for()
    if view.name == "what-if":
        page.locator("form input").nth(1).fill("20")
        page.locator("form button").click()
        page.locator(".compared").wait_for(timeout=120_000)
    page.wait_for_timeout(SETTLED_MS)
    too_wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    picture = page.screenshot(full_page=page.viewport_size == {"width": 390, "height": 844})
    if fax is not None:  # no worker takes it: other views shall not show that
        server.queue.cancel(fax.id)
    return picture, int(too_wide)


def screenshots(
    browser: Browser, server: DemoServer, language: str, scheme: str, width: int, names: frozenset[str]
) -> Iterator[tuple[str, bytes]]:
    """Take screenshots of views in one language, colour scheme and width."""
    for is_customers in (False, True):
        context = browser.new_context(
            locale=language, color_scheme="dark" if scheme == "dark" else "light",
            viewport={"width": width, "height": 844 if width < 600 else 1000},
        )  # fmt: skip
        page, is_signed_in = context.new_page(), False
        for view in server.views:
            if view.is_customers != is_customers or (names and view.name not in names):
                continue
            if view.hash and not is_signed_in:
                sign_in(page, server, is_customers)
                is_signed_in = True
            picture, too_wide = _screenshot(page, server, view)
            if too_wide > 0:
                click.echo(f"too wide by {too_wide} pixels: {view.name}, {language}, {scheme}, {width}")
            yield view.name, picture
        context.close()


DOCS = {  # file name: language, colours, width, view
    "page-lanes.png": ("en", "light", 1180, "lanes"),
    "page-lanes-phone.png": ("de", "dark", 390, "lanes"),
    "page-document.png": ("en", "light", 1180, "document"),
    "page-customers.png": ("es", "light", 1180, "customers"),
    "page-workers.png": ("en", "light", 1180, "workers"),
    "page-kinds.png": ("en", "light", 1180, "kinds"),
    "page-waits.png": ("pt", "dark", 1180, "waits"),
    "page-keys.png": ("en", "light", 1180, "keys"),
    "page-audit.png": ("en", "light", 1180, "audit"),
    "page-mine.png": ("pl", "light", 1180, "mine"),
}


@click.command()
@click.option("--docs", is_flag=True, help="Only the screenshots of the documentation, to docs/pictures/.")
@click.option("--only", multiple=True, help="Only this view.")
@click.option("--language", multiple=True, default=LANGUAGES, help="Only this language.")
def main(docs: bool, only: tuple[str, ...], language: tuple[str, ...]) -> None:
    """Take screenshots of the page."""
    with tempfile.TemporaryDirectory() as folder, serve(Path(folder)) as server, chromium() as browser:
        if docs:
            for name, (code, scheme, width, view) in DOCS.items():
                for _, picture in screenshots(browser, server, code, scheme, width, frozenset({view})):
                    _save_small(picture, ROOT / "docs/pictures" / name)
            return
        target = ROOT / "build/shots"
        target.mkdir(parents=True, exist_ok=True)
        for code in language:
            for scheme in SCHEMES:
                for width in WIDTHS:
                    for view, picture in screenshots(browser, server, code, scheme, width, frozenset(only)):
                        (target / f"{view}-{code}-{scheme}-{width}.png").write_bytes(picture)
        click.echo(f"wrote {target}")


def _save_small(picture: bytes, path: Path) -> None:
    """Save a screenshot with 128 colours, which is enough for a page."""
    with Image.open(io.BytesIO(picture)) as shot:
        shot.convert("RGB").quantize(128, method=Image.Quantize.MEDIANCUT).save(path, optimize=True)


if __name__ == "__main__":
    main()
