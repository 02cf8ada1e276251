"""Decompression of gzip, bzip2 and xz as a stream, and the reader of such files: what they pack becomes members.

Laws:
- Every unpacked byte is counted before the next is made; a block is at most `BLOCK` long, whatever it was packed into.
- A packed tar gives its files, anything else one file.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, Protocol

from . import tar
from .builder import BLOCK, ExtractionBuilder
from .byte_stream import ByteStream
from .encoding import decode
from .failure import Unreadable, corrupt_on_error
from .members import begin_archive, end_archive, save_member

XZ_MEMORY_MAX = 134_000_000  # twice what the highest level of xz needs
STREAMS_MAX = 100_000  # one after the other in a file; bgzip makes one of 64 kB
SUFFIXES = {"svgz": "svg", "tgz": "tar", "tbz": "tar", "tbz2": "tar", "txz": "tar"}  # others are removed
REMOVED = ("gz", "gzip", "bz2", "xz", "z")
HAS_EXTRA, HAS_NAME = 4, 8  # flags of gzip


class _Decompressor(Protocol):
    """What the decompressors of the standard library have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _GzipDecompressor:
    """A gzip decompressor that is used as those for bzip2 and xz are."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(zlib.MAX_WBITS | 16)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        block = self._inner.decompress(self._inner.unconsumed_tail + data, max_length)
        self.needs_input = not self._inner.unconsumed_tail and len(block) < max_length
        return block


DECOMPRESSORS: dict[str, tuple[bytes, Callable[[], _Decompressor]]] = {
    "application/gzip": (b"\x1f\x8b", _GzipDecompressor),
    "application/x-bzip2": (b"BZh", bz2.BZ2Decompressor),
    "application/x-xz": (b"\xfd7zXZ\0", lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY_MAX)),
}


def iter_unpacked(builder: ExtractionBuilder) -> Iterator[bytes]:
    """Yield what the file packs, in blocks."""
    magic, make = DECOMPRESSORS[builder.media_type]
    with builder.path.open("rb") as file:
        packed = file.read(BLOCK)
        for _ in range(STREAMS_MAX):
            decompressor = make()
            yield from _iter_stream(builder, decompressor, packed, file)
            packed = decompressor.unused_data.lstrip(b"\0") or _after_zeros(file)
            if not packed:
                return
            packed += file.read(len(magic))
            if not packed.startswith(magic):
                builder.warn("damaged_parts", "something else follows what is packed")
                return
    raise Unreadable("too_large", f"more than {STREAMS_MAX:,} packed pieces in one file")


def _after_zeros(file: BinaryIO) -> bytes:
    """Return what follows in the file after zeros, which are padding."""
    while block := file.read(BLOCK):
        if rest := block.lstrip(b"\0"):
            return rest
    return b""


def _iter_stream(builder: ExtractionBuilder, decompressor: _Decompressor, packed: bytes, file: BinaryIO) -> Iterator[bytes]:
    """Yield the blocks of one packed stream, of which the first bytes were read already."""
    while not decompressor.eof:
        if not packed and decompressor.needs_input and not (packed := file.read(BLOCK)):
            raise Unreadable("corrupt", "what is packed is cut off")
        block = _decompress(decompressor, packed)
        packed = b""
        builder.meter.count_unpacked(len(block))
        if block:
            yield block


def _decompress(decompressor: _Decompressor, packed: bytes) -> bytes:
    try:
        with corrupt_on_error("decompression"):
            return decompressor.decompress(packed, BLOCK)
    except Unreadable as error:
        if "memory usage limit" in error.detail.lower():
            raise Unreadable("too_large", f"needs more than {XZ_MEMORY_MAX:,} bytes of memory to unpack") from error
        raise


def read(builder: ExtractionBuilder) -> None:
    """Read what is packed: the files of a tar, or one file."""
    stream = ByteStream(iter_unpacked(builder))
    if tar.is_tar(stream.peek(tar.RECORD)):
        tar.read_stream(builder, stream)
        return
    begin_archive(builder)
    if not stream.peek(1):
        raise Unreadable("empty", "nothing is packed in the file")
    save_member(builder, _packed_name(builder), stream.blocks())
    end_archive(builder, stream.position > builder.limits.size_max)


def _packed_name(builder: ExtractionBuilder) -> str:
    """Return the name of what is packed: the sender's without the suffix, else the one in the file."""
    name, _, suffix = builder.name.replace("\\", "/").rpartition("/")[2].rpartition(".")
    suffix = suffix.lower()
    if name and suffix in SUFFIXES:
        return f"{name}.{SUFFIXES[suffix]}"
    if name and suffix in REMOVED:
        return name
    return _name_in_gzip(builder) or builder.name or "content"


def _name_in_gzip(builder: ExtractionBuilder) -> str:
    if builder.media_type != "application/gzip":
        return ""
    with builder.path.open("rb") as file:
        header = file.read(BLOCK)
    position = 10
    if header[3] & HAS_EXTRA:
        position += 2 + int.from_bytes(header[position : position + 2], "little")
    end = header.find(b"\0", position)
    return decode(header[position:end]).rpartition("/")[2] if header[3] & HAS_NAME and end >= 0 else ""
