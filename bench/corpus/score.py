"""How much of a document comes out: words, headings, table rows, list items, links, notes, and paragraphs in order.

- A word counts as often as it is in the document and in the text.
- A heading counts when it is a heading, and is above, beside or below the heading before it as in the document.
- A table counts by its rows: all cells in order, in one table or in two in a row, as at the end of a page. What a merged cell
  covers may be empty or repeated.
- An item counts when it is one, is numbered if it should be, and is deeper, as deep or less deep than the item before it.
- A link counts when its words lead to its target. Of a note or comment, and of speaker's notes, the words count.
- A paragraph counts when it comes out whole, without a break, after the paragraph before it.
- Headings, tables and items that are none are counted apart.

All converters are judged by the same rules, on Markdown, in which tables may also be HTML.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterator
from datetime import date
from html.parser import HTMLParser
from itertools import pairwise
from typing import NamedTuple
from urllib.parse import unquote

from .model import Cell, Document, Heading, Item, Listing, Paragraph, Speech, Table, shown

WORD = re.compile(r"\w+")
_HEADING = re.compile(r"^ {0,3}(#{1,6})\s+(.*?)\s*#*$")
_ITEM = re.compile(r"^([ \t]*)([-*+•]|\d{1,3}[.)]|[a-z][.)]) +(.*)$")
_ROW = re.compile(r"^\s*\|(.*)\|\s*$")
_RULE = re.compile(r"^\s*\|[\s|:-]+\|\s*$")
_LINK = re.compile(r"\[((?:[^][]|\\.)*)\]\(\s*<?((?:[^()\s<>]|\([^()]*\))*)>?(?:\s+\"[^\"]*\")?\s*\)")
_AUTOLINK = re.compile(r"<((?:https?|mailto):[^>\s]+)>")
_REFERENCE = re.compile(r"\[\[\w+\]\]\([^)]*\)|\[(?:<sup>)?\d+(?:</sup>)?\]\(#[^)]*\)|\[\^\w+\]")
_HTML_LINK = re.compile(r'<a\s[^>]*?href="([^"]*)"[^>]*>(.*?)</a>', re.DOTALL)
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")
_ESCAPE = re.compile(r"\\([^\w\s])")


class Score(NamedTuple):
    """Found and expected of each kind, and how many headings, tables and items are none."""

    words: tuple[float, float] = (0, 0)
    headings: tuple[float, float] = (0, 0)
    tables: tuple[float, float] = (0, 0)
    items: tuple[float, float] = (0, 0)
    links: tuple[float, float] = (0, 0)
    notes: tuple[float, float] = (0, 0)
    paragraphs: tuple[float, float] = (0, 0)
    false: tuple[float, float] = (0, 0)

    def plus(self, other: Score) -> Score:
        return Score(*((a + c, b + d) for (a, b), (c, d) in zip(self, other, strict=True)))


def plain(text: str) -> str:
    """Return the words of a piece of Markdown as they are read."""
    text = _REFERENCE.sub("", text)
    text = _LINK.sub(r"\1", _AUTOLINK.sub(r"\1", text))
    text = _ESCAPE.sub(r"\1", html.unescape(_TAG.sub("", text)))
    text = re.sub(r"(\*\*|__|\*|(?<!\w)_|_(?!\w)|`)", "", text).replace("\xad", "")
    return " ".join(text.replace("\\", "").split())


class _HtmlTables(HTMLParser):
    """Collects the rows of tables that are HTML."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self._is_cell = False
        self._span = 1

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.tables.append([])
        elif tag == "tr" and self.tables:
            self.tables[-1].append([])
        elif tag in ("td", "th") and self.tables and self.tables[-1]:
            span = dict(attrs).get("colspan") or "1"
            self._is_cell, self._span = True, int(span) if span.isdecimal() else 1
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th") and self._is_cell:
            self._is_cell = False
            self.tables[-1][-1] += [""] * (self._span - 1)

    def handle_data(self, data: str) -> None:
        if self._is_cell:
            self.tables[-1][-1][-1] += data


class Found(NamedTuple):
    """What a converter found."""

    words: Counter[str]
    headings: list[tuple[int, str]]
    tables: list[list[list[str]]]
    items: list[tuple[int, bool, str]]  # indent, whether it is numbered, text
    links: set[tuple[str, str]]
    lines: list[str]


def read_markdown(markdown: str) -> Found:
    """Read what is structure in the output of a converter."""
    headings, items, lines = [], [], []
    tables: list[list[list[str]]] = [[]]
    for line in markdown.replace("\r\n", "\n").split("\n"):
        if _RULE.match(line):
            continue
        if (row := _ROW.match(line)) is not None:
            tables[-1].append([plain(cell.replace("\0", "|")) for cell in row.group(1).replace("\\|", "\0").split("|")])
            continue
        if tables[-1]:
            tables.append([])
        shown_line = plain(line)
        if (heading := _HEADING.match(line)) is not None:
            headings.append((len(heading.group(1)), plain(heading.group(2))))
        elif (item := _ITEM.match(line)) is not None:
            items.append((len(item.group(1).expandtabs(4)), item.group(2)[0].isalnum(), plain(item.group(3))))
            shown_line = items[-1][2]
        if shown_line:
            lines.append(shown_line)
    reader = _HtmlTables()
    reader.feed(markdown)
    tables += [[[plain(cell) for cell in row] for row in table] for table in reader.tables]
    links = {(plain(words), _target(target)) for words, target in _LINK.findall(markdown)}
    links |= {(plain(words), _target(target)) for target, words in _HTML_LINK.findall(markdown)}
    links |= {(target, _target(target)) for target in _AUTOLINK.findall(markdown)}
    words = Counter(WORD.findall(plain(markdown.replace("|", " ")).replace("_", " ").lower()))
    return Found(words, headings, [table for table in tables if table], items, links, lines)


