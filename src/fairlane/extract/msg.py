"""MSG extractor: messages, appointments, tasks and contacts of Outlook: headers, text, attachments as members.

A message is a storage whose properties have numbers: those of fixed size are in one stream, the others have one each.

Laws:
- The plain text is preferred, then the HTML, then the RTF.
- A message or a document inside a message becomes a file of its own, as it is.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from uuid import UUID

from .builder import BLOCK, ExtractionBuilder, clean
from .encoding import decode
from .failure import one_line
from .html import HtmlReader, declared_charset
from .mail_headers import HEADER_MAX
from .mail_text import write_attachments, write_headers
from .markdown import MarkdownWriter
from .ole import STORAGE, OleEntry, OleFile, Tree
from .ole_properties import codec_of, filetime
from .ole_writer import write_ole
from .rtf import RtfReader
from .rtf_compressed import decompress_rtf

PROPERTIES, NAMES = "__properties_version1.0", "__nameid_version1.0"
RECIPIENT, ATTACHMENT = "__recip_version1.0_", "__attach_version1.0_"
MESSAGE_HEADER, EMBEDDED_HEADER, OTHER_HEADER = 32, 24, 8  # bytes before the properties of fixed size
PROPERTY = struct.Struct("<HH4x8s")
UNICODE, BYTES, BINARY, OBJECT, TIME = 0x001F, 0x001E, 0x0102, 0x000D, 0x0040
SUBJECT, BODY, HTML, RTF, CLASS = 0x0037, 0x1000, 0x1013, 0x1009, 0x001A
CODE_PAGES = (0x3FDE, 0x3FFD)  # of the HTML; of other texts
SENDERS = ((0x0042, 0x5D02, 0x0065), (0x0C1A, 0x5D01, 0x0C1F))  # name, address, address of another kind
DISPLAYED = {1: ("To", 0x0E04), 2: ("Cc", 0x0E03)}
RECIPIENT_KIND, NAME, ADDRESSES = 0x0C15, 0x3001, (0x39FE, 0x3003)
SENT, DELIVERED, CREATED = 0x0039, 0x0E06, 0x3007
FILE_NAMES, DATA, METHOD = (0x3707, 0x3704, NAME), 0x3701, 0x3705
EMBEDDED = 5  # how a message is attached
BY_REFERENCE = (2, 3, 4, 7)
NAMED = 0x8000  # the first number of properties that have names
ENTRY = struct.Struct("<LHH")
APPOINTMENT, TASK, ADDRESS = (UUID(f"0006200{digit}-0000-0000-c000-000000000046").bytes_le for digit in "234")
# What appointments, tasks and contacts have beside the text, by set and number; without a set, by number alone.
FIELDS = {
    "Start": (APPOINTMENT, 0x820D),
    "End": (APPOINTMENT, 0x820E),
    "Location": (APPOINTMENT, 0x8208),
    "Task begins": (TASK, 0x8104),
    "Due": (TASK, 0x8105),
    "Company": (b"", 0x3A16),
    "Job": (b"", 0x3A17),
    "Phone": (b"", 0x3A08),
    "Phone at home": (b"", 0x3A09),
    "Mobile": (b"", 0x3A1C),
    "E-mail": (ADDRESS, 0x8083),
    "Address": (ADDRESS, 0x801B),
}
CLASSES = ("IPM.APPOINTMENT", "IPM.SCHEDULE", "IPM.TASK", "IPM.CONTACT")  # that have some of these


class MsgProperties:
    """The properties of a message, a recipient or an attachment."""

    def __init__(self, builder: ExtractionBuilder, ole: OleFile, storage: OleEntry, header: int) -> None:
        self._builder, self._ole = builder, ole
        self.children = ole.children(storage)
        self._fixed: dict[int, tuple[int, bytes]] = {}
        self.encoding: str | None = None
        if PROPERTIES in self.children:
            content = ole.read(self.children[PROPERTIES])[header:]
            for kind, number, value in PROPERTY.iter_unpack(content[: len(content) // 16 * 16]):
                self._fixed.setdefault(number, (kind, value))

    def number(self, number: int) -> int:
        return int.from_bytes(self._fixed[number][1][:4], "little") if number in self._fixed else 0

    def time(self, number: int) -> str:
        kind, value = self._fixed.get(number, (0, b""))
        return (filetime(int.from_bytes(value, "little")) or "") if kind == TIME else ""

    def binary(self, number: int, kind: int = BINARY) -> bytes:
        entry = self.children.get(f"__substg1.0_{number:04x}{kind:04x}")
        return self._ole.read(entry) if entry is not None and entry.kind != STORAGE else b""

    def text(self, number: int) -> str:
        if content := self.binary(number, UNICODE):
            return content.decode("utf-16-le", "replace").rstrip("\0")
        return decode(self.binary(number, BYTES), self.encoding).rstrip("\0")

    def line(self, number: int) -> str:
        """Return a text on one line."""
        return one_line(clean(self.text(number)), HEADER_MAX)

    def lines(self, *numbers: int) -> str:
        """Return the first of these that is not empty, on one line."""
        return next((line for number in numbers if (line := self.line(number))), "")


class MsgReader:
    """Reads one message."""

    def __init__(self, builder: ExtractionBuilder, ole: OleFile) -> None:
        self._builder, self._ole = builder, ole
        self._message = MsgProperties(builder, ole, ole.root, MESSAGE_HEADER)
        if code_page := self._message.number(CODE_PAGES[1]):
            self._message.encoding = codec_of(code_page)

    def read(self) -> None:
        builder, message = self._builder, self._message
        subject, sender = message.line(SUBJECT), self._sender()
        when = message.time(SENT) or message.time(DELIVERED)
        builder.fact("title", subject)
        builder.fact("author", sender)
        builder.fact("created", when or message.time(CREATED))
        headers = [("From", sender), *self._recipients(), ("Date", when), *self._fields()]
        write_headers(builder, subject, headers)
        self._write_body()
        write_attachments(builder, self._attachments())

    # -- headers

    def _sender(self) -> str:
        for name, *addresses in SENDERS:
            shown, address = self._message.line(name), self._message.lines(*addresses)
            if shown or address:
                return _shown_address(shown, address)
        return ""

    def _recipients(self) -> list[tuple[str, str]]:
        found: dict[int, list[str]] = {}
        lengths: dict[int, int] = {}
        for name, entry in sorted(self._message.children.items()):
            if name.startswith(RECIPIENT) and entry.kind == STORAGE:
                self._builder.meter.check_time()
                recipient = MsgProperties(self._builder, self._ole, entry, OTHER_HEADER)
                recipient.encoding = self._message.encoding
                kind = recipient.number(RECIPIENT_KIND)
                if lengths.get(kind, 0) < HEADER_MAX:
                    shown = _shown_address(recipient.line(NAME), recipient.lines(*ADDRESSES))
                    found.setdefault(kind, []).append(shown)
                    lengths[kind] = lengths.get(kind, 0) + len(shown)
        return [
            (name, one_line(", ".join(filter(None, found.get(kind, []))), HEADER_MAX) or self._message.line(displayed))
            for kind, (name, displayed) in DISPLAYED.items()
        ]

    def _fields(self) -> list[tuple[str, str]]:
        message = self._message
        if not message.line(CLASS).upper().startswith(CLASSES):
            return []
        numbers = self._named_numbers()
        fields = [(name, number if not guid else numbers.get((guid, number), 0)) for name, (guid, number) in FIELDS.items()]
        return [(name, message.time(number) or message.line(number)) for name, number in fields if number]

    def _named_numbers(self) -> dict[tuple[bytes, int], int]:
        """Return the numbers that this file has for properties with names, by set and number there."""
        storage = self._message.children.get(NAMES)
        if storage is None:
            return {}
        names = MsgProperties(self._builder, self._ole, storage, 0)
        guids, entries = names.binary(0x0002), names.binary(0x0003)
        found: dict[tuple[bytes, int], int] = {}
        for id, options, index in ENTRY.iter_unpack(entries[: len(entries) // 8 * 8]):
            start = ((options >> 1) - 3) * 16
            if not options & 1 and start >= 0:
                found[guids[start : start + 16], id] = NAMED + index
        return found

    # -- text

    def _write_body(self) -> None:
        builder, message = self._builder, self._message
        if (text := message.text(BODY)).strip():
            builder.write(text.replace("\r\n", "\n").strip("\n") + "\n\n")
            return
        page = message.text(HTML)
        if not page and (content := message.binary(HTML)):
            code_page = message.number(CODE_PAGES[0])
            page = decode(content, codec_of(code_page) if code_page else declared_charset(content))
        if page:
            HtmlReader(builder, MarkdownWriter(builder)).read(page)
            builder.write("\n\n")
        elif content := message.binary(RTF):
            RtfReader(builder).read(decompress_rtf(builder, content))
            builder.write("\n\n")

    # -- attachments

    def _attachments(self) -> Iterator[tuple[str, Iterator[bytes] | None]]:
        for name, entry in sorted(self._message.children.items()):
            if name.startswith(ATTACHMENT) and entry.kind == STORAGE:
                attachment = MsgProperties(self._builder, self._ole, entry, OTHER_HEADER)
                attachment.encoding = self._message.encoding
                yield self._attachment(attachment)

    def _attachment(self, attachment: MsgProperties) -> tuple[str, Iterator[bytes] | None]:
        name, method = attachment.lines(*FILE_NAMES), attachment.number(METHOD)
        inner = attachment.children.get(f"__substg1.0_{DATA:04x}{OBJECT:04x}")
        if inner is not None and inner.kind == STORAGE:
            if method == EMBEDDED:
                return f"{name or 'message'}.msg", self._blocks_of(inner, is_message=True)
            return name or "object", self._blocks_of(inner, is_message=False)
        if method in BY_REFERENCE:
            return name or "attachment", None
        return name or "attachment", _blocks(attachment.binary(DATA))

    def _blocks_of(self, storage: OleEntry, is_message: bool) -> Iterator[bytes]:
        """Yield an embedded message or object as a file of its own."""
        tree = self._ole.tree(storage)
        if is_message:
            _make_whole(tree)
        yield from _blocks(write_ole(tree))


def _make_whole(tree: Tree) -> None:
    """Give an embedded message the longer header of a message of its own."""
    for name, content in tree.items():
        if name.lower() == PROPERTIES and isinstance(content, bytes):
            tree[name] = content[:EMBEDDED_HEADER].ljust(MESSAGE_HEADER, b"\0") + content[EMBEDDED_HEADER:]


def _shown_address(name: str, address: str) -> str:
    if "@" not in address or address == name:
        return name or address
    return f"{name} <{address}>" if name else address


def _blocks(content: bytes) -> Iterator[bytes]:
    return (content[start : start + BLOCK] for start in range(0, len(content), BLOCK))


def read(builder: ExtractionBuilder) -> None:
    """Read headers, text and attachments."""
    with OleFile(builder) as ole:
        MsgReader(builder, ole).read()
