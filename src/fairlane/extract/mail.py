"""E-mail extractor: sender, recipients, date and subject; the text; attachments as members.

Laws:
- The plain text is preferred, the HTML is used where there is no other. Pictures embedded in the HTML are attachments like
  others; nothing is fetched.
- Headers are parsed by the `compat32` policy of the email package, which accepts broken ones.
"""

from __future__ import annotations

import email
import email.utils
import re
from collections.abc import Iterator
from contextlib import suppress
from email.message import Message
from email.policy import compat32

from .builder import BLOCK, ExtractionBuilder
from .encoding import decode, detect_bom, detect_wide
from .failure import Unreadable, corrupt_on_error
from .html import HtmlReader, declared_charset
from .mail_headers import charset, file_name, header
from .mail_text import write_attachments, write_headers
from .markdown import MarkdownWriter

SIZE_MAX = 50_000_000  # the whole message is in memory, several times over
HEADERS = ("From", "To", "Cc", "Date")
_BLANK_LINES = re.compile(rb"(?:[ \t]*(?:\r\n|\r|\n))+")


def _body(part: Message) -> bytes:
    with corrupt_on_error("email"):
        content = part.get_payload(decode=True)
    return content if isinstance(content, bytes) else b""


class _PartCollector:
    """Collects the bodies and attachments of one message, without recursion."""

    def __init__(self, builder: ExtractionBuilder) -> None:
        self._builder = builder
        self._message = Message()
        self.bodies: list[Message] = []
        self.attachments: list[tuple[str, Message]] = []

    def walk(self, message: Message) -> None:
        self._message = message
        pending = [(message, 0, False)]
        while pending:
            part, depth, is_alternative = pending.pop()
            self._builder.meter.check_nesting(depth)
            kind = part.get_content_type()
            if kind == "message/rfc822":
                self.attachments.append((file_name(part, self._message) or "message.eml", part))
            elif part.is_multipart():
                parts = [child for child in part.get_payload() if isinstance(child, Message)]
                chosen = _choose_alternative(parts) if kind == "multipart/alternative" else None
                pending += [(child, depth + 1, is_alternative or chosen not in (None, child)) for child in reversed(parts)]
            else:
                self._leaf(part, kind, is_alternative)

    def _leaf(self, part: Message, kind: str, is_alternative: bool) -> None:
        name = file_name(part, self._message)
        is_attached = str(part.get("Content-Disposition", "")).strip().lower().startswith("attachment")
        if kind in ("text/plain", "text/html") and name is None and not is_attached:
            if not is_alternative:
                self.bodies.append(part)
        elif not is_alternative or name is not None:
            self.attachments.append((name or f"part.{kind.rpartition('/')[2]}", part))


def _choose_alternative(parts: list[Message]) -> Message | None:
    """Of several forms of the same text, return the plain one unless it is empty, else the last."""
    for part in parts:
        if part.get_content_type() == "text/plain" and _body(part).strip():
            return part
    return parts[-1] if parts else None


def read(builder: ExtractionBuilder) -> None:
    """Read headers, text and attachments of one message."""
    if builder.path.stat().st_size > SIZE_MAX:
        raise Unreadable("too_large", f"an e-mail of more than {SIZE_MAX:,} bytes")
    content = plain_bytes(builder.path.read_bytes())
    _read_message(builder, content.partition(b"\n")[2] if content.startswith(b"From ") else content)


def plain_bytes(content: bytes) -> bytes:
    """Return a message without the blank lines before its headers, and in an encoding that contains ASCII."""
    mark, wide = detect_bom(content), detect_wide(content)
    if mark is not None:
        content = content[mark[1] :]
        wide = mark[0] if mark[0] != "utf-8" else None
    if wide is not None:
        content = content.decode(wide, "replace").encode()
    blank = _BLANK_LINES.match(content)
    return content[blank.end() :] if blank is not None else content


def _read_message(builder: ExtractionBuilder, content: bytes) -> None:
    with corrupt_on_error("email"):
        message = email.message_from_bytes(content, policy=compat32)
    _write_headers(builder, message)
    collector = _PartCollector(builder)
    collector.walk(message)
    writer = MarkdownWriter(builder)
    for part in collector.bodies:
        _write_body(builder, writer, part)
    write_attachments(builder, ((name, _blocks(builder, part)) for name, part in collector.attachments))


def _write_headers(builder: ExtractionBuilder, message: Message) -> None:
    subject = header(message, "Subject")
    builder.fact("title", subject)
    builder.fact("author", header(message, "From"))
    with suppress(ValueError, TypeError, IndexError, OverflowError):
        builder.fact("created", email.utils.parsedate_to_datetime(header(message, "Date")).isoformat())
    write_headers(builder, subject, ((name, header(message, name)) for name in HEADERS))


def _write_body(builder: ExtractionBuilder, writer: MarkdownWriter, part: Message) -> None:
    body = _body(part)
    builder.meter.count_unpacked(len(body))
    if part.get_content_type() == "text/html":
        HtmlReader(builder, writer).read(decode(body, charset(part) or declared_charset(body)))
        builder.write("\n\n")
    else:
        builder.write(decode(body, charset(part)).replace("\r\n", "\n").strip("\n") + "\n\n")


def _blocks(builder: ExtractionBuilder, part: Message) -> Iterator[bytes]:
    """Yield the bytes of an attachment; an attached message as a file of its own."""
    if part.get_content_type() == "message/rfc822":
        inner = part.get_payload()
        with corrupt_on_error("email"):
            content = b"\n".join(message.as_bytes() for message in inner if isinstance(message, Message))
    else:
        content = _body(part)
    for start in range(0, len(content), BLOCK):
        block = content[start : start + BLOCK]
        builder.meter.count_unpacked(len(block))
        yield block
