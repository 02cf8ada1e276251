"""The scratch folder of an attempt: locked while its process lives, removed by later attempts when that was killed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fairlane.sandbox import scratch


def left_by(end: Callable[[], object], folder: Path) -> Path:
    """What is left of an attempt whose process ended in its middle."""
    pid = os.fork()
    if pid == 0:
        with scratch.attempt_folder() as own:
            (own / "input").write_bytes(b"x")
            end()
    os.waitpid(pid, 0)
    (left,) = folder.iterdir()
    return left


def test_what_a_dead_attempt_left_is_removed_and_what_a_living_one_has_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(scratch, "YOUNG_SECONDS", -1.0)
    monkeypatch.setattr(scratch, "SWEEP_SECONDS", 0.0)
    left = left_by(lambda: os.kill(os.getpid(), 9), tmp_path)
    assert (left / "input").exists()
    with scratch.attempt_folder() as living:
        assert not left.exists()
        with scratch.attempt_folder() as other:
            assert living.exists()
            assert other != living
    assert not list(tmp_path.iterdir())


def test_a_file_of_nobody_is_not_in_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(scratch, "YOUNG_SECONDS", -1.0)
    monkeypatch.setattr(scratch, "SWEEP_SECONDS", 0.0)
    (tmp_path / f"{scratch.PREFIX}link").symlink_to(tmp_path)
    (tmp_path / f"{scratch.PREFIX}file").write_text("")
    with scratch.attempt_folder():
        pass
    assert len(list(tmp_path.iterdir())) == 2
