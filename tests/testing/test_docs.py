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
from tests.docs.snippets import snippet

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/testing.md").read_text()
REFERENCE = (ROOT / "docs/reference.md").read_text().partition("## `fairlane.testing`")[2].partition("\n## ")[0]


def test_the_snippets_are_tests_that_pass(tmp_path: Path) -> None:
    shop = re.split(r"^# (\S+\.py)\n", snippet("docs/testing.md", "# shop/queue.py"), flags=re.MULTILINE)
    files = {
        "tests/test_submitted.py": snippet("docs/testing.md", "from fairlane.testing import MemoryQueue"),
        "tests/test_handler.py": snippet("docs/testing.md", "import pytest"),
        "tests/test_worker.py": snippet("docs/testing.md", "from unittest import mock"),
        "tests/test_time.py": snippet("docs/testing.md", "from datetime import timedelta"),
        **dict(zip(shop[1::2], shop[2::2], strict=True)),
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert f"{PAGE.count('def test_')} passed" in done.stdout, done.stdout


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
