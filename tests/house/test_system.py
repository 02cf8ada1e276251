"""What tests need of the system is installed by one step before them, where that is allowed, and never while they run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system import NEEDS, why_missing

ROOT = Path(__file__).parents[2]
PROGRAMS = {need.package: name for name, need in NEEDS.items() if not need.package.startswith("tesseract-ocr-")}


def installs(folder: Path) -> subprocess.CompletedProcess[str]:
    """The step, on a system that has nothing on its PATH but this folder."""
    command = [sys.executable, "-m", "tests.system"]
    environment = {"PATH": str(folder)}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root installs")
def test_root_installs_what_is_missing_and_the_second_time_nothing(tmp_path: Path) -> None:
    apt = tmp_path / "apt-get"
    tools = {name: shutil.which(name) for name in ("touch", "chmod")}
    made = "".join(f"  {package}) {tools['touch']} {tmp_path}/{name};;\n" for package, name in PROGRAMS.items())
    apt.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/log\nfor package in "$@"; do case $package in\n{made}esac; done\n'
        f"{tools['chmod']} 755 {tmp_path}/*\n"
        f"printf '#!/bin/sh\\necho deu pol por spa\\n' > {tmp_path}/tesseract\n"
    )
    apt.chmod(0o755)
    first = installs(tmp_path)
    assert "to be installed: redis-server (the Redis engine)\n" in first.stdout
    assert "could not be installed" not in first.stdout
    update, install = (tmp_path / "log").read_text().splitlines()
    assert update.split()[-2:] == ["update", "-qq"]
    assert {"redis-server", "strace", "tesseract-ocr-pol"} <= {*install.split()}
    assert installs(tmp_path).stdout == ""
    assert len((tmp_path / "log").read_text().splitlines()) == 2


def test_without_apt_get_it_says_what_is_missing_and_what_to_do(tmp_path: Path) -> None:
    printed = installs(tmp_path).stdout
    assert "not here: strace (disks that fail, kills at every write)\n" in printed
    assert "tests that need one of these are skipped; as root: apt-get install " in printed.splitlines()[-1]


def test_a_test_that_needs_a_missing_program_has_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    assert why_missing("unshare") is None
    monkeypatch.setenv("PATH", "")
    assert why_missing("strace") == (
        "strace is not installed, so disks that fail, kills at every write cannot be tested; as root: apt-get install strace"
    )


@pytest.mark.parametrize(("variable", "outcome"), [("", "skipped"), ("true", "failed")])
def test_it_is_skipped_at_home_and_fails_in_ci(tmp_path: Path, variable: str, outcome: str) -> None:
    (tmp_path / "test_it.py").write_text(
        "from tests.conftest import need_program\n\n\ndef test_it():\n    need_program('strace')\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    environment = {"PATH": "", "CI": variable, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert f"1 {outcome}" in done.stdout


def test_no_test_installs_anything() -> None:
    here = Path(__file__).name
    installers = [path.name for path in (ROOT / "tests").rglob("*.py") if "apt-get" in path.read_text() and path.name != here]
    assert installers == ["system.py"]
