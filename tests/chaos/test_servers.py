"""A server that is killed while processes work on it, in short; `make chaos` is the long form."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos import frozen
from chaos.servers import SERVERS, Options, run


@pytest.mark.parametrize("engine", sorted(SERVERS))
def test_nothing_is_lost_or_doubled_when_the_server_and_its_users_are_killed(tmp_path: Path, engine: str) -> None:
    report = run(Options(engine, restarts=4, kills=8, seed=3, documents=1500), tmp_path)
    assert report.wrong == []
    assert (report.restarts, report.kills.total()) == (4, 8)
    assert report.figures["acknowledged"] > 50


@pytest.mark.parametrize("engine", sorted(SERVERS))
def test_a_worker_that_was_frozen_past_its_lease_changes_nothing(engine: str) -> None:
    server = SERVERS[engine]()
    try:
        assert frozen.run(server.url("frozen"), 8) == []
    finally:
        server.remove()
