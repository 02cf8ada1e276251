"""Limits of a kind under killed workers, in a short run, and that a feed which breaks them is found.

`make chaos-fairness` is the long form.
"""

from __future__ import annotations

from pathlib import Path

from chaos.kind_limits import Options, check, run
from fairlane.core.document import ChangeRow


def feed(*lines: tuple[int, str, int]) -> list[ChangeRow]:
    """Return a feed of (at_ms, what, document's number)."""
    return [ChangeRow(n, at_ms, what, "ada", f"scan-{id}", 1, None) for n, (at_ms, what, id) in enumerate(lines, start=1)]


def test_limits_hold_although_workers_are_killed(tmp_path: Path) -> None:
    report = run(Options(kills=3, seconds=3, idle_max=1), tmp_path)
    assert report.wrong == []
    assert 0 < report.facts["most at once"] <= 3


def test_one_more_at_once_is_found() -> None:
    starts = [(1000 * number, "claimed", number) for number in range(1, 5)]
    assert check(feed(*starts))[0] == ["change 4: 4 run at once"]
    assert check(feed(*starts[:3], (3500, "done", 1), starts[3]))[0] == []


def test_a_start_too_early_is_found() -> None:
    assert check(feed((1000, "claimed", 1), (1100, "claimed", 2)))[0] == []
    (problem,) = check(feed((1000, "claimed", 1), (1099, "claimed", 2)))[0]
    assert "990 thousandths" in problem


def test_time_in_which_a_start_was_allowed_and_did_not_come_is_counted() -> None:
    _, facts = check(
        feed((1000, "claimed", 1), (1600, "claimed", 2), (2000, "claimed", 3), (5000, "done", 1), (6000, "claimed", 4))
    )
    assert facts["share idle"] == (500 + 300 + 1000) / 5000
    assert facts["longest time idle, s"] == 1