def _target(target: str) -> str:
    return unquote(html.unescape(_ESCAPE.sub(r"\1", target)))


def score(document: Document, markdown: str, is_plain: bool = False) -> Score:
    """Score what a converter made of a document; of plain text only words and paragraphs."""
    found = read_markdown(markdown)
    words, paragraphs = _words(document, found), _paragraphs(document, found)
    if is_plain:
        return Score(words=words, paragraphs=paragraphs)
    headings, false_headings = _headings(document, found)
    tables, false_tables = _tables(document, found)
    items, false_items = _items(document, found)
    return Score(
        words,
        headings,
        tables,
        items,
        _links(document, found),
        _notes(document, found),
        paragraphs,
        (false_headings + false_tables + false_items, 0),
    )


def _texts(document: Document) -> Iterator[str]:
    for block in document.blocks:
        match block:
            case Heading(_, text) | Speech(text):
                yield text
            case Paragraph(text, _, note, comment):
                yield from (text, note, comment)
            case Listing(items):
                yield from (item.text for item in items)
            case Table(rows):
                yield from (shown(cell) for row in rows for cell in row)


def _words(document: Document, found: Found) -> tuple[float, float]:
    expected: Counter[str] = Counter()
    for text in _texts(document):
        expected.update(WORD.findall(text.lower()))
    return (expected & found.words).total(), expected.total()


def _headings(document: Document, found: Found) -> tuple[tuple[float, float], int]:
    expected = [block for block in document.blocks if isinstance(block, Heading)]
    levels = {text: level for level, text in reversed(found.headings)}
    count = 0
    before: Heading | None = None
    for heading in expected:
        level = levels.get(heading.text)
        outer = None if before is None else levels.get(before.text)
        if level is not None:
            count += before is None or outer is None or _sign(level - outer) == _sign(heading.level - before.level)
        before = heading
    return (count, len(expected)), len(levels.keys() - {heading.text for heading in expected})


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)


def _tables(document: Document, found: Found) -> tuple[tuple[float, float], int]:
    expected = [block for block in document.blocks if isinstance(block, Table)]
    parts = [*found.tables, *(first + second for first, second in pairwise(found.tables))]  # a page may end inside a table
    count = 0.0
    for table in expected:
        count += max((_rows_found(table, rows) for rows in parts), default=0) / len(table.rows)
    none = [rows for rows in found.tables if not any(_rows_found(table, rows) for table in expected)]
    return (count, len(expected)), len(none)


def _rows_found(table: Table, rows: list[list[str]]) -> int:
    position = count = 0
    for expected in table.rows:
        for index in range(position, len(rows)):
            if _is_row(expected, rows[index]):
                position = index + 1
                count += 1
                break
    return count


def _is_row(expected: tuple[Cell, ...], cells: list[str]) -> bool:
    if len(cells) > len(expected) and not any(cells[len(expected) :]):
        cells = cells[: len(expected)]
    if len(cells) != len(expected):
        is_short = len(cells) == sum(cell is not None for cell in expected)  # covered cells may be left out
        expected = tuple(cell for cell in expected if cell is not None) if is_short else expected
    return len(cells) == len(expected) and all(
        cell is None or _is_cell(cell, text) for cell, text in zip(expected, cells, strict=True)
    )


def _is_cell(cell: Cell, text: str) -> bool:
    if " ".join(shown(cell).split()) == text or (isinstance(cell, bool) and text.lower() == shown(cell).lower()):
        return True
    if isinstance(cell, int | float) and not isinstance(cell, bool):
        try:
            return float(text) == float(cell)
        except ValueError:
            return False
    return isinstance(cell, date) and text == f"{shown(cell)} 00:00:00"


def _items(document: Document, found: Found) -> tuple[tuple[float, float], int]:
    position = {text: (indent, is_numbered) for indent, is_numbered, text in reversed(found.items)}
    count = expected = 0
    for block in document.blocks:
        if not isinstance(block, Listing):
            continue
        expected += len(block.items)
        before: Item | None = None
        for item in block.items:
            text = " ".join(item.text.split())
            here, above = position.get(text), None if before is None else position.get(" ".join(before.text.split()))
            if here is not None and here[1] == block.is_numbered:
                count += above is None or before is None or _sign(here[0] - above[0]) == _sign(item.level - before.level)
            before = item
    known = {" ".join(item.text.split()) for block in document.blocks if isinstance(block, Listing) for item in block.items}
    return (count, expected), len(position.keys() - known)


def _links(document: Document, found: Found) -> tuple[float, float]:
    expected = [block.link for block in document.blocks if isinstance(block, Paragraph) and block.link is not None]
    return sum((plain(words), _target(target)) in found.links for words, target in expected), len(expected)


def _notes(document: Document, found: Found) -> tuple[float, float]:
    texts = [block.text for block in document.blocks if isinstance(block, Speech)]
    for block in document.blocks:
        if isinstance(block, Paragraph):
            texts += [text for text in (block.note, block.comment) if text]
    lines = "\n".join(found.lines)
    return sum(" ".join(text.split()) in lines for text in texts), len(texts)


def _paragraphs(document: Document, found: Found) -> tuple[float, float]:
    expected = [" ".join(block.text.split()) for block in document.blocks if isinstance(block, Paragraph)]
    position = count = 0
    for text in expected:
        for index in range(position, len(found.lines)):
            if found.lines[index] == text:
                position = index + 1
                count += 1
                break
    return count, len(expected)
