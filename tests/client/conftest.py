"""One server for the tests of a file, and clients of customers that are new in each test."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from fairlane import Client
from tests.api.running import Server

_numbers = count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(Path(tmp_path_factory.mktemp("client")))
    yield running
    running.close()


@pytest.fixture
def customer() -> str:
    return f"customer {next(_numbers)}"


@pytest.fixture
def client(server: Server, customer: str) -> Iterator[Client]:
    """A client of a customer that nobody has seen before."""
    with Client(server.address, server.key(customer), timeout=30, patience=30) as made:
        yield made


@pytest.fixture
def operator(server: Server) -> Iterator[Client]:
    with Client(server.address, server.operator, timeout=30, patience=30) as made:
        yield made
