"""What is in a ZIP? Its files come out as members, to be documents of their own; its text is their list.

Laws:
- An archive in an archive is a member like others; how deep they may go is told from outside and limited.
- Folders, links and what systems leave behind are no members.
"""

from __future__ import annotations

import stat
import zipfile

from .draft import Draft
from .failure import Unreadable
from .members import is_junk, keep
from .package import Package


def read(draft: Draft) -> None:
    """List the members, and write them out."""
    if draft.depth >= draft.limits.depth_max:
        raise Unreadable("too_large", f"archives inside each other, more than {draft.limits.depth_max} deep")
    with Package(draft, draft.limits.members_max) as package:
        files = [entry for entry in package.entries if not entry.is_dir() and not is_junk(entry.filename)]
        if not files:
            raise Unreadable("empty", "an archive without files")
        if all(entry.flag_bits & 1 for entry in files):
            raise Unreadable("encrypted", "every file in the archive needs a password")
        for entry in files:
            if _is_link(entry):
                draft.warn("members_skipped", f"{entry.filename}: a link")
            else:
                keep(draft, entry.filename, package.blocks(entry))
    for member in draft.members:
        draft.write(f"- {member.name} ({member.size:,} bytes)\n")
    if not draft.members and draft.scratch is not None:
        if any(entry.file_size > draft.limits.size_max for entry in files):
            raise Unreadable("too_large", f"no file in the archive has at most {draft.limits.size_max:,} bytes and can be read")
        raise Unreadable("corrupt", "no file in the archive can be read")


def _is_link(entry: zipfile.ZipInfo) -> bool:
    return stat.S_ISLNK(entry.external_attr >> 16)
