"""What an e-mail looks like as text, whatever its format: its headers, and the list of its attachments."""

from __future__ import annotations

from collections.abc import Iterable

from .builder import ExtractionBuilder
from .members import display_name, save_member


def write_headers(builder: ExtractionBuilder, subject: str, headers: Iterable[tuple[str, str]]) -> None:
    """Write the subject as a heading, and a line for each header that is not empty."""
    if subject:
        builder.write(f"# {subject}\n\n")
    for name, value in headers:
        if value:
            builder.write(f"**{name}:** {value}  \n")
    builder.write("\n")


def write_attachments(builder: ExtractionBuilder, attachments: Iterable[tuple[str, Iterable[bytes] | None]]) -> None:
    """Store attachments as members, and list them; one without bytes is elsewhere."""
    is_first = True
    for name, blocks in attachments:
        builder.write("Attachments:\n\n" if is_first else "")
        is_first, size = False, None
        if blocks is None:
            builder.warn("references_ignored", name)
        elif builder.depth >= builder.limits.depth_max:
            builder.warn("members_skipped", "too many messages and archives inside each other")
        elif save_member(builder, name, blocks):
            size = builder.members[-1].size
        builder.write(f"- {display_name(name)}" + (f" ({size:,} bytes)\n" if size is not None else "\n"))
