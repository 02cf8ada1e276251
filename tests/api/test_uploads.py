"""Files over HTTP: as a bare body or a form, whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from fairlane.core.document import Done, Failed

from .running import Server, problem_of, received, status_of, until

PDF = {"Content-Type": "application/pdf"}


def upload(client: httpx.Client, content: Any, key: str | None = None, **query: str) -> httpx.Response:
    headers = PDF | ({} if key is None else {"Idempotency-Key": key})
    return client.post("/v1/documents", content=content, headers=headers, params=query)


def stored(server: Server) -> list[Path]:
    """Every file that lies where files are."""
    walked = os.walk(f"{server.folder}/queue.db.blobs")  # which passes over folders that go meanwhile
    return [Path(folder, name) for folder, _, names in walked for name in names]


def pieces(size: int) -> Iterator[bytes]:
    for start in range(0, size, 65536):
        yield bytes(min(65536, size - start))


def test_a_bare_body_is_stored_byte_for_byte(server: Server, client: httpx.Client, customer: str) -> None:
    content = os.urandom(3_000_001)
    answer = upload(client, content, name="übung.pdf", payload='{"order": 17}', cost="2.5")
    assert answer.status_code == 202, answer.text
    id = answer.json()["id"]
    with server.queue.file(id) as stored_file:
        assert stored_file.read() == content
    file = server.queue.input(id)
    assert (file.name, file.size, file.sha256) == ("übung.pdf", len(content), hashlib.sha256(content).hexdigest())
    assert server.queue.payload(id) == {"order": 17}
    assert server.queue.document(id).cost == 2.5


def test_a_body_in_chunks_is_stored_too(server: Server, client: httpx.Client) -> None:
    id = upload(client, pieces(1_000_000)).json()["id"]
    assert server.queue.input(id).size == 1_000_000


def test_a_form_is_stored_with_its_fields(server: Server, client: httpx.Client) -> None:
    content = os.urandom(2_000_000)
    answer = client.post(
        "/v1/documents", files={"file": ("../../etc/passwd", content, "text/plain")}, data={"payload": "[1]", "cost": "pages"}
    )
    assert answer.status_code == 202, answer.text
    id = answer.json()["id"]
    with server.queue.file(id) as file:
        assert file.read() == content
    assert server.queue.payload(id) == [1]
    assert "passwd" not in " ".join(map(str, stored(server)))  # a name is told, never used
    assert server.queue.document(id).cost == 40  # a page for every 50,000 bytes


def test_fields_may_follow_the_file_of_a_form(server: Server, client: httpx.Client) -> None:
    content = os.urandom(3_000_001)
    file = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n' + content
    field = b'\r\n--b\r\nContent-Disposition: form-data; name="name"\r\n\r\nlate.txt\r\n--b--\r\n'
    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    answer = client.post("/v1/documents", content=file + field, headers=headers)
    assert answer.status_code == 202, answer.text
    id = answer.json()["id"]
    assert server.queue.input(id).name == "late.txt"
    with server.queue.file(id) as stored_file:
        assert stored_file.read() == content


@pytest.mark.parametrize("name", ["../../x", "/etc/passwd", "con", "a\x00b", "x" * 4000, "-rf", "\u202efdp.exe", ".", " "])
def test_a_name_is_only_shown(server: Server, client: httpx.Client, name: str) -> None:
    before = set(Path(server.folder).rglob("*"))
    id = upload(client, b"content", name=name).json()["id"]
    kept = server.queue.input(id).name
    assert kept is not None
    assert len(kept) <= 255
    new = {path.name for path in set(Path(server.folder).rglob("*")) - before if path.is_file()}
    assert {name for name in new if not name.startswith(("queue.db", "log"))} == {"input"}


def test_the_same_key_with_the_same_bytes_is_the_same_document(server: Server, client: httpx.Client, customer: str) -> None:
    first, again = upload(client, b"bytes", "k"), upload(client, b"bytes", "k")
    assert first.json()["id"] == again.json()["id"]
    assert (first.json()["repeated"], again.json()["repeated"]) == (False, True)
    other = upload(client, b"other", "k")
    assert (other.status_code, problem_of(other)) == (409, "key-conflict")
    assert server.queue.look(customer).waiting == 1


@pytest.mark.parametrize(
    ("content", "headers", "query", "word"),
    [
        (b"", PDF, {}, "bad-value"),
        (b"x", {"Content-Type": ""}, {}, "wrong-media-type"),
        (b"x", {"Content-Type": "application/x-www-form-urlencoded"}, {}, "wrong-media-type"),
        (b"x", PDF, {"more": "1"}, "bad-value"),
        (b"x", PDF, {"cost": "x"}, "bad-value"),
        (b"x", PDF, {"cost": "0"}, "bad-value"),
        (b"x", PDF, {"delay": "-1"}, "bad-value"),
        (b"x", PDF, {"kind": "folder"}, "bad-value"),
        (b"x", PDF, {"payload": "{"}, "bad-request"),
        (b"x", PDF, {"customer": "somebody else"}, "nothing-here"),
        (b"x", {"Content-Type": "multipart/form-data"}, {}, "bad-request"),
        (b"x", {"Content-Type": "multipart/form-data; boundary=b"}, {}, "bad-request"),
        (b"--b\r\n\r\n", {"Content-Type": "multipart/form-data; boundary=b"}, {}, "bad-request"),
        (b"--b--\r\n", {"Content-Type": "multipart/form-data; boundary=b"}, {}, "bad-value"),
        (b"x" * 2_000_000, PDF, {}, "too-large"),
    ],
)
def test_what_cannot_be_taken_leaves_nothing(
    small: Server, content: bytes, headers: dict[str, str], query: dict[str, str], word: str
) -> None:
    with small.client(small.key("acme")) as client:
        answer = client.post("/v1/documents", content=content, headers=headers, params=query)
    assert 400 <= answer.status_code < 500
    assert problem_of(answer) == word
    assert list(small.queue.documents("acme")) == []
    until(lambda: stored(small) == [])


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    limits = ("upload_bytes=1000000", "uploads_at_once=3")
    server = Server(Path(tmp_path_factory.mktemp("uploads")), limits=limits)
    server.queue.configure(waiting_max=5)
    yield server
    server.close()


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server for those who stall alone: a busy machine makes slow clients of all others."""
    server = Server(Path(tmp_path_factory.mktemp("hasty")), limits=("body_idle_seconds=1",))
    yield server
    server.close()


