"""The original file is downloaded as it was submitted: as an attachment under a safe name, by whoever may see it."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import httpx
import pytest

from fairlane import AsyncClient, Client, Unknown
from fairlane.api.download import attachment, safe_name
from tests.client.faulty_proxy import FaultyProxy
from tests.servers.s3 import BUCKET, s3_server

from .running import Server, problem_of

CONTENT = os.urandom(3_000_000)


@pytest.fixture(scope="module", params=["folder", "s3"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("download")
    if request.param == "folder":
        running = Server(folder)
        yield running
        running.close()
        return
    with s3_server() as variables:
        running = Server(folder, "--blobs", f"s3://{BUCKET}/download", variables=variables)
        yield running
        running.close()


def test_the_file_comes_back_as_it_was_sent(server: Server, client: httpx.Client, customer: str) -> None:
    name = 'Rechnung März "2026".html'
    headers = {"Content-Type": "text/html"}
    id = client.post("/v1/documents", params={"name": name}, content=CONTENT, headers=headers).json()["id"]
    response = client.get(f"/v1/documents/{id}/file")
    assert response.status_code == 200
    assert hashlib.sha256(response.content).digest() == hashlib.sha256(CONTENT).digest()
    assert response.headers["content-type"] == "application/octet-stream"
    assert response.headers["content-length"] == str(len(CONTENT))
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["cache-control"] == "no-store"
    disposition = response.headers["content-disposition"]
    assert disposition == (
        "attachment; filename=\"Rechnung M_rz _2026_.html\"; filename*=UTF-8''Rechnung%20M%C3%A4rz%20_2026_.html"
    )
    head = client.head(f"/v1/documents/{id}/file")
    assert (head.status_code, head.headers["content-disposition"], head.content) == (200, disposition, b"")
    assert client.get(f"/v1/documents/{id}").json()["links"]["file"] == f"/v1/documents/{id}/file"
    with server.client(server.operator) as operator:
        assert operator.get(f"/v1/documents/{id}/file").content == CONTENT
    with server.client(server.key(f"{customer}, neighbour")) as neighbour:
        foreign, unknown = neighbour.get(f"/v1/documents/{id}/file"), neighbour.get(f"/v1/documents/{id[:-3]}abc/file")
        assert (foreign.status_code, foreign.content) == (unknown.status_code, unknown.content) == (404, unknown.content)
    with server.client(None) as without_key:
        assert without_key.get(f"/v1/documents/{id}/file").status_code == 401


def test_a_document_without_a_file_has_none_to_download(client: httpx.Client) -> None:
    id = client.post("/v1/documents", json={"payload": {"path": "/etc/passwd"}}).json()["id"]
    response = client.get(f"/v1/documents/{id}/file")
    assert (response.status_code, problem_of(response)) == (404, "nothing-here")


def test_the_client_downloads_it(server: Server, customer: str, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(CONTENT)
    with Client(server.address, server.key(customer)) as client:
        receipt = client.submit(path=tmp_path / "a.bin")
        with client.file(receipt.id) as file:
            assert file.read() == CONTENT
        with pytest.raises(Unknown):
            client.file(client.submit(payload=1).id)

    async def awaited() -> None:
        async with AsyncClient(server.address, server.operator) as operator:
            with await operator.file(receipt.id) as file:
                assert file.read() == CONTENT

    asyncio.run(awaited())


def test_a_download_that_is_cut_off_begins_again(server: Server, customer: str) -> None:
    with FaultyProxy(server.port) as proxy, Client(proxy.address, server.key(customer), timeout=2) as client:
        receipt = client.submit(content=CONTENT, name="a.bin")
        proxy.canned = [b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n" + bytes(1000)]
        with client.file(receipt.id) as file:
            assert file.read() == CONTENT
        assert proxy.canned == []


def test_names_are_safe() -> None:
    assert safe_name("../../etc/passwd") == "passwd"
    assert safe_name("C:\\temp\\invoice.pdf") == "invoice.pdf"
    assert safe_name("invoice\u202efdp.exe") == "invoice_fdp.exe"  # turned around it would read invoiceexe.pdf
    assert safe_name("a\r\nSet-Cookie: x=1.txt") == "a__Set-Cookie_ x=1.txt"
    assert safe_name(".bashrc") == "bashrc"
    assert safe_name("...") == safe_name("") == safe_name("/") == "document"
    assert safe_name("ż" * 500 + ".pdf") == "ż" * 100 + ".pdf"
    assert len(safe_name("a" * 500)) == 100
    for name in ('a"b.txt', "a;b.txt", "100%.txt", "日本語.pdf", "a\x00b", "ok.txt"):
        header = attachment(name)
        assert header.isascii()
        assert header.isprintable()
        assert header.startswith('attachment; filename="')
        assert unquote(header.partition("filename*=UTF-8''")[2]) == safe_name(name)
