"""Field codes of Word and RTF: where `HYPERLINK "https://example.org" \\l "chapter"` leads."""

from __future__ import annotations

import re

CODE_MAX = 4_000  # characters of a field's code that are kept
_ARGUMENT = re.compile(r'"([^"]*)"?|(\\\w)|([^\s"]+)')
_WITH_VALUE = {"\\l", "\\o", "\\t"}  # a place in the target, a tip, a window


def link_target(code: str) -> str:
    """Return where a field leads; the empty string if it is no link."""
    name, _, arguments = code.strip().partition(" ")
    if name.upper() != "HYPERLINK":
        return ""
    target = place = switch = ""
    for quoted, option, plain in _ARGUMENT.findall(arguments):
        if option:
            switch = option.lower() if option.lower() in _WITH_VALUE else ""
            continue
        value = (quoted or plain).replace("\\\\", "\\")
        if switch == "\\l":
            place = place or value
        elif not switch:
            target = target or value
        switch = ""
    return f"{target}#{place}" if place else target
