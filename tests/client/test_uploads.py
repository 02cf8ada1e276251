"""Files: streamed, sent again after a loss, and what comes out of them."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import pytest

from fairlane import Client
from fairlane.core.errors import BadValue, KeyConflict, Mistake, Unknown, WrongState
from fairlane.demo.formats import FORMATS
from fairlane.demo.texts import letter
from tests.api.running import OPEN_LIMITS, Server

from .faulty_proxy import FaultyProxy


def content_of(server: Server, id: str) -> bytes:
    with server.queue.file(id) as file:
        return file.read()


@pytest.fixture
def proxy(server: Server) -> Iterator[FaultyProxy]:
    with FaultyProxy(server.port) as made:
        yield made


def test_a_file_by_its_path_reports_its_progress(server: Server, client: Client, tmp_path: Path) -> None:
    path = tmp_path / "zażółć & co?.bin"
    path.write_bytes(content := os.urandom(3_000_000))
    reports: list[tuple[int, int]] = []
    receipt = client.submit({"order": 17}, path=path, progress=lambda sent, size: reports.append((sent, size)))
    assert content_of(server, receipt.id) == content
    assert server.queue.input(receipt.id).name == "zażółć & co?.bin"
    assert server.queue.payload(receipt.id) == {"order": 17}
    assert reports[-1] == (3_000_000, 3_000_000)
    assert len(reports) > 5
    assert [sent for sent, _ in reports] == sorted({sent for sent, _ in reports})


class Once:
    """A stream that can be read once, as a pipe."""

    def __init__(self, content: bytes) -> None:
        self._content = io.BytesIO(content)

    def read(self, size: int = -1) -> bytes:
        return self._content.read(size)


def test_bytes_and_streams(server: Server, client: Client) -> None:
    assert content_of(server, client.submit(content=b"abc", name="a.txt").id) == b"abc"
    assert content_of(server, client.submit(content=io.BytesIO(b"def")).id) == b"def"
    big = os.urandom(2_000_000)
    receipt = client.submit(content=cast(BinaryIO, Once(big)), kind="extract", cost=2.5, delay=60)
    assert content_of(server, receipt.id) == big
    document = client.document(receipt.id)
    assert (document.state, document.cost) == ("delayed", 2.5)


def test_an_upload_whose_response_was_lost_is_repeated_and_makes_one_document(
    server: Server, proxy: FaultyProxy, customer: str, tmp_path: Path
) -> None:
    path = tmp_path / "scan.pdf"
    path.write_bytes(content := os.urandom(1_000_000))
    with Client(proxy.address, server.key(customer), patience=30) as client:
        ways: list[dict[str, Any]] = [{"path": path}, {"content": content}, {"content": Once(content)}]
        for hand_in in ways:
            before = client.look().waiting
            proxy.responses_to_lose = 2
            receipt = client.submit(**hand_in)
            assert receipt.repeated
            assert content_of(server, receipt.id) == content
            assert client.look().waiting == before + 1
    assert proxy.lost == 6


def test_the_same_key_with_another_file_is_a_conflict(client: Client) -> None:
    first = client.submit(content=b"one", name="a", key="k")
    assert client.submit(content=b"one", name="a", key="k").id == first.id
    with pytest.raises(KeyConflict):
        client.submit(content=b"two", name="a", key="k")


def test_what_cannot_be_read_is_refused_before_anything_is_sent(client: Client, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, message in ((tmp_path / "none", "there is no file"), (tmp_path, "is a folder"), (tmp_path / "pipe", "a pipe")):
        with pytest.raises(Mistake, match=message):
            client.submit(path=path)
    with pytest.raises(BadValue, match="a document has one file"):
        client.submit(path=tmp_path / "a", content=b"b")
    with pytest.raises(BadValue, match="path is None"):
        client.submit(name="a.txt")
    assert client.look().waiting == 0


def test_a_file_that_becomes_shorter_while_it_is_sent_is_not_taken(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(bytes(2_000_000))
    with pytest.raises(Mistake, match="became shorter while it was sent"):
        client.submit(path=path, progress=lambda sent, size: os.truncate(path, 1000))
    assert client.look().waiting == 0


def test_a_file_that_is_too_large_is_refused_while_it_is_sent(tmp_path: Path) -> None:
    server = Server(tmp_path, limits=(*OPEN_LIMITS, "upload_bytes=100000"))
    try:
        with Client(server.address, server.key("acme"), patience=30) as client:
            with pytest.raises(Mistake, match="larger than 100,000 bytes"):
                client.submit(content=bytes(50_000_000))
            assert client.submit(content=bytes(100_000)).priority == 1
    finally:
        server.close()


def test_text_and_picture_of_a_document_that_a_worker_read(tmp_path: Path) -> None:
    from random import Random

    server = Server(tmp_path, work=True)
    try:
        with Client(server.address, server.key("acme")) as client:
            receipt = client.submit(content=FORMATS["pdf"](letter(Random(1), 1, 3)), name="letter.pdf", cost="pages")
            document = client.wait(receipt.id, timeout=60)
            assert (document.state, document.reason) == ("done", None)
            assert len(client.text(receipt.id)) > 100
            assert client.thumbnail(receipt.id).startswith(b"\x89PNG")
            assert client.result(receipt.id)
            waiting = client.submit({"no": "file"}, delay=60)
            with pytest.raises(WrongState):
                client.text(waiting.id)
            with pytest.raises(Unknown):
                client.thumbnail("nothing")
    finally:
        server.close()
