"""What a release needs: licences that are allowed, complete files, and workflows that call targets which exist."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml

from fairlane import __version__
from requirements.licences import PERMISSIVE, WEAK_COPYLEFT, is_allowed, licences
from requirements.licences import main as check_licences
from requirements.release import faults

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


@pytest.mark.parametrize(
    ("said", "allowed"),
    [
        (["MIT"], True),
        (["Apache-2.0 OR GPL-3.0-only"], True),
        (["Apache-2.0 AND BSD-2-Clause"], True),
        (["Apache-2.0 AND GPL-3.0-only"], False),
        (["LGPL-3.0-only"], False),
        (["a text that nobody knows", "MIT"], True),
        (["GPL-3.0-or-later"], False),
        ([""], False),
        ([], False),
    ],
)
def test_a_licence_is_allowed_if_all_that_binds_is_permissive(said: list[str], allowed: bool) -> None:
    assert is_allowed(said, PERMISSIVE) is allowed


def test_extras_may_bring_weak_copyleft_and_classifiers_are_read() -> None:
    classifier = "License :: OSI Approved :: GNU Lesser General Public License v3 (LGPLv3)"
    assert licences({"name": "x", "licenses": [{"license": {"name": classifier}}]}) == ["LGPL-3.0-only"]
    assert is_allowed(["LGPL-3.0-only"], PERMISSIVE | WEAK_COPYLEFT)


def test_a_package_whose_licence_is_not_allowed_is_named_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sbom = tmp_path / "sbom-alone.json"
    bad = {"name": "copyleft", "version": "2", "licenses": [{"license": {"id": "GPL-3.0-only"}}]}
    good = {"name": "fine", "version": "1", "licenses": [{"expression": "MIT"}]}
    sbom.write_text(json.dumps({"components": [good]}))
    assert check_licences([sbom]) == 0
    sbom.write_text(json.dumps({"components": [good, bad]}))
    assert check_licences([sbom]) == 1
    assert "copyleft 2 has a licence that is not known to be allowed: GPL-3.0-only" in capsys.readouterr().out


def test_a_release_without_its_files_is_not_ready(tmp_path: Path) -> None:
    assert any("instead of fairlane-" in fault for fault in faults(tmp_path))


def test_the_version_is_the_same_everywhere() -> None:
    major, minor, patch, candidate = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)(?:rc(\d+))?", __version__).groups()  # type: ignore[union-attr]
    semantic = f"{major}.{minor}.{patch}" + (f"-rc.{candidate}" if candidate else "")
    chart = yaml.safe_load((ROOT / "deploy/helm/fairlane/Chart.yaml").read_text())
    package, lock = (
        json.loads((ROOT / "clients/typescript" / name).read_text()) for name in ("package.json", "package-lock.json")
    )
    assert (chart["version"], chart["appVersion"]) == (semantic, __version__)
    assert {package["version"], lock["version"], lock["packages"][""]["version"]} == {semantic}
    assert f"| {__version__} |" in (ROOT / "docs/engines.md").read_text()  # which schemas it knows
    assert re.search(rf"^## \[{re.escape(__version__)}\] - ", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize("path", WORKFLOWS, ids=[path.stem for path in WORKFLOWS])
def test_workflows_call_targets_that_exist(path: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    jobs = yaml.safe_load(path.read_text())["jobs"].values()
    commands = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
    called = {
        target for command in commands for words in re.findall(r"\bmake ((?:[a-z-]+ ?)+)", command) for target in words.split()
    }
    assert called
    assert called <= targets


def test_the_pythons_that_are_tested_are_those_of_the_classifiers() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    said = re.findall(r"Programming Language :: Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    matrix = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]["test"]["strategy"]["matrix"]
    assert matrix["python"] == said
    assert project["requires-python"] == f">={said[0]}"


def test_forms_of_issues_are_complete() -> None:
    for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"):
        form = yaml.safe_load(path.read_text())
        if path.stem != "config":
            assert {"name", "description", "body"} <= set(form)
            assert all(field["attributes"]["label"] for field in form["body"])
