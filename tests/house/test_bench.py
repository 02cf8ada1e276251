"""The benchmarks run; what they measure is for people to read, not for a test to judge."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


MEASURED = ["policy", "submit", "callers", "batch", "claim", "worker", "replay", "extract", "postgres", "redis", "http"]


@pytest.mark.parametrize("only", MEASURED)
def test_a_small_run_writes_its_figures(tmp_path: Path, only: str) -> None:
    command = [sys.executable, "-m", "bench", "--quick", "--only", only, "--output", str(tmp_path / "bench.json")]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    figures = json.loads((tmp_path / "bench.json").read_text())
    assert figures
    assert all({"name", "value", "limit", "ratio"} <= set(one) for one in figures)


def test_the_bare_limit_is_at_most_forty_lines() -> None:
    assert len((ROOT / "bench/bare.py").read_text().splitlines()) <= 40
