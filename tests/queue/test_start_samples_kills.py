"""kill -9 at every write of a step of sampling: estimates go on, the next worker goes on, and no start is learned twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_death_costs_some_samples_and_nothing_else(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.queue.start_samples_dying", str(tmp_path)]
    ran = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == {"steps": 7, "wrong": []}  # before and after each of three writes, and none
