"""HTML extractor: headings, paragraphs, lists, tables, links and code; scripts, styles and hidden parts are dropped.

Laws:
- Nothing is fetched: an image is its alternative text, external frames and styles are ignored.
- A link keeps its address if a person could follow it; of `javascript:` and `data:` links only the text is kept.
- Nesting costs nothing: no tree is built.
"""

from __future__ import annotations

import re
from collections import deque

from .builder import ExtractionBuilder
from .encoding import read_text
from .html_scanner import Tag, scan, unescape
from .markdown import COLUMNS_MAX, INDENT_MAX, MarkdownWriter

DROPPED = ("script", "style", "noembed", "noframes", "template", "svg", "math", "head", "iframe")
BLOCKS = (
    *("p", "div", "section", "article", "header", "footer", "main", "aside", "nav", "form", "fieldset", "address"),
    *("dl", "dt", "dd", "figure", "figcaption", "blockquote", "center", "details", "summary", "hr", "body", "html", "caption"),
)
_CHARSET = re.compile(rb"""<meta[^>]{0,200}charset\s*=\s*["']?\s*([\w.:\-]{2,40})""", re.IGNORECASE)
_DECLARED = re.compile(rb"""^\s*<\?xml[^>]{0,100}encoding\s*=\s*["']([\w.:\-]{2,40})""")
_TABLES = re.compile(r"<(/?)table[\s>]", re.IGNORECASE)
_SPACES = re.compile(r"[ \t\r\n\f]+")
LINKED = ("http://", "https://", "mailto:", "tel:", "/", "#", "./", "../")


def declared_charset(start: bytes) -> str | None:
    """Return the encoding that the page declares."""
    match = _CHARSET.search(start[:4096]) or _DECLARED.search(start[:200])
    return match.group(1).decode("ascii") if match is not None else None


def find_data_tables(page: str) -> deque[bool]:
    """Return, for each table in order, whether it is data: a table that contains tables is layout, its cells are blocks."""
    is_data: list[bool] = []
    opened: list[int] = []
    for match in _TABLES.finditer(page):
        if match.group(1):
            if opened:
                opened.pop()
        else:
            if opened:
                is_data[opened[-1]] = False
            opened.append(len(is_data))
            is_data.append(True)
    return deque(is_data)


class _Grid:
    """The cells of an open table that are covered from above."""

    def __init__(self) -> None:
        self._rows_left: dict[int, int] = {}  # of each column that a cell of a row above covers
        self._added: dict[int, int] = {}  # by the current row
        self._column = 0

    def covered(self) -> int:
        """Pass over the covered cells here; return how many."""
        start = self._column
        while self._rows_left.get(self._column, 0) > 0:
            self._column += 1
        return self._column - start

    def add(self, columns: int, rows: int) -> None:
        """Add a cell."""
        if rows > 1:
            self._added |= dict.fromkeys(range(self._column, self._column + columns), rows - 1)
        self._column += columns

    def end_row(self) -> None:
        """Begin the next row, unless this one is empty."""
        if self._column:
            self._rows_left = {column: rows - 1 for column, rows in self._rows_left.items() if rows > 1} | self._added
        self._added, self._column = {}, 0


def _span(attributes: dict[str, str], name: str) -> int:
    value = attributes.get(name, "1")
    return min(max(int(value), 1), COLUMNS_MAX) if value.isascii() and value.isdecimal() and len(value) < 6 else 1


