"""ByteStream: bytes that come in blocks, read forward in the pieces that a format wants."""

from __future__ import annotations

from collections.abc import Iterator

from .builder import BLOCK


class ByteStream:
    """Reads blocks forward; nothing that was read is kept."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._block = b""
        self._start = 0
        self.position = 0

    def peek(self, size: int) -> bytes:
        """Return the next bytes, fewer at the end, and do not move."""
        while len(self._block) - self._start < size and (block := next(self._blocks, b"")):
            self._block, self._start = self._block[self._start :] + block, 0
        return self._block[self._start : self._start + size]

    def take(self, size: int) -> bytes:
        """Read up to this many bytes of the current block; none at the end."""
        if self._start == len(self._block):
            self._block, self._start = next(self._blocks, b""), 0
        piece = self._block[self._start : self._start + size]
        self._start += len(piece)
        self.position += len(piece)
        return piece

    def read(self, size: int) -> bytes:
        """Read this many bytes, fewer at the end."""
        pieces = []
        while size > 0 and (piece := self.take(size)):
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)

    def skip(self, size: int) -> bool:
        """Move forward; return whether so many bytes were there."""
        while size > 0 and (piece := self.take(size)):
            size -= len(piece)
        return size <= 0

    def blocks(self) -> Iterator[bytes]:
        """Read the rest."""
        while block := self.take(BLOCK):
            yield block
