"""Calendar extractor (ICS): events, tasks and journal entries with when, where and who; repetition as it is written."""

from __future__ import annotations

import re
from datetime import date, timedelta

from .builder import ExtractionBuilder
from .content_lines import ContentLine, content_lines
from .failure import one_line
from .markdown import MarkdownWriter

ENTRIES = ("VEVENT", "VTODO", "VJOURNAL", "VFREEBUSY")
LABELS = {
    "LOCATION": "Where",
    "ORGANIZER": "Organizer",
    "ATTENDEE": "Attendees",
    "CONTACT": "Contact",
    "STATUS": "Status",
    "CATEGORIES": "Categories",
    "RRULE": "Repeats",
    "RDATE": "Also",
    "EXDATE": "Except",
    "DUE": "Due",
    "COMPLETED": "Completed",
    "FREEBUSY": "Busy",
    "URL": "Link",
    "ATTACH": "Attached",
}
WHEN = ("DTSTART", "DTEND", "DURATION")
DATES = ("RDATE", "EXDATE", "DUE", "COMPLETED")
VALUES_MAX = 10_000  # attendees, say, of one entry
TITLE_MAX = 500
LINE_COST = 50  # characters that a line counts as, beside its own: so many fit in memory
_MOMENT = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)(\d\d)(Z?))?")


def shown_moment(value: str) -> str:
    """Return a date or time as ISO 8601; what is neither as it is."""
    match = _MOMENT.fullmatch(value.strip())
    if match is None:
        return value.strip()
    year, month, day, hour, minute, second, zone = match.groups()
    return f"{year}-{month}-{day}" + (f"T{hour}:{minute}:{second}{zone}" if hour else "")


def _shown_moments(line: ContentLine) -> str:
    """Return dates or times with their zone, if one is named."""
    zone = line.parameter("TZID")
    return ", ".join(map(shown_moment, line.value.split(","))) + (f" ({zone})" if zone else "")


def _person(line: ContentLine) -> str:
    """Return a name with its address, and the answer to the invitation."""
    name, address = line.parameter("CN"), line.value.partition(":")[2] or line.value
    answer = line.parameter("PARTSTAT").lower().replace("-", " ")
    shown = f"{name} <{address}>" if name and name != address else address
    return f"{shown} ({answer})" if answer and answer != "needs action" else shown


class _CalendarEntry:
    """One event, task or journal entry, as far as it was read."""

    def __init__(self, builder: ExtractionBuilder, kind: str) -> None:
        self._builder, self.kind = builder, kind
        self.summary = self.organizer = ""
        self._paragraphs: list[str] = []
        self.moments: dict[str, str] = {}  # created and modified
        self._when: dict[str, ContentLine] = {}
        self._values: dict[str, list[str]] = {}
        self._length = 0

    def add(self, line: ContentLine) -> None:
        """Take a property."""
        self._length += len(line.value) + LINE_COST
        self._builder.meter.check_text(self._length)
        if line.name == "SUMMARY":
            self.summary = one_line(line.text, TITLE_MAX)
        elif line.name in ("DESCRIPTION", "COMMENT"):
            self._paragraphs += line.text.strip().split("\n\n")
        elif line.name in WHEN:
            self._when.setdefault(line.name, line)
        elif line.name in ("CREATED", "LAST-MODIFIED"):
            self.moments[line.name] = shown_moment(line.value)
        elif line.name in LABELS:
            values = self._values.setdefault(LABELS[line.name], [])
            if len(values) < VALUES_MAX:
                values.append(self._shown(line))

    def _shown(self, line: ContentLine) -> str:
        if line.name in ("ORGANIZER", "ATTENDEE"):
            person = _person(line)
            self.organizer = person if line.name == "ORGANIZER" else self.organizer
            return person
        return _shown_moments(line) if line.name in DATES else " ".join(line.text.split())

    def _shown_when(self) -> str:
        begin, end, duration = (self._when.get(name) for name in WHEN)
        if begin is None:
            return ""
        shown, zone = shown_moment(begin.value), begin.parameter("TZID")
        if end is not None:
            last = _last_day(end.value) if len(shown) == len("2026-03-01") else shown_moment(end.value)
            shown += f" – {last}" if last != shown else ""
        elif duration is not None:
            shown += f", {duration.value}"
        return f"{shown} ({zone})" if zone else shown

    def write(self, writer: MarkdownWriter) -> None:
        """Write the entry: a heading, a line for each property, the description."""
        writer.text(self.summary)
        writer.end_heading(2)
        when = self._shown_when()
        lines = [("When", when)] if when else []
        lines += [(label, ", ".join(values)) for label in LABELS.values() if (values := self._values.get(label))]
        writer.text("  \n".join(f"**{label}:** {value}" for label, value in lines))
        writer.end()
        for paragraph in self._paragraphs:
            writer.text(paragraph)
            writer.end()


def _last_day(value: str) -> str:
    """Return the last day of what lasts whole days: the end that is written is the day after."""
    try:
        return (date.fromisoformat(shown_moment(value)) - timedelta(days=1)).isoformat()
    except (ValueError, OverflowError):
        return shown_moment(value)


class _Calendar:
    """The entries of one file."""

    def __init__(self, builder: ExtractionBuilder) -> None:
        self._builder, self._writer = builder, MarkdownWriter(builder)
        self._components: list[str] = []  # that are open
        self._entries: list[_CalendarEntry] = []
        self._written: list[_CalendarEntry] = []  # the first two

    def add(self, line: ContentLine) -> None:
        """Take a line; what belongs to no entry says how the calendar is called."""
        if line.name == "BEGIN":
            self._begin(line.value.strip().upper())
        elif line.name == "END" and self._components:
            if self._components.pop() in ENTRIES and self._entries:
                self._end_entry()
        elif self._entries and self._components[-1:] == [self._entries[-1].kind]:
            self._entries[-1].add(line)
        elif line.name in ("X-WR-CALNAME", "NAME") and not self._entries:
            self._builder.fact("title", line.text)

    def _begin(self, component: str) -> None:
        self._components.append(component)
        self._builder.meter.check_nesting(len(self._components))
        if component in ENTRIES:
            self._entries.append(_CalendarEntry(self._builder, component))

    def _end_entry(self) -> None:
        entry = self._entries.pop()
        entry.write(self._writer)
        if len(self._written) < 2:
            self._written.append(entry)

    def end(self) -> None:
        """Write what is still open; take the facts of an only entry for those of the file."""
        if self._entries:
            self._builder.warn("damaged_parts", "the calendar is cut off")
        while self._entries:
            self._end_entry()
        if len(self._written) == 1:
            _read_facts(self._builder, self._written[0])


def read(builder: ExtractionBuilder) -> None:
    """Read every entry."""
    calendar = _Calendar(builder)
    for line in content_lines(builder):
        calendar.add(line)
    calendar.end()


def _read_facts(builder: ExtractionBuilder, entry: _CalendarEntry) -> None:
    """Take the facts of the only entry for those of the file."""
    builder.fact("title", entry.summary)
    builder.fact("author", entry.organizer)
    builder.fact("created", entry.moments.get("CREATED"))
    builder.fact("modified", entry.moments.get("LAST-MODIFIED"))
