"""Work that does nothing, in a fork server like the worker's: so an attempt costs only its beginning and its end."""

from __future__ import annotations

from collections.abc import Callable

from fairlane.extract.sandbox_entry import prepare

__all__ = ["prepare", "work"]


def work() -> Callable[[], object]:
    """Nothing."""
    return lambda: None
