"""One server for the tests of a file, and customers that are new in each test."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import httpx
import pytest

from .running import Server

_numbers = count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(Path(tmp_path_factory.mktemp("http")))
    yield running
    running.close()


@pytest.fixture
def customer() -> str:
    return f"customer {next(_numbers)}"


@pytest.fixture
def client(server: Server, customer: str) -> Iterator[httpx.Client]:
    """A client of a customer that nobody has seen before."""
    with server.client(server.key(customer)) as made:
        yield made


@pytest.fixture
def operator(server: Server) -> Iterator[httpx.Client]:
    with server.client(server.operator) as made:
        yield made
