"""Redis scripts: read them from the folder lua and give each its SHA1.

The script of a verb is its file after the files of lua/shared, always in the same order; a verb that only reads does without
those that write.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from fairlane.engine.schema import Schema

SHARED_READ = ("queue", "policy", "records")
SHARED = (*SHARED_READ, "writes", "limits", "lanes", "flush", "transitions")
READING = {"body", "changes", "customers", "documents", "now", "outlook", "ready", "ready_kinds", "records", "rules"}
ALONE = {"migrate", "upgrade"}  # they create or change what the shared files read
FREEING = {"extend", "settle", "reclaim", "cancel", "purge", "forget", "sweep"}  # these must run on a full server too


class Script(NamedTuple):
    """The text of a script, and the name by which a server knows it once it was loaded."""

    text: str
    sha: str


def read_file(name: str) -> str:
    """Read a Lua file by its path in the folder lua, without the suffix."""
    return (files(__package__) / "lua" / f"{name}.lua").read_text(encoding="utf-8")


def verbs() -> list[str]:
    """List the verbs that have a script."""
    return sorted(Path(file.name).stem for file in (files(__package__) / "lua").iterdir() if file.name.endswith(".lua"))


# A queue is made in the newest form; each script brings one of the form before to the next, from 5 on.
SCHEMA = Schema(scripts=(read_file("versions/form_5"),), oldest=5, first=5)


@cache
def shared_text(is_reading: bool = False, form: int = SCHEMA.version) -> str:
    """Read what the script of every verb begins with; `form` is the newest that the program knows."""
    return "\n".join(
        [f"local FORM = {form}", *(read_file(f"shared/{name}") for name in (SHARED_READ if is_reading else SHARED))]
    )


@cache
def load_script(verb: str, has_flags: bool, form: int = SCHEMA.version) -> Script:
    """Assemble the script of a verb; servers from 7.0 on need a flag that allows it to run when memory is full."""
    text = read_file(verb) if verb in ALONE else f"{shared_text(verb in READING, form)}\n{read_file(verb)}"
    if has_flags and verb in FREEING:
        text = "#!lua flags=allow-oom\n" + text
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
