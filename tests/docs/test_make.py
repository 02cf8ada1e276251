"""The targets of make that the pages name exist, and do what a reader is to expect of them."""

from __future__ import annotations

import re
import subprocess

import pytest

from .snippets import ROOT, snippet

CONTRIBUTING = snippet("CONTRIBUTING.md", "make setup")
TWO_COMMANDS = {
    "README.md": snippet("README.md", "make run"),
    "en": snippet("docs/priorities/en.md", "make run"),
    "de": snippet("docs/priorities/de.md", "make run"),
    "es": snippet("docs/priorities/es.md", "make run"),
    "pl": snippet("docs/priorities/pl.md", "make run"),
    "pt": snippet("docs/priorities/pt.md", "make run"),
}
HELP = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)) - {"help"}


def commands_of(target: str) -> str:
    """Return the commands that make would run for a target."""
    done = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", target], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("where", TWO_COMMANDS)
def test_the_two_commands_are_the_service_and_every_test(where: str) -> None:
    assert re.findall(r"^make (\w+)", TWO_COMMANDS[where], re.MULTILINE) == ["run", "test"]
    assert "fairlane demo --serve" in commands_of("run")
    assert "python -m tests" in commands_of("test")


@pytest.mark.parametrize("target", re.findall(r"^make ([\w-]+)", CONTRIBUTING, re.MULTILINE))
def test_the_targets_of_contributing_exist_and_make_lists_them(target: str) -> None:
    commands_of(target)
    assert target in HELP


def test_contributing_names_every_target_but_those_for_users() -> None:
    assert set(HELP) - set(re.findall(r"^make ([\w-]+)", CONTRIBUTING, re.MULTILINE)) == {"run", "demo"}
