"""How tests run examples: a copy in a folder of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
LINES_MAX = 50  # a README of one screen


def copy_example(name: str, folder: Path) -> Path:
    """Copy an example, whose README must be of one screen; return the copy."""
    copied = folder / name
    shutil.copytree(EXAMPLES / name, copied, ignore=shutil.ignore_patterns("__pycache__", "*.db*"))
    assert len((copied / "README.md").read_text().splitlines()) <= LINES_MAX
    return copied
