"""A disk that is full or fails, or kill -9, at every write and sync: nothing may be lost or half done.

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
from typing import Literal, NoReturn, TypeVar

import apsw
import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from fairlane import Queue, StoreError, StoreFull
from fairlane.core.document import Claim, Done, Failed, Outcome, Retried

from .checker import check_at_rest, check_store
from .history import ClientLog, StoreSnapshot, read_clients, read_log, snapshot
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
POSITIONS_MIN = 4  # of each fault, whatever --every is


class FaultPlan:
    """Decides which write or sync fails. A disk that is full or failing stays so until the fault is cleared."""

    def __init__(self) -> None:
        self.fault: str | None = None
        self.position = 0
        self.fired = 0
        self.counts: Counter[str] = Counter()
        self._is_suspended = False

    def arm(self, fault: str | None, position: int) -> None:
        self.fault, self.position, self.fired = fault, position, 0
        self.counts.clear()

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Neither count nor fail what the test itself does on the disk."""
        self._is_suspended = True
        yield
        self._is_suspended = False

    def next_fault(self, action: Action) -> str | None:
        """Count a write or sync and return its fault, if any."""
        if self._is_suspended:
            return None
        self.counts[action] += 1
        if self.fault is None or FAULTS[self.fault] != action or self.counts[action] < self.position:
            return None
        self.fired += 1
        return self.fault


PLAN = FaultPlan()


