"""The made-up queue behind the screenshots: an hour of documents, one of each state, files, keys, limits and changes."""

from __future__ import annotations

import json
import random
import threading
import time
from pathlib import Path

from fairlane import Queue, __version__
from fairlane.api import auth
from fairlane.core.document import Claim, Continued, Done, Failed, Outcome, Retried, Submission
from fairlane.demo.make import make
from fairlane.queue import new_ids
from fairlane.queue.audit import Actor, cli_actor, note
from fairlane.queue.audited_queue import AuditedQueue
from fairlane.queue.workers import WORKERS, WorkerRecord

BIG, MINE, STEADY = "northwind", "clinic", "Escola São João"
PAUSED = "Stowarzyszenie Miłośników Żeglugi Śródlądowej w Bydgoszczy, sekretariat"  # a long name
OPERATOR = Actor("person", "ada@example.com", "Ada Lovelace", "operator", "192.0.2.7")
SMALL = ("ada-law", "Bäckerei Grün", "dentist", "florist", "garage", "hotel", "Kancelaria Żak", "ink-studio",
         *(f"office-{number:03}" for number in range(1, 293)))  # fmt: skip
KIND = "letters"
TICK_MS, HOUR_MS, DAY_MS, FLOOD_AT = 5000, 3_600_000, 86_400_000, 0.75
REASONS = ("encrypted: it asks for a password", "corrupt: the file ends too early", "timed_out: more than 60 s")
TRACEBACK = """Traceback (most recent call last):
  File "tasks.py", line 41, in book_invoice
    total = sum(Decimal(line["net"]) for line in invoice["lines"])
KeyError: 'net'"""


def _payload(dice: random.Random) -> dict[str, str]:
    """A payload that has the name of a file."""
    word, ending = dice.choice(("invoice", "letter", "contract", "report")), dice.choice(("pdf", "docx"))
    return {"path": f"{word}-{dice.randrange(10_000):04}.{ending}"}


def fill_hour(queue: Queue, dice: random.Random) -> None:
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


def register_worker(
    queue: Queue, name: str, running: dict[str, int], silent_ms: int = 1500, drain: bool = False, kinds: tuple[str, ...] = ()
) -> None:
    """Write the record of a worker that is made up; `running` maps documents to milliseconds."""
    engine = queue.engine
    now_ms = engine.now()
    since = {id: now_ms - milliseconds for id, milliseconds in running.items()}
    record = WorkerRecord(
        name, f"{name}.example", 1, __version__, engine.schema, ("invoices", KIND, *kinds), 4, now_ms - 5 * HOUR_MS,
        now_ms - silent_ms, "working", since, drain,
    )  # fmt: skip
    engine.put_record(WORKERS, name, record.encode())


class Traffic:
    """Submits and processes documents while the screenshots are taken."""

    def __init__(self, url: str, scans: list[str]) -> None:
        self._queue = Queue(url)
        self._scans = scans
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        dice, engine = random.Random(2), self._queue.engine
        slow = engine.claim("machine-2", 2, DAY_MS, {KIND: 3})  # what a worker that is being drained still has
        while not self._stop.is_set():
            for _ in range(dice.choice((1, 2, 3, 3, 5))):
                self._queue.submit(dice.choice(SMALL), _payload(dice), kind=KIND)
            claims = engine.claim("machine-1", 3, 60_000, {KIND: 3})
            register_worker(self._queue, "machine-1", {claim.id: 800 for claim in claims}, kinds=("slices", "index"))
            register_worker(self._queue, "machine-2", {claim.id: 95_000 for claim in slow}, drain=True)
            register_worker(self._queue, "machine-4", dict.fromkeys(self._scans, 42_000), kinds=("default", "ocr", "scan"))
            self._stop.wait(0.9)
            engine.settle([(claim, Done("null")) for claim in claims])

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._queue.close()


def submit_files(queue: Queue, folder: Path) -> tuple[str, str]:
    """Submit files of one customer, for the worker of the server; return one that it will read, and one that it cannot read."""
    make(str(folder), 7, 1, 3, 6, 5)
    last = ""
    for path in sorted((folder / MINE).iterdir()):
        last = queue.submit(MINE, path=path).id
    return last, queue.submit(MINE, content=b"%PDF-1.7 this is no PDF", name="damaged.pdf").id


