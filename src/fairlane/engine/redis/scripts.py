"""Redis scripts: read and assemble them. Every verb is one file in the folder lua, after the files that verbs share.

The shared files are basis.lua, for all; shared.lua, which verbs that only read do without; frozen.lua, for verbs that a frozen
queue refuses; and moving.lua, which the light verbs do without.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

SHARED = ("basis", "shared", "frozen", "moving")
ALONE = {"migrate"}  # it makes what the shared part reads
STRAIGHT = {"body", "customers", "ready", "rules", "submit_one", "sweep"}
LIGHT = STRAIGHT | {"check", "configure", "outlook", "reset", "submit"}
BEGINNING = {"check", "claim", "cancel", "retry", "purge", "tune", "reset", "forget"}  # and submit, which looks closer
FREEING = {"extend", "settle", "reclaim", "cancel", "purge", "forget", "sweep"}  # these work on a full server too


class Script(NamedTuple):
    """The text of a verb, and the name that a server knows it by once it has it."""

    text: str
    sha: str


def _read(name: str) -> str:
    return (files(__package__) / "lua" / f"{name}.lua").read_text(encoding="utf-8")


def verbs() -> list[str]:
    """Every verb that has a script."""
    names = (Path(file.name).stem for file in (files(__package__) / "lua").iterdir() if file.name.endswith(".lua"))
    return sorted(name for name in names if name not in SHARED)


def inlined(text: str) -> str:
    """A script with its named numbers written out: a name that functions share costs as much as a small table, each time."""
    known: dict[str, str] = {}

    def learned(line: re.Match[str]) -> str:
        names, numbers = (re.findall(r"[-\w]+", part) for part in line.groups())
        known.update(zip(names, numbers, strict=True))
        return "\n" * line[0].count("\n")  # lines keep their numbers

    text = re.sub(r"^local ([A-Z_]+(?:, [A-Z_]+)*) =\s+(-?\d+(?:, -?\d+)*)(?: --.*)?$", learned, text, flags=re.MULTILINE)
    return re.sub(r"\b[A-Z_]+\b", lambda name: known.get(name[0], name[0]), text)


def _is_needed(part: str, verb: str) -> bool:
    without = {"basis": ALONE, "shared": ALONE | STRAIGHT, "moving": ALONE | LIGHT}
    return verb in BEGINNING if part == "frozen" else verb not in without[part]


@cache
def load_script(verb: str, has_flags: bool) -> Script:
    """A verb's script; servers that know flags (7.0 and newer) are told which verbs may run when memory is full."""
    parts = [*(part for part in SHARED if _is_needed(part, verb)), verb]
    text = inlined("\n".join(map(_read, parts)))
    if has_flags and verb in FREEING:
        text = "#!lua flags=allow-oom\n" + text
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
