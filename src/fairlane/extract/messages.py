"""How is a code told to a person, in five languages?"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

from .failure import CAN_RETRY, Code
from .result import WarningCode

LANGUAGES = ("en", "pl", "pt", "es", "de")
_CODE = re.compile(rf"(?:attempt \d+ of \d+ failed: )?({'|'.join(CAN_RETRY)})(?:: |$)")
FOLDER = Path(__file__).parent / "locales"


@cache
def catalog(language: str) -> dict[str, str]:
    """All texts of one language; English for a language that we do not have."""
    name = language if language in LANGUAGES else "en"
    texts: dict[str, str] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return texts


def failure_code(reason: str | None) -> Code | None:
    """The code in the reason that a failed document has; None if it failed for another reason than its file."""
    found = _CODE.match(reason or "")
    return found[1] if found else None  # type: ignore[return-value]


def failure_text(code: Code, language: str = "en") -> str:
    """Why a file could not be read, as a sentence."""
    return catalog(language)[f"failure.{code}"]


def warning_text(code: WarningCode, language: str = "en") -> str:
    """What somebody who relies on the text should know, as a sentence."""
    return catalog(language)[f"warning.{code}"]
