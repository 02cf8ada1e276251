"""One Chromium and one server for all stories."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.api.running import Server
from tests.chromium import chromium
from tests.conftest import need_program

from .browser_page import BrowserPage, open_page

_numbers = count(1)
expect.set_options(timeout=40_000)  # the machine may be busy: no test is judged by its time


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    need_program("chromium")
    with chromium() as started:
        yield started


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as line:
        return int(line.getsockname()[1])


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With a worker, and always on the same port, so that it can come back."""
    options = ("--port", str(free_port()), "--allow-private-webhooks")
    running = Server(Path(tmp_path_factory.mktemp("page")), *options, work=True)
    yield running
    running.close()


@pytest.fixture
def customer() -> str:
    """A customer that nobody has seen before."""
    return f"customer {next(_numbers)}"


@pytest.fixture
def operator(browser: Browser, server: Server) -> Iterator[BrowserPage]:
    with open_page(browser, server, server.operator) as console:
        yield console


@pytest.fixture
def patient_operator(browser: Browser, server: Server) -> Iterator[BrowserPage]:
    """An operator who waits for views to refresh themselves: the page's clock can jump."""
    with open_page(browser, server, server.operator, clock=True) as console:
        yield console


@pytest.fixture
def admin(browser: Browser, server: Server) -> Iterator[BrowserPage]:
    with open_page(browser, server, server.admin) as console:
        yield console
