"""ZIP archive extractor: writes its files out as members, to become documents of their own; its text is their list.

Laws:
- Folders, links and files that operating systems leave behind are not members.
"""

from __future__ import annotations

import stat
import zipfile

from .builder import ExtractionBuilder
from .failure import Unreadable
from .members import begin_archive, end_archive, is_junk, save_member
from .zip_package import Package


def read(builder: ExtractionBuilder) -> None:
    """List the members, and write them out."""
    begin_archive(builder)
    with Package(builder, builder.limits.members_max) as package:
        files = [entry for entry in package.entries if not entry.is_dir() and not is_junk(entry.filename)]
        if not files:
            raise Unreadable("empty", "an archive without files")
        if all(entry.flag_bits & 1 for entry in files):
            raise Unreadable("encrypted", "every file in the archive needs a password")
        for entry in files:
            if _is_link(entry):
                builder.warn("members_skipped", f"{entry.filename}: a link")
            else:
                save_member(builder, entry.filename, package.iter_blocks(entry))
    end_archive(builder, any(entry.file_size > builder.limits.size_max for entry in files))


def _is_link(entry: zipfile.ZipInfo) -> bool:
    return stat.S_ISLNK(entry.external_attr >> 16)