def test_a_form_with_several_files_is_refused(small: Server) -> None:
    with small.client(small.key("acme")) as client:
        answer = client.post("/v1/documents", files=[("a", b"1"), ("b", b"2")])
        assert problem_of(answer) == "bad-request"
    assert stored(small) == []


def test_chunks_that_are_too_much_in_all_leave_nothing(small: Server) -> None:
    with small.client(small.key("acme")) as client, suppress(httpx.WriteError):  # it had seen enough, and closed
        assert problem_of(upload(client, pieces(5_000_000))) == "too-large"
    until(lambda: stored(small) == [])


@pytest.mark.parametrize("cut", [1, 1000, 70_000, 499_999])
def test_an_upload_that_is_cut_off_leaves_nothing(small: Server, cut: int) -> None:
    key = small.key("cutter")
    head = small.head(key, "POST", "/v1/documents", "Content-Type: application/pdf", "Content-Length: 500000")
    with socket.create_connection(("127.0.0.1", small.port), timeout=30) as line:
        line.sendall(head + b"\r\n" + bytes(cut))
    until(lambda: stored(small) == [])
    assert list(small.queue.documents("cutter")) == []


def test_an_upload_that_stalls_is_let_go_and_leaves_nothing(hasty: Server) -> None:
    head = hasty.head(hasty.key("staller"), "POST", "/v1/documents", "Content-Type: application/pdf", "Content-Length: 500000")
    answer = hasty.raw(head + b"\r\n" + bytes(70_000))
    assert (status_of(answer), problem_of(answer)) == (408, "too-slow")
    until(lambda: stored(hasty) == [])
    assert list(hasty.queue.documents("staller")) == []


def test_a_batch_that_stalls_is_let_go_and_leaves_nothing(hasty: Server) -> None:
    form = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'
    media_type = "Content-Type: multipart/form-data; boundary=b"
    head = hasty.head(hasty.key("staller"), "POST", "/v1/batches", media_type, "Content-Length: 500000")
    answer = hasty.raw(head + b"\r\n" + form + bytes(100_000) + b"\r\n" + form + bytes(1000))
    assert (status_of(answer), problem_of(answer)) == (408, "too-slow")
    until(lambda: stored(hasty) == [])
    assert list(hasty.queue.documents("staller")) == []


