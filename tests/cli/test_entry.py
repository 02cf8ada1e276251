"""How it begins: nothing is loaded that is not asked for, and Ctrl-C while it loads is no traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import fairlane

SLOW = "import signal; print('loading', flush=True); signal.pause()"


def loading(folder: Path, *, is_ignored: bool) -> subprocess.Popen[str]:
    """The command, in the middle of loading what it needs."""
    (folder / "click.py").write_text(SLOW)
    path = os.pathsep.join([str(folder), *(one for one in sys.path if one)])
    before = signal.signal(signal.SIGINT, signal.SIG_IGN if is_ignored else signal.SIG_DFL)
    try:
        command = subprocess.Popen(
            [sys.executable, "-m", "fairlane"], env=os.environ | {"PYTHONPATH": path}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
    finally:
        signal.signal(signal.SIGINT, before)
    assert command.stdout is not None
    assert command.stdout.readline() == "loading\n"
    return command


def test_ctrl_c_while_it_loads_ends_it_without_a_word(tmp_path: Path) -> None:
    with loading(tmp_path, is_ignored=False) as command:
        command.send_signal(signal.SIGINT)
        assert command.communicate(timeout=60) == ("", "")
    assert command.returncode == -signal.SIGINT


def test_whoever_is_started_without_ctrl_c_stays_so(tmp_path: Path) -> None:
    with loading(tmp_path, is_ignored=True) as command:
        command.send_signal(signal.SIGINT)
        command.send_signal(signal.SIGTERM)
        command.wait(timeout=60)
    assert command.returncode == -signal.SIGTERM


def test_the_package_loads_what_is_asked_for() -> None:
    program = "import fairlane, sys; print([one for one in sys.modules if one.startswith('fairlane.')])"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert loaded == "['fairlane.version']\n"


@pytest.mark.parametrize("name", fairlane.__all__)
def test_every_name_of_the_package_is_there(name: str) -> None:
    assert getattr(fairlane, name).__name__ == name


def test_a_name_that_is_not_there_is_reported() -> None:
    with pytest.raises(AttributeError, match="module 'fairlane' has no attribute 'Quene'"):
        _ = fairlane.Quene
