"""A server that fails under load, workers that are killed or frozen, in short; `make chaos-servers` is the long form."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos import frozen
from chaos.servers import SERVERS, Options, run
from tests.engine.conftest import url_of


@pytest.mark.parametrize("engine", SERVERS)
def test_every_acknowledged_document_ends_once_although_the_server_fails(tmp_path: Path, engine: str) -> None:
    report = run(Options(engine, failures=3, kills=8, seed=5, documents=600, checks=2), tmp_path)
    assert report.wrong == []
    assert report.failures == 3
    assert report.kills.total() == 8
    assert report.figures["documents"] == report.figures["acknowledged"] > 0


@pytest.mark.parametrize("engine", ["sqlite", *SERVERS])
def test_a_worker_frozen_past_its_lease_changes_nothing_when_thawed(tmp_path: Path, engine: str) -> None:
    assert frozen.run(url_of(engine, tmp_path), 8) == []
