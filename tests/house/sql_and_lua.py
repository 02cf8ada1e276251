"""Rulers for SQL and Lua: the lines of code of each function, query and script."""

from __future__ import annotations

import re

_SQL_UNIT = re.compile(r"^CREATE (?:OR REPLACE )?FUNCTION (?:\w+\.)?(\w+)|^-- (\w+): ", re.MULTILINE)
_LUA_START = re.compile(r"^(?:local )?function ([\w.]+)|^local (\w+) = function|^(\w+) = function", re.MULTILINE)


def code_lines(text: str) -> list[str]:
    """Lines that hold code: no blank lines, no lines of comment."""
    return [line for line in text.splitlines() if line.strip() and not line.strip().startswith("--")]


def sql_units(text: str) -> dict[str, int]:
    """Lines of code of every function, and of every query under a line `-- name: …`."""
    starts = list(_SQL_UNIT.finditer(text))
    ends = [*(start.start() for start in starts[1:]), len(text)][: len(starts)]
    return {
        str(start[1] or start[2]): len(code_lines(text[start.start() : end])) for start, end in zip(starts, ends, strict=True)
    }


def lua_units(text: str) -> dict[str, int]:
    """Lines of code of every function that begins at the left margin, and of the script outside of them."""
    units: dict[str, int] = {}
    rest: list[str] = []
    name = ""
    for line in code_lines(text):
        start = _LUA_START.match(line)
        if not name and start:
            name = start[1] or start[2] or start[3]
            units[name] = 0
        if name:
            units[name] += 1
            if line.startswith("end") or (start and line.rstrip().endswith(" end")):
                name = ""
        else:
            rest.append(line)
    return {**units, "script": len(rest)}
