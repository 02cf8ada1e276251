"""Which documents are in a folder, and whose are they? Each sub-folder is a customer, each file below it a document.

Laws:
- Files directly in the folder belong to nobody. They are passed over and named, never given to some customer.
- What is hidden (its name begins with a dot) is passed over. A link to a file is a file; a link to a folder is not
  followed, as it may lead anywhere, and round in circles.
- The same folder always gives the same documents in the same order.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from typing import Any, NamedTuple, NoReturn

from fairlane.blobs.safe_open import display_path, open_regular_file
from fairlane.core.document import validate_text
from fairlane.core.errors import BadValue, Mistake

FOLDER_KIND = "folder"  # of the documents that are paths; nobody but `fairlane process` submits these
NAMED_MAX = 5  # how many names a message lists before it only counts


class Folder(NamedTuple):
    """What a folder holds: the paths of documents by customer, and sentences about what is passed over."""

    documents: dict[str, list[str]]
    passed_over: list[str]


def scan(folder: str) -> Folder:
    """The documents in a folder; refused if there are none."""
    customers, seen = _sub_folders(folder), _Seen()
    documents = {_customer(name): seen.files_below(os.path.join(folder, name)) for name in customers}
    found = {customer: paths for customer, paths in documents.items() if paths}
    if not found:
        raise _nothing_in(folder, seen)
    seen.empty += [customer for customer, paths in documents.items() if not paths]
    seen.files_at_the_top(folder)
    return Folder(found, seen.sentences(folder))


def payload_of(path: str, folder: str) -> dict[str, Any]:
    """What is submitted for a file: where it is, and its place in the folder."""
    return {"path": os.path.abspath(path), "place": os.path.relpath(path, folder)}


def readable(paths: Iterable[str]) -> list[str]:
    """The paths, if every one of them can be read; else a mistake that names each one that cannot."""
    wanted, wrong = list(paths), []
    for path in wanted:
        try:
            open_regular_file(path).close()
        except Mistake as mistake:
            wrong.append(str(mistake))
    if wrong:
        raise Mistake("\n".join(["nothing was submitted, because of what cannot be read:", *wrong]))
    return wanted


def named(names: Iterable[str]) -> str:
    """A few names, and how many more there are."""
    listed = [display_path(name) for name in names]
    more = len(listed) - NAMED_MAX
    return ", ".join(listed[:NAMED_MAX]) + (f" and {more:,} more" if more > 0 else "")


class _Seen:
    """What was passed over on the way."""

    def __init__(self) -> None:
        self.hidden = 0
        self.top: list[str] = []
        self.linked: list[str] = []
        self.odd: list[str] = []
        self.empty: list[str] = []

    def files_below(self, folder: str) -> list[str]:
        """Every document of one customer."""
        paths: list[str] = []
        for at, folders, files in os.walk(folder, onerror=_cannot_be_listed):
            self.hidden += sum(_is_hidden(name) for name in (*folders, *files))
            folders[:] = sorted(name for name in folders if not _is_hidden(name))
            self.linked += [path for name in folders if os.path.islink(path := os.path.abspath(os.path.join(at, name)))]
            for path in (os.path.abspath(os.path.join(at, name)) for name in sorted(files) if not _is_hidden(name)):
                (paths if _is_file(path) else self.odd).append(path)
        return paths

    def files_at_the_top(self, folder: str) -> None:
        """What lies beside the customers."""
        with os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda one: one.name):
                if _is_hidden(entry.name):
                    self.hidden += 1
                elif not entry.is_dir():
                    self.top.append(entry.name)
                elif entry.is_symlink():
                    self.linked.append(entry.name)

    def sentences(self, folder: str) -> list[str]:
        """What people should know about it."""
        told = {
            "in no sub-folder, so of no customer": self.top,
            "links to folders, which are not followed": self.linked,
            "neither files nor links to one": self.odd,
            "sub-folders without documents": self.empty,
        }
        lines = [
            f"{what}: {named(os.path.relpath(os.path.join(folder, name), folder) for name in names)}"
            for what, names in told.items()
            if names
        ]
        return lines + ([f"hidden: {self.hidden:,}"] if self.hidden else [])


def _sub_folders(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(one.name for one in entries if one.is_dir(follow_symlinks=False) and not _is_hidden(one.name))
    except FileNotFoundError:
        raise Mistake(
            f"there is no folder {display_path(folder)}; `fairlane demo {display_path(folder)}` makes one with sample documents"
        ) from None
    except NotADirectoryError:
        raise Mistake(f"{display_path(folder)} is a file, not a folder; for single files use `fairlane submit`") from None
    except OSError as error:
        _cannot_be_listed(error)


def _cannot_be_listed(error: OSError) -> NoReturn:
    raise Mistake(f"the folder {display_path(str(error.filename))} cannot be read: {error.strerror}") from error


def _customer(name: str) -> str:
    try:
        return validate_text("customer", name)
    except BadValue as error:
        raise Mistake(f"the sub-folder {display_path(name)} cannot be a customer: {error}; give it another name") from None


def _nothing_in(folder: str, seen: _Seen) -> Mistake:
    seen.files_at_the_top(folder)
    why = "; ".join(seen.sentences(folder)) or "it is empty"
    return Mistake(
        f"there is no document in {display_path(folder)} ({why}); each sub-folder is a customer, each file in it a document"
    )


def _is_hidden(name: str) -> bool:
    return name.startswith(".")


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False
