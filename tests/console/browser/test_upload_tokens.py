"""The page of another site, as docs/service.md shows it, sends a document with an upload token."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, FilePayload, expect

from tests.api.running import Server, until
from tests.docs.snippets import snippet

from .conftest import free_port


@contextmanager
def site(folder: Path, server: Server, customer: str, port: int) -> Iterator[str]:
    """The program of the docs, running."""
    program = snippet("docs/service.md", "import json, os, sys")
    key = server.key(customer, scopes=["submit"])
    variables = os.environ | {"FAIRLANE_SERVER": server.address, "FAIRLANE_KEY": key}
    with (folder / "site.log").open("wb") as log:
        running = subprocess.Popen([sys.executable, "-c", program, str(port)], env=variables, stdout=log, stderr=log)
    try:
        until(lambda: is_open(port), "the site listening")
        yield f"http://127.0.0.1:{port}/"
    finally:
        running.kill()
        running.wait(60)


def is_open(port: int) -> bool:
    with socket.socket() as line:
        return line.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("is_named", [True, False])
def test_a_page_of_a_site_that_is_named_uploads_and_another_cannot(browser: Browser, tmp_path: Path, is_named: bool) -> None:
    port = free_port()
    origin = f"http://127.0.0.1:{port if is_named else free_port()}"
    server = Server(tmp_path, "--upload-origin", origin)
    try:
        with site(tmp_path, server, "acme", port) as address:
            context = browser.new_context()
            page = context.new_page()
            page.goto(address)
            content = b"x" * 200_000
            file = FilePayload(name="invoice ż.txt", mimeType="text/plain", buffer=content)
            if is_named:
                page.set_input_files("#file", file)
                expect(page.locator("#said")).to_have_text(re.compile("^Received as "))
                id = page.locator("#said").inner_text().rpartition(" ")[2]
                with server.queue.file(id) as stored:
                    assert stored.read() == content
                assert server.queue.input(id).name == "invoice ż.txt"
                assert server.queue.payload(id) == {"user": 17}
            else:
                with page.expect_console_message(lambda message: "CORS policy" in message.text):
                    page.set_input_files("#file", file)
                assert list(server.queue.documents()) == []
            context.close()
    finally:
        server.close()
