"""What do plain text, Markdown, CSV, JSON and XML say?

Laws:
- Text and Markdown are their own result; a form feed ends a page.
- CSV becomes a table, with the separator that its first lines agree on.
- JSON and XML are shown whole, as code. XML is read through first, so that a broken or harmful one is refused; JSON that
  does not parse is still a text, with a warning.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from itertools import chain

from .draft import BLOCK, Draft
from .encoding import read_blocks, read_text
from .failure import Unreadable
from .html import declared
from .markdown import cell, fenced, row
from .xml import Attributes, read_xml

SEPARATORS = ",;\t|"
JSON_CHECKED_MAX = 4_000_000  # a parsed JSON takes up to thirty times its length


def read(draft: Draft) -> None:
    """Plain text and Markdown."""
    text = read_text(draft)
    pages = text.split("\f", draft.limits.pages_max + 1)
    for number, page in enumerate(pages):
        if number or len(pages) > 1:
            draft.new_page(str(number + 1))
        draft.write(page)
    if draft.media_type == "text/markdown":
        _read_title(draft, pages[0])


def _read_title(draft: Draft, text: str) -> None:
    for line in text[:10_000].splitlines():
        if line.startswith("# "):
            draft.fact("title", line[2:])
            return


def read_csv(draft: Draft) -> None:
    """A table."""
    lines = _lines(draft)
    first = [line for line, _ in zip(lines, range(50), strict=False)]
    separator = max(SEPARATORS, key=lambda one: _agreement(first, one))
    csv.field_size_limit(draft.limits.token_max)
    try:
        for cells in csv.reader(chain(first, lines), delimiter=separator):
            draft.meter.cell(len(cells))
            if not any(cells):
                continue
            is_first = draft.length == 0
            draft.write(row([cell(one) for one in cells]) + "\n")
            if is_first:
                draft.write(row(["---"] * len(cells)) + "\n")
    except csv.Error as error:
        raise Unreadable("corrupt", f"CSV: {error}") from error


def _lines(draft: Draft) -> Iterator[str]:
    """Lines of a text that comes in blocks; a line may be as long as a text may."""
    newlines = io.IncrementalNewlineDecoder(None, translate=True)
    rest: list[str] = []
    held = 0
    for block in read_blocks(draft):
        first, *others = newlines.decode(block.replace("\0", "")).split("\n")
        held += len(first)
        draft.meter.hold(held)
        rest.append(first)
        if others:
            yield "".join(rest) + "\n"
            *lines, last = others
            yield from (line + "\n" for line in lines)
            rest, held = [last], len(last)
    yield "".join(rest)


def _agreement(lines: list[str], separator: str) -> tuple[int, int]:
    """How many lines have as many of a separator as the first one, if it has any, and how many those are."""
    counts = [line.count(separator) for line in lines if line.strip()]
    if not counts or not counts[0]:
        return 0, 0
    return sum(count == counts[0] for count in counts), counts[0]


def read_json(draft: Draft) -> None:
    """JSON as code; whether it parses is told."""
    text = read_text(draft)
    if not is_json(text) and len(text) <= JSON_CHECKED_MAX:
        draft.warn("damaged_parts", "the JSON does not parse")
    draft.write(fenced(text, "json"))


def is_json(text: str) -> bool:
    """Whether a text that is not too long is JSON."""
    if len(text) > JSON_CHECKED_MAX or not text.lstrip("\ufeff \t\r\n").startswith(("{", "[", '"')):
        return False
    try:
        json.loads(text.lstrip("\ufeff"), parse_int=float)
    except (ValueError, RecursionError):
        return False
    return True


class _Nothing:
    """A handler that only lets the reader count."""

    def start(self, name: str, attributes: Attributes) -> None: ...
    def end(self, name: str) -> None: ...
    def text(self, text: str) -> None: ...


def read_markup(draft: Draft) -> None:
    """XML as code, once it is known to be harmless."""

    def blocks() -> Iterator[bytes]:
        with draft.path.open("rb") as file:
            while block := file.read(BLOCK):
                draft.meter.tick()
                yield block

    read_xml(draft, blocks(), _Nothing(), is_doctype_allowed=True)
    with draft.path.open("rb") as file:
        start = file.read(200)
    draft.write(fenced(read_text(draft, declared(start)), "xml"))
