"""The blob store in a folder of this machine.

Laws:
- Bytes are written to a draft, which is synced and renamed; then every folder above it is synced. With a sibling file that is
  known to be durable only the innermost folder is synced: those above it are on the disk already.
- Files and folders are accessible to their owner only, or, below a folder that its group may write, to that group.
- Empty folders are removed; a writer that needs one at that moment makes it again.
- Symbolic links below the folder are not followed.
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
from fairlane.file_modes import FOLDER, SHARED_FOLDER, is_shared, make_folder, mend, open_new

from .protocol import BlobInfo

UNFINISHED = "unfinished"
NAMES_MAX = 10_000  # of one folder, held in memory
RENAMES_MAX = 100  # another process may remove the empty folder just before the rename


class FolderBlobs:
    """Bytes in a folder."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._closed_names: set[str] = set()  # of folders in it that were closed to others, if they were open

    def put(self, contents: Mapping[str, Iterable[bytes]], sibling_key: str | None = None) -> None:
        drafts: dict[str, str] = {}
        with self._store_errors(), ExitStack() as opened:
            try:
                files = []
                for key, pieces in contents.items():
                    self._close_to_others(key)
                    drafts[key] = self._path(f"{UNFINISHED}/{secrets.token_hex(16)}")
                    files.append(self._create(drafts[key]))
                    opened.callback(os.close, files[-1])
                    _write(files[-1], pieces)
                for file in files:  # only now, when the kernel has begun to write all of them: the waits overlap
                    os.fsync(file)
                for key in contents:
                    self._publish(drafts[key], key)
                    del drafts[key]
            except BaseException:
                for draft in drafts.values():
                    with suppress(OSError):
                        os.unlink(draft)
                raise
            if contents:
                self._sync_parents({os.path.dirname(key) for key in contents}, sibling_key)

    def open(self, key: str) -> BinaryIO:
        with self._store_errors():
            self._close_to_others(key)
            try:
                file = open(self._path(key), "rb", opener=_open_nofollow)  # noqa: SIM115 - handed to the caller
            except (FileNotFoundError, NotADirectoryError):
                raise Unknown(f"there is nothing at {self._path(key)}; it was removed, or never put there") from None
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                file.close()
                raise StoreError(f"{self._path(key)} is not a regular file; something else was put there: remove it")
            return file

    def remove(self, keys: Sequence[str]) -> None:
        with self._store_errors():
            for key in keys:
                with suppress(FileNotFoundError, NotADirectoryError):
                    os.unlink(self._path(key))
            for folder in self._remove_empty({os.path.dirname(key) for key in keys}):
                with suppress(FileNotFoundError):
                    _sync(self._path(folder))

    def list_folder(self, folder: str, after: str = "") -> Iterator[BlobInfo]:
        parts = after.removeprefix(f"{folder}/").split("/") if after.startswith(f"{folder}/") else []
        with self._store_errors():
            yield from self._walk(folder, parts)

    def remove_unfinished(self, age_seconds: float) -> int:
        old = [draft.key for draft in self.list_folder(UNFINISHED) if draft.age_seconds >= age_seconds]
        with self._store_errors():
            for key in old:
                with suppress(FileNotFoundError):
                    os.unlink(self._path(key))
        return len(old)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _path(self, key: str) -> str:
        return os.path.join(self.folder, key)

    def _parents(self, key: str) -> list[str]:
        """Return the folders above a key, outermost first."""
        parts = key.split("/")[:-1]
        return [self.folder, *(self._path("/".join(parts[:count])) for count in range(1, len(parts) + 1))]

    def _create(self, draft: str) -> int:
        """Create a file and open it for writing."""
        try:
            return open_new(draft, os.O_WRONLY, is_shared(self.folder))
        except FileNotFoundError:  # the first file of this store
            self._make_folders(UNFINISHED)
            return open_new(draft, os.O_WRONLY, is_shared(self.folder))

    def _make_folders(self, folder: str) -> None:
        """Make a folder and those above it, where missing."""
        if not os.path.isdir(self.folder):
            os.makedirs(os.path.dirname(self.folder), exist_ok=True)
        for path in self._parents(f"{folder}/"):
            make_folder(path, is_shared(self.folder))

    def _close_to_others(self, key: str) -> None:
        """Take the folder of a namespace from other users, if they have access; once for each."""
        name = key.partition("/")[0]
        if name not in self._closed_names:
            self._closed_names.add(name)
            mode = SHARED_FOLDER if is_shared(self.folder) else FOLDER
            mend(mode, self._path(name), self._path(UNFINISHED))

    def _publish(self, draft: str, key: str) -> None:
        """Rename a draft to its key."""
        for _ in range(RENAMES_MAX):
            try:
                return os.rename(draft, self._path(key))
            except FileNotFoundError:
                if not os.path.exists(draft):
                    raise StoreError(
                        f"{draft} was removed while it was written; try again, and sweep with a longer grace"
                    ) from None
            with suppress(FileNotFoundError):  # only now: most often the folder exists
                self._make_folders(os.path.dirname(key))
        raise StoreError(f"the folder of {self._path(key)} keeps being removed; find the program that does it, then try again")

    def _sync_parents(self, folders: set[str], sibling_key: str | None) -> None:
        """Make the names durable: another process may have made a folder and not synced it yet."""
        if sibling_key is not None and folders == {os.path.dirname(sibling_key)} and os.path.lexists(self._path(sibling_key)):
            _sync(self._path(os.path.dirname(sibling_key)))  # never empty since the sibling came, so never removed
            return
        for path in sorted(
            {path for folder in folders for path in self._parents(f"{folder}/")}, reverse=True
        ):  # innermost first
            _sync(path)
        with suppress(PermissionError):
            _sync(os.path.dirname(self.folder))

    def _remove_empty(self, folders: set[str]) -> set[str]:
        """Remove empty folders and empty folders above them; return the innermost that are left."""
        left: set[str] = set()
        while folders:
            removed = {folder for folder in folders if folder and self._remove_if_empty(folder)}
            left |= folders - removed
            folders = {os.path.dirname(folder) for folder in removed}
        return left

    def _remove_if_empty(self, folder: str) -> bool:
        """Remove one folder if it is empty; return whether it is gone."""
        try:
            os.rmdir(self._path(folder))
        except FileNotFoundError:
            return True
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                return False
            raise
        return True

    def _walk(self, folder: str, after: Sequence[str]) -> Iterator[BlobInfo]:
        """Yield what is below a folder, after a path relative to it."""
        first = after[0] if after else ""
        for name, is_folder in self._names(folder, first):
            key = f"{folder}/{name}"
            if is_folder:
                yield from self._walk(key, after[1:] if name == first else ())
            elif name != first:
                try:
                    status = os.lstat(self._path(key))
                except FileNotFoundError:
                    continue
                yield BlobInfo(key, status.st_size, time.time() - status.st_mtime)

    def _names(self, folder: str, first: str) -> Iterator[tuple[str, bool]]:
        """Yield (name, is a folder) in name order from `first` on; a huge folder is read several times."""
        path = self._path(folder)
        while True:
            try:
                with os.scandir(path) as entries:
                    names = ((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries if entry.name >= first)
                    page = heapq.nsmallest(NAMES_MAX, names)
            except (FileNotFoundError, NotADirectoryError):
                return
            yield from page
            if len(page) < NAMES_MAX:
                return
            first = page[-1][0] + "\0"  # the next possible name

    @contextmanager
    def _store_errors(self) -> Iterator[None]:
        """Raise the disk's errors as StoreErrors."""
        try:
            yield
        except OSError as error:
            reason = error.strerror or str(error)
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise StoreFull(
                    f"no room left to write in {self.folder}: {reason}; make room on its disk, then try again"
                ) from error
            if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR):
                raise StoreUnfit(
                    f"{self.folder} cannot be used for files: {reason}; name a folder that this user may write"
                ) from error
            raise StoreError(f"the disk under {self.folder} failed: {reason}; check it, then try again") from error


def _write(file: int, pieces: Iterable[bytes]) -> None:
    """Write the pieces, and have the kernel begin to flush them."""
    for piece in pieces:
        rest = memoryview(piece)
        while rest:
            rest = rest[os.write(file, rest) :]
    with suppress(AttributeError, OSError):  # a hint that not every system takes
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)


def _open_nofollow(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _sync(folder: str) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
