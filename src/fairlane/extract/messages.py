"""Texts for people: what failure and warning codes mean, in five languages."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

from .failure import CAN_RETRY, Code
from .result import WarningCode

LANGUAGES = ("en", "pl", "pt", "es", "de")
_CODE = re.compile(rf"(?:its part \S+ failed: )*(?:attempt \d+ of \d+ failed: )?({'|'.join(CAN_RETRY)})(?:: |$)")
FOLDER = Path(__file__).parent / "locales"


@cache
def catalog(language: str) -> dict[str, str]:
    """Return all texts of a language; English for an unknown language."""
    name = language if language in LANGUAGES else "en"
    texts: dict[str, str] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return texts


def failure_code(reason: str | None) -> Code | None:
    """Return the code in the reason of a failed document; None if its file was not the reason."""
    match = _CODE.match(reason or "")
    return match[1] if match else None  # type: ignore[return-value]


def failure_text(code: Code, language: str = "en") -> str:
    """Return the sentence that says why a file could not be read."""
    return catalog(language)[f"failure.{code}"]


def warning_text(code: WarningCode, language: str = "en") -> str:
    """Return the sentence that says what a reader of the text should know."""
    return catalog(language)[f"warning.{code}"]
