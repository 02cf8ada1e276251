"""Extractors for plain text, Markdown, CSV, JSON and XML.

Laws:
- Text and Markdown are kept as they are; a form feed ends a page.
- CSV becomes a table, with the separator that its first lines agree on.
- JSON and XML become one block of code. XML is parsed first, so that broken or harmful XML is refused; JSON that does not
  parse is still text, with a warning.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from itertools import chain

from .builder import ExtractionBuilder
from .encoding import read_blocks, read_text
from .failure import Unreadable
from .html import declared_charset
from .markdown import cell, code_block, row
from .xml import Attributes, file_blocks, read_xml
from .xml_input import foreign_encoding

SEPARATORS = ",;\t|"
JSON_CHECKED_MAX = 4_000_000  # a parsed JSON takes up to thirty times its length


def read(builder: ExtractionBuilder) -> None:
    """Read plain text or Markdown."""
    text = read_text(builder)
    pages = text.split("\f", builder.limits.pages_max + 1)
    for number, page in enumerate(pages):
        if number or len(pages) > 1:
            builder.new_page(str(number + 1))
        builder.write(page)
    if builder.media_type == "text/markdown":
        _read_title(builder, pages[0])


def _read_title(builder: ExtractionBuilder, text: str) -> None:
    for line in text[:10_000].splitlines():
        if line.startswith("# "):
            builder.fact("title", line[2:])
            return


def read_csv(builder: ExtractionBuilder) -> None:
    """Read CSV as a table."""
    lines = _lines(builder)
    first = [line for line, _ in zip(lines, range(50), strict=False)]
    separator = max(SEPARATORS, key=lambda candidate: _agreement(first, candidate))
    csv.field_size_limit(builder.limits.token_max)
    try:
        for cells in csv.reader(chain(first, lines), delimiter=separator):
            builder.meter.count_cells(len(cells))
            if not any(cells):
                continue
            is_first = builder.length == 0
            builder.write(row([cell(value) for value in cells]) + "\n")
            if is_first:
                builder.write(row(["---"] * len(cells)) + "\n")
    except csv.Error as error:
        raise Unreadable("corrupt", f"CSV: {error}") from error


def _lines(builder: ExtractionBuilder) -> Iterator[str]:
    """Yield the lines of the text; a line may be as long as the whole text may."""
    newlines = io.IncrementalNewlineDecoder(None, translate=True)
    rest: list[str] = []
    length = 0
    for block in read_blocks(builder):
        first, *others = newlines.decode(block.replace("\0", "")).split("\n")
        length += len(first)
        builder.meter.check_text(length)
        rest.append(first)
        if others:
            yield "".join(rest) + "\n"
            *lines, last = others
            yield from (line + "\n" for line in lines)
            rest, length = [last], len(last)
    yield "".join(rest)


def _agreement(lines: list[str], separator: str) -> tuple[int, int]:
    """Count the lines that have as many of a separator as the first line, if it has any; return that number too."""
    counts = [line.count(separator) for line in lines if line.strip()]
    if not counts or not counts[0]:
        return 0, 0
    return sum(count == counts[0] for count in counts), counts[0]


def read_json(builder: ExtractionBuilder) -> None:
    """Read JSON as code; add a warning if it does not parse."""
    text = read_text(builder)
    if not is_json(text) and len(text) <= JSON_CHECKED_MAX:
        builder.warn("damaged_parts", "the JSON does not parse")
    builder.write(code_block(text, "json"))


def is_json(text: str) -> bool:
    """Return whether a text that is not too long is JSON."""
    if len(text) > JSON_CHECKED_MAX or not text.lstrip("\ufeff \t\r\n").startswith(("{", "[", '"')):
        return False
    try:
        json.loads(text.lstrip("\ufeff"), parse_int=float)
    except (ValueError, RecursionError):
        return False
    return True


class _NullHandler:
    """Handler that ignores all events; `read_xml` still enforces its limits."""

    def start(self, name: str, attributes: Attributes) -> None: ...
    def end(self, name: str) -> None: ...
    def text(self, text: str) -> None: ...


def read_markup(builder: ExtractionBuilder) -> None:
    """Read XML as code, after a parse that refuses harmful files."""

    read_xml(builder, file_blocks(builder), _NullHandler(), is_doctype_allowed=True)
    with builder.path.open("rb") as file:
        start = file.read(200)
    builder.write(code_block(read_text(builder, foreign_encoding(start) or declared_charset(start)), "xml"))
