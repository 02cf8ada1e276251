"""The beginning of the tutorial: an environment of its own, and an empty folder. What follows there is in test_guides."""

from __future__ import annotations

from pathlib import Path

from tests.terminal import bash

from .snippets import snippet

INSTALL = '~/fairlane-tutorial/bin/pip install ".[serve]"\n'  # nothing is installed while tests run


def test_the_tutorial_begins_with_an_environment_and_an_empty_folder_of_its_own(tmp_path: Path) -> None:
    block = snippet("docs/tutorial.md", "python3 -m venv")
    assert INSTALL in block
    commands = block.replace(INSTALL, "").replace("-m venv", "-m venv --without-pip")
    printed = bash(f"{commands}python -c 'import sys; print(sys.prefix)'\npwd\nls -A", tmp_path, HOME=str(tmp_path))
    assert printed.splitlines() == [f"{tmp_path}/fairlane-tutorial", f"{tmp_path}/tutorial"]
