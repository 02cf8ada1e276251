"""The files of deploy/ and .github/ have the form that the programs they are for accept: Docker, compose and GitHub."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from check_jsonschema import main as check
from click.testing import CliRunner

from .deploy_files import DEPLOY, ROOT, program

FORMS = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
CHECKED: dict[str, list[Path]] = {
    "vendor.compose-spec": [DEPLOY / "compose.yaml"],
    "vendor.github-issue-config": [path for path in FORMS if path.stem == "config"],
    "vendor.github-issue-forms": [path for path in FORMS if path.stem != "config"],
    "vendor.github-workflows": WORKFLOWS,
    "custom.github-workflows-require-timeout": WORKFLOWS,
}


def faults(schema: str, *files: Path) -> str:
    """Return what is wrong with files by a schema that check-jsonschema has."""
    done = CliRunner().invoke(check, ["--builtin-schema", schema, *map(str, files)])
    return "" if done.exit_code == 0 else done.output


@pytest.mark.parametrize("schema", CHECKED)
def test_files_have_the_form_that_their_schema_asks_for(schema: str) -> None:
    assert CHECKED[schema]
    assert faults(schema, *CHECKED[schema]) == ""


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        ("vendor.compose-spec", "stop_grace_period: 30s", "stop_grace: 30s"),
        ("vendor.github-issue-forms", "type: textarea", "type: text"),
        ("vendor.github-workflows", "runs-on:", "runs:"),
        ("custom.github-workflows-require-timeout", "timeout-minutes: ", "x: "),
    ],
)
def test_a_wrong_file_is_found(schema: str, right: str, wrong: str, tmp_path: Path) -> None:
    text = CHECKED[schema][0].read_text(encoding="utf-8")
    assert right in text
    (tmp_path / "file.yaml").write_text(text.replace(right, wrong), encoding="utf-8")
    assert "file.yaml" in faults(schema, tmp_path / "file.yaml")


def hadolint(text: str) -> str:
    done = subprocess.run([program("hadolint"), "--no-color", "-"], input=text, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    assert hadolint(text) == ""
    assert "DL3002" in hadolint(text.replace("USER 10001:10001", "USER root"))
