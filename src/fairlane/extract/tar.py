"""Tar reader: its files become members, in one pass.

Laws:
- Nothing is unpacked under a name from the archive, and links, devices and files with holes are skipped with a warning: only
  bytes that are in the archive come out.
- Headers are read by `tarfile`, one record at a time; what a header announces is read in blocks, and counted.
- A damaged or cut off archive gives the files before the damage, with a warning.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator

from .builder import BLOCK, ExtractionBuilder
from .byte_stream import ByteStream
from .encoding import decode
from .failure import Unreadable
from .members import begin_archive, display_name, end_archive, is_junk, save_member

RECORD = 512
EXTENDED_MAX = 1_000_000  # bytes of a long name or of extended attributes
ENTRIES_MAX = 100_000  # folders and links included
SPARSE_HAS_MORE, MORE_HAS_MORE = 482, 504  # where a record of a file with holes says that another follows
NO_CONTENT = (tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE)
SKIPPED = {
    tarfile.LNKTYPE: "a link",
    tarfile.SYMTYPE: "a link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a pipe",
    tarfile.GNUTYPE_SPARSE: "a file with holes",
}
_ATTRIBUTE = re.compile(rb"(\d{1,10}) ([^=]{1,1000})=")


def _header(record: bytes) -> tarfile.TarInfo | None:
    """Return what a record says; None if it is no header."""
    try:
        return tarfile.TarInfo.frombuf(record, "utf-8", "surrogateescape")
    except (tarfile.HeaderError, ValueError):
        return None


def is_tar(start: bytes) -> bool:
    """Return whether a file begins with the header of a tar; the only mark of the old ones is its checksum."""
    return 0 in start[:RECORD] and _header(start[:RECORD]) is not None


def read(builder: ExtractionBuilder) -> None:
    """Read a tar that is not packed."""
    with builder.path.open("rb") as file:

        def blocks() -> Iterator[bytes]:
            while block := file.read(BLOCK):
                builder.meter.count_unpacked(len(block))
                yield block

        read_stream(builder, ByteStream(blocks()))


def read_stream(builder: ExtractionBuilder, stream: ByteStream) -> None:
    """Read a tar from its beginning, packed or not."""
    begin_archive(builder)
    reader = _TarReader(builder, stream)
    try:
        reader.read()
    except Unreadable as error:  # of the decompression, between two files
        if error.code != "corrupt" or not builder.members:
            raise
        builder.warn("damaged_parts", error.detail)
    if not reader.files:
        raise Unreadable("empty", "an archive without files")
    end_archive(builder, reader.has_too_large)


class _TarReader:
    """The entries of one archive."""

    def __init__(self, builder: ExtractionBuilder, stream: ByteStream) -> None:
        self._builder, self._stream = builder, stream
        self._attributes: dict[bytes, bytes] = {}  # of the entry that follows
        self.files = 0
        self.has_too_large = False

    def read(self) -> None:
        for _ in range(ENTRIES_MAX):
            record = self._stream.read(RECORD)
            if not record.strip(b"\0"):
                return
            entry = _header(record)
            if entry is None or entry.size < 0:
                if not self.files:
                    raise Unreadable("corrupt", "the header of an entry is damaged")
                self._builder.warn("damaged_parts", "the header of an entry is damaged")
                return
            if not self._read_entry(entry, record):
                self._builder.warn("damaged_parts", "the archive is cut off")
                return
        raise Unreadable("too_large", f"has more than {ENTRIES_MAX:,} entries")

    def _read_entry(self, entry: tarfile.TarInfo, record: bytes) -> bool:
        """Read an entry; return False if the archive ends in it."""
        if entry.type == tarfile.GNUTYPE_LONGNAME:
            self._attributes[b"path"] = self._extended(entry.size).rstrip(b"\0")
            return True
        if entry.type in (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE):
            self._parse_attributes(self._extended(entry.size))
            return True
        if entry.type in (tarfile.XGLTYPE, tarfile.GNUTYPE_LONGLINK):
            return self._stream.skip(_padded(entry.size))
        attributes, self._attributes = self._attributes, {}
        name = _name(attributes.get(b"path"), entry)
        if entry.type in NO_CONTENT:
            if entry.type != tarfile.DIRTYPE:
                self._skip(name, SKIPPED[entry.type])
            return True
        size = attributes.get(b"size", b"")
        size_in_bytes = int(size) if size.isdigit() and len(size) < 20 else entry.size
        if entry.type == tarfile.GNUTYPE_SPARSE and record[SPARSE_HAS_MORE]:
            self._skip_sparse_records()
        if entry.type == tarfile.GNUTYPE_SPARSE or any(key.startswith(b"GNU.sparse.") for key in attributes):
            self._skip(name, SKIPPED[tarfile.GNUTYPE_SPARSE])
            return self._stream.skip(_padded(size_in_bytes))
        if is_junk(name):
            return self._stream.skip(_padded(size_in_bytes))
        return self._save(name, size_in_bytes)

    def _skip(self, name: str, reason: str) -> None:
        self.files += 1
        self._builder.warn("members_skipped", f"{display_name(name)}: {reason}")

    def _skip_sparse_records(self) -> None:
        while len(record := self._stream.read(RECORD)) == RECORD and record[MORE_HAS_MORE]:
            pass

    def _extended(self, size: int) -> bytes:
        if size > EXTENDED_MAX:
            raise Unreadable("too_large", f"the name or attributes of an entry have {size:,} bytes")
        return self._stream.read(_padded(size))[:size]

    def _parse_attributes(self, content: bytes) -> None:
        """Read extended attributes: lines of a length, a name and a value."""
        position = 0
        while (match := _ATTRIBUTE.match(content, position)) is not None:
            end = position + int(match[1])
            if not match.end() < end <= len(content):
                return
            self._attributes[match[2]] = content[match.end() : end - 1]
            position = end

    def _save(self, name: str, size: int) -> bool:
        self.files += 1
        end = self._stream.position + size
        save_member(self._builder, name, self._content(end))
        self.has_too_large = self.has_too_large or size > self._builder.limits.size_max
        return self._stream.skip(end - self._stream.position + _padded(size) - size)

    def _content(self, end: int) -> Iterator[bytes]:
        while left := end - self._stream.position:
            block = self._stream.take(min(left, BLOCK))
            if not block:
                raise Unreadable("corrupt", "the archive is cut off")
            yield block


def _padded(size: int) -> int:
    return -(-size // RECORD) * RECORD


def _name(path: bytes | None, entry: tarfile.TarInfo) -> str:
    """Return the name of an entry, in whatever encoding it is."""
    if path is None:
        path = entry.name.encode("utf-8", "surrogateescape")
    return decode(path).removeprefix("./")
