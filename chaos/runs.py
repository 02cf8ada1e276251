"""What do runs that kill processes have in common: how a process is killed, how the rest is served, and what is told?"""

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

from .checker import lives_of
from .history import Clients, Store
from .processes import Child

SHOWN_MAX = 20


@dataclass
class Report:
    """What a run did and what it found; `options` is a dataclass too."""

    options: Any
    kills: Counter[str] = field(default_factory=Counter)  # by what the killed process was doing
    wrong: list[str] = field(default_factory=list)
    figures: dict[str, int] = field(default_factory=dict)

    @property
    def is_good(self) -> bool:
        return not self.wrong

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self) | {"is_good": self.is_good}

    def told(self) -> Iterator[str]:
        """For people, a line each."""
        yield from (f"  {name}: {value}" for name, value in asdict(self.options).items())
        yield "Kills, by what the process was doing:"
        yield from (f"  {moment}: {count}" for moment, count in self.kills.most_common())
        yield "What the records hold:"
        yield from (f"  {name}: {value:,}" for name, value in self.figures.items())
        yield from (f"WRONG: {wrong}" for wrong in self.wrong[:SHOWN_MAX])
        left = len(self.wrong) - SHOWN_MAX
        not_shown = f", {left} not shown" if left > 0 else ""
        yield "Nothing is wrong." if self.is_good else f"{len(self.wrong)} things are wrong{not_shown}."


def kill(child: Child, report: Report) -> None:
    """Kill a child, note what it was doing, start it again."""
    if told := child.ended_by_itself():
        report.wrong.append(told)
    child.kill()
    report.kills[child.moment()] += 1
    child.start()


@contextmanager
def ended(children: list[Child], folder: Path, report: Report) -> Iterator[None]:
    """The children work meanwhile; then they end by themselves, or are killed if anything goes wrong here."""
    try:
        yield
        (folder / "stop").touch()
        report.wrong += [told for child in children if (told := child.end())]
    finally:
        for child in children:
            child.kill()


def drain(url: str) -> None:
    """Serve what is left: leases run out, delays pass, everything ends."""
    with Queue(url) as queue:
        while any(one.waiting or one.running for one in queue.customers()):
            reclaimed = queue.engine.reclaim(1000)
            claims = queue.engine.claim("drain", 1000, 60_000)
            queue.engine.settle([(one, Done()) for one in claims])
            if not claims and not reclaimed:
                time.sleep(0.01)


def figures_of(store: Store, clients: Clients) -> dict[str, int]:
    """What the records hold, counted."""
    settlements = clients.settlements.values()
    claims = sum(life.claims for life in lives_of(store).values())
    return {
        "documents": len(store.documents),
        "acknowledged": len({(customer, key) for customer, key, _ in clients.acknowledged}),
        "submissions unknown, repeated": clients.unknown,
        "claims": claims,
        "leases run out": sum(line.what == "expired" for line in store.changes),
        "settlements accepted": sum(one.is_accepted is True for one in settlements),
        "settlements refused": sum(one.is_accepted is False for one in settlements),
        "settlements unknown": sum(one.is_accepted is None for one in settlements),
        "cancels": len(clients.cancelled),
        **{
            f"ended as {state}": sum(one.state == state for one in store.documents) for state in ("done", "failed", "cancelled")
        },
    }


def seed_of(given: int | None) -> int:
    """The seed that was asked for, or a new one."""
    return random.randrange(10**6) if given is None else given


def tell(title: str, steps: int, run: Callable[[Path, Callable[[], None]], Report], is_json: bool) -> None:
    """Run in a folder of its own with a progress bar, print the report, and end the program as it says."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        tempfile.TemporaryDirectory(prefix="fairlane-chaos-") as folder,
        Progress(*columns, console=Console(stderr=True)) as progress,
    ):
        task = progress.add_task(title, total=steps)
        report = run(Path(folder), lambda: progress.advance(task))
    print(json.dumps(report.as_json(), indent=2) if is_json else "\n".join(report.told()))
    sys.exit(0 if report.is_good else 1)
