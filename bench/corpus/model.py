"""Documents of the corpus as data, and as JSON for the process that writes office files.

Standard library only: that process runs in an environment of its own.
"""

from __future__ import annotations

from datetime import date
from typing import Any, NamedTuple

Cell = str | int | float | bool | date | None  # None is covered by the merged cell before it


class Heading(NamedTuple):
    """A heading of a level from 1."""

    level: int
    text: str


class Paragraph(NamedTuple):
    """A paragraph, with the link in it (its words and its target), and a note and a comment at its end."""

    text: str
    link: tuple[str, str] | None = None
    note: str = ""
    comment: str = ""


class Item(NamedTuple):
    """An item of a list, at a level from 0."""

    level: int
    text: str


class Listing(NamedTuple):
    """A list."""

    items: tuple[Item, ...]
    is_numbered: bool = False


class Table(NamedTuple):
    """A table, its first row the header."""

    rows: tuple[tuple[Cell, ...], ...]


class Speech(NamedTuple):
    """What the speaker's notes of a slide say."""

    text: str


Block = Heading | Paragraph | Listing | Table | Speech


class Document(NamedTuple):
    """Blocks in reading order, and the language that they are in."""

    language: str
    blocks: tuple[Block, ...]

    @property
    def title(self) -> str:
        return next((block.text for block in self.blocks if isinstance(block, Heading)), "")


def shown(cell: Cell) -> str:
    """Return what a cell shows."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "TRUE" if cell else "FALSE"
    if isinstance(cell, float):
        return f"{cell:.15g}"  # the digits that a spreadsheet counts with
    return cell.isoformat() if isinstance(cell, date) else str(cell)


KINDS: dict[str, Any] = {kind.__name__: kind for kind in (Heading, Paragraph, Listing, Table, Speech)}


def to_json(document: Document) -> Any:
    """Return a document as JSON values."""
    return [document.language, [[type(block).__name__, _plain(block)] for block in document.blocks]]


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(inner) for inner in value]
    return {"date": value.isoformat()} if isinstance(value, date) else value


def from_json(values: Any) -> Document:
    """Return the document of JSON values."""
    language, blocks = values
    return Document(language, tuple(_block(name, fields) for name, fields in blocks))


def _block(name: str, fields: list[Any]) -> Block:
    if name == "Listing":
        return Listing(tuple(Item(*item) for item in fields[0]), fields[1])
    if name == "Table":
        return Table(tuple(tuple(_cell(cell) for cell in row) for row in fields[0]))
    if name == "Paragraph" and fields[1] is not None:
        fields[1] = (fields[1][0], fields[1][1])
    block: Block = KINDS[name](*fields)
    return block


def _cell(value: Any) -> Cell:
    return date.fromisoformat(value["date"]) if isinstance(value, dict) else value
