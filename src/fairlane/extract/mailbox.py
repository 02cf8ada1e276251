"""Mailbox extractor (mbox): its messages become members; the text is their list, with senders and dates.

Laws:
- A message begins after an empty line that is followed by `From `, a time and a header: in a text such lines are rare.
- A file with one such message is that message, not a mailbox.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from email.parser import BytesHeaderParser
from email.policy import compat32
from itertools import islice
from pathlib import Path

from .builder import BLOCK, ExtractionBuilder
from .failure import Unreadable, corrupt_on_error
from .mail import plain_bytes
from .mail_headers import header
from .members import begin_archive, end_archive, save_member

HEADERS_MAX = 100_000  # bytes of a message that are searched for its subject
NAME_MAX = 100
_SEPARATOR = re.compile(rb"(?:\A|(?<=\n\n)|(?<=\n\r\n))From ([^\r\n]{1,200})\r?\n(?=[!-9;-~]{1,76}:)")
_TIME = re.compile(rb"\d\d:\d\d")
_QUOTED_SEPARATOR = re.compile(rb"^>(?=>*From )", re.MULTILINE)


def _separators(content: bytes) -> Iterator[tuple[int, int]]:
    """Yield where each message's line `From ` begins and ends."""
    return (match.span() for match in _SEPARATOR.finditer(content) if _TIME.search(match.group(1)))


def is_mailbox(path: Path) -> bool:
    """Return whether a file holds more than one message."""
    content = plain_bytes(path.read_bytes())
    return content.startswith(b"From ") and len([*islice(_separators(content), 2)]) == 2


def read(builder: ExtractionBuilder) -> None:
    """Write the messages out, and list them."""
    begin_archive(builder)
    content = plain_bytes(builder.path.read_bytes())
    separators = [*islice(_separators(content), builder.limits.members_max + 1)]
    if len(separators) > builder.limits.members_max:
        raise Unreadable("too_large", f"holds more than {builder.limits.members_max:,} messages")
    ends = [start for start, _ in separators[1:]] + [len(content)]
    details = [
        _save_message(builder, number, _QUOTED_SEPARATOR.sub(b"", content[start:end]))
        for number, ((_, start), end) in enumerate(zip(separators, ends, strict=True), start=1)
    ]
    end_archive(builder, False, details if len(details) == len(builder.members) else ())


def _save_message(builder: ExtractionBuilder, number: int, message: bytes) -> str:
    """Store a message; return its sender and date."""
    with corrupt_on_error("email"):
        headers = BytesHeaderParser(policy=compat32).parsebytes(message[:HEADERS_MAX])
    subject = header(headers, "Subject").replace("/", " ")[:NAME_MAX].strip()

    def blocks() -> Iterator[bytes]:
        for start in range(0, len(message), BLOCK):
            block = message[start : start + BLOCK]
            builder.meter.count_unpacked(len(block))
            yield block

    save_member(builder, f"{subject or f'message {number}'}.eml", blocks())
    return ", ".join(text for name in ("From", "Date") if (text := header(headers, name)))
