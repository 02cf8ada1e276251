"""Does anything get lost or half done when the disk is full, fails, or the process dies in the middle of a write?

`python -m chaos.disk` runs the same short script again and again, each time on a new file in a process of its own, with one
fault at the first, second, third, ... write or sync. Afterwards the file is opened without faults, checked and drained.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, TypeVar

import apsw
import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from fairlane import Queue, StoreError, StoreFull
from fairlane.core.document import Claim, Done, Failed, Outcome, Retried

from .checker import wrong_at_rest, wrong_in_store
from .history import Log, Store, lines, read_clients, snapshot
from .runs import drain

T = TypeVar("T")
Action = Literal["write", "sync"]
FAULTS: dict[str, Action] = {
    "full at write": "write",
    "failing at write": "write",
    "failing at sync": "sync",
    "killed at write": "write",
    "killed at sync": "sync",
}
TRIES_MAX = 3
PLACES_LEAST = 4  # of each fault, however few are wanted


class Plan:
    """Which write or sync meets which fault. A disk that is full or failing stays so until somebody mends it."""

    def __init__(self) -> None:
        self.fault: str | None = None
        self.position = 0
        self.fired = 0
        self.counts: Counter[str] = Counter()
        self._is_off_stage = False

    def arm(self, fault: str | None, position: int) -> None:
        self.fault, self.position, self.fired = fault, position, 0
        self.counts.clear()

    @contextmanager
    def off_stage(self) -> Iterator[None]:
        """What the test itself does on the disk is neither counted nor failed."""
        self._is_off_stage = True
        yield
        self._is_off_stage = False

    def meets(self, action: Action) -> str | None:
        """The fault that this write or sync meets."""
        if self._is_off_stage:
            return None
        self.counts[action] += 1
        if self.fault is None or FAULTS[self.fault] != action or self.counts[action] < self.position:
            return None
        self.fired += 1
        return self.fault


PLAN = Plan()


class FaultyFile(apsw.VFSFile):
    """A file whose writes and syncs may fail."""

    def __init__(self, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        super().__init__("unix", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's name
        fault = PLAN.meets("write")
        if fault == "killed at write":
            super().xWrite(data[: len(data) // 2], offset)  # torn
        _strike(fault)
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        _strike(PLAN.meets("sync"))
        super().xSync(flags)


class FaultyDisk(apsw.VFS):
    """The default disk of this process."""

    def __init__(self) -> None:
        super().__init__("faulty", "unix", makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> FaultyFile:  # noqa: N802 - SQLite's name
        return FaultyFile(name, flags)


class Connection(apsw.Connection):
    """SQLite ignores a checkpoint that fails while a connection is closed; only a fault made in Python would show there."""

    def close(self, force: bool = False) -> None:
        with suppress(apsw.FullError, apsw.IOError):
            super().close(force)


def _strike(fault: str | None) -> None:
    if fault is None:
        return
    if fault.startswith("killed"):
        os.kill(os.getpid(), signal.SIGKILL)
    raise apsw.FullError("no room, on purpose") if fault.startswith("full") else apsw.IOError("failed, on purpose")


class Script:
    """A little of everything, the same every time; every call is tried again once the disk is mended."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "queue.db"
        self.log = Log(folder / "client.log")
        self.marks = 0
        self.queue = self.insist(lambda: Queue(f"sqlite:///{self.path}"))

    def run(self) -> None:
        for place in range(5):
            self.submit(f"customer-{place % 2}", [f"key-{place}"])
        self.submit("customer-0", [f"batch-{place}" for place in range(5)])
        claims = self.claim()
        self.insist(lambda: self.queue.engine.extend(claims, 5))
        outcomes: list[tuple[str, Outcome]] = [("done", Done()), ("retried", Retried()), ("failed", Failed(""))]
        self.settle(claims[:3], outcomes)
        self.settle(claims[:3], outcomes)  # stale by now
        self.submit("customer-1", ["last"])
        self.insist(self.queue.close)

    def submit(self, customer: str, keys: Sequence[str]) -> None:
        def call() -> None:
            self.log.write("submitting", [(customer, key) for key in keys])
            receipts = self.queue.submit_many(customer, keys, keys=keys)
            self.log.write("submitted", [(customer, key, one.id) for key, one in zip(keys, receipts, strict=True)])

        self.insist(call)

    def claim(self) -> list[Claim]:
        self.log.write("claiming")
        claims = self.insist(lambda: self.queue.engine.claim("script", 4, 5))  # nobody reclaims before the end
        self.log.write("claimed", [(one.id, one.token) for one in claims])
        return claims

    def settle(self, claims: list[Claim], outcomes: list[tuple[str, Outcome]]) -> None:
        def call() -> None:
            self.marks += 1
            marked = [
                (f"{word}/{self.marks}", one, word, outcome) for one, (word, outcome) in zip(claims, outcomes, strict=True)
            ]
            self.log.write("settling", [(mark, one.id, one.token, word) for mark, one, word, _ in marked])
            lost = self.queue.engine.settle([(one, _marked(outcome, mark)) for mark, one, _, outcome in marked])
            self.log.write("settled", [(mark, one not in lost) for mark, one, _, _ in marked])

        self.insist(call)

    def insist(self, call: Callable[[], T]) -> T:
        """Call until it works. A call that fails must say so plainly. One that found the disk full has changed nothing; of
        one that met a failing disk nobody can know: it happened wholly or not at all."""
        for _ in range(TRIES_MAX):
            before = self.look()
            try:
                return call()
            except StoreError as error:
                is_full = PLAN.fault == "full at write"
                if isinstance(error, StoreFull) != is_full:
                    raise AssertionError(f"{PLAN.fault} was told as {error!r}") from error
                PLAN.fault = None
                has_changed = self.look() != before
                self.log.write("happened" if has_changed else "failed", str(error))
                if has_changed and is_full:
                    raise AssertionError("a call found the disk full, and changed something") from error
        raise AssertionError("it still fails on a disk that works")

    def look(self) -> Store | None:
        """Everything that is stored, once there is a queue."""
        with PLAN.off_stage():
            return snapshot(self.path) if hasattr(self, "queue") else None


