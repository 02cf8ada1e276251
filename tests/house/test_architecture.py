"""ARCHITECTURE.md names every module in the table of its package, and no file that is not there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/fairlane"
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
PACKAGES = sorted(path.parent for path in SOURCE.rglob("__init__.py") if path.parent != SOURCE)
SUFFIXES = {".py", ".sql"}


def table_of(heading: str) -> set[str]:
    """The file names in the table under a heading, up to the next heading."""
    start = re.search(rf"^#+ {re.escape(heading)}.*$", TEXT, re.MULTILINE)
    assert start is not None, f"no heading for {heading}"
    return set(
        re.findall(r"^\| `([\w.]+)` \|", re.split(r"^#", TEXT[start.end() :], maxsplit=1, flags=re.MULTILINE)[0], re.MULTILINE)
    )


def modules_of(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.suffix in SUFFIXES and not path.name.startswith("__")}


@pytest.mark.parametrize("folder", PACKAGES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_every_module_is_in_the_table_of_its_package(folder: Path) -> None:
    assert table_of(f"`{folder.relative_to(SOURCE)}/`") == modules_of(folder)


def test_modules_beside_the_packages_are_named_too() -> None:
    assert table_of("Beside the packages") == modules_of(SOURCE)


def test_every_file_that_is_pointed_to_is_there() -> None:
    for name in re.findall(r"`((?:[\w]+/)+[\w.]*)`", TEXT):
        assert (SOURCE / name).exists() or (ROOT / name).exists(), name