class FaultyFile(apsw.VFSFile):
    """A file whose writes and syncs may fail."""

    def __init__(self, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        super().__init__("unix", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's name
        fault = PLAN.next_fault("write")
        if fault == "killed at write":
            super().xWrite(data[: len(data) // 2], offset)  # torn
        _raise_fault(fault)
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        _raise_fault(PLAN.next_fault("sync"))
        super().xSync(flags)


class FaultyDisk(apsw.VFS):
    """The default VFS of this process."""

    def __init__(self) -> None:
        super().__init__("faulty", "unix", makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> FaultyFile:  # noqa: N802 - SQLite's name
        return FaultyFile(name, flags)


class Connection(apsw.Connection):
    """Ignores faults during close, as SQLite does for real ones: only a fault raised in Python would surface there."""

    def close(self, force: bool = False) -> None:
        with suppress(apsw.FullError, apsw.IOError):
            super().close(force)


def _raise_fault(fault: str | None) -> None:
    if fault is None:
        return
    if fault.startswith("killed"):
        os.kill(os.getpid(), signal.SIGKILL)
    raise apsw.FullError("no room, on purpose") if fault.startswith("full") else apsw.IOError("failed, on purpose")


class Script:
    """A few calls of every kind, the same every time; a call that fails is repeated on a working disk."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "queue.db"
        self.log = ClientLog(folder / "client.log")
        self.marks = 0
        self.queue = self.retry(lambda: Queue(f"sqlite:///{self.path}"))

    def run(self) -> None:
        for number in range(5):
            self.submit(f"customer-{number % 2}", [f"key-{number}"])
        self.submit("customer-0", [f"batch-{number}" for number in range(5)])
        claims = self.claim()
        self.retry(lambda: self.queue.engine.extend(claims, 5))
        self.take_over(claims[3])
        outcomes: list[tuple[str, Outcome]] = [("done", Done()), ("retried", Retried()), ("failed", Failed(""))]
        self.settle(claims[:3], outcomes)
        self.settle(claims[:3], outcomes)  # stale by now
        self.submit("customer-1", ["last"])
        self.retry(self.queue.close)

    def submit(self, customer: str, keys: Sequence[str]) -> None:
        def call() -> None:
            self.log.write("submitting", [(customer, key) for key in keys])
            receipts = self.queue.submit_many(customer, keys, keys=keys)
            self.log.write("submitted", [(customer, key, receipt.id) for key, receipt in zip(keys, receipts, strict=True)])

        self.retry(call)

    def claim(self) -> list[Claim]:
        self.log.write("claiming")
        claims = self.retry(lambda: self.queue.engine.claim("script", 4, 5))  # no one reclaims them before the end
        self.log.write("claimed", [(claim.id, claim.token) for claim in claims])
        return claims

    def take_over(self, claim: Claim) -> None:
        self.log.write("taking_over")
        (taken,) = self.retry(lambda: self.queue.engine.take_over([(claim.id, claim.token)], "again", 5))
        self.log.write("taken_over", [(taken.id, taken.token)] if taken else [])  # none: it happened, and the call failed

    def settle(self, claims: list[Claim], outcomes: list[tuple[str, Outcome]]) -> None:
        def call() -> None:
            self.marks += 1
            marked = [
                (f"{word}/{self.marks}", claim, word, outcome) for claim, (word, outcome) in zip(claims, outcomes, strict=True)
            ]
            self.log.write("settling", [(mark, claim.id, claim.token, word) for mark, claim, word, _ in marked])
            lost = self.queue.engine.settle([(claim, _add_mark(outcome, mark)) for mark, claim, _, outcome in marked])
            self.log.write("settled", [(mark, claim not in lost) for mark, claim, _, _ in marked])

        self.retry(call)

    def retry(self, call: Callable[[], T]) -> T:
        """Call until it works. A call that fails must raise the right error. On a full disk it must have changed nothing; on a
        failing disk it happened completely or not at all."""
        for _ in range(TRIES_MAX):
            before = self.read_store()
            try:
                return call()
            except StoreError as error:
                is_full = PLAN.fault == "full at write"
                if isinstance(error, StoreFull) != is_full:
                    raise AssertionError(f"{PLAN.fault} was reported as {error!r}") from error
                PLAN.fault = None
                has_changed = self.read_store() != before
                self.log.write("happened" if has_changed else "failed", str(error))
                if has_changed and is_full:
                    raise AssertionError("a call failed on a full disk, and changed something") from error
        raise AssertionError("it still fails on a disk that works")

    def read_store(self) -> StoreSnapshot | None:
        """Read everything that is stored; None before the queue exists."""
        with PLAN.suspended():
            return snapshot(self.path) if hasattr(self, "queue") else None


def _add_mark(outcome: Outcome, mark: str) -> Outcome:
    match outcome:
        case Done():
            return outcome._replace(result=f'"{mark}"')
        case Retried() | Failed():
            return outcome._replace(reason=mark)
    return outcome


def try_fault(folder: Path, fault: str | None, position: int) -> tuple[bool, list[str]]:
    """Run the script with one fault in a process of its own; return whether the fault fired, and the problems."""
    process = os.fork()
    if process == 0:
        _run_in_child(folder, fault, position)
    _, status = os.waitpid(process, 0)
    code = os.waitstatus_to_exitcode(status)
    log = folder / "client.log"
    wrong = [f"the script ended with {code}"] if code not in (0, -signal.SIGKILL) else []
    Queue(f"sqlite:///{folder / 'queue.db'}").close()
    wrong += [f"after the fault: {problem}" for problem in check_store(snapshot(folder / "queue.db"))]
    drain(f"sqlite:///{folder / 'queue.db'}")
    wrong += check_at_rest(snapshot(folder / "queue.db"), read_clients([log]))
    words = {line[0] for line in read_log(log)}
    fired = code == -signal.SIGKILL or bool(words & {"failed", "happened", "fired"})
    return fired, [f"{fault} {position}: {problem}" for problem in wrong]


def _run_in_child(folder: Path, fault: str | None, position: int) -> NoReturn:
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
    except BaseException as error:  # noqa: BLE001 - it is printed, and the parent sees the exit code
        print(f"{fault} {position}: {error!r}", file=sys.stderr, flush=True)
    finally:
        os._exit(code)


def positions(folder: Path, every: int) -> list[tuple[str, int]]:
    """List every nth write or sync for each fault, counted in a run without faults."""
    folder.mkdir()
    _, wrong = try_fault(folder, None, 0)
    assert not wrong, wrong
    (counts,) = [line[1:] for line in read_log(folder / "client.log") if line[0] == "counts"]
    most = {"write": counts[0], "sync": counts[1]}
    return [
        (fault, position)
        for fault, action in FAULTS.items()
        for position in range(1, most[action] + 1, max(1, min(every, most[action] // POSITIONS_MIN)))
    ]


def sweep(folder: Path, every: int, advance: Callable[[int], None]) -> tuple[Counter[str], list[str]]:
    """Try every position; return how often each fault fired, and the problems. `advance` is called with the total."""
    disk = FaultyDisk()
    fired: Counter[str] = Counter()
    wrong: list[str] = []
    faults = positions(folder / "none", every)
    for number, (fault, position) in enumerate(faults):
        subfolder = folder / str(number)
        subfolder.mkdir()
        has_fired, problems = try_fault(subfolder, fault, position)
        fired[fault] += has_fired
        fired["reported as failed, yet happened"] += any(line[0] == "happened" for line in read_log(subfolder / "client.log"))
        wrong += problems
        advance(len(faults))
    disk.unregister()
    wrong += [f"never fired: {fault}" for fault in FAULTS if not fired[fault]]
    return fired, wrong


@click.command()
@click.option("--every", default=1, show_default=True, help="Try only every Nth write and sync.")
def main(every: int) -> None:
    """A full or failing disk, or kill -9, at every write and sync of a short script."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        tempfile.TemporaryDirectory(prefix="fairlane-disk-") as folder,
        Progress(*columns, console=Console(stderr=True)) as progress,
    ):
        task = progress.add_task("faults", total=None)
        fired, wrong = sweep(Path(folder), every, lambda total: progress.update(task, total=total, advance=1))
    print(f"One write or sync in {every}. Fired:")
    for fault, count in fired.items():
        print(f"  {fault}: {count}")
    for problem in wrong:
        print(f"WRONG: {problem}")
    print("Nothing is wrong." if not wrong else f"{len(wrong)} problems.")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
