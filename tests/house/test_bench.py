"""The benchmarks run; what they measure is for people to read, not for a test to judge."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


MEASURED = ["policy", "submit", "callers", "batch", "claim", "worker", "replay", "extract", "postgres", "redis", "http"]
BEGINNINGS = (
    "policy", "submit, 1 ", "submit, 16", "submit_many", "claim", "worker", "replay", "extract", "postgres:", "postgres scale",
    "redis:", "redis scale", "valkey:", "valkey scale", "submit over HTTP",
)  # fmt: skip


def test_a_small_run_writes_its_figures(tmp_path: Path) -> None:
    only = [option for name in MEASURED for option in ("--only", name)]
    command = [sys.executable, "-m", "bench", "--quick", *only, "--output", str(tmp_path / "bench.json")]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    figures = json.loads((tmp_path / "bench.json").read_text())
    assert all({"name", "value", "limit", "ratio"} <= set(figure) for figure in figures)
    for beginning in BEGINNINGS:
        assert [figure for figure in figures if figure["name"].startswith(beginning)], beginning


def test_the_bare_limit_is_at_most_forty_lines() -> None:
    assert len((ROOT / "bench/bare.py").read_text().splitlines()) <= 40
