"""The papers of security are true to the code: what they name exists, and every anchor leads somewhere."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import click
import pytest

from fairlane.api.limits import ServiceLimits
from fairlane.cli import main

ROOT = Path(__file__).parents[2]
PAPERS = [ROOT / "SECURITY.md", ROOT / "docs/security.md"]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
OTHER_PROGRAMS = {"--require-hashes", "--no-deps"}  # of pip


def options_of(command: click.Command) -> set[str]:
    """Every option of a command and of those below it."""
    own = {name for parameter in command.params for name in parameter.opts if name.startswith("--")}
    below = command.commands.values() if isinstance(command, click.Group) else ()
    return own.union({"--version"}, *map(options_of, below))


def anchors(page: Path) -> set[str]:
    """The anchors that the headings of a page have on a web site that shows it."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAPERS, ids=lambda page: page.name)
def test_every_option_command_limit_and_target_that_is_named_exists(page: Path) -> None:
    text = page.read_text()
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)) <= options_of(main) | OTHER_PROGRAMS
    assert set(re.findall(r"`fairlane (\w+)", text)) <= set(main.commands)
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)", text)) <= targets
    assert set(re.findall(r"--limit (\w+)=", text)) <= {limit.name for limit in fields(ServiceLimits)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_anchors_lead_to_a_heading(page: Path) -> None:
    for link, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text()):
        target = (page.parent / link).resolve() if link else page
        assert anchor in anchors(target), f"{link}#{anchor}"


def test_the_papers_are_found_from_the_front_page() -> None:
    readme = (ROOT / "README.md").read_text()
    assert all(f"({page.relative_to(ROOT)})" in readme for page in PAPERS)
