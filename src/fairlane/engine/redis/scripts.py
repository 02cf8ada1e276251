"""Redis scripts: read them from the folder lua and give each its SHA1.

The script of a verb is its file after the files of lua/shared, always in the same order; a verb that only reads does without
those that write, and a claim without those that it does not need.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from fairlane.engine.schema import Schema

SHARED_READ = ("queue", "policy", "records", "kinds")
SHARED = (*SHARED_READ, "writes", "limits", "lanes", "flush", "transitions")
SHARED_BY_VERB = {
    "claim": (*SHARED_READ, "writes", "lanes", "flush"),
    "submit": (*SHARED_READ, "writes", "limits", "lanes", "flush"),
    **dict.fromkeys(("settle", "reclaim", "cancel", "retry"), (*SHARED, "parts")),
}
READING = {
    "body", "changes", "customers", "documents", "kinds", "now", "outlook", "parts", "ready", "ready_kinds", "records", "rules",
    "totals",
}  # fmt: skip
ALONE = {"migrate", "upgrade"}  # they create or change what the shared files read
# These must run on a full server too.
FREEING = {"extend", "take_over", "settle", "reclaim", "cancel", "purge", "forget", "sweep"}


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
SCHEMA = Schema(
    scripts=(read_file("versions/form_5"), read_file("versions/form_6"), read_file("versions/form_7")), oldest=7, first=5
)


def shared_files(verb: str) -> tuple[str, ...]:
    """List the shared files that the script of a verb begins with: every function in them takes a moment to make."""
    return SHARED_READ if verb in READING else SHARED_BY_VERB.get(verb, SHARED)


@cache
def assemble(text: str, files: tuple[str, ...] = SHARED, form: int = SCHEMA.version) -> str:
    """Put a text behind shared files; `form` is the newest that the program knows.

    All but the first file stand in a function, see lua/shared/queue.lua.
    """
    first, *others = (read_file(f"shared/{name}") for name in files)
    return "\n".join([f"local FORM = {form}", first, "return (function()", *others, text, "end)()"])


@cache
def load_script(verb: str, has_flags: bool, form: int = SCHEMA.version) -> Script:
    """Assemble the script of a verb; servers from 7.0 on need a flag that allows it to run when memory is full."""
    text = read_file(verb) if verb in ALONE else assemble(read_file(verb), shared_files(verb), form)
    if has_flags and verb in FREEING:
        text = "#!lua flags=allow-oom\n" + text
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
