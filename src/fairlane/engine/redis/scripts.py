"""Where is the Lua? Every verb is one file in the folder lua; what they share is put before each."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from typing import NamedTuple

ALONE = {"migrate"}  # it makes what the shared part reads
FREEING = {"extend", "settle", "reclaim", "cancel", "purge", "forget", "sweep"}  # these work on a full server too


class Script(NamedTuple):
    """The text of a verb, and the name that a server knows it by once it has it."""

    text: str
    sha: str


def _read(name: str) -> str:
    return (files(__package__) / "lua" / f"{name}.lua").read_text(encoding="utf-8")


@cache
def script(verb: str, has_flags: bool) -> Script:
    """A verb's script; servers that know flags (7.0 and newer) are told which verbs may run when memory is full."""
    text = _read(verb) if verb in ALONE else _read("shared") + "\n" + _read(verb)
    if has_flags and verb in FREEING:
        text = "#!lua flags=allow-oom\n" + text
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
