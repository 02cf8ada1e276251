"""The example of Celery, as its README shows it, with a small flood."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.snippets import snippet
from tests.examples.running import after_pip, copy_example
from tests.terminal import bash

from .running import open_broker

PAGES, BRIDGE_PAGES = 200, 100
WRITTEN_URL = "redis://localhost:6379/0"


def small_ones_pass(printed: str) -> list[bool]:
    """Say of each small customer whether its last task waited less than half of the big one's did."""
    rows = re.findall(r"^(big|large|small-\d) +\d+ +([\d.]+) s +([\d.]+) s$", printed, re.MULTILINE)
    (_, first, last), *small = (row for row in rows if row[0] != "large")
    return [float(wait) < (float(first) + float(last)) / 2 for _, _, wait in small]


def test_the_readme_runs(tmp_path: Path) -> None:
    copy_example("celery-light", tmp_path)
    install = snippet("examples/celery-light/README.md", 'pip install ".[redis]"')
    prepare = after_pip(install).replace(WRITTEN_URL, open_broker("redis").url)
    plain, fair = (
        prepare + block.replace("flood.py", f"flood.py {PAGES}")
        for block in (
            snippet("examples/celery-light/README.md", "celery -A tasks worker"),
            snippet("examples/celery-light/README.md", "export FAIR=yes"),
        )
    )
    assert small_ones_pass(bash(plain, tmp_path)) == [False] * 5
    printed = bash(fair, tmp_path)
    assert small_ones_pass(printed) == [True] * 5
    assert "Workers serve tasks in the order of their priorities" in printed
    assert re.search(rf"^ big +-{PAGES - 1} +9 ", printed, re.MULTILINE)


def test_the_readme_of_the_bridge_runs(tmp_path: Path) -> None:
    folder = copy_example("celery-bridge", tmp_path)
    install = snippet("examples/celery-bridge/README.md", 'pip install ".[redis]"')
    prepare = after_pip(install).replace(WRITTEN_URL, open_broker("redis").url)
    start = snippet("examples/celery-bridge/README.md", "celery -A tasks worker")
    shown = snippet("examples/celery-bridge/README.md", "fairlane status")
    stop = snippet("examples/celery-bridge/README.md", "kill ")
    printed = bash(prepare + start.replace("flood.py", f"flood.py {BRIDGE_PAGES}"), tmp_path)
    try:
        assert small_ones_pass(printed) == [True] * 5
        rows = dict(re.findall(r"^(big|large) +\d+ +[\d.]+ s +([\d.]+) s$", printed, re.MULTILINE))
        assert min(map(float, rows.values())) > 0.7 * max(map(float, rows.values()))  # neither waited for the other
        assert "Workers take from the broker what they can run, and the store answers." in printed
        assert "no feeder runs" not in printed
        listed = bash(shown, folder)
        assert re.search(rf"^ big +-{BRIDGE_PAGES - 1} +9 ", listed, re.MULTILINE)
        assert "celery:bridge" in listed
        assert "feeder@" in listed
    finally:
        bash(stop, folder)
