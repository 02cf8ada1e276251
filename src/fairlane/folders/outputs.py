"""Where do the results of documents go in a folder? Text, facts and picture side by side: `name.md`, `name.json`, `name.png`.

Laws:
- A place is text from outside, so no part of it leads anywhere but down: what is not a plain name is made one.
- Places that differ stay different, also when their names had to be cut or cleaned.
- A file is there whole or not at all, and what an earlier run wrote in its place is replaced.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fairlane.blobs.safe_open import display_path
from fairlane.core.errors import Mistake

NAME_BYTES_MAX = 200  # of one part: what is appended must fit into the 255 that file systems allow
PARTS_MAX = 40
_MARK_LENGTH = 8


class Outputs:
    """A folder that results are written into."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def prepare(self) -> None:
        """Make the folder, or say why that cannot be done."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise Mistake(f"{display_path(str(self.folder))} is a file, not a folder; name a folder for the results") from None
        except OSError as error:
            raise _cannot_be_written(self.folder, error) from None

    def write(self, place: str, text: bytes, facts: dict[str, Any], thumbnail: bytes | None) -> None:
        """Write what came of one document; the facts come last, so where they are all is."""
        base = self.folder.joinpath(*plain_parts(place))
        picture = base.with_name(base.name + ".png")
        try:
            base.parent.mkdir(parents=True, exist_ok=True)
            _write(base.with_name(base.name + ".md"), text)
            if thumbnail is None:
                picture.unlink(missing_ok=True)
            else:
                _write(picture, thumbnail)
            _write(base.with_name(base.name + ".json"), (json.dumps(facts, ensure_ascii=False, indent=2) + "\n").encode())
        except OSError as error:
            raise _cannot_be_written(base, error) from None


def plain_parts(place: str) -> list[str]:
    """The parts of a place as names that can be made below any folder."""
    parts = [part for part in place.split("/") if part not in ("", ".")]
    if len(parts) > PARTS_MAX:
        parts = [*parts[: PARTS_MAX - 1], "/".join(parts[PARTS_MAX - 1 :])]
    return [_plain(part) for part in parts] or [_plain("/")]


def member_places(place: str, names: Iterable[str]) -> list[str]:
    """Places for the members of an archive: below the archive's own, no two the same."""
    places: list[str] = []
    seen: set[str] = set()
    for name in names:
        parts = plain_parts(name)
        told, count = "/".join(parts), 1
        while told in seen:
            count += 1
            told = "/".join([*parts[:-1], f"{parts[-1]} ({count})"])
        seen.add(told)
        places.append(f"{place}/{told}")
    return places


def _plain(part: str) -> str:
    """One part as a plain name; if that changes it, a mark of the whole is appended."""
    kept = "".join(letter if letter.isprintable() and letter not in "/\\" else "_" for letter in part)
    whole = part.encode(errors="surrogatepass")
    cut = kept.encode(errors="replace")[:NAME_BYTES_MAX].decode(errors="ignore")
    if cut == part and part not in ("..", ".") and "~" not in part:  # which could imitate a mark
        return part
    return f"{cut.strip('.') or '_'}~{hashlib.sha256(whole).hexdigest()[:_MARK_LENGTH]}"


def _write(path: Path, content: bytes) -> None:
    handle, temporary = tempfile.mkstemp(prefix=".fairlane-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _cannot_be_written(path: Path, error: OSError) -> Mistake:
    told = error.strerror or str(error)
    return Mistake(f"{display_path(str(path))} cannot be written: {told}; choose another folder, or make room or permission")
