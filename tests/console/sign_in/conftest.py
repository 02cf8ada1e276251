"""A service that people sign in to at a provider that can be made to lie."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.api.running import Server
from tests.console.signing_in import oidc_server
from tests.servers.oidc import ForgingProvider


@pytest.fixture(scope="module")
def forging() -> Iterator[ForgingProvider]:
    made = ForgingProvider()
    yield made
    made.close()


@pytest.fixture
def provider(forging: ForgingProvider) -> Iterator[ForgingProvider]:
    yield forging
    forging.reset()


@pytest.fixture(scope="module")
def server(forging: ForgingProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = oidc_server(Path(tmp_path_factory.mktemp("oidc")), forging)
    yield running
    running.close()


@pytest.fixture
def browser(server: Server) -> Iterator[httpx.Client]:
    with server.client(None) as client:
        yield client
