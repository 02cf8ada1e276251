"""The short form of `chaos.documents`: no worker dies and no document is lost, whatever is in a file."""

from __future__ import annotations

from pathlib import Path

from chaos.documents import run


def test_damaged_files_cost_no_worker_and_no_document(tmp_path: Path) -> None:
    report = run(200, 7, tmp_path)
    assert report.wrong == []
    assert sum(count for outcome, count in report.outcomes.items() if outcome != "member") >= 200
    assert {"done", "corrupt"} <= report.outcomes.keys()
