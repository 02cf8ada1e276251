"""Failures of extraction: `Unreadable`, its codes, and which of them another attempt may help.

Laws:
- Extractors raise one exception, `Unreadable`, with one of the codes below.
- An exception of a third-party parser is `corrupt`; an exception of our own code is `crashed`, never silent. Only in the
  extractors of PDFs and images, where our code and the parser's alternate, both are `corrupt`.
- `detail` is for engineers, in English and on one line; texts for everybody else are in the catalogs (`messages.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

from fairlane.core.errors import FairlaneError

Code = Literal[
    "encrypted", "corrupt", "empty", "too_large", "unsupported", "timed_out", "too_many_pages", "too_many_files", "queue_full",
    "quota_full", "crashed",
]  # fmt: skip
CAN_RETRY: Mapping[Code, bool] = {
    "encrypted": False,
    "corrupt": False,
    "empty": False,
    "too_large": False,
    "unsupported": False,
    "timed_out": True,  # the machine may have been busy
    "too_many_pages": False,
    "too_many_files": False,  # more than may ever come out of one document, or wait
    "queue_full": True,  # the customer's documents that wait become fewer
    "quota_full": False,
    "crashed": True,  # the machine may have been short of memory
}
DETAIL_MAX = 300


class Unreadable(FairlaneError):
    """The file cannot be extracted; `code` says why."""

    def __init__(self, code: Code, detail: str = "") -> None:
        self.code = code
        self.detail = one_line(detail, DETAIL_MAX)
        super().__init__(f"{code}: {self.detail}" if self.detail else code)

    @property
    def can_retry(self) -> bool:
        """Whether the same file may succeed at another time."""
        return CAN_RETRY[self.code]


def one_line(text: str, length_max: int) -> str:
    """Make text from a file safe to show: printable, on one line, cut to a length."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text[: length_max * 4])
    return " ".join(shown.split())[:length_max]


@contextmanager
def corrupt_on_error(parser: str) -> Iterator[None]:
    """Turn whatever a third-party parser raises into `corrupt`."""
    try:
        yield
    except (Unreadable, MemoryError):
        raise
    except Exception as error:
        raise Unreadable("corrupt", f"{parser}: {type(error).__name__}: {error}") from error
