"""The export of a customer over HTTP: streamed to admins, whole or not at all."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from fairlane import Client, Mistake, Unknown
from tests.privacy.archive import Exported
from tests.privacy.everything import MARK, fill

from .running import Server, problem_of, status_of


@pytest.fixture
def admin(server: Server) -> Iterator[httpx.Client]:
    with server.client(server.admin) as client:
        yield client


def test_an_admin_downloads_everything_of_a_customer(server: Server, admin: httpx.Client, customer: str) -> None:
    fill(server.queue, customer)
    answer = admin.get(f"/v1/customers/{customer}/export")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/x-tar")
    assert answer.headers["content-disposition"].startswith(f'attachment; filename="{customer}.tar"')
    archive = Exported(answer.content)
    assert len(archive.rows("documents")) == 10
    assert sum(MARK.encode() in content for content in archive.members.values()) >= 13


def test_only_admins_may_export(client: httpx.Client, operator: httpx.Client, admin: httpx.Client, customer: str) -> None:
    client.post("/v1/documents", json={"payload": 1})
    assert problem_of(client.get(f"/v1/customers/{customer}/export")) == "nothing-here"
    assert problem_of(operator.get(f"/v1/customers/{customer}/export")) == "not-allowed"
    assert problem_of(admin.get("/v1/customers/nobody/export")) == "nothing-here"
    assert admin.head(f"/v1/customers/{customer}/export").status_code == 200


def test_the_client_writes_a_whole_file_or_none(server: Server, customer: str, tmp_path: Path) -> None:
    fill(server.queue, customer)
    with Client(server.address, server.admin) as client:
        steps: list[tuple[str, int, int]] = []
        exported = client.export(customer, tmp_path / "all.tar", on_progress=lambda *step: steps.append(step))
        assert exported == (10, 11, steps[-1][1], 0, ())
        assert len(Exported(tmp_path / "all.tar").rows("documents")) == 10
        with pytest.raises(Mistake, match="exists"):
            client.export(customer, tmp_path / "all.tar")
        with pytest.raises(Unknown):
            client.export("nobody", tmp_path / "nobody.tar")
    assert [path.name for path in tmp_path.iterdir()] == ["all.tar"]


def test_a_reader_that_leaves_ends_the_export(server: Server, admin: httpx.Client, customer: str) -> None:
    server.queue.submit(customer, content=b"x" * 30_000_000)
    with socket.create_connection(("127.0.0.1", server.port), timeout=40) as line:
        line.sendall(server.head(server.admin, "GET", f"/v1/customers/{customer.replace(' ', '%20')}/export") + b"\r\n")
        assert status_of(line.recv(65536)) == 200
    assert Exported(admin.get(f"/v1/customers/{customer}/export").content).rows("documents")  # and the server goes on