def _marked(outcome: Outcome, mark: str) -> Outcome:
    match outcome:
        case Done():
            return outcome._replace(result=f'"{mark}"')
        case Retried() | Failed():
            return outcome._replace(reason=mark)
    return outcome


def try_one(folder: Path, fault: str | None, position: int) -> tuple[bool, list[str]]:
    """Run the script with one fault in a process of its own: whether the fault fired, and what is wrong afterwards."""
    process = os.fork()
    if process == 0:
        _in_child(folder, fault, position)
    _, status = os.waitpid(process, 0)
    code = os.waitstatus_to_exitcode(status)
    log = folder / "client.log"
    wrong = [f"the script ended with {code}"] if code not in (0, -signal.SIGKILL) else []
    Queue(f"sqlite:///{folder / 'queue.db'}").close()
    wrong += [f"after the fault: {one}" for one in wrong_in_store(snapshot(folder / "queue.db"))]
    drain(f"sqlite:///{folder / 'queue.db'}")
    wrong += wrong_at_rest(snapshot(folder / "queue.db"), read_clients([log]))
    words = {line[0] for line in lines(log)}
    fired = code == -signal.SIGKILL or bool(words & {"failed", "happened", "fired"})
    return fired, [f"{fault} {position}: {one}" for one in wrong]


def _in_child(folder: Path, fault: str | None, position: int) -> None:
    """Never returns."""
    code = 1
    try:
        PLAN.arm(fault, position)
        apsw.Connection = Connection  # type: ignore[misc]
        script = Script(folder)
        script.run()
        script.log.write("counts", PLAN.counts["write"], PLAN.counts["sync"])
        if PLAN.fired:
            script.log.write("fired", PLAN.fired)
        code = 0
    except BaseException as error:  # noqa: BLE001 - it is told, and the parent sees the code
        print(f"{fault} {position}: {error!r}", file=sys.stderr, flush=True)
    finally:
        os._exit(code)


def positions(folder: Path, every: int) -> list[tuple[str, int]]:
    """Every place where each fault can be, or every so many of them; counted in a run without faults."""
    folder.mkdir()
    _, wrong = try_one(folder, None, 0)
    assert not wrong, wrong
    (counts,) = [line[1:] for line in lines(folder / "client.log") if line[0] == "counts"]
    most = {"write": counts[0], "sync": counts[1]}
    return [
        (fault, place)
        for fault, action in FAULTS.items()
        for place in range(1, most[action] + 1, max(1, min(every, most[action] // PLACES_LEAST)))
    ]


def sweep(folder: Path, every: int, advance: Callable[[int], None]) -> tuple[Counter[str], list[str]]:
    """Try them all: how often each fault fired, and what is wrong; `advance` is told how many there are."""
    disk = FaultyDisk()
    fired: Counter[str] = Counter()
    wrong: list[str] = []
    places = positions(folder / "none", every)
    for number, (fault, position) in enumerate(places):
        own = folder / str(number)
        own.mkdir()
        has_fired, found = try_one(own, fault, position)
        fired[fault] += has_fired
        fired["told as failed, yet happened"] += any(line[0] == "happened" for line in lines(own / "client.log"))
        wrong += found
        advance(len(places))
    disk.unregister()
    wrong += [f"never fired: {fault}" for fault in FAULTS if not fired[fault]]
    return fired, wrong


@click.command()
@click.option("--every", default=1, show_default=True, help="Only every so many of the places.")
def main(every: int) -> None:
    """A full or failing disk, or kill -9, at every write and sync of a short script."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        tempfile.TemporaryDirectory(prefix="fairlane-disk-") as folder,
        Progress(*columns, console=Console(stderr=True)) as progress,
    ):
        task = progress.add_task("faults", total=None)
        fired, wrong = sweep(Path(folder), every, lambda total: progress.update(task, total=total, advance=1))
    print(f"Every {every}. place. Fired:")
    for fault, count in fired.items():
        print(f"  {fault}: {count}")
    for one in wrong:
        print(f"WRONG: {one}")
    print("Nothing is wrong." if not wrong else f"{len(wrong)} things are wrong.")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
