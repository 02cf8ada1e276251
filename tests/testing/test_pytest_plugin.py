"""The plugin: its fixtures are there wherever Fairlane is installed, and cost nobody anything who does not use them."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

USES = """
import asyncio
import pytest
from fairlane.testing import MemoryQueue, assert_submitted, run_all

def test_one(fairlane_queue):
    assert isinstance(fairlane_queue, MemoryQueue)
    fairlane_queue.submit("acme")
    assert run_all(fairlane_queue, lambda _: None).done == 1

def test_each_test_has_its_own(fairlane_queue, fairlane_async_queue):
    assert not list(fairlane_queue.documents())
    async def submit():
        await fairlane_async_queue.submit("acme")
    asyncio.run(submit())
    assert_submitted(fairlane_queue, "acme", count=1)
"""
UNUSED = """
import sys

def test_nothing_of_it_is_imported():
    loaded = {name for name in sys.modules if name.split(".")[0] in ("fairlane", "apsw", "PIL", "rich", "click")}
    assert loaded <= {"fairlane", "fairlane.version", "fairlane.testing", "fairlane.testing.pytest_plugin"}
"""


def run_pytest(folder: Path, text: str, *options: str) -> str:
    (folder / "test_it.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", *options, "test_it.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout


def test_it_is_found_by_its_entry_point() -> None:
    assert [point.value for point in entry_points(group="pytest11", name="fairlane")] == ["fairlane.testing.pytest_plugin"]


def test_the_fixtures_are_there_without_being_imported(tmp_path: Path) -> None:
    assert "2 passed" in run_pytest(tmp_path, USES)


def test_nothing_is_imported_where_nobody_uses_it(tmp_path: Path) -> None:
    assert "1 passed" in run_pytest(tmp_path, UNUSED)


def test_it_can_be_switched_off(tmp_path: Path) -> None:
    assert "fixture 'fairlane_queue' not found" in run_pytest(tmp_path, USES, "-p", "no:fairlane")
