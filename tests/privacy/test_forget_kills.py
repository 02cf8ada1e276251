"""kill -9 at every step of forgetting: until then every document has its bytes, and a second run leaves nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("engine", "stride"), [("sqlite", 3), ("postgres", 9), ("redis", 7), ("valkey", 11)])
def test_a_customer_is_forgotten_by_the_run_after_one_that_was_killed(tmp_path: Path, engine: str, stride: int) -> None:
    command = [sys.executable, "-m", "tests.privacy.dying", str(tmp_path), engine, str(stride)]
    ran = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    report = json.loads(ran.stdout)
    assert report["wrong"] == []
    assert report["steps"] >= 80
