"""docs/testing.md: its snippets are a test file that passes, and the reference names everything."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fairlane import testing
from fairlane.testing import pytest_plugin

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/testing.md").read_text()
REFERENCE = (ROOT / "docs/reference.md").read_text().partition("## `fairlane.testing`")[2].partition("\n## ")[0]


def test_the_snippets_are_tests_that_pass(tmp_path: Path) -> None:
    snippets = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "test_snippets.py").write_text("from fairlane.testing import run_all\n" + "\n".join(snippets))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_snippets.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert f"{PAGE.count('def test_') - 1} passed" in done.stdout, done.stdout  # the last one needs a shop


@pytest.mark.parametrize("name", testing.__all__)
def test_every_name_and_parameter_is_in_the_reference(name: str) -> None:
    (written,) = re.findall(rf"`{name}\(([^`]*)\)`", REFERENCE)
    parameters = {part.strip().partition("=")[0] for part in written.split(",") if part.strip()}
    assert parameters == set(inspect.signature(getattr(testing, name)).parameters) - {"self"}


def test_every_fixture_is_in_the_reference_and_in_the_page() -> None:
    fixtures = [name for name in vars(pytest_plugin) if name.startswith("fairlane_")]
    assert len(fixtures) == 2
    for name in fixtures:
        assert f"`{name}`" in REFERENCE
        assert f"`{name}`" in PAGE
