"""Scan of a folder of documents: each sub-folder is a customer, each file below it a document.

Laws:
- Files directly in the folder have no customer. They are skipped and reported, never assigned to some customer.
- Hidden entries (a name that begins with a dot) are skipped. A link to a file is a file; a link to a folder is not
  followed, because it may lead anywhere, also round in circles.
- The same folder always yields the same documents in the same order.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from typing import Any, NamedTuple, NoReturn

from fairlane.blobs.safe_open import display_path, open_regular_file
from fairlane.core.document import validate_text
from fairlane.core.errors import BadValue, Mistake

FOLDER_KIND = "folder"  # of documents whose payload is a path; only `fairlane process` submits them
NAMES_SHOWN_MAX = 5


class FolderScan(NamedTuple):
    """The paths of documents by customer, and a sentence about each group of skipped entries."""

    documents: dict[str, list[str]]
    skipped: list[str]


def scan(folder: str) -> FolderScan:
    """Find the documents in a folder; raise a Mistake if there are none."""
    names, skipped = _customer_folders(folder), _Skipped()
    paths_by_customer = {_customer(name): _files_below(os.path.join(folder, name), skipped) for name in names}
    documents = {customer: paths for customer, paths in paths_by_customer.items() if paths}
    if documents:
        skipped.empty += [customer for customer, paths in paths_by_customer.items() if not paths]
    _skip_top_level(folder, skipped)
    sentences = skipped.sentences(folder)
    if not documents:
        why = "; ".join(sentences) or "it is empty"
        raise Mistake(
            f"there is no document in {display_path(folder)} ({why}); each sub-folder is a customer, each file in it a document"
        )
    return FolderScan(documents, sentences)


def payload_of(path: str, folder: str) -> dict[str, Any]:
    """Return the payload for a file: its absolute path, and its path relative to the folder."""
    return {"path": os.path.abspath(path), "place": os.path.relpath(path, folder)}


def check_readable(paths: Iterable[str]) -> list[str]:
    """Return the paths; raise a Mistake that lists every file that cannot be read."""
    checked, errors = list(paths), []
    for path in checked:
        try:
            open_regular_file(path).close()
        except Mistake as mistake:
            errors.append(str(mistake))
    if errors:
        raise Mistake("\n".join(["nothing was submitted, because these files cannot be read:", *errors]))
    return checked


def list_names(names: Iterable[str]) -> str:
    """Join the first few names, with the number of the others."""
    listed = [display_path(name) for name in names]
    more = len(listed) - NAMES_SHOWN_MAX
    return ", ".join(listed[:NAMES_SHOWN_MAX]) + (f" and {more:,} more" if more > 0 else "")


class _Skipped:
    """Entries that the scan skipped, by reason."""

    def __init__(self) -> None:
        self.hidden = 0
        self.top: list[str] = []
        self.linked: list[str] = []
        self.special: list[str] = []
        self.empty: list[str] = []

    def sentences(self, folder: str) -> list[str]:
        reasons = {
            "not in a sub-folder, so without a customer": self.top,
            "links to folders, which are not followed": self.linked,
            "neither files nor links to one": self.special,
            "sub-folders without documents": self.empty,
        }
        lines = [
            f"{reason}: {list_names(os.path.relpath(os.path.join(folder, name), folder) for name in names)}"
            for reason, names in reasons.items()
            if names
        ]
        return lines + ([f"hidden: {self.hidden:,}"] if self.hidden else [])


def _files_below(folder: str, skipped: _Skipped) -> list[str]:
    """List every document of one customer."""
    paths: list[str] = []
    for parent, folders, files in os.walk(folder, onerror=_cannot_list):
        skipped.hidden += sum(_is_hidden(name) for name in (*folders, *files))
        folders[:] = sorted(name for name in folders if not _is_hidden(name))
        skipped.linked += [path for name in folders if os.path.islink(path := os.path.abspath(os.path.join(parent, name)))]
        for path in (os.path.abspath(os.path.join(parent, name)) for name in sorted(files) if not _is_hidden(name)):
            (paths if _is_file(path) else skipped.special).append(path)
    return paths


def _skip_top_level(folder: str, skipped: _Skipped) -> None:
    """Record what lies beside the customers' folders."""
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if _is_hidden(entry.name):
                skipped.hidden += 1
            elif not entry.is_dir():
                skipped.top.append(entry.name)
            elif entry.is_symlink():
                skipped.linked.append(entry.name)


def _customer_folders(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False) and not _is_hidden(entry.name))
    except FileNotFoundError:
        raise Mistake(
            f"there is no folder {display_path(folder)}; `fairlane demo {display_path(folder)}` makes one with sample documents"
        ) from None
    except NotADirectoryError:
        raise Mistake(f"{display_path(folder)} is a file, not a folder; for single files use `fairlane submit`") from None
    except OSError as error:
        _cannot_list(error)


def _cannot_list(error: OSError) -> NoReturn:
    raise Mistake(f"the folder {display_path(str(error.filename))} cannot be read: {error.strerror}") from error


def _customer(name: str) -> str:
    try:
        return validate_text("customer", name)
    except BadValue as error:
        raise Mistake(f"the sub-folder {display_path(name)} cannot be a customer: {error}; rename it") from None


def _is_hidden(name: str) -> bool:
    return name.startswith(".")


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False
