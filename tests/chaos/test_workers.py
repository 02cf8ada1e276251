"""Whole workers killed and frozen, in short; `make chaos` is the long form."""

from __future__ import annotations

from pathlib import Path

from chaos.workers import Options, run


def test_nothing_is_lost_doubled_or_left_behind_when_workers_are_killed_and_frozen(tmp_path: Path) -> None:
    report = run(Options(kills=8, freezes=4, documents=80, workers=3, seed=5), tmp_path)
    assert report.wrong == []
    assert report.faults.total() == 12
    assert report.figures["done"] == 80
