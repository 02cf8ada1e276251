"""Batches of files over HTTP: many files in one form, all of them or none."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from .running import Server, problem_of, received, status_of, until
from .test_uploads import stored

FORM = "Content-Type: multipart/form-data; boundary=b"


def send(client: httpx.Client, contents: list[bytes], key: str | None = None, **fields: str) -> httpx.Response:
    headers = {} if key is None else {"Idempotency-Key": key}
    files = [("file", (f"{index}.txt", content)) for index, content in enumerate(contents)]
    return client.post("/v1/batches", files=files, data=fields, headers=headers)


def part(content: bytes, name: str = "a.txt") -> bytes:
    """A file of a form, as it is written by hand."""
    return b'--b\r\nContent-Disposition: form-data; name="file"; filename="%s"\r\n\r\n%s\r\n' % (name.encode(), content)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    limits = ("upload_bytes=1000000", "batch_documents=4", "batch_bytes=1000")
    server = Server(Path(tmp_path_factory.mktemp("batches")), limits=limits)
    server.queue.configure(waiting_max=3)
    yield server
    server.close()


def test_every_file_becomes_a_document_of_the_batch(server: Server, client: httpx.Client, customer: str) -> None:
    contents = [os.urandom(700_000), b"x", os.urandom(65_536), b"--b\r\n\r\n" * 5000]
    answer = send(client, contents, payload='{"order": 17}', cost="2")
    assert answer.status_code == 202, answer.text
    batch = answer.json()
    assert [document["counter"] for document in batch["documents"]] == [-1, -3, -5, -7]
    for index, (document, content) in enumerate(zip(batch["documents"], contents, strict=True)):
        with server.queue.file(document["id"]) as file:
            assert file.read() == content
        assert server.queue.input(document["id"]).name == f"{index}.txt"
        assert server.queue.payload(document["id"]) == {"order": 17}
    standing = client.get(batch["links"]["self"]).json()
    assert (standing["counts"], standing["documents"]) == ({"ready": 4}, [document["id"] for document in batch["documents"]])


def test_a_large_batch_is_never_whole_in_memory(server: Server, client: httpx.Client) -> None:
    def highest() -> int:
        """The most memory that the server has had so far, in bytes."""
        lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))

    def body() -> Iterator[bytes]:
        for _ in range(3):
            yield part(b"")[:-2]
            for _ in range(300):
                yield bytes(100_000)
            yield b"\r\n"
        yield b"--b--\r\n"

    assert send(client, [b"1", b"2"]).status_code == 202
    before = highest()
    answer = client.post("/v1/batches", content=body(), headers={"Content-Type": "multipart/form-data; boundary=b"})
    assert [server.queue.input(document["id"]).size for document in answer.json()["documents"]] == [30_000_000] * 3
    assert highest() - before < 20_000_000


def test_pages_are_counted_for_each_file(server: Server, client: httpx.Client) -> None:
    batch = send(client, [b"x" * 100_000, b"x"], cost="pages").json()
    assert [server.queue.document(document["id"]).cost for document in batch["documents"]] == [2, 1]


def test_an_operator_says_for_whom(server: Server, operator: httpx.Client, customer: str) -> None:
    batch = send(operator, [b"1", b"2"], customer=customer).json()
    assert (batch["customer"], server.queue.look(customer).waiting) == (customer, 2)
    assert problem_of(send(operator, [b"1"])) == "bad-value"


def test_a_batch_of_files_sent_again_with_its_key_doubles_nothing(server: Server, client: httpx.Client, customer: str) -> None:
    first = send(client, [b"1", b"2", b"3"], "k").json()
    kept = len(stored(server))
    again = send(client, [b"1", b"2", b"3"], "k").json()
    assert (first["id"], [document["id"] for document in first["documents"]]) == (
        again["id"],
        [document["id"] for document in again["documents"]],
    )
    assert [document["repeated"] for document in first["documents"] + again["documents"]] == [False] * 3 + [True] * 3
    for other in ([b"1", b"2", b"4"], [b"1", b"2"], [b"1", b"2", b"3", b"4"]):
        answer = send(client, other, "k")
        assert (answer.status_code, problem_of(answer)) == (409, "key-conflict")
    assert (
        problem_of(client.post("/v1/batches", json={"documents": [{}] * 3}, headers={"Idempotency-Key": "k"})) == "key-conflict"
    )
    assert server.queue.look(customer).waiting == 3
    assert len(stored(server)) == kept


def test_a_batch_whose_server_died_before_it_was_written_down_is_found_again(
    server: Server, client: httpx.Client, customer: str
) -> None:
    first = send(client, [b"1", b"2"], "k").json()
    record = server.queue.engine.record("batches", first["id"])
    assert record is not None
    server.queue.engine.put_record("batches", first["id"], None, record.version)  # as if it had never come to that
    assert client.get(first["links"]["self"]).status_code == 404
    again = send(client, [b"1", b"2"], "k").json()
    assert [document["id"] for document in again["documents"]] == [document["id"] for document in first["documents"]]
    assert client.get(first["links"]["self"]).json()["counts"] == {"ready": 2}
    assert server.queue.look(customer).waiting == 2


@pytest.mark.parametrize(
    ("contents", "fields", "word"),
    [
        ([b"1"] * 5, {}, "bad-value"),  # more than a batch may have
        ([b"1"] * 4, {}, "too-many-queued"),  # more than may wait
        ([b"1", bytes(600_000), bytes(600_000)], {}, "too-large"),
        ([b"1", b"", b"2"], {}, "bad-value"),
        ([], {"cost": "1"}, "wrong-media-type"),  # httpx sends no form then
        ([b"1"], {"name": "x"}, "bad-value"),
        ([b"1"], {"cost": "0"}, "bad-value"),
        ([b"1"], {"cost": "0.5"}, "bad-value"),  # which only an operator allows
        ([b"1"], {"delay": "x"}, "bad-value"),
        ([b"1"], {"kind": "folder"}, "bad-value"),
        ([b"1"], {"payload": "{"}, "bad-request"),
        ([b"1"], {"payload": '"' + "x" * 300_000 + '"'}, "too-large"),
        ([b"1"], {"customer": "somebody else"}, "nothing-here"),
    ],
)
def test_what_cannot_be_taken_leaves_nothing(small: Server, contents: list[bytes], fields: dict[str, str], word: str) -> None:
    with small.client(small.key("acme")) as client:
        answer = send(client, contents, **fields)
    assert (400 <= answer.status_code < 500, problem_of(answer)) == (True, word)
    assert list(small.queue.documents("acme")) == []
    until(lambda: stored(small) == [])


@pytest.mark.parametrize(
    ("body", "header", "word"),
    [
        (part(b"1") + b"--b--\r\n", "Content-Type: multipart/form-data", "bad-request"),
        (part(b"1") + b"--b--\r\n", "Content-Type: multipart/form-data; boundary=c", "bad-request"),
        (part(b"1"), FORM, "bad-request"),  # the end is missing
        (part(b"1") + b"--b", FORM, "bad-request"),
        (b"--b--\r\n", FORM, "bad-value"),
        (b"", FORM, "bad-request"),
        (part(b"1") + b'--b\r\nContent-Disposition: form-data; name="cost"\r\n\r\n2\r\n--b--\r\n', FORM, "bad-value"),
        (part(b"1") + b"--b\r\nContent-Type: text/plain\r\n\r\n2\r\n--b--\r\n", FORM, "bad-request"),
        (part(b"1") + part(b"2", "x" * 20_000) + b"--b--\r\n", FORM, "bad-request"),
        (b'--b\r\nContent-Disposition: form-data; name="cost"\r\n\r\n\xff\r\n' + part(b"1") + b"--b--\r\n", FORM, "bad-value"),
        (part(b"1") + b"--b--\r\n", "Content-Type: text/plain", "wrong-media-type"),
    ],
)
def test_a_form_that_is_not_one_leaves_nothing(small: Server, body: bytes, header: str, word: str) -> None:
    head = small.head(small.key("acme"), "POST", "/v1/batches", header, f"Content-Length: {len(body)}")
    answer = small.raw(head + b"\r\n" + body)
    assert (400 <= status_of(answer) < 500, problem_of(answer)) == (True, word)
    assert list(small.queue.documents("acme")) == []
    until(lambda: stored(small) == [])


@pytest.mark.parametrize("cut", [10, 200, 150_000, 400_000])
def test_a_batch_that_is_cut_off_leaves_nothing(small: Server, cut: int) -> None:
    body = part(bytes(100_000)) + part(bytes(100_000)) + part(bytes(300_000)) + b"--b--\r\n"
    head = small.head(small.key("cutter"), "POST", "/v1/batches", FORM, f"Content-Length: {len(body)}")
    with socket.create_connection(("127.0.0.1", small.port), timeout=30) as line:
        line.sendall(head + b"\r\n" + body[:cut])
        if cut > 150_000:
            until(lambda: len(stored(small)) >= 2)  # the first file is there, and will go
    until(lambda: stored(small) == [])
    assert list(small.queue.documents("cutter")) == []


def test_a_form_may_arrive_in_any_pieces(small: Server) -> None:
    body = part(b"one\r\n--") + part(b"\r\n--\r\n") + b"--b--\r\n"
    head = small.head(small.key("dripper"), "POST", "/v1/batches", FORM, f"Content-Length: {len(body)}")
    with socket.create_connection(("127.0.0.1", small.port), timeout=30) as line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        line.sendall(head + b"\r\n")
        for index in range(len(body)):
            line.sendall(body[index : index + 1])
        assert status_of(b"".join(received(line))) == 202
    contents = []
    for document in small.queue.documents("dripper"):
        with small.queue.file(document.id) as file:
            contents.append(file.read())
    assert sorted(contents) == [b"\r\n--\r\n", b"one\r\n--"]
    small.queue.forget("dripper")
