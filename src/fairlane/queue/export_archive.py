"""A tar archive that is made as it is read: members, each with its hash in a manifest, which is the last of them.

A tar archive needs no list of its members at its end, as a ZIP does, which would be held in memory until then.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO

from fairlane.core.errors import StoreError

TOP = "fairlane-export"  # the folder that it unpacks to
MANIFEST = "manifest.jsonl"
MANIFEST_BYTES_IN_MEMORY = 1024 * 1024
PIECE_BYTES = 256 * 1024
SUMMARY_BYTES_MAX = 16 * 1024  # of the last line and what follows it


class Archive:
    """The members of an archive, as pieces of bytes: a header, the content and padding each."""

    def __init__(self) -> None:
        self._manifest = tempfile.SpooledTemporaryFile(max_size=MANIFEST_BYTES_IN_MEMORY)  # noqa: SIM115 - `close` closes it
        self._made_at = int(time.time())
        self.parts: Counter[str] = Counter()  # numbered members, by folder

    def close(self) -> None:
        self._manifest.close()

    def add(self, path: str, holds: str, content: bytes) -> Iterator[bytes]:
        """Yield a member."""
        return self.add_pieces(path, holds, len(content), [content])

    def add_part(self, folder: str, ending: str, holds: str, content: bytes) -> Iterator[bytes]:
        """Yield a member that is numbered within its folder."""
        self.parts[folder + ending] += 1
        return self.add(f"{folder}/{self.parts[folder + ending]:06}{ending}", holds, content)

    def add_pieces(self, path: str, holds: str, size: int, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield a member whose size is known before its content is read."""
        sha256, written = hashlib.sha256(), 0
        yield self._header(path, size)
        for piece in pieces:
            sha256.update(piece)
            written += len(piece)
            yield piece
        if written != size:
            raise StoreError(f"{path} changed while it was read: {written:,} bytes instead of {size:,}; export again")
        yield _padding(size)
        line = {"path": path, "holds": holds, "size": size, "sha256": sha256.hexdigest()}
        self._manifest.write(json.dumps(line).encode() + b"\n")

    def end(self, summary: Mapping[str, Any]) -> Iterator[bytes]:
        """Yield the manifest, whose last line says that the archive is complete and what is in it, and the archive's end."""
        self._manifest.write(json.dumps({"complete": summary}).encode() + b"\n")
        size = self._manifest.tell()
        self._manifest.seek(0)
        yield self._header(MANIFEST, size)
        yield from iter(lambda: self._manifest.read(PIECE_BYTES), b"")
        yield _padding(size)
        yield bytes(2 * tarfile.BLOCKSIZE)

    def _header(self, path: str, size: int) -> bytes:
        info = tarfile.TarInfo(f"{TOP}/{path}")
        info.size, info.mtime, info.mode = size, self._made_at, 0o600
        return info.tobuf(tarfile.PAX_FORMAT)


def read_summary(archive: BinaryIO) -> dict[str, Any]:
    """Read what the last line of the manifest says; raise StoreError if the archive is not complete."""
    archive.seek(max(0, archive.seek(0, io.SEEK_END) - SUMMARY_BYTES_MAX))
    line = archive.read().rstrip(b"\0").rstrip(b"\n").rpartition(b"\n")[2]
    try:
        return dict(json.loads(line)["complete"])
    except (ValueError, TypeError, KeyError):
        raise StoreError("the archive breaks off before its end; export again") from None


def gather(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in pieces that are worth being sent."""
    held, size = list[bytes](), 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size >= PIECE_BYTES:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)


def _padding(size: int) -> bytes:
    return bytes(-size % tarfile.BLOCKSIZE)
