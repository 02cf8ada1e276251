"""The console is tested with the servers, customers and clients of the API's tests."""

from collections.abc import Iterator

import httpx
import pytest

from tests.api.conftest import client, customer, operator, server
from tests.api.running import Server

from .page_client import signed_in

__all__ = ["client", "customer", "operator", "page", "server"]


@pytest.fixture
def page(server: Server) -> Iterator[httpx.Client]:
    """A client with the session of an operator."""
    with signed_in(server, server.operator) as signed_in_client:
        yield signed_in_client
