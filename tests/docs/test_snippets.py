"""Every code block of every page is run by a test, or stands in a list with the reason why it is not."""

from __future__ import annotations

import ast
import subprocess
from functools import cache
from pathlib import Path

import pytest

from .snippets import LANGUAGES, PAGES, ROOT, Block, blocks
from .test_guides import GUIDES

Named = tuple[str, str, int | None]  # the page, how the block begins, and which of those that begin so

NOT_RUN = {  # a page, and how the block begins: why no test runs it
    ("docs/deploy.md", "docker build --file"): "needs Docker; the image was built and run by hand with Buildah and Podman",
    ("docs/deploy.md", "docker run --detach"): "needs Docker; the same was run by hand with Podman",
    ("src/fairlane/extract/fonts/README.md", "pyftsubset"): "needs fonttools; by hand it made the very file that is there",
}


@cache
def named_by_tests() -> frozenset[Named]:
    """Find every call of `snippet` in the tests."""
    found = set()
    for path in (ROOT / "tests").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "snippet(" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "snippet":
                page, beginning, *number = (ast.literal_eval(argument) for argument in node.args)
                found.add((page, beginning, number[0] if number else None))
    return frozenset(found)


def is_run(page: Path, block: Block) -> bool:
    if ROOT / page in GUIDES and (block.title or block.language == "console"):
        return True  # test_guides runs these
    for name, beginning, number in named_by_tests():
        if name == str(page) and block.text.startswith(beginning):
            alike = [other for other in blocks(ROOT / page) if other.text.startswith(beginning)]
            if number is None or alike[number] == block:
                return True
    return False


def reason_why_not(page: Path, block: Block) -> str | None:
    reasons = [why for (name, beginning), why in NOT_RUN.items() if name == str(page) and block.text.startswith(beginning)]
    assert len(reasons) < 2, f"{page}: two reasons for {block.text}"
    return reasons[0] if reasons else None


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_code_block_is_run_or_has_a_reason(page: Path) -> None:
    for block in blocks(ROOT / page):
        assert block.language in LANGUAGES, f"{page}: a block of {block.language or 'no language'}: {block.text}"
        if block.language == "text":
            continue
        reason = reason_why_not(page, block)
        assert is_run(page, block) != bool(reason), (
            f"{page}: not run, without a reason, or run although there is one: {block.text}"
        )
        if block.language == "python":
            compile(block.text, str(page), "exec")
        elif block.language == "sh":
            done = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, check=False)
            assert (done.returncode, done.stderr) == (0, ""), f"{page}: {done.stderr}{block.text}"


def test_every_reason_and_every_name_belongs_to_a_block() -> None:
    for page, beginning in [*NOT_RUN, *((page, beginning) for page, beginning, _ in named_by_tests())]:
        assert any(block.text.startswith(beginning) for block in blocks(ROOT / page)), f"{page} has no block {beginning!r}"
