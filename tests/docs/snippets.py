"""Code blocks of the project's pages: how tests find the one that they run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path.relative_to(ROOT)
    for pattern in ("*.md", "docs/**/*.md", "examples/*/*.md", "clients/*/*.md", "src/**/*.md")
    for path in ROOT.glob(pattern)
)
LANGUAGES = {"console", "cron", "diff", "json", "python", "sh", "text", "toml", "ts", "yaml"}
BLOCK = re.compile(r"^( *)```([^\n`]*?)(?: title=\"([^\"]+)\")?\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """A code block of a page, without the indent that it has in a list; `title` names the file that it is, or is empty."""

    language: str
    title: str
    text: str


def blocks(page: Path) -> list[Block]:
    """Return the code blocks of a page, in their order."""
    return [
        Block(language, title, re.sub(f"^{indent}", "", text, flags=re.MULTILINE))
        for indent, language, title, text in BLOCK.findall(page.read_text(encoding="utf-8"))
    ]


def snippet(page: str, beginning: str, number: int | None = None) -> str:
    """Return the one code block of a page that begins with this text; where several do, a number says which of them.

    A test that runs a block names it with literals: `test_every_snippet_is_run` reads them.
    """
    found = [block.text for block in blocks(ROOT / page) if block.text.startswith(beginning)]
    assert number is not None or len(found) == 1, f"{page} has {len(found)} code blocks that begin with {beginning!r}"
    return found[number or 0]
