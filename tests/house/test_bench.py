"""The benchmarks run; what they measure is for people to read, not for a test to judge."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]


# what is measured, and how the names of its figures begin
MEASURED = {
    "policy": ["policy"],
    "submit": ["submit, 1 "],
    "callers": ["submit, 16"],
    "batch": ["submit_many"],
    "claim": ["claim"],
    "worker": ["worker"],
    "replay": ["replay"],
    "extract": ["extract"],
    "postgres": ["postgres:", "postgres scale"],
    "http": ["submit over HTTP"],
    "encryption": ["encrypted: submit", "encrypted: claim", "encrypted: store", "encrypted: read"],
}
ON_REDIS = {
    "redis": ["redis:", "redis scale", "valkey:", "valkey scale"],
    "limits": ["limits, sqlite", "limits, postgres", "limits, redis", "limits, valkey"],
}


def test_a_small_run_writes_its_figures(tmp_path: Path) -> None:
    run(MEASURED, tmp_path)


def test_a_small_run_on_redis_writes_its_figures(tmp_path: Path, program: Callable[[str], str]) -> None:
    program("redis-server")
    run(ON_REDIS, tmp_path)


def run(measured: dict[str, list[str]], folder: Path) -> None:
    only = [option for name in measured for option in ("--only", name)]
    command = [sys.executable, "-m", "bench", "--quick", *only, "--output", str(folder / "bench.json")]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    figures = json.loads((folder / "bench.json").read_text())
    assert all({"name", "value", "limit", "ratio"} <= set(figure) for figure in figures)
    for beginning in (beginning for beginnings in measured.values() for beginning in beginnings):
        assert [figure for figure in figures if figure["name"].startswith(beginning)], beginning


def test_the_bare_limit_is_at_most_forty_lines() -> None:
    assert len((ROOT / "bench/bare.py").read_text().splitlines()) <= 40
