"""Comparison of replays with the figures of an independent replay: `python -m bench.traces FOLDER`.

The folder holds gzipped CSV files and a SOURCES.md whose table names, for each file, the workers and the figures to compare
with: mean, p99, max, light p99 and quiet p99 in seconds, by policy.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table

from fairlane.core.errors import Mistake
from fairlane.sim.contenders import CONTENDERS, Contender
from fairlane.sim.measures import Measures, measure
from fairlane.sim.replay import replay
from fairlane.sim.workload import read_csv

LOAD = 0.9
FIGURES = ("mean", "p99", "max", "light p99", "quiet p99")
POLICIES: dict[str, tuple[Contender, float]] = {
    # by the table's name: the contender, and by how much its figures may differ. The table's prototype of turns counted with
    # real numbers, the rules count with whole ones.
    "first come first served": (CONTENDERS["fifo"], 0.02),
    "texts' rule, strict": (CONTENDERS["texts-strict"], 0.02),
    "texts' rule, fair, turns by document": (CONTENDERS["texts-documents"], 0.1),
    "texts' rule, fair, turns by time (the default)": (CONTENDERS["texts"], 0.1),
    "sliding, fair, turns by document": (CONTENDERS["sliding-documents"], 0.1),
    "sliding, fair, turns by time (the one to recommend)": (CONTENDERS["sliding"], 0.1),
}


class Reference(NamedTuple):
    """One row of the table."""

    trace: str
    workers: int
    policy: str
    figures: tuple[float, ...]


def parse_table(sources: str) -> list[Reference]:
    """Parse the table of figures."""
    rows: list[Reference] = []
    trace, workers = "", 0
    for line in sources.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) != 2 + len(FIGURES) or cells[1] not in POLICIES:
            continue
        if match := re.fullmatch(r"(\S+) \((\d+), [\d.]+\)", cells[0]):
            trace, workers = match[1], int(match[2])
        rows.append(Reference(trace, workers, cells[1], tuple(float(cell.replace(",", "")) for cell in cells[2:])))
    return rows


def figures_of(measures: Measures) -> list[float]:
    """Return the figures of one replay in the order of the table."""
    every = measures.waits["all"]
    values = (every.mean, every.p99, every.max, measures.waits["light"].p99, measures.waits["quiet"].p99)
    return [0.0 if value is None else value for value in values]


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False, exists=True))
def main(folder: Path) -> None:
    """Replay every trace of FOLDER under every policy of its table; exit with 1 if a figure differs too much."""
    try:
        references = parse_table((folder / "SOURCES.md").read_text(encoding="utf-8"))
    except OSError as error:
        raise click.ClickException(f"{error}; the folder must hold the table of figures") from error
    if not references:
        raise click.ClickException(f"{folder / 'SOURCES.md'} has no table of figures")
    table = Table(title="replay / table - 1", title_justify="left")
    for heading in ("trace", "policy", *FIGURES, "within"):
        table.add_column(heading, justify="left" if heading in {"trace", "policy"} else "right")
    missed = 0
    for reference in track(references, "replaying", console=Console(stderr=True), transient=True):
        contender, bound = POLICIES[reference.policy]
        workload = read_csv(folder / f"{reference.trace}.csv.gz").at_load(LOAD, reference.workers)
        figures = figures_of(measure(replay(workload, contender, reference.workers)))
        differences = [value / expected - 1 for value, expected in zip(figures, reference.figures, strict=True)]
        too_far = [abs(difference) > bound for difference in differences]
        missed += sum(too_far)
        pairs = zip(differences, too_far, strict=True)
        cells = [f"[red]{difference:+.2%}[/]" if is_far else f"{difference:+.2%}" for difference, is_far in pairs]
        table.add_row(reference.trace, contender.name, *cells, f"{bound:.0%}")
    console = Console()
    console.width = max(console.width, 120)
    console.print(table)
    console.print(f"{missed} figures differ too much" if missed else "every figure is within its bound")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    try:
        main()
    except Mistake as error:
        sys.exit(str(error))
