"""Benchmark figures: a measured value beside its limit, shown as a table and written as JSON.

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

WIDTH_MIN = 160


class Goal(NamedTuple):
    """The least or the greatest ratio that is good enough."""

    bound: float
    is_least: bool = True

    def __str__(self) -> str:
        return f"ratio {'>=' if self.is_least else '<='} {self.bound:g}"

    def is_met(self, ratio: float) -> bool:
        """Whether a ratio is good enough."""
        return ratio >= self.bound if self.is_least else ratio <= self.bound


class Figure(NamedTuple):
    """One row of the table."""

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
        """Return the figure as JSON values."""
        data: dict[str, object] = {
            "name": self.name,
            "value": round(self.value, 3),
            "unit": self.unit,
            "limit": round(self.limit, 3),
            "ratio": round(self.ratio, 3),
        }
        if self.goal is not None:
            data |= {"goal": str(self.goal), "met": self.goal.is_met(self.ratio)}
        return data | ({"note": self.note} if self.note else {})


def write(figures: list[Figure], path: Path) -> None:
    """Write the figures as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([figure.as_json() for figure in figures], indent=2) + "\n", encoding="utf-8")


def show(figures: list[Figure]) -> None:
    """Print the figures as a table."""
    table = Table(title="Fairlane bench", title_justify="left")
    for heading in ("what", "value", "limit", "unit", "ratio", "goal", "note"):
        table.add_column(heading, justify="right" if heading in {"value", "limit", "ratio"} else "left")
    for figure in figures:
        verdict = ""
        if figure.goal is not None:
            verdict = (
                f"{figure.goal} [green]met[/]" if figure.goal.is_met(figure.ratio) else f"{figure.goal} [bold red]MISSED[/]"
            )
        table.add_row(
            figure.name, _format(figure.value), _format(figure.limit), figure.unit, f"{figure.ratio:.2f}", verdict, figure.note
        )
    console = Console()
    console.width = max(console.width, WIDTH_MIN)
    console.print(table)


def _format(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:,.1f}"
