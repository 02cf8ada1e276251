"""Uploads while server and workers are killed, in short; `make chaos` is the long form."""

from __future__ import annotations

from pathlib import Path

from chaos.uploads import Options, run


def test_no_upload_is_lost_or_doubled_when_server_and_workers_are_killed(tmp_path: Path) -> None:
    report = run(Options(uploads=500, customers=40, connections=64, kills=3, workers=2, seed=3), tmp_path)
    assert report.wrong == []
    assert report.figures["documents"] == 500
    assert report.faults.total() == 6
