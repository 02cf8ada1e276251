"""kill -9 at every step: afterwards a document and its bytes are both there, or neither is after a sweep."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("act", "steps_least"),
    [("submit", 40), ("repeat", 40), ("conflict", 40), ("submit_many", 100), ("purge", 10), ("forget", 10), ("sweep", 5)],
)
def test_a_death_at_any_step_loses_nothing_and_leaves_nothing(tmp_path: Path, act: str, steps_least: int) -> None:
    command = [sys.executable, "-m", "tests.blobs.dying", str(tmp_path), act]
    ran = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    report = json.loads(ran.stdout)
    assert report["wrong"] == []
    assert report["steps"] >= steps_least
