"""Documents of the corpus as HTML, for browsers and LibreOffice, and as Markdown, for pandoc."""

from __future__ import annotations

import random
from html import escape

from .model import Block, Document, Heading, Item, Listing, Paragraph, Speech, Table, shown

FONTS = ("'DejaVu Serif'", "'Liberation Sans'", "'Liberation Serif'", "'DejaVu Sans'")
JAPANESE = "'Noto Sans CJK JP'"
MORE = ("", "h2, h3 { font-family: 'DejaVu Sans' }", "h3 { font-size: 1em }", "td + td { text-align: right }")
TABLES = (
    "td, th { border: 1px solid black }",
    "td, th { border-bottom: 1px solid #888 }",
    "tr:nth-child(odd) { background: #dde }",
    "th { border-bottom: 2px solid black }",
    "",
)


def style_sheet(seed: int) -> str:
    """Return a style sheet: fonts, sizes, tables and paragraphs differ from seed to seed, and so do the columns."""
    randomness = random.Random(seed)
    size = randomness.choice((9, 10, 11, 12))
    page, margin = randomness.choice(("A4", "letter")), randomness.choice((15, 20, 25))
    font, height = randomness.choice(FONTS), randomness.choice((1.2, 1.35, 1.5))
    rules = [
        f"@page {{ size: {page}; margin: {margin}mm }}",
        f"body {{ font: {size}pt/{height} {font}, {JAPANESE}; margin: 0 }}",
        "table { border-collapse: collapse; margin: 10pt 0 }",
        f"td, th {{ padding: {randomness.choice((2, 3, 5))}pt 8pt; text-align: left; vertical-align: top }}",
        randomness.choice(TABLES),
        randomness.choice(("", "p { text-align: justify }", "p { text-indent: 1.5em; margin: 0 }")),
        randomness.choice(MORE),
        randomness.choice(("", "table { width: 100% }")),
    ]
    return "\n".join(rules)


def html_of(document: Document, style: str = "", columns: int = 1) -> str:
    """Return a document as HTML; in two columns everything but the title is."""
    blocks = [_html(block) for block in document.blocks]
    if columns > 1:
        blocks[1:] = [f"<div style='columns: {columns}; column-gap: 10mm'>", *blocks[1:], "</div>"]
    direction = " dir=rtl" if document.language in ("he", "ar") else ""
    head = f"<meta charset=utf-8><title>{escape(document.title)}</title><style>{style}</style>"
    return f"<!doctype html><html lang={document.language}{direction}><head>{head}</head><body>\n" + "\n".join(blocks)


def _html(block: Block) -> str:
    match block:
        case Heading(level, text):
            return f"<h{level}>{escape(text)}</h{level}>"
        case Paragraph(text, link):
            words = escape(text)
            if link is not None:
                words = words.replace(escape(link[0]), f'<a href="{escape(link[1])}">{escape(link[0])}</a>', 1)
            return f"<p>{words}</p>"
        case Listing(items, is_numbered):
            return _html_list(list(items), 0, "ol" if is_numbered else "ul")
        case Table(rows):
            return "<table>" + "".join(_html_row(row, "td" if index else "th") for index, row in enumerate(rows)) + "</table>"
        case Speech(text):
            return f"<p>{escape(text)}</p>"


def _html_list(items: list[Item], level: int, name: str) -> str:
    """Return a list; items that are deeper become a list inside the item before them."""
    parts = [f"<{name}>"]
    while items and items[0].level >= level:
        if items[0].level > level:
            parts.append(_html_list(items, level + 1, name))
            continue
        parts.append(f"{'</li>' if len(parts) > 1 else ''}<li>{escape(items.pop(0).text)}")
    return "".join([*parts, f"</li></{name}>"])


def _html_row(row: tuple[object, ...], name: str) -> str:
    cells = []
    for index, cell in enumerate(row):
        if cell is not None:
            is_merged = index + 1 < len(row) and row[index + 1] is None
            cells.append(f"<{name}{' colspan=2' if is_merged else ''}>{escape(shown(cell))}</{name}>")  # type: ignore[arg-type]
    return "<tr>" + "".join(cells) + "</tr>"


def markdown_of(document: Document) -> str:
    """Return a document as pandoc's Markdown, with footnotes; it has no merged cells and no comments."""
    parts: list[str] = []
    notes: list[str] = []
    for block in document.blocks:
        match block:
            case Heading(level, text):
                parts.append(f"{'#' * level} {text}")
            case Paragraph(text, link, note):
                words = _literal(text)
                if link is not None:
                    words = words.replace(_literal(link[0]), f"[{_literal(link[0])}](<{link[1]}>)", 1)
                if note:
                    notes.append(f"[^{len(notes) + 1}]: {_literal(note)}")
                    words += f"[^{len(notes)}]"
                parts.append(words)
            case Listing(items, is_numbered):
                mark = "1." if is_numbered else "-"
                parts.append("\n".join(f"{'    ' * item.level}{mark} {_literal(item.text)}" for item in items))
            case Table(rows):
                lines = ["| " + " | ".join(_literal(shown(cell)) for cell in row) + " |" for row in rows]
                parts.append("\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]]))
            case Speech(text):
                parts.append(f"::: notes\n{_literal(text)}\n:::")
    return "\n\n".join([*parts, *notes]) + "\n"


def _literal(text: str) -> str:
    return "".join(f"\\{letter}" if letter in "\\`*_{}[]<>#|~^$@" else letter for letter in text)
