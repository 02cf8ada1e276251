"""A store that is away under a service for some seconds, and a promoted standby; `make chaos-outages` is the long form."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos import standby
from chaos.outages import Options, lost_share, run


@pytest.mark.parametrize(("engine", "fault"), [("postgres", "refuse"), ("redis", "silence")])
def test_nothing_is_lost_and_all_are_back_although_the_store_was_away(tmp_path: Path, engine: str, fault: str) -> None:
    report = run(Options(engine, fault, seconds=(3,), between_seconds=2, stop_seconds=0), tmp_path)
    assert [problem for problem in report.wrong if "in gaps" not in problem] == []  # the time between is too short for a share
    assert report.figures["documents"] == report.figures["acknowledged"] > 0
    assert len(report.outages) == 1


def test_a_promoted_standby_has_everything_with_synchronous_replication(tmp_path: Path) -> None:
    report = standby.run(standby.Options(seconds=1), tmp_path)
    assert report.wrong == []
    assert report.figures["acknowledged"] > 0


def test_what_an_asynchronous_standby_has_not_received_is_found_to_be_lost(tmp_path: Path) -> None:
    report = standby.run(standby.Options(synchronous=False, seconds=1), tmp_path)
    assert any("which is lost" in problem for problem in report.wrong)


def test_gaps_are_counted_in_seconds_with_a_link() -> None:
    assert lost_share([(0, 10), (20, 30)], [at + 0.5 for at in range(40)]) == 0
    assert lost_share([(0, 10), (20, 30)], [at + 0.5 for at in range(40) if not 20 <= at < 25]) == 0.25
    assert lost_share([(0, 10)], []) == 1
