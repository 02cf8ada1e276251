"""What is a measured figure, and how is it shown and kept?

Laws:
- `ratio` is `value / limit`; the limit is the bare figure of the same run, the smaller queue, or the goal itself.
- A goal is about the ratio. A missed goal is shown as missed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

WIDTH_LEAST = 160


class Goal(NamedTuple):
    """How high the ratio must be at least, or may be at most."""

    bound: float
    is_least: bool = True

    def __str__(self) -> str:
        return f"ratio {'>=' if self.is_least else '<='} {self.bound:g}"

    def is_met(self, ratio: float) -> bool:
        """Whether a ratio is good enough."""
        return ratio >= self.bound if self.is_least else ratio <= self.bound


class Figure(NamedTuple):
    """One line of the table."""

    name: str
    value: float
    unit: str
    limit: float
    goal: Goal | None = None
    note: str = ""

    @property
    def ratio(self) -> float:
        return self.value / self.limit

    def as_json(self) -> dict[str, object]:
        """What is written to the file."""
        told: dict[str, object] = {
            "name": self.name,
            "value": round(self.value, 3),
            "unit": self.unit,
            "limit": round(self.limit, 3),
            "ratio": round(self.ratio, 3),
        }
        if self.goal is not None:
            told |= {"goal": str(self.goal), "met": self.goal.is_met(self.ratio)}
        return told | ({"note": self.note} if self.note else {})


def write(figures: list[Figure], path: Path) -> None:
    """Keep the figures as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([one.as_json() for one in figures], indent=2) + "\n", encoding="utf-8")


def show(figures: list[Figure]) -> None:
    """Print the figures as a table."""
    table = Table(title="Fairlane bench", title_justify="left")
    for heading in ("what", "value", "limit", "unit", "ratio", "goal", "note"):
        table.add_column(heading, justify="right" if heading in {"value", "limit", "ratio"} else "left")
    for one in figures:
        verdict = ""
        if one.goal is not None:
            verdict = f"{one.goal} [green]met[/]" if one.goal.is_met(one.ratio) else f"{one.goal} [bold red]MISSED[/]"
        table.add_row(one.name, _shown(one.value), _shown(one.limit), one.unit, f"{one.ratio:.2f}", verdict, one.note)
    console = Console()
    console.width = max(console.width, WIDTH_LEAST)
    console.print(table)


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:,.1f}"
