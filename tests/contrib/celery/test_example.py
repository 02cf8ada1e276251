"""The example of Celery, as its README shows it, with a small flood."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from .running import ROOT, open_broker

EXAMPLE = ROOT / "examples/celery-light"
LINES_MAX = 50  # a README of one screen
PAGES = 200


def bash(script: str, folder: Path, **variables: str) -> str:
    """Run a script as in a terminal, and stop at the first command that fails; return what it prints."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("FAIR", "OTEL_", "CELERY_"))}
    environment = own | variables | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONWARNINGS": "ignore"}
    command = ["bash", "-euo", "pipefail", "-c", script]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def small_ones_pass(printed: str) -> list[bool]:
    """Say of each small customer whether its last task waited less than half of the big one's did."""
    rows = re.findall(r"^(big|small-\d) +\d+ +([\d.]+) s +([\d.]+) s$", printed, re.MULTILINE)
    (_, first, last), *small = rows
    return [float(wait) < (float(first) + float(last)) / 2 for _, _, wait in small]


def test_the_readme_runs(tmp_path: Path) -> None:
    folder = tmp_path / "celery-light"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    readme = (folder / "README.md").read_text()
    assert len(readme.splitlines()) <= LINES_MAX
    blocks = re.findall(r"^```\n(.*?)^```$", readme, re.DOTALL | re.MULTILINE)
    plain, fair = (block.replace("flood.py", f"flood.py {PAGES}") for block in blocks if "flood.py" in block)
    url = open_broker("redis").url
    assert small_ones_pass(bash(plain, folder, BROKER=url)) == [False] * 5
    printed = bash(fair, folder, BROKER=url)
    assert small_ones_pass(printed) == [True] * 5
    assert "Workers serve tasks in the order of their priorities" in printed
    assert re.search(rf"^ big +-{PAGES - 1} +9 ", printed, re.MULTILINE)
