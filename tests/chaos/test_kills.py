"""kill -9, a full disk and a failing one, in short; `make chaos` is the long form."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from chaos.kills import Options, run

ROOT = Path(__file__).parents[2]


def test_nothing_is_lost_doubled_or_stuck_when_processes_are_killed(tmp_path: Path) -> None:
    report = run(Options(kills=15, seed=11, documents=1500, checks=3), tmp_path)
    assert report.wrong == []
    assert report.kills.total() == 15
    assert json.loads(json.dumps(report.as_json()))["kills"] == dict(report.kills)
    assert report.figures["settlements refused"] > 0  # stale claims were settled, on purpose


def test_nothing_is_lost_or_half_done_when_the_disk_fails_at_any_write(tmp_path: Path) -> None:
    sweep = subprocess.run(
        [sys.executable, "-m", "chaos.disk", "--every", "25"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert sweep.returncode == 0, sweep.stdout + sweep.stderr
    assert "Nothing is wrong." in sweep.stdout
