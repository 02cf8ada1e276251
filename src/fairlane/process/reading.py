"""What is done in the confined process? A file is read, and what it says is left in the scratch folder.

A template is made of this module: it knows the extractors, and nothing of queues.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .extract import Limits, extract, warm

TEXT, THUMBNAIL = "text", "thumbnail"


def prepare() -> None:
    """Load every parser."""
    warm()


def work(path: str, name: str, scratch: str, limits: dict[str, Any], depth: int) -> object:
    """Read a file; text and picture go into the scratch folder, facts are returned."""
    return read(Path(path), name, Path(scratch), Limits(**limits | {"ocr_languages": tuple(limits["ocr_languages"])}), depth)


def read(path: Path, name: str, scratch: Path, limits: Limits, depth: int) -> object:
    """The same, of a fork that has its arguments as they are."""
    result = extract(path, name, scratch, limits, depth)
    (scratch / TEXT).write_bytes(result.text.encode())
    if result.thumbnail is not None:
        (scratch / THUMBNAIL).write_bytes(result.thumbnail)
    return result.facts()
