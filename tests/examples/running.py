"""How tests run examples: a copy in a folder of its own, and what their READMEs do before anything else."""

from __future__ import annotations

import re
import shutil
from importlib.metadata import version
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
LINES_MAX = 50  # a README of one screen


def copy_example(name: str, folder: Path) -> Path:
    """Copy an example, whose README must be of one screen; return the copy."""
    copied = folder / "examples" / name
    shutil.copytree(ROOT / "examples" / name, copied, ignore=shutil.ignore_patterns("__pycache__", "*.db*"))
    assert len((copied / "README.md").read_text().splitlines()) <= LINES_MAX
    return copied


def after_pip(install: str) -> str:
    """Return what a README does after `pip install`, and verify that what this would install is here."""
    command, _, rest = install.partition("\n")
    extras = re.fullmatch(r"pip install (\"?)\.(?:\[\w+\])?\1(?: -r (\S+))?", command)
    assert extras is not None, command
    for line in (ROOT / extras[2]).read_text().splitlines() if extras[2] else ():
        requirement = Requirement(line)
        assert requirement.specifier.contains(version(requirement.name)), line
    return rest
