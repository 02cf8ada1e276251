"""Results of documents as files in a folder: text, facts and thumbnail side by side as `name.md`, `name.json`, `name.png`.

Laws:
- A document's path is untrusted text: no part of it may lead out of the folder, so unsafe parts are replaced by safe names.
- Paths that differ stay different, also when their names were cut or cleaned.
- A file is written whole or not at all, and replaces the file of an earlier run.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fairlane.blobs.safe_open import display_path
from fairlane.core.errors import Mistake

NAME_BYTES_MAX = 200  # of one part: with the suffixes it must fit into the 255 bytes that file systems allow
PARTS_MAX = 40
_DIGEST_LENGTH = 8


class Outputs:
    """A folder that results are written into."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def prepare(self) -> None:
        """Create the folder; raise a Mistake if that is not possible."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise Mistake(f"{display_path(str(self.folder))} is a file, not a folder; name a folder for the results") from None
        except OSError as error:
            raise _cannot_write(self.folder, error) from None

    def write(self, path: str, text: bytes, facts: dict[str, Any], thumbnail: bytes | None) -> None:
        """Write the results of one document; the facts come last, so a facts file means that all files are complete."""
        base = self.folder.joinpath(*safe_parts(path))
        thumbnail_path = base.with_name(base.name + ".png")
        try:
            base.parent.mkdir(parents=True, exist_ok=True)
            _write(base.with_name(base.name + ".md"), text)
            if thumbnail is None:
                thumbnail_path.unlink(missing_ok=True)
            else:
                _write(thumbnail_path, thumbnail)
            _write(base.with_name(base.name + ".json"), (json.dumps(facts, ensure_ascii=False, indent=2) + "\n").encode())
        except OSError as error:
            raise _cannot_write(base, error) from None


def safe_parts(path: str) -> list[str]:
    """Split a path into names that are safe to create below any folder."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if len(parts) > PARTS_MAX:
        parts = [*parts[: PARTS_MAX - 1], "/".join(parts[PARTS_MAX - 1 :])]
    return [_safe_name(part) for part in parts] or [_safe_name("/")]


def member_paths(path: str, names: Iterable[str]) -> list[str]:
    """Return a unique path below the archive's own path for each of its members."""
    paths: list[str] = []
    seen: set[str] = set()
    for name in names:
        parts = safe_parts(name)
        member, count = "/".join(parts), 1
        while member in seen:
            count += 1
            member = "/".join([*parts[:-1], f"{parts[-1]} ({count})"])
        seen.add(member)
        paths.append(f"{path}/{member}")
    return paths


def _safe_name(part: str) -> str:
    """Return the part if it is a safe name; else a cleaned name with a digest of the original appended."""
    cleaned = "".join(letter if letter.isprintable() and letter not in "/\\" else "_" for letter in part)
    original = part.encode(errors="surrogatepass")
    cut = cleaned.encode(errors="replace")[:NAME_BYTES_MAX].decode(errors="ignore")
    if cut == part and part not in ("..", ".") and "~" not in part:  # a name with ~ could collide with a digested one
        return part
    return f"{cut.strip('.') or '_'}~{hashlib.sha256(original).hexdigest()[:_DIGEST_LENGTH]}"


def _write(path: Path, content: bytes) -> None:
    """Write a file that the user asked for: as for every program's output, the umask says who may read it."""
    temporary = path.parent / f".fairlane-{secrets.token_hex(8)}"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _cannot_write(path: Path, error: OSError) -> Mistake:
    cause = error.strerror or str(error)
    return Mistake(
        f"{display_path(str(path))} cannot be written: {cause}; choose another folder, free some space or fix the permissions"
    )