def make_keys(queue: Queue) -> None:
    for customer, name, days in ((BIG, "upload server", 90), (STEADY, "", 6), ("Kancelaria Żak", "scanner", 30)):
        auth.create(queue.engine, customer=customer, name=name, expires_seconds=days * 86_400, actor=cli_actor())
    auth.create(queue.engine, role="viewer", scopes=("metrics",), name="prometheus", expires_seconds=None)


def limit_kinds(queue: Queue) -> None:
    queue.limit_kind("ocr", running_max=1)
    queue.limit_kind("scan", running_max=3, rate=10, burst=5)
    queue.limit_kind("translate", rate=0.5, burst=20)


def change_settings(queue: Queue) -> None:
    """Make changes for the audit log, and undo them."""
    audited = AuditedQueue(queue, OPERATOR)
    note(queue.engine, Actor("key", "5b0c1f9e77a2d384", address="203.0.113.9"), "session.refused", error="unknown")
    for weight, cap in ((2, 40), (1, None)):
        audited.tune("florist", weight=weight, cap=cap)
    for paused in (True, False):
        audited.tune("florist", paused=paused)


def make_states(queue: Queue) -> dict[str, str]:
    """Make a document of each state; return their ids by name."""
    return {
        "delayed": queue.submit(STEADY, {"path": "reminder-0007.pdf"}, kind=KIND, delay=3600).id,
        "cancelled": _cancelled(queue),
        "running": _running(queue, "ocr", "scan-0004.tif"),
        "failed": _failed(queue),
        "steps": _sliced(queue),
        "paused": _paused(queue),
    }


def _claimed(queue: Queue, kind: str) -> Claim:
    (claim,) = queue.engine.claim("machine-4", 1, DAY_MS, {kind: 3})
    return claim


def _running(queue: Queue, kind: str, name: str) -> str:
    queue.submit(STEADY, {"path": name}, kind=kind)
    return _claimed(queue, kind).id


def _cancelled(queue: Queue) -> str:
    id = queue.submit(STEADY, {"path": "letter-0815.pdf"}, kind=KIND, delay=3600).id
    queue.cancel(id)
    return id


def _failed(queue: Queue) -> str:
    """A document whose handler failed three times."""
    id = queue.submit(STEADY, {"path": "invoice-0042.pdf", "lines": [{"gross": "12.50"}]}, kind="invoices", key="import-42").id
    for number in (1, 2, 3):
        claim, reason = _claimed(queue, "invoices"), "KeyError: 'net'"
        details = {
            "attempt": number, "token": claim.token, "at": int(time.time() * 1000), "worker": "machine-4", "seconds": 0.4,
            "reason": reason, "traceback": TRACEBACK, "output": f"reading {id}\n1 line",
        }  # fmt: skip
        queue.engine.settle([(claim, Retried(0, reason, details=json.dumps(details)))])
    return id


def _sliced(queue: Queue) -> str:
    """A scan of three slices: one is read, one is being read."""
    id = queue.submit(STEADY, {"path": "archive-1987.pdf"}, kind="slices", steps=["slices", "index"]).id
    parts = tuple(Submission(part, STEADY, "slices", "1", 20_000, made_from=id) for part in new_ids(3))
    payload = '{"fairlane.pipeline":{"steps":["slices","index"],"parts":3},"payload":{"path":"archive-1987.pdf"}}'
    queue.engine.settle([(_claimed(queue, "slices"), Continued("slices", payload, parts))])
    queue.engine.settle([(_claimed(queue, "slices"), Done("1"))])
    _claimed(queue, "slices")
    return id


def _paused(queue: Queue) -> str:
    """A document of a paused customer that an operator prioritized."""
    audited = AuditedQueue(queue, OPERATOR)
    ids = [queue.submit(PAUSED, {"path": f"{'membership-list-' * 5}{number}.docx"}, kind=KIND).id for number in range(7)]
    audited.tune(PAUSED, paused=True, weight=0.5)
    audited.prioritize(ids[-1], 1)
    return ids[-1]
