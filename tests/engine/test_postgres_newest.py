"""The newest PostgreSQL agrees too; `FAIRLANE_TEST_POSTGRES=embedded` runs every test on it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from fairlane.engine import open_engine
from tests.servers import postgres

from . import test_agreement


def test_the_newest_server_does_what_the_memory_engine_does(monkeypatch: pytest.MonkeyPatch) -> None:
    with postgres.Server(postgres.newest_programs()) as server:

        def url_of(name: str, _: Path, index: int = 0) -> str:
            return "memory://" if name == "memory" else postgres.empty_queue(server, f"tests{index or ''}")

        monkeypatch.setattr(test_agreement, "ENGINES", ("memory", "postgres"))
        monkeypatch.setattr(test_agreement, "url_of", url_of)
        few = settings(max_examples=6, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck))
        run_state_machine_as_test(test_agreement.Agreement, settings=few)
        engine = open_engine(postgres.empty_queue(server))
        assert engine.durability.startswith("not durable")
        engine.close()
        postgres.close_connections(server)
