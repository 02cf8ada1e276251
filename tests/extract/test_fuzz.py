"""500 damaged files, the same every time: a result or the one error comes out, and never a surprise of our own."""

from __future__ import annotations

from pathlib import Path

from chaos.files import run


def test_only_results_and_failures_come_out_of_damaged_files(tmp_path: Path) -> None:
    report = run(count=500, seed=20260301, folder=tmp_path, batch=100)
    assert report.wrong == []
    assert report.outcomes.total() == 500
    assert report.outcomes["read"] > 50
    assert report.outcomes["corrupt"] > 50
