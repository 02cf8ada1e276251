"""The work of a fork server that a test forks: whatever the test has put here before."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

CALLS: list[Callable[..., object]] = []


def prepare() -> None:
    """Nothing to load."""


def work(*arguments: object) -> Callable[[], object]:
    """The test's own."""
    return partial(CALLS[0], *arguments)