class HtmlReader:
    """Turns tags and texts into Markdown blocks."""

    def __init__(self, builder: ExtractionBuilder, writer: MarkdownWriter) -> None:
        self._builder, self._writer = builder, writer
        self._dropped: list[str] = []
        self._lists: list[str] = []
        self._heading = 0
        self._is_item = False
        self._is_pre = self._is_title = False
        self._is_cell_open = False
        self._spans = (1, 1)  # columns and rows of the open cell
        self._grids: list[_Grid] = []  # of the open tables that are data
        self._tables: list[bool] = []  # for each open table, whether it is data
        self._data_tables: deque[bool] = deque()  # the same for those that are still to come

    def read(self, page: str, is_xml: bool = False) -> None:
        self._data_tables = find_data_tables(page)
        for number, token in enumerate(scan(page, is_xml)):
            if number % 256 == 0:
                self._builder.meter.check_time()
            if isinstance(token, str):
                self._text(token)
            elif token.is_end:
                self._end(token.name)
            else:
                self._start(token)
        self._end_block()

    def _text(self, text: str) -> None:
        if self._is_title:
            self._builder.fact("title", unescape(text))
        elif self._dropped:
            return
        elif self._is_pre:
            self._writer.text(text)
        else:
            text = _SPACES.sub(" ", text)
            self._writer.text(text.lstrip(" ") if self._writer.is_blank else text)

    # -- start tags

    def _start(self, tag: Tag) -> None:
        name = tag.name
        self._is_title = name == "title"
        if name == "meta" and tag.attributes.get("name", "").lower() == "author":
            self._builder.fact("author", tag.attributes.get("content"))
        if name in DROPPED:
            self._dropped = [*self._dropped[:1], name]
        elif name == "body":
            self._dropped = []
        elif not self._dropped:
            self._start_shown(name, tag.attributes)

    def _start_shown(self, name: str, attributes: dict[str, str]) -> None:
        if name in BLOCKS or name == "li":
            self._end_block()
            self._is_item = self._is_item or name == "li"
        elif name in ("ul", "ol"):
            self._end_block()
            self._is_item = False
            self._lists = [*self._lists, name][-INDENT_MAX:]
        elif len(name) == 2 and name[0] == "h" and name[1] in "123456":
            self._end_block()
            self._heading = int(name[1])
        elif name in ("table", "tr", "td", "th"):
            self._start_in_table(name, attributes)
        elif name == "pre":
            self._end_block()
            self._is_pre = not self._writer.is_in_table
        else:
            self._start_inline(name, attributes)

    def _start_in_table(self, name: str, attributes: dict[str, str]) -> None:
        self._end_block()
        if name == "table":
            is_data = (self._data_tables.popleft() if self._data_tables else True) and attributes.get("role") != "presentation"
            self._tables.append(is_data)
            if is_data:
                self._writer.begin_table()
                self._grids.append(_Grid())
        else:
            self._close_cell()
            if name == "tr":
                self._end_row()
            else:
                self._is_cell_open = True
                self._spans = (_span(attributes, "colspan"), _span(attributes, "rowspan"))

    def _close_cell(self) -> None:
        """End the open cell: cells need no end tag."""
        if self._is_cell_open and self._writer.is_in_table and self._grids:
            columns, rows = self._spans
            self._writer.skip_cells(self._grids[-1].covered())
            self._writer.end_cell(columns)
            self._grids[-1].add(columns, rows)
        self._is_cell_open = False

    def _end_row(self) -> None:
        self._writer.end_row()
        if self._grids and self._tables and self._tables[-1]:
            self._grids[-1].end_row()

    def _start_inline(self, name: str, attributes: dict[str, str]) -> None:
        if name == "br":
            self._writer.text("\n")
        elif name == "a":
            target = attributes.get("href", "").strip()
            is_plain = ":" not in target.split("/")[0]
            self._writer.begin_link(target if is_plain or target.lower().startswith(LINKED) else "")
        elif name == "img":
            self._writer.text(_SPACES.sub(" ", attributes.get("alt", "")))

    # -- end tags

    def _end(self, name: str) -> None:
        self._is_title = False
        if self._dropped:
            if name == self._dropped[-1]:
                self._dropped.pop()
            return
        if name in BLOCKS or name == "li" or name in ("h1", "h2", "h3", "h4", "h5", "h6"):
            self._end_block()
            self._is_item = self._is_item and name != "li"
        elif name in ("ul", "ol"):
            self._end_block()
            self._is_item = False
            self._lists = self._lists[:-1]
        elif name == "a":
            self._writer.end_link()
        elif name == "pre":
            self._end_pre()
        else:
            self._end_in_table(name)

    def _end_in_table(self, name: str) -> None:
        if name not in ("td", "th", "tr", "table"):
            return
        self._end_block()
        self._close_cell()
        if name == "tr":
            self._end_row()
        elif name == "table" and self._tables:
            if self._tables.pop():
                self._writer.end_table()
                self._grids.pop()
            self._is_cell_open = bool(self._tables)

    def _end_pre(self) -> None:
        if self._is_pre:
            self._is_pre = False
            self._writer.end_verbatim()

    def _end_block(self) -> None:
        """End the current block; of the blocks of an item the first has the marker."""
        self._end_pre()
        is_blank = self._writer.is_blank
        if self._heading:
            self._writer.end_heading(self._heading)
        elif self._is_item and self._lists:
            self._writer.end_item(len(self._lists) - 1, "1." if self._lists[-1] == "ol" else "-")
        else:
            self._writer.end("  " * len(self._lists))
        self._heading, self._is_item = 0, self._is_item and is_blank


def read(builder: ExtractionBuilder) -> None:
    """Read the page, in its declared encoding if that fits."""
    with builder.path.open("rb") as file:
        start = file.read(4096)
    page = read_text(builder, declared_charset(start))
    HtmlReader(builder, MarkdownWriter(builder)).read(page, is_xml=page.lstrip().startswith("<?xml"))
