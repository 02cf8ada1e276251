"""How are bytes kept in a folder of this machine?

Laws:
- Bytes go to a file of another name first; it is synced, renamed, and every folder above it is synced. Only where a file that
  is known to be on the disk lies in the same folder, those above that folder are on the disk too.
- Files are readable and writable by their owner only, folders likewise.
- A folder that is empty is removed; one that a writer needs meanwhile is made again.
- Links are not followed below the folder.
"""

from __future__ import annotations

import errno
import heapq
import os
import secrets
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import BinaryIO

from fairlane.core.errors import StoreError, StoreFull, StoreUnfit, Unknown

from .protocol import Stored

UNFINISHED = "unfinished"
NAMES_AT_ONCE = 10_000  # of one folder, held in memory
RENAMES_MAX = 100  # somebody may remove the empty folder just before the file gets there


class FolderBlobs:
    """Bytes in a folder."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def put(self, contents: Mapping[str, Iterable[bytes]], beside: str | None = None) -> None:
        drafts: dict[str, str] = {}
        with self._plainly(), ExitStack() as opened:
            try:
                files = []
                for key, pieces in contents.items():
                    drafts[key] = self._path(f"{UNFINISHED}/{secrets.token_hex(16)}")
                    files.append(self._created(drafts[key]))
                    opened.callback(os.close, files[-1])
                    _write(files[-1], pieces)
                for file in files:  # all are on their way by now: the disk is waited for once, not once for each
                    os.fsync(file)
                for key in contents:
                    self._move_in(drafts[key], key)
                    del drafts[key]
            except BaseException:
                for draft in drafts.values():
                    with suppress(OSError):
                        os.unlink(draft)
                raise
            if contents:
                self._sync_above({os.path.dirname(key) for key in contents}, beside)

    def open(self, key: str) -> BinaryIO:
        with self._plainly():
            try:
                file = open(self._path(key), "rb", opener=_plainly_opened)  # noqa: SIM115 - handed to the caller
            except (FileNotFoundError, NotADirectoryError):
                raise Unknown(f"there is nothing at {self._path(key)}; it was removed, or never put there") from None
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                file.close()
                raise StoreError(f"{self._path(key)} is not an ordinary file; somebody put something else there: remove it")
            return file

    def remove(self, keys: Sequence[str]) -> None:
        with self._plainly():
            for key in keys:
                with suppress(FileNotFoundError, NotADirectoryError):
                    os.unlink(self._path(key))
            for folder in self._remove_empty({os.path.dirname(key) for key in keys}):
                with suppress(FileNotFoundError):
                    _sync(self._path(folder))

    def listed(self, folder: str, after: str = "") -> Iterator[Stored]:
        marked = after.removeprefix(f"{folder}/").split("/") if after.startswith(f"{folder}/") else []
        with self._plainly():
            yield from self._below(folder, marked)

    def drop_unfinished(self, age_seconds: float) -> int:
        old = [one.key for one in self.listed(UNFINISHED) if one.age_seconds >= age_seconds]
        with self._plainly():
            for key in old:
                with suppress(FileNotFoundError):
                    os.unlink(self._path(key))
        return len(old)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _path(self, key: str) -> str:
        return os.path.join(self.folder, key)

    def _above(self, key: str) -> list[str]:
        """The folders above a key, the outermost first."""
        parts = key.split("/")[:-1]
        return [self.folder, *(self._path("/".join(parts[:count])) for count in range(1, len(parts) + 1))]

    def _created(self, draft: str) -> int:
        """A new file, open to be written."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            return os.open(draft, flags, 0o600)
        except FileNotFoundError:  # this is the first file ever
            self._make(UNFINISHED)
            return os.open(draft, flags, 0o600)

    def _make(self, folder: str) -> None:
        """Make a folder and those above it, unless they are there."""
        if not os.path.isdir(self.folder):
            os.makedirs(os.path.dirname(self.folder), exist_ok=True)
        for path in self._above(f"{folder}/"):
            with suppress(FileExistsError):
                os.mkdir(path, 0o700)

    def _move_in(self, draft: str, key: str) -> None:
        for _ in range(RENAMES_MAX):
            try:
                return os.rename(draft, self._path(key))
            except FileNotFoundError:
                if not os.path.exists(draft):
                    raise StoreError(
                        f"{draft} was removed while it was written; try again, and sweep with a longer grace"
                    ) from None
            with suppress(FileNotFoundError):  # it is made only where it is missing: most often it is there
                self._make(os.path.dirname(key))
        raise StoreError(f"the folder of {self._path(key)} is removed all the time; see who does that, then try again")

    def _sync_above(self, innermost: set[str], beside: str | None) -> None:
        """Make the names durable: another process may have made a folder and not synced it yet."""
        if beside is not None and innermost == {os.path.dirname(beside)} and os.path.lexists(self._path(beside)):
            _sync(self._path(os.path.dirname(beside)))  # it was never empty since, so it is still the same folder
            return
        for path in sorted({path for one in innermost for path in self._above(f"{one}/")}, reverse=True):  # these first
            _sync(path)
        with suppress(PermissionError):
            _sync(os.path.dirname(self.folder))

    def _remove_empty(self, folders: set[str]) -> set[str]:
        """Remove folders, and those above them, that are empty; returns the innermost that stay."""
        stay: set[str] = set()
        while folders:
            gone = {folder for folder in folders if folder and self._is_removed(folder)}
            stay |= folders - gone
            folders = {os.path.dirname(folder) for folder in gone}
        return stay

    def _is_removed(self, folder: str) -> bool:
        """Remove one folder, unless there is something in it."""
        try:
            os.rmdir(self._path(folder))
        except FileNotFoundError:
            return True
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                return False
            raise
        return True

    def _below(self, folder: str, marked: Sequence[str]) -> Iterator[Stored]:
        mark = marked[0] if marked else ""
        for name, is_folder in self._names(folder, mark):
            key = f"{folder}/{name}"
            if is_folder:
                yield from self._below(key, marked[1:] if name == mark else ())
            elif name != mark:
                try:
                    about = os.lstat(self._path(key))
                except FileNotFoundError:
                    continue
                yield Stored(key, about.st_size, time.time() - about.st_mtime)

    def _names(self, folder: str, first: str) -> Iterator[tuple[str, bool]]:
        """The names in a folder from `first` on, in order, and which are folders; a huge one is read several times."""
        path, wanted = self._path(folder), first
        while True:
            try:
                with os.scandir(path) as entries:
                    found = ((one.name, one.is_dir(follow_symlinks=False)) for one in entries if one.name >= wanted)
                    page = heapq.nsmallest(NAMES_AT_ONCE, found)
            except (FileNotFoundError, NotADirectoryError):
                return
            yield from page
            if len(page) < NAMES_AT_ONCE:
                return
            wanted = page[-1][0] + "\0"  # the next possible name

    @contextmanager
    def _plainly(self) -> Iterator[None]:
        """What the disk refuses, as our errors."""
        try:
            yield
        except OSError as error:
            told = error.strerror or str(error)
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise StoreFull(
                    f"no room left to write in {self.folder}: {told}; make room on its disk, then try again"
                ) from error
            if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR):
                raise StoreUnfit(
                    f"{self.folder} cannot be used for files: {told}; name a folder that this user may write"
                ) from error
            raise StoreError(f"the disk under {self.folder} failed: {told}; see to it, then try again") from error


def _write(file: int, pieces: Iterable[bytes]) -> None:
    """Write these pieces, and have the kernel begin to bring them to the disk."""
    for piece in pieces:
        rest = memoryview(piece)
        while rest:
            rest = rest[os.write(file, rest) :]
    with suppress(AttributeError, OSError):  # not every system can, and it is only sooner
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)


def _plainly_opened(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _sync(folder: str) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
