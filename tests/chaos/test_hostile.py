"""Hostile connections while another customer uploads, in short; `make chaos-hostile` is the long form, which measures times."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.attackers import KINDS
from chaos.hostile import Options, run
from tests.conftest import need_program

CROWDED = ("connections=200", "upload_wait_seconds=600")


@pytest.mark.parametrize("tls", [True, False])
def test_hostile_connections_keep_no_upload_from_being_accepted(tmp_path: Path, *, tls: bool) -> None:
    if tls:
        need_program("openssl")
    options = Options(strangers=240, keyed=8, seconds=4, quiet_seconds=1, rate=5, addresses=4, documents=50, tls=tls, seed=3)
    report = run(options, tmp_path, CROWDED)
    assert report.wrong == []
    assert len(report.attack.uploads) == 20
    assert {name for counts in report.attacks.values() for name in counts} == set(KINDS)