def test_slow_uploads_do_not_hold_up_anybody_else(small: Server) -> None:
    key = small.key("slow")
    more = ("Content-Type: application/pdf", "Content-Length: 20", "Expect: 100-continue")
    head = small.head(key, "POST", "/v1/documents", *more)
    with ExitStack() as opened, small.client(small.key("fourth")) as fourth, small.client(small.key("quick")) as client:
        lines = [opened.enter_context(socket.create_connection(("127.0.0.1", small.port), timeout=30)) for _ in range(3)]
        for line in lines:
            line.sendall(head + b"\r\n")
            assert status_of(line.recv(65536)) == 100  # it was let in: nobody can take its place any more
            line.sendall(bytes(10))
        over = upload(fourth, b"x")
        assert (over.status_code, problem_of(over)) == (503, "overloaded")
        assert client.post("/v1/documents", json={}).status_code == 202
        for line in lines:
            line.sendall(bytes(10))
            assert status_of(b"".join(received(line))) == 202
    for customer in ("slow", "fourth", "quick"):
        small.queue.forget(customer)


def test_too_many_queued_is_reported_before_the_bytes_are_sent(small: Server) -> None:
    small.queue.submit_many("heap", [1] * 5)
    head = small.head(small.key("heap"), "POST", "/v1/documents", "Content-Type: application/pdf", "Content-Length: 500000")
    answer = small.raw(head + b"\r\n")
    assert (status_of(answer), problem_of(answer)) == (429, "too-many-queued")


def test_a_full_quota_is_reported_before_the_bytes_are_sent(small: Server) -> None:
    small.queue.tune("hoard", bytes_max=20)
    small.queue.submit("hoard", "012345678901234567")
    head = small.head(small.key("hoard"), "POST", "/v1/documents", "Content-Type: application/pdf", "Content-Length: 500000")
    answer = small.raw(head + b"\r\n")
    assert (status_of(answer), problem_of(answer)) == (507, "quota-full")


def test_a_file_that_does_not_fit_the_quota_leaves_nothing(small: Server) -> None:
    small.queue.tune("tight", bytes_max=1000)
    with small.client(small.key("tight")) as client:
        answer = client.post("/v1/documents", content=bytes(2000), headers={"Content-Type": "application/pdf"})
        assert (answer.status_code, problem_of(answer)) == (507, "quota-full")
        assert (answer.json()["limit"], answer.json()["most"]) == ("bytes_max", 1000)
        assert answer.json()["adding"] > 2000  # with what is known of the file
        assert client.get("/v1/me").json()["standing"]["bytes"] == 0
    assert small.queue.look("tight").documents == 0
    until(lambda: stored(small) == [])


def test_text_and_picture_of_a_document_that_is_done(server: Server, client: httpx.Client, customer: str) -> None:
    id = upload(client, b"one two three").json()["id"]

    def worked() -> bool:
        for claim in server.claim(100):
            results = server.queue.put_results(claim.customer, claim.id, claim.token, text="# zażółć", thumbnail=b"\x89PNG")
            server.queue.engine.settle([(claim, Done(json.dumps({**results, "pages": 1})))])
        return server.queue.document(id).state == "done"

    until(worked)
    answer = client.get(f"/v1/documents/{id}/text")
    assert (answer.text, answer.headers["content-type"]) == ("# zażółć", "text/markdown; charset=utf-8")
    answer = client.get(f"/v1/documents/{id}/thumbnail")
    assert (answer.content, answer.headers["content-type"]) == (b"\x89PNG", "image/png")
    assert client.get(f"/v1/documents/{id}/result").json()["pages"] == 1


def test_where_no_text_came_out_there_is_nothing(server: Server, client: httpx.Client) -> None:
    id = client.post("/v1/documents", json={}).json()["id"]
    assert problem_of(client.get(f"/v1/documents/{id}/text")) == "wrong-state"
    until(lambda: server.queue.document(id).state == "done" or server.finish(100))
    assert problem_of(client.get(f"/v1/documents/{id}/text")) == "nothing-here"
    id = client.post("/v1/documents", json={}).json()["id"]
    until(lambda: server.queue.document(id).state == "failed" or _failed(server))
    assert problem_of(client.get(f"/v1/documents/{id}/thumbnail")) == "wrong-state"


def _failed(server: Server) -> bool:
    return bool(server.queue.engine.settle([(claim, Failed("torn")) for claim in server.claim(100)]))


def test_an_upload_that_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    server = Server(tmp_path)
    try:
        with server.client(server.key("acme")) as client:
            id = upload(client, b"kept").json()["id"]
        server.stop(signal.SIGKILL)
        with server.queue.file(id) as file:
            assert file.read() == b"kept"
    finally:
        server.queue.close()
