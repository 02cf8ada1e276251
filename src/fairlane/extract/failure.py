"""Why can a file not be read, and can another attempt help?

Laws:
- Extractors raise one exception, `Unreadable`, with one of the codes below.
- What a foreign parser throws at a file is `corrupt`; what our own code throws by mistake is `crashed`, never silence. Only in
  the readers of PDFs and images, where our code and theirs take turns, both are `corrupt`.
- `detail` is for engineers, in English and on one line; texts for everybody else are in the catalogs (`texts.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

from fairlane.core.errors import FairlaneError

Code = Literal["encrypted", "corrupt", "empty", "too_large", "unsupported", "timed_out", "too_many_pages", "crashed"]
CAN_RETRY: Mapping[Code, bool] = {
    "encrypted": False,
    "corrupt": False,
    "empty": False,
    "too_large": False,
    "unsupported": False,
    "timed_out": True,  # the machine may have been busy
    "too_many_pages": False,
    "crashed": True,  # the machine may have been short of memory
}
DETAIL_MAX = 300


class Unreadable(FairlaneError):
    """This file cannot be extracted, for a reason that has a code."""

    def __init__(self, code: Code, detail: str = "") -> None:
        self.code = code
        self.detail = one_line(detail, DETAIL_MAX)
        super().__init__(f"{code}: {self.detail}" if self.detail else code)

    @property
    def can_retry(self) -> bool:
        """Whether the same file may succeed at another time."""
        return CAN_RETRY[self.code]


def one_line(text: str, length_max: int) -> str:
    """Text from a file, safe to show: printable, on one line, not endless."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text[: length_max * 4])
    return " ".join(shown.split())[:length_max]


@contextmanager
def foreign(parser: str) -> Iterator[None]:
    """Parsers of others throw whatever they like at a broken file: all of it means that the file is broken."""
    try:
        yield
    except (Unreadable, MemoryError):
        raise
    except Exception as error:
        raise Unreadable("corrupt", f"{parser}: {type(error).__name__}: {error}") from error
