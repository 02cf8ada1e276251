"""A sandbox's caller, of every kind, and a folder of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .confined import CALLERS, Caller, open_folder, scratch_of


@pytest.fixture(params=CALLERS, ids=lambda name: str(name))
def caller(request: pytest.FixtureRequest) -> Caller:
    return CALLERS[request.param]


@pytest.fixture
def place() -> Iterator[Path]:
    with open_folder() as folder:
        yield folder


@pytest.fixture
def scratch(place: Path, caller: Caller) -> Path:
    return scratch_of(place, caller)
