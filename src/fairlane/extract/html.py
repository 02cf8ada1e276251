"""What does an HTML page say? Headings, paragraphs, lists, tables, links and code; scripts, styles and hidden parts dropped.

Laws:
- Nothing is fetched: images are their alternative text, frames and styles from elsewhere do not exist.
- Links keep their address when it is one that a person could follow; `javascript:` and `data:` are only their words.
- Nesting costs nothing: no tree is built.
"""

from __future__ import annotations

import re
from collections import deque

from .draft import Draft
from .encoding import read_text
from .html_tags import Tag, scan, unescape
from .markdown import INDENT_MAX, Flow

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


def declared(start: bytes) -> str | None:
    """The encoding that the page says it is in."""
    found = _CHARSET.search(start[:4096]) or _DECLARED.search(start[:200])
    return found.group(1).decode("ascii") if found is not None else None


def real_tables(page: str) -> deque[bool]:
    """For each table in its order, whether it is one: a table that holds tables is a layout, and its cells are blocks."""
    real: list[bool] = []
    opened: list[int] = []
    for found in _TABLES.finditer(page):
        if found.group(1):
            if opened:
                opened.pop()
        else:
            if opened:
                real[opened[-1]] = False
            opened.append(len(real))
            real.append(True)
    return deque(real)


class Page:
    """Turns tags and texts into blocks."""

    def __init__(self, draft: Draft, flow: Flow) -> None:
        self._draft, self._flow = draft, flow
        self._dropped: list[str] = []
        self._lists: list[str] = []
        self._heading = 0
        self._is_item = False
        self._is_pre = self._is_title = False
        self._is_cell_open = False
        self._tables: list[bool] = []  # whether each open one is a real table
        self._real: deque[bool] = deque()

    def read(self, page: str) -> None:
        self._real = real_tables(page)
        for number, one in enumerate(scan(page)):
            if number % 256 == 0:
                self._draft.meter.tick()
            if isinstance(one, str):
                self._text(one)
            elif one.is_end:
                self._end(one.name)
            else:
                self._start(one)
        self._end_block()

    def _text(self, text: str) -> None:
        if self._is_title:
            self._draft.fact("title", unescape(text))
        elif self._dropped:
            return
        elif self._is_pre:
            self._flow.text(text)
        else:
            text = _SPACES.sub(" ", text)
            self._flow.text(text.lstrip(" ") if self._flow.is_blank else text)

    # -- what begins

    def _start(self, tag: Tag) -> None:
        name = tag.name
        self._is_title = name == "title"
        if name == "meta" and tag.attributes.get("name", "").lower() == "author":
            self._draft.fact("author", tag.attributes.get("content"))
        if name in DROPPED:
            self._dropped = [*self._dropped[:1], name]
        elif name == "body":
            self._dropped = []
        elif not self._dropped:
            self._start_shown(name, tag.attributes)

    def _start_shown(self, name: str, attributes: dict[str, str]) -> None:
        if name in BLOCKS or name == "li":
            self._end_block()
            self._is_item = name == "li"
        elif name in ("ul", "ol"):
            self._end_block()
            self._lists = [*self._lists, name][-INDENT_MAX:]
        elif len(name) == 2 and name[0] == "h" and name[1] in "123456":
            self._end_block()
            self._heading = int(name[1])
        elif name in ("table", "tr", "td", "th"):
            self._start_in_table(name, attributes)
        elif name == "pre":
            self._end_block()
            self._is_pre = not self._flow.is_in_table
        else:
            self._start_inline(name, attributes)

    def _start_in_table(self, name: str, attributes: dict[str, str]) -> None:
        self._end_block()
        if name == "table":
            is_real = (self._real.popleft() if self._real else True) and attributes.get("role") != "presentation"
            self._tables.append(is_real)
            if is_real:
                self._flow.begin_table()
        else:
            self._close_cell()
            if name == "tr":
                self._flow.end_row()
            else:
                self._is_cell_open = True

    def _close_cell(self) -> None:
        """Cells need no end tag."""
        if self._is_cell_open and self._flow.is_in_table:
            self._flow.end_cell()
        self._is_cell_open = False

    def _start_inline(self, name: str, attributes: dict[str, str]) -> None:
        if name == "br":
            self._flow.text("\n")
        elif name == "a":
            target = attributes.get("href", "").strip()
            is_plain = ":" not in target.split("/")[0]
            self._flow.begin_link(target if is_plain or target.lower().startswith(LINKED) else "")
        elif name == "img":
            self._flow.text(_SPACES.sub(" ", attributes.get("alt", "")))

    # -- what ends

    def _end(self, name: str) -> None:
        self._is_title = False
        if self._dropped:
            if name == self._dropped[-1]:
                self._dropped.pop()
            return
        if name in BLOCKS or name == "li" or name in ("h1", "h2", "h3", "h4", "h5", "h6"):
            self._end_block()
        elif name in ("ul", "ol"):
            self._end_block()
            self._lists = self._lists[:-1]
        elif name == "a":
            self._flow.end_link()
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
            self._flow.end_row()
        elif name == "table" and self._tables:
            if self._tables.pop():
                self._flow.end_table()
            self._is_cell_open = bool(self._tables)

    def _end_pre(self) -> None:
        if self._is_pre:
            self._is_pre = False
            self._flow.end_verbatim()

    def _end_block(self) -> None:
        self._end_pre()
        if self._heading:
            self._flow.end_heading(self._heading)
        elif self._is_item and self._lists:
            self._flow.end_item(len(self._lists) - 1, "1." if self._lists[-1] == "ol" else "-")
        else:
            self._flow.end()
        self._heading, self._is_item = 0, False


def read(draft: Draft) -> None:
    """The page, in the encoding that it declares if that fits."""
    with draft.path.open("rb") as file:
        start = file.read(4096)
    page = read_text(draft, declared(start))
    Page(draft, Flow(draft)).read(page)
