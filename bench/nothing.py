"""A sandbox entry that does nothing, in a fork server like the worker's: measures the overhead of an attempt."""

from __future__ import annotations

from collections.abc import Callable

from fairlane.extract.sandbox_entry import prepare

__all__ = ["prepare", "work"]


def work() -> Callable[[], object]:
    """Return work that does nothing."""
    return lambda: None
