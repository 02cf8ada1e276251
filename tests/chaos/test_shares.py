"""Two customers share the time of workers, in a short run; `make chaos-fairness` is the long form."""

from __future__ import annotations

from pathlib import Path

from chaos.shares import Options, run


def test_both_customers_are_served_and_their_time_is_counted(tmp_path: Path) -> None:
    report = run(Options(seconds=4, error_max=1000), tmp_path)
    assert report.wrong == []
    assert report.shares["quick: seconds in work"] > 0 < report.shares["slow: seconds in work"]
