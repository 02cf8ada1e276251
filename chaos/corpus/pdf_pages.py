"""Twenty pages of known structure, as HTML that a browser prints to PDF: headings, lists, tables, links, two columns.

The fonts, sizes and kinds of table differ from page to page, as they do among the programs that people print from.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import NamedTuple

ENGLISH = (
    "The goods were sent on Monday, and they should be with you by the end of the week. Please check that all of them have "
    "arrived, and write to us if something is missing.",
    "A queue that serves customers in turns does not let one of them hold up the others. Each document that waits moves "
    "forward when a turn of its customer comes, whatever the others have sent meanwhile.",
    "We measured the time from submission to the first page of text on three machines, one of them under load. The slowest "
    "attempt took less than half a second, most of it spent on reading the file from a distant disk.",
    "Nothing that was accepted may be lost. A worker that disappears leaves its lease behind, and another one takes the "
    "document over when the lease has ended, so that each document ends exactly once.",
)
POLISH = (
    "Towar został wysłany w poniedziałek i powinien być u Państwa do końca tygodnia. Prosimy sprawdzić, czy wszystko dotarło, "
    "i napisać do nas, jeśli czegoś brakuje.",
    "Źle opisane paczki są u nas już od środy. Jeżeli adres nie zostanie poprawiony, odeślemy je na koszt nadawcy, o czym "
    "powiadomimy Państwa listownie.",
)
GERMAN = (
    "Die Ware wurde am Montag verschickt und sollte bis zum Ende der Woche bei Ihnen sein. Bitte prüfen Sie, ob alles "
    "angekommen ist, und schreiben Sie uns, wenn etwas fehlt.",
    "Größere Möbel liefern wir nur nach Absprache. Für Schäden, die beim Aufbau entstehen, haften wir nicht, es sei denn, "
    "unsere Anleitung war fehlerhaft.",
)
PRICES = (
    ("item", "pieces", "price", "total"),
    ("oak chair", "4", "45.50", "182.00"),
    ("round table", "1", "320.00", "320.00"),
    ("desk lamp", "12", "19.90", "238.80"),
    ("shelf", "3", "75.25", "225.75"),
)
TEAMS = (
    ("Office", "Head of the office", "Opening hours"),
    ("Warsaw", "Łucja Żółkiewska", "Monday to Friday, 8 to 16"),
    ("Lisbon", "João Gonçalves", "Tuesday to Saturday, 9 to 17, closed in August"),
    ("Berlin", "Jürgen Groß", "by appointment"),
)
MEASURES = (
    ("Engine", "Submit/s", "Claim/s"),
    ("memory", "91,200", "88,400"),
    ("SQLite", "44,000", "14,000"),
    ("PostgreSQL", "12,300", "54,000"),
    ("Redis", "5,600", "38,000"),
    ("Valkey", "5,900", "41,000"),
)
GAPS = (
    ("Month", "Sent", "Returned", "Remark"),
    ("January", "120", "3", "two of them damaged"),
    ("February", "98", "", ""),
    ("March", "143", "7", "new carrier"),
)


class Heading(NamedTuple):
    """A heading of a level from 1."""

    level: int
    text: str


class Words(NamedTuple):
    """A paragraph, with the link in it, if any: its words and its target."""

    text: str
    link: tuple[str, str] | None = None


class Items(NamedTuple):
    """A list."""

    texts: tuple[str, ...]
    is_numbered: bool = False


class Grid(NamedTuple):
    """A table, its first row the header; the style is a class of the style sheet."""

    rows: tuple[tuple[str, ...], ...]
    style: str = "ruled"


class Columns(NamedTuple):
    """Blocks set in two columns."""

    blocks: tuple[Heading | Words | Items, ...]


class Code(NamedTuple):
    """A listing."""

    text: str


Block = Heading | Words | Items | Grid | Columns | Code


class PrintedPage(NamedTuple):
    """A page: its name, the style sheet that it adds, and its blocks in reading order."""

    name: str
    style: str
    blocks: tuple[Block, ...]

    @property
    def html(self) -> str:
        body = "".join(_html(block) for block in self.blocks)
        return f"<!doctype html><meta charset=utf-8><style>{STYLE}{self.style}</style><body>{body}"

    def flat(self) -> Iterator[Heading | Words | Items | Grid | Code]:
        """Yield the blocks, those in columns too."""
        for block in self.blocks:
            if isinstance(block, Columns):
                yield from block.blocks
            else:
                yield block


STYLE = """
@page { size: A4; margin: 20mm }
body { font: 10pt/1.4 'DejaVu Serif'; margin: 0 }
table { border-collapse: collapse; margin: 10pt 0 }
td, th { padding: 3pt 8pt; text-align: left; vertical-align: top }
.ruled td, .ruled th { border: 1px solid black }
.rows td, .rows th { border-bottom: 1px solid #888 }
.shaded tr:nth-child(odd) { background: #dde }
.numbers td + td, .numbers th + th { text-align: right }
.wide { width: 100% }
.columns { columns: 2; column-gap: 10mm }
"""
E1, E2, E3, E4 = ENGLISH
P1, P2 = POLISH
G1, G2 = GERMAN
SITE = "https://example.org/orders?id=17"
SANS = "body { font: 9pt/1.3 'DejaVu Sans' } "
JUSTIFIED = "p { text-align: justify } "
PAGES = (
    PrintedPage("letter", "", (Words(E1), Words(E2), Words(E3), Words(E4))),
    PrintedPage(
        "report",
        SANS,
        (Heading(1, "Yearly report"), Words(E1), Heading(2, "Results"), Words(E2), Heading(2, "Plans"), Words(E3)),
    ),
    PrintedPage(
        "bold headings of one size",
        "h2 { font-size: 10pt; margin: 10pt 0 4pt }",
        (
            Heading(1, "Rules of the house"),
            Words(E1),
            Heading(2, "Who may enter"),
            Words(E2),
            Heading(2, "When we close"),
            Words(E4),
        ),
    ),
    PrintedPage(
        "three levels",
        SANS + "h3 { font-weight: normal; font-size: 10.5pt }",
        (
            Heading(1, "Handbook"),
            Words(E1),
            Heading(2, "Sending"),
            Heading(3, "By post"),
            Words(E3),
            Heading(3, "By courier"),
            Words(E2),
            Heading(2, "Returning"),
            Words(E4),
        ),
    ),
    PrintedPage(
        "numbered headings",
        "h1, h2 { font-family: 'DejaVu Sans' }",
        (
            Heading(1, "1 Delivery"),
            Words(G1),
            Heading(2, "1.1 Furniture"),
            Words(G2),
            Heading(2, "1.2 Everything else"),
            Words(G1 + " " + G2),
        ),
    ),
    PrintedPage(
        "links",
        "",
        (
            Words(E1, ("write to us", "mailto:office@example.org")),
            Words(E2),
            Words(E3, ("three machines, one of them under load", SITE)),
            Words(E4, ("exactly once", "https://example.org/once")),
        ),
    ),
    PrintedPage(
        "list",
        "",
        (
            Heading(1, "Before you send"),
            Words(E1),
            Items(("Weigh the parcel.", "Write the address on two sides of it.", E4)),
            Words(E2),
        ),
    ),
    PrintedPage(
        "numbered list", SANS, (Words(P1), Items(("Zważ paczkę.", P2, "Naklej znaczek."), is_numbered=True), Words(P2))
    ),
    PrintedPage("ruled table", "", (Heading(1, "Invoice 2026/17"), Words(E1), Grid(PRICES), Words(E4))),
    PrintedPage("ruled table with long cells", SANS, (Words(E2), Grid(TEAMS, "ruled wide"), Words(E3))),
    PrintedPage("narrow ruled table", "table { width: 60mm }", (Words(P1), Grid(TEAMS), Words(P2))),
    PrintedPage("lines between rows", "", (Heading(2, "Prices"), Grid(PRICES, "rows numbers"), Words(E1))),
    PrintedPage("shaded rows", SANS, (Words(E1), Grid(MEASURES, "shaded numbers wide"), Words(E2))),
    PrintedPage("table without lines", "", (Heading(1, "Measured"), Words(E3), Grid(MEASURES, "numbers"), Words(E1))),
    PrintedPage("wide table without lines", SANS, (Words(E1), Grid(PRICES, "numbers wide"), Words(E2))),
    PrintedPage("empty cells", "", (Words(E2), Grid(GAPS), Words(E1), Grid(GAPS, "plain"), Words(E3))),
    PrintedPage("two columns", JUSTIFIED, (Heading(1, "On queues"), Columns((Words(E1), Words(E2), Words(E3), Words(E4))))),
    PrintedPage(
        "two columns with headings",
        SANS,
        (
            Heading(1, "Queues and turns"),
            Words(E1),
            Columns((Heading(2, "Turns"), Words(E2), Words(E3), Heading(2, "Leases"), Words(E4), Words(E1 + " " + E2))),
        ),
    ),
    PrintedPage(
        "two columns above a table",
        SANS + JUSTIFIED,
        (Columns((Words(G1), Words(G2), Words(P1), Words(P2))), Grid(MEASURES), Words(E1)),
    ),
    PrintedPage(
        "listing and table",
        "",
        (
            Heading(1, "How to measure"),
            Words(E3),
            Code("def measure(count):\n    for number in range(count):\n        submit(number)\n    return count"),
            Grid(MEASURES, "ruled numbers"),
            Words(E4, ("another one", SITE)),
        ),
    ),
)


def _html(block: Block) -> str:
    match block:
        case Heading(level, text):
            return f"<h{level}>{escape(text)}</h{level}>"
        case Words(text, link):
            shown = escape(text)
            if link is not None:
                words, target = link
                shown = shown.replace(escape(words), f'<a href="{escape(target)}">{escape(words)}</a>', 1)
            return f"<p>{shown}</p>"
        case Items(texts, is_numbered):
            name = "ol" if is_numbered else "ul"
            return f"<{name}>" + "".join(f"<li>{escape(text)}</li>" for text in texts) + f"</{name}>"
        case Grid(rows, style):
            head, *body = ("".join(f"<CELL>{escape(cell)}</CELL>" for cell in row) for row in rows)
            lines = [head.replace("CELL", "th"), *(line.replace("CELL", "td") for line in body)]
            return f"<table class='{style}'>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"
        case Columns(blocks):
            return "<div class=columns>" + "".join(_html(inner) for inner in blocks) + "</div>"
        case Code(text):
            return f"<pre>{escape(text)}</pre>"
