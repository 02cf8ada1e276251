"""Text that other people wrote, made safe to print: a control character could move the cursor or hide other text."""

from __future__ import annotations

from unicodedata import category


def printable(text: str) -> str:
    """Return text as one line, with a replacement character for what cannot be seen; a space of any kind stays one."""
    return text if text.isprintable() else "".join(map(_visible, text))


def _visible(letter: str) -> str:
    if letter.isprintable():
        return letter
    return " " if category(letter) == "Zs" else "\ufffd"


def printable_lines(text: str) -> str:
    """Return text of several lines, each made printable; a tab becomes spaces."""
    return "\n".join(printable(line.removesuffix("\r").expandtabs()) for line in text.split("\n"))
