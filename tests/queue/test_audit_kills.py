"""kill -9 at every step of a change that an operator makes: the audit log hides none, and claims none that was not made."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("engine", ["sqlite", "postgres", "redis"])
def test_no_change_is_hidden_by_a_death(tmp_path: Path, engine: str) -> None:
    command = [sys.executable, "-m", "tests.queue.audit_dying", str(tmp_path), engine]
    ran = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    report = json.loads(ran.stdout)
    assert report["wrong"] == []
    assert report["steps"] >= 70
