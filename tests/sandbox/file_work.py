"""The work of a fork server that a test starts: returns the content of a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


def prepare() -> None:
    """Nothing to load."""


def work(path: str) -> Callable[[], object]:
    """Read a file."""
    return lambda: Path(path).read_text()
