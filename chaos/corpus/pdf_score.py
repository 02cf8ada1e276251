"""How much of the structure of printed pages comes out as Markdown: shares of headings, tables, links and reading order.

- A heading counts when it is a heading of its own, and is above, beside or below the heading before it as on the page.
- A table counts by the share of its rows that come out cell by cell, in order and in one table.
- A link counts when its words lead to its target.
- Reading order is the share of paragraphs and items that come out whole, without hard breaks, each after the one before it.
- A heading or table that is none takes away as much as a missed one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.chromium import chromium

from .pdf_pages import PAGES, Grid, Heading, Items, PrintedPage, Words

_LINK = re.compile(r"\[([^]]*)\]\(([^)]*)\)")
_HEADING = re.compile(r"^(#{1,6}) (.*)$", re.MULTILINE)
_ROW = re.compile(r"^\|(.*)\|$", re.MULTILINE)


class Score(NamedTuple):
    """Found and expected, of each kind."""

    headings: tuple[float, float] = (0, 0)
    tables: tuple[float, float] = (0, 0)
    links: tuple[float, float] = (0, 0)
    order: tuple[float, float] = (0, 0)

    def plus(self, other: Score) -> Score:
        return Score(*((a + c, b + d) for (a, b), (c, d) in zip(self, other, strict=True)))

    def shares(self) -> dict[str, float]:
        return {name: found / expected if expected else 1.0 for name, (found, expected) in self._asdict().items()}


Printed = tuple[PrintedPage, Path]


def print_pages(folder: Path) -> list[Printed]:
    """Print every page with chromium to a PDF of its own, without tags: the geometry alone must do."""
    printed = []
    with chromium() as browser:
        tab = browser.new_page()
        for page in PAGES:
            path = folder / f"{page.name}.pdf"
            tab.set_content(page.html)
            tab.pdf(path=path, prefer_css_page_size=True, print_background=True, tagged=False)
            printed.append((page, path))
    return printed


def score_pages(printed: list[Printed], convert: Callable[[Path], str]) -> Score:
    """Score what a converter makes of all pages."""
    total = Score()
    for page, path in printed:
        total = total.plus(score(page, convert(path)))
    return total


def score(page: PrintedPage, markdown: str) -> Score:
    """Score the Markdown of a page."""
    return Score(_headings(page, markdown), _tables(page, markdown), _links(page, markdown), _order(page, markdown))


def _headings(page: PrintedPage, markdown: str) -> tuple[float, float]:
    expected = [block for block in page.flat() if isinstance(block, Heading)]
    levels = {text.strip(" *"): len(marks) for marks, text in _HEADING.findall(markdown)}
    found = 0
    before: Heading | None = None
    for heading in expected:
        level = levels.get(heading.text)
        outer = None if before is None else levels.get(before.text)
        if level is not None:
            found += before is None or outer is None or _sign(level - outer) == _sign(heading.level - before.level)
        before = heading
    false = len(
        levels.keys() - {heading.text for heading in expected}
    )  # a heading that is none costs as much as one that is missed
    return max(0, found - false), len(expected)


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)


def _tables(page: PrintedPage, markdown: str) -> tuple[float, float]:
    expected = [block for block in page.flat() if isinstance(block, Grid)]
    tables = [
        [[cell.strip(" *") for cell in row.split("|")] for row in _ROW.findall(block)]
        for block in re.split(r"\n\s*\n", markdown)
    ]
    found = 0.0
    for grid in expected:
        rows = [list(row) for row in grid.rows]
        found += max(
            (sum(row in table for row in rows) / max(len(rows), len(table) - 1) for table in tables if table), default=0
        )
    false = max(0, sum(bool(table) for table in tables) - len(expected))
    return max(0, found - false), len(expected)


def _links(page: PrintedPage, markdown: str) -> tuple[float, float]:
    expected = [block.link for block in page.flat() if isinstance(block, Words) and block.link is not None]
    found = _LINK.findall(markdown)
    return sum(link in found for link in expected), len(expected)


def _order(page: PrintedPage, markdown: str) -> tuple[float, float]:
    text = _LINK.sub(r"\1", markdown)
    lines = [re.sub(r"^([-*•]|\d+[.)]) ", "", line.strip()) for line in text.split("\n")]
    expected: list[str] = []
    for block in page.flat():
        if isinstance(block, Words):
            expected.append(block.text)
        elif isinstance(block, Items):
            expected += block.texts
    position = found = 0
    for paragraph in expected:
        if paragraph in lines[position:]:
            position = lines.index(paragraph, position) + 1
            found += 1
    return found, len(expected)
