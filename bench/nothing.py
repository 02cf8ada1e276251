"""Work that does nothing, in a template like the worker's: what is left is what an attempt costs to begin and to end."""

from __future__ import annotations

from collections.abc import Callable

from fairlane.extract.sandbox_entry import prepare

__all__ = ["prepare", "work"]


def work() -> Callable[[], object]:
    """Nothing."""
    return lambda: None
