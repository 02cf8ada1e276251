"""Copies of stored files in another store: hard links where both lie on one file system, else bytes.

Laws:
- A stored file is never changed in place, so a hard link stays what it was.
- Size and hash of bytes that are copied are checked; of a hard link the size, and the hash with `check` only: it is the same
  file. An encrypted file is copied as it is, and its plain bytes are checked then.
- Copies in a folder are not synced; whoever keeps them does that once for all.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import BinaryIO

from fairlane.core.errors import BlobDamaged
from fairlane.file_modes import is_shared, make_folder, open_new

from .envelope import BlobDigest
from .files import PIECE_BYTES, Files


class FileCopier:
    """Copies files of one queue to another location, under that location's own namespace."""

    def __init__(self, source: Files, target: Files, check: bool) -> None:
        self._source, self._target, self._check = source, target, check
        self._folder = None if target.location.startswith("s3://") else os.path.abspath(target.location)
        self.files = self.bytes = self.links = 0

    def copy(self, key: str, digest: BlobDigest | None) -> None:
        """Copy one file; raise Unknown if it is not there, BlobDamaged if it is not what it must be."""
        target_key = self._target.namespace + key.removeprefix(self._source.namespace)
        with self._source.blobs.open(key) as file:
            size = os.fstat(file.fileno()).st_size
            if digest is not None:
                self._check_size(key, file, size, digest)
            reader = _Reader(file)
            is_linked = self._link(file, target_key)
            if not is_linked:
                self._write(reader, target_key)
            if digest is not None and (self._check or not is_linked):
                try:
                    self._check_hash(key, reader, size, digest)
                except BaseException:
                    self._target.blobs.remove([target_key])
                    raise
        self.files, self.bytes = self.files + 1, self.bytes + size

    def _check_size(self, key: str, file: BinaryIO, stored_size: int, digest: BlobDigest) -> None:
        size = stored_size if stored_size == digest.size else self._source.decrypted(key, file).seek(0, os.SEEK_END)
        if size != digest.size:
            raise BlobDamaged(key.split("/")[-2], f"{digest.size:,} bytes", f"{size:,}")
        file.seek(0)

    def _check_hash(self, key: str, reader: _Reader, stored_size: int, digest: BlobDigest) -> None:
        if stored_size != digest.size:  # it is encrypted
            self._source.check(key, reader.file, digest)
            return
        for _ in reader.pieces():  # of a hard link; a copy was read to its end
            pass
        if reader.sha256 != digest.sha256:
            raise BlobDamaged(key.split("/")[-2], f"bytes with SHA-256 {digest.sha256}", reader.sha256)

    def _link(self, file: BinaryIO, key: str) -> bool:
        """Make a hard link; return False where that is not possible."""
        if self._folder is None or not isinstance(file.name, str):
            return False
        try:
            os.link(file.name, self._path(key), follow_symlinks=False)
        except OSError:  # another file system, or one without hard links, or the file was just removed: it is still open
            return False
        self.links += 1
        return True

    def _write(self, reader: _Reader, key: str) -> None:
        if self._folder is None:
            return self._target.blobs.put({key: reader.pieces()})
        is_group_shared = is_shared(self._folder)
        with open(self._path(key), "xb", opener=lambda path, flags: open_new(path, flags, is_group_shared)) as copy:
            for piece in reader.pieces():
                copy.write(piece)
        return None

    def _path(self, key: str) -> str:
        """Return the path of a copy in a folder; what an interrupted run left there is removed."""
        assert self._folder is not None
        path = os.path.join(self._folder, key)
        _make_folders(os.path.dirname(path), is_shared(self._folder))
        with suppress(FileNotFoundError):
            os.unlink(path)
        return path


class _Reader:
    """Reads a file in pieces, and hashes it."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self._sha256 = file, hashlib.sha256()

    def pieces(self) -> Iterator[bytes]:
        while piece := self.file.read(PIECE_BYTES):
            self._sha256.update(piece)
            yield piece

    @property
    def sha256(self) -> str:
        return self._sha256.hexdigest()


def _make_folders(folder: str, for_group: bool) -> None:
    """Make a folder and those above it, where missing."""
    if not os.path.isdir(folder):
        _make_folders(os.path.dirname(folder), for_group)
        make_folder(folder, for_group)
