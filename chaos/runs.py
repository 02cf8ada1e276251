"""Helpers of runs that kill processes: kill and restart, drain the queue, report."""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from fairlane import Queue
from fairlane.core.document import Done

from .checker import fold_feed
from .history import Clients, StoreSnapshot
from .processes import Child

SHOWN_MAX = 20


@dataclass
class Report:
    """What a run did and the problems it found; `options` is a dataclass too."""

    options: Any
    kills: Counter[str] = field(default_factory=Counter)  # by what the killed process was doing
    wrong: list[str] = field(default_factory=list)
    figures: dict[str, int] = field(default_factory=dict)

    @property
    def is_good(self) -> bool:
        return not self.wrong

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return asdict(self) | {"kills": dict(self.kills), "is_good": self.is_good}  # asdict() miscounts a Counter

    def lines(self) -> Iterator[str]:
        """Yield the report as lines of text."""
        yield from (f"  {name}: {value}" for name, value in asdict(self.options).items())
        yield "Kills, by what the process was doing:"
        yield from (f"  {moment}: {count}" for moment, count in self.kills.most_common())
        yield "Records:"
        yield from (f"  {name}: {value:,}" for name, value in self.figures.items())
        yield from (f"WRONG: {wrong}" for wrong in self.wrong[:SHOWN_MAX])
        more = len(self.wrong) - SHOWN_MAX
        not_shown = f", {more} not shown" if more > 0 else ""
        yield "Nothing is wrong." if self.is_good else f"{len(self.wrong)} problems{not_shown}."


def kill_and_restart(child: Child, report: Report) -> None:
    """Kill a child, record what it was doing, and start it again."""
    if problem := child.unexpected_exit():
        report.wrong.append(problem)
    child.kill()
    report.kills[child.last_activity()] += 1
    child.start()


@contextmanager
def stop_afterwards(children: list[Child], folder: Path, report: Report) -> Iterator[None]:
    """Let the children stop by themselves after the block; kill them if it raises."""
    try:
        yield
        (folder / "stop").touch()
        report.wrong += [problem for child in children if (problem := child.wait_for_exit())]
    finally:
        for child in children:
            child.kill()


def drain(url: str) -> None:
    """Settle everything that is left, once leases have expired and delays have passed."""
    with Queue(url) as queue:
        while any(customer.waiting or customer.running for customer in queue.customers()):
            reclaimed = queue.engine.reclaim(1000)
            claims = queue.engine.claim("drain", 1000, 60_000)
            queue.engine.settle([(claim, Done()) for claim in claims])
            if not claims and not reclaimed:
                time.sleep(0.01)


def figures_of(store: StoreSnapshot, clients: Clients) -> dict[str, int]:
    """Count what the records contain."""
    settlements = clients.settlements.values()
    claims = sum(life.claims for life in fold_feed(store).values())
    return {
        "documents": sum(document.whole is None for document in store.documents),
        "parts": sum(document.whole is not None for document in store.documents),
        "acknowledged": len({(customer, key) for customer, key, _ in clients.acknowledged}),
        "submissions unknown, repeated": clients.unknown,
        "claims": claims,
        "leases run out": sum(line.what == "expired" for line in store.changes),
        "settlements accepted": sum(settlement.is_accepted is True for settlement in settlements),
        "settlements refused": sum(settlement.is_accepted is False for settlement in settlements),
        "settlements unknown": sum(settlement.is_accepted is None for settlement in settlements),
        "cancels": len(clients.cancelled),
        **{
            f"ended as {state}": sum(document.state == state for document in store.documents)
            for state in ("done", "failed", "cancelled")
        },
    }


def choose_seed(seed: int | None) -> int:
    """Return the seed, or a random one if there is none."""
    return random.randrange(10**6) if seed is None else seed


def run_and_exit(title: str, steps: int, run: Callable[[Path, Callable[[], None]], Report], is_json: bool) -> None:
    """Run in a temporary folder with a progress bar, print the report, and exit with 1 if there are problems."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        tempfile.TemporaryDirectory(prefix="fairlane-chaos-") as folder,
        Progress(*columns, console=Console(stderr=True)) as progress,
    ):
        task = progress.add_task(title, total=steps)
        report = run(Path(folder), lambda: progress.advance(task))
    print(json.dumps(report.as_json(), indent=2) if is_json else "\n".join(report.lines()))
    sys.exit(0 if report.is_good else 1)
