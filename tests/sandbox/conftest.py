"""A caller of the sandbox, of every kind, and a folder of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .harness import CALLERS, Caller, open_folder, skip_refused


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skip_refused(items)


@pytest.fixture(params=CALLERS, ids=lambda name: str(name))
def caller(request: pytest.FixtureRequest) -> Caller:
    return CALLERS[request.param]


@pytest.fixture
def folder() -> Iterator[Path]:
    with open_folder() as path:
        yield path
