"""A short form of `python -m chaos.service`: uploads while the server and its worker are killed."""

from __future__ import annotations

from pathlib import Path

from chaos.service import Plan, storm


def test_every_acknowledged_upload_ends_exactly_once_whatever_dies(tmp_path: Path) -> None:
    told = storm(tmp_path, Plan(uploads=400, customers=20, kills=4, slots=2), lambda: None)
    assert told["uploads"] == 400
    assert told["killed"] == {"server": 2, "worker": 2}
    assert told["broken"], "no connection was ever cut: the kills came too late"
