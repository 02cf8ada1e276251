"""Sample documents in a folder: one big customer, several small ones; the same seed makes the same bytes."""

from __future__ import annotations

import os
from random import Random

from fairlane.blobs.safe_open import display_path
from fairlane.core.errors import BadValue, Mistake

from .formats import FORMATS
from .texts import letter

BIG = "northwind"
SMALL = ("ada-law", "bakery", "clinic", "dentist", "elm-school", "florist", "garage", "hotel", "ink-studio", "jeweller")
DOCUMENTS_MAX = 100_000


def make(folder: str, seed: int, big: int, small: int, each: int, paragraphs: int) -> dict[str, int]:
    """Fill a new or empty folder; return how many documents each customer has."""
    for name, value, least, most in (
        ("--big", big, 1, DOCUMENTS_MAX), ("--small", small, 0, len(SMALL)), ("--each", each, 1, DOCUMENTS_MAX),
        ("--paragraphs", paragraphs, 1, 100_000),
    ):  # fmt: skip
        if not least <= value <= most:
            raise BadValue(name, value, f"a whole number from {least:,} to {most:,}")
    counts = {BIG: big, **dict.fromkeys(SMALL[:small], each)}
    try:
        _make_empty(folder)
        for customer, count in counts.items():
            _fill(os.path.join(folder, customer), Random(f"{seed} {customer}"), count, paragraphs)
    except OSError as error:
        raise Mistake(
            f"{display_path(str(error.filename or folder))} cannot be written: {error.strerror}; choose another folder"
        ) from error
    return counts


def _make_empty(folder: str) -> None:
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise Mistake(f"{display_path(folder)} is a file; name a folder that is new or empty")
    os.makedirs(folder, exist_ok=True)
    if os.listdir(folder):
        raise Mistake(
            f"the folder {display_path(folder)} is not empty; name one that is new or empty, so that files are not mixed"
        )


def _fill(folder: str, random: Random, count: int, paragraphs: int) -> None:
    os.mkdir(folder)
    kinds = list(FORMATS)
    for number in range(1, count + 1):
        kind = kinds[(number - 1) % len(kinds)]
        content = FORMATS[kind](letter(random, number, paragraphs))
        with open(os.path.join(folder, f"{number:0{len(str(count))}}-{_word(random)}.{kind}"), "wb") as file:
            file.write(content)


def _word(random: Random) -> str:
    return random.choice(("invoice", "contract", "minutes", "order", "report", "letter"))
