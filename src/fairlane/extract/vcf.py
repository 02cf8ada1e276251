"""Contact extractor (VCF): names, organizations, telephone numbers, addresses and notes of every card; pictures are dropped."""

from __future__ import annotations

import re

from .builder import ExtractionBuilder
from .content_lines import ContentLine, content_lines
from .failure import one_line
from .ics import LINE_COST, shown_moment
from .markdown import MarkdownWriter

LABELS = {
    "NICKNAME": "Nickname",
    "ORG": "Organization",
    "TITLE": "Title",
    "ROLE": "Role",
    "TEL": "Phone",
    "EMAIL": "E-mail",
    "ADR": "Address",
    "URL": "Web",
    "IMPP": "Messenger",
    "X-JABBER": "Messenger",
    "X-SKYPE": "Messenger",
    "BDAY": "Birthday",
    "ANNIVERSARY": "Anniversary",
    "CATEGORIES": "Categories",
    "RELATED": "Related",
}
FIELDS = ("ORG", "ADR")
DATES = ("BDAY", "ANNIVERSARY")
UNSAID_TYPES = {"pref", "internet", "voice", "quoted-printable", "x-user", "uri"}
NAME_MAX = 500
_DAY = re.compile(r"\d{8}")


class _Card:
    """One contact, as far as it was read."""

    def __init__(self, builder: ExtractionBuilder) -> None:
        self._builder = builder
        self._name = self._formatted = ""
        self._notes: list[str] = []
        self._lines: list[str] = []
        self._organization = ""
        self._length = 0

    @property
    def name(self) -> str:
        return one_line(self._formatted or self._name or self._organization, NAME_MAX)

    def add(self, line: ContentLine) -> None:
        """Take a property."""
        self._length += len(line.value) + LINE_COST
        self._builder.meter.check_text(self._length)
        if line.name == "FN":
            self._formatted = self._formatted or line.text.strip()
        elif line.name == "N":
            family, first, middle, before, after = (line.fields + [""] * 5)[:5]
            self._name = " ".join(part for part in (before, first, middle, family, after) if part)
        elif line.name == "NOTE":
            self._notes += line.text.strip().split("\n\n")
        elif line.name in LABELS:
            self._add_line(line)

    def _add_line(self, line: ContentLine) -> None:
        value = ", ".join(field for field in line.fields if field) if line.name in FIELDS else line.text
        if line.name in DATES and _DAY.fullmatch(value.strip()):
            value = shown_moment(value)
        if line.name == "ORG":
            self._organization = value
        kinds = ",".join(line.parameters.get("TYPE", ())).lower().split(",")
        said = [kind for kind in dict.fromkeys(kinds) if kind and kind not in UNSAID_TYPES]
        value = " ".join(value.split())
        if value:
            label = LABELS[line.name] + (f" ({', '.join(said)})" if said else "")
            self._lines.append(f"**{label}:** {value}")

    def write(self, writer: MarkdownWriter) -> None:
        """Write the card: a heading, a line for each property, the note."""
        writer.text(self.name)
        writer.end_heading(2)
        writer.text("  \n".join(self._lines))
        writer.end()
        for paragraph in self._notes:
            writer.text(paragraph)
            writer.end()


def read(builder: ExtractionBuilder) -> None:
    """Read every card."""
    writer = MarkdownWriter(builder)
    cards: list[_Card] = []  # that are open: a card may hold another one
    names: list[str] = []
    for line in content_lines(builder):
        if line.name == "BEGIN":
            cards.append(_Card(builder))
            builder.meter.check_nesting(len(cards))
        elif line.name == "END" and cards:
            names = [*names[:1], cards[-1].name]
            cards.pop().write(writer)
        elif cards:
            cards[-1].add(line)
    if cards:
        builder.warn("damaged_parts", "a card is cut off")
    for card in cards:
        names = [*names[:1], card.name]
        card.write(writer)
    if len(names) == 1:
        builder.fact("title", names[0])
