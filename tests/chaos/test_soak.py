"""The soak finds what grows, and runs in short; `python -m chaos.soak` is the long form."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.soak import Options, Sample, find_growth, run

LEVEL = Sample(memory_mib=300, handles=200, threads=40, processes=12, files=5000, store_mib=20)


@pytest.mark.parametrize("name", Sample._fields)
def test_what_grows_is_found(name: str) -> None:
    growing = [LEVEL._replace(**{name: getattr(LEVEL, name) * (1 + second / 100)}) for second in range(100)]
    (growth,) = find_growth(growing)
    assert growth.startswith(name)


def test_what_only_swings_is_level() -> None:
    assert find_growth([LEVEL._replace(files=5000 + 900 * (second % 3)) for second in range(100)]) == []


def test_a_service_is_measured_under_load(tmp_path: Path) -> None:
    report = run(Options(minutes=0.1, rate=10, customers=3, slots=1), tmp_path)
    assert not [wrong for wrong in report.wrong if "grew" not in wrong]  # six seconds are too short to judge growth
    assert report.figures["uploads"] > 0
    assert report.figures["files, most"] > 0
    assert report.figures["memory_mib, most"] > 20
    assert report.figures["processes, most"] >= 2
