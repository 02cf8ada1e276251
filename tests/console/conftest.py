"""The console is tested with the servers, customers and clients of the API's tests."""

from tests.api.conftest import client, customer, operator, server

__all__ = ["client", "customer", "operator", "server"]
