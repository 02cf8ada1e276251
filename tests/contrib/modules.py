"""Modules as the docs show them, with the servers and the counters of a test in place of the written ones."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from .counters import PATIENT

COUNTERS = '"postgresql://fairlane@db/fairlane", customer="customer"'


def after(diff: str) -> str:
    """Return the lines that a diff leaves."""
    return "".join(f"{line[1:]}\n" for line in diff.splitlines() if not line.startswith("-"))


def adapted(text: str, store: str, changes: Mapping[str, str]) -> str:
    """Put a test's counters into a module, with the patience that a busy machine needs, and its servers; name its Fairlane."""
    for written, here in {COUNTERS: f'"{store}", customer="customer", timeout={PATIENT}', **changes}.items():
        assert text.count(written) == 1, f"{written} stands {text.count(written)} times in:\n{text}"
        text = text.replace(written, here)
    return re.sub(r"^Fairlane\(", "fairlane = Fairlane(", text, flags=re.MULTILINE)


@contextmanager
def executed(text: str, **names: Any) -> Iterator[dict[str, Any]]:
    """Execute a module; give what it defines, and close its Fairlane at the end."""
    exec(text, names)
    try:
        yield names
    finally:
        names["fairlane"].close()


async def execute(text: str, names: dict[str, Any]) -> None:
    """Execute a part of an async program."""
    result = eval(compile(text, "docs", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
    if inspect.isawaitable(result):
        await result
