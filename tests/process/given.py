"""The work of a template that a test forks: whatever the test has put here before."""

from __future__ import annotations

from collections.abc import Callable

CALLS: list[Callable[..., object]] = []


def prepare() -> None:
    """Nothing to load."""


def work(*arguments: object) -> object:
    """The test's own."""
    return CALLS[0](*arguments)
