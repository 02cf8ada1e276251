"""What does an e-mail say? Who wrote to whom, when and about what; the text; and its attachments as members.

Laws:
- The plain form is preferred, the HTML form is used where there is no other. Pictures that belong to the HTML are
  attachments like others, nothing is fetched.
- Headers are read by the old rules of the email package, which do not choke on broken ones.
"""

from __future__ import annotations

import email
import email.utils
from collections.abc import Iterator
from contextlib import suppress
from email.errors import MessageError
from email.header import decode_header
from email.message import Message
from email.policy import compat32

from .draft import BLOCK, Draft, clean
from .encoding import decode, known
from .failure import Unreadable, foreign, one_line
from .html import Page
from .html import declared as declared_in_html
from .markdown import Flow
from .members import keep, shown_name

SIZE_MAX = 50_000_000  # the whole message is held, several times over
BROKEN = (MessageError, ValueError, LookupError, TypeError, AttributeError)  # what the package throws at broken headers
HEADERS = ("From", "To", "Cc", "Date")
HEADER_MAX = 2_000


def header(message: Message, name: str) -> str:
    """A header, decoded as far as it can be."""
    raw = str(message.get(name) or "")[:HEADER_MAX]
    try:
        pieces = decode_header(raw)
    except BROKEN:
        return one_line(raw, HEADER_MAX)
    shown = ""
    for piece, charset in pieces:
        shown += piece if isinstance(piece, str) else _decoded(piece, charset)
    return one_line(clean(shown), HEADER_MAX)


def _decoded(content: bytes, charset: str | None) -> str:
    encoding = known(charset) if charset else None
    return content.decode(encoding, "replace") if encoding is not None else decode(content)


def _body(part: Message) -> bytes:
    with foreign("email"):
        content = part.get_payload(decode=True)
    return content if isinstance(content, bytes) else b""


def _charset(part: Message) -> str | None:
    try:
        return part.get_content_charset()
    except BROKEN:
        return None


def _file_name(part: Message) -> str | None:
    try:
        name = part.get_filename()
    except BROKEN:
        return "attachment"
    if name is None:
        return None
    holder = Message()
    holder["Name"] = name.replace("\n", " ").replace("\r", " ")
    return header(holder, "Name") or "attachment"


class _Reader:
    """Walks through the parts of one message, without calling itself."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self.bodies: list[Message] = []
        self.attachments: list[tuple[str, Message]] = []

    def walk(self, message: Message) -> None:
        waiting = [(message, 0, False)]
        while waiting:
            part, depth, is_second = waiting.pop()
            self._draft.meter.nesting(depth)
            kind = part.get_content_type()
            if kind == "message/rfc822":
                self.attachments.append((_file_name(part) or "message.eml", part))
            elif part.is_multipart():
                parts = [one for one in part.get_payload() if isinstance(one, Message)]
                chosen = _chosen(parts) if kind == "multipart/alternative" else None
                waiting += [(one, depth + 1, is_second or chosen not in (None, one)) for one in reversed(parts)]
            else:
                self._leaf(part, kind, is_second)

    def _leaf(self, part: Message, kind: str, is_second: bool) -> None:
        name = _file_name(part)
        is_attached = str(part.get("Content-Disposition", "")).strip().lower().startswith("attachment")
        if kind in ("text/plain", "text/html") and name is None and not is_attached:
            if not is_second:
                self.bodies.append(part)
        elif not is_second or name is not None:
            self.attachments.append((name or f"part.{kind.rpartition('/')[2]}", part))


def _chosen(parts: list[Message]) -> Message | None:
    """Of several forms of the same text, the plain one that says something, else the last."""
    for part in parts:
        if part.get_content_type() == "text/plain" and _body(part).strip():
            return part
    return parts[-1] if parts else None


def read(draft: Draft) -> None:
    """Headers, text, list of attachments."""
    if draft.path.stat().st_size > SIZE_MAX:
        raise Unreadable("too_large", f"an e-mail of more than {SIZE_MAX:,} bytes")
    content = draft.path.read_bytes()
    if content.startswith(b"From "):  # the first line of a mailbox file
        content = content.partition(b"\n")[2]
    with foreign("email"):
        message = email.message_from_bytes(content, policy=compat32)
    del content
    _write_headers(draft, message)
    reader = _Reader(draft)
    reader.walk(message)
    flow = Flow(draft)
    for part in reader.bodies:
        _write_body(draft, flow, part)
    _write_attachments(draft, reader.attachments)


def _write_headers(draft: Draft, message: Message) -> None:
    subject = header(message, "Subject")
    draft.fact("title", subject)
    draft.fact("author", header(message, "From"))
    with suppress(ValueError, TypeError, IndexError, OverflowError):
        draft.fact("created", email.utils.parsedate_to_datetime(header(message, "Date")).isoformat())
    if subject:
        draft.write(f"# {subject}\n\n")
    for name in HEADERS:
        if told := header(message, name):
            draft.write(f"**{name}:** {told}  \n")
    draft.write("\n")


def _write_body(draft: Draft, flow: Flow, part: Message) -> None:
    body = _body(part)
    draft.meter.unpack(len(body))
    if part.get_content_type() == "text/html":
        Page(draft, flow).read(decode(body, _charset(part) or declared_in_html(body)))
        draft.write("\n\n")
    else:
        draft.write(decode(body, _charset(part)).replace("\r\n", "\n").strip("\n") + "\n\n")


def _write_attachments(draft: Draft, attachments: list[tuple[str, Message]]) -> None:
    if not attachments:
        return
    draft.write("Attachments:\n\n")
    for name, part in attachments:
        size = None
        if draft.depth >= draft.limits.depth_max:
            draft.warn("members_skipped", "too many messages and archives inside each other")
        elif keep(draft, name, _blocks(draft, part)):
            size = draft.members[-1].size
        draft.write(f"- {shown_name(name)}" + (f" ({size:,} bytes)\n" if size is not None else "\n"))


def _blocks(draft: Draft, part: Message) -> Iterator[bytes]:
    """The bytes of an attachment; a message in a message as it would be on its own."""
    if part.get_content_type() == "message/rfc822":
        inner = part.get_payload()
        with foreign("email"):
            content = b"\n".join(one.as_bytes() for one in inner if isinstance(one, Message))
    else:
        content = _body(part)
    for place in range(0, len(content), BLOCK):
        block = content[place : place + BLOCK]
        draft.meter.unpack(len(block))
        yield block
