"""What every store of bytes promises, on a folder and on S3."""

from __future__ import annotations

import hashlib
import io
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlane.blobs import files as files_module
from fairlane.blobs.envelope import BlobDigest, File
from fairlane.blobs.files import Files
from fairlane.core.errors import BadValue, BlobDamaged, FairlaneError, Mistake, Unknown
from fairlane.queue import new_ids

MEGABYTE = 1_000_000


def put(files: Files, content: Any, customer: str = "acme", id: str | None = None) -> tuple[str, File]:
    id = id or new_ids(1)[0]
    written = files.put_input(customer, id, content)
    return id, File("a.pdf", *written)


def keys(files: Files) -> list[str]:
    return [file.key for file in files.blobs.list_folder(files.namespace)]


def read(files: Files, id: str, file: File, customer: str = "acme") -> bytes:
    with files.open_input(customer, id, file) as opened:
        return opened.read()


class Endless(io.RawIOBase):
    """A file that goes on for so many bytes, or for ever, or breaks."""

    def __init__(self, size: int, error: Exception | None = None) -> None:
        self.left = size
        self.error = error

    def read(self, size: int = -1) -> bytes:
        if self.left <= 0:
            if self.error is not None:
                raise self.error
            return b""
        self.left -= size
        return b"x" * size


@pytest.mark.parametrize("size", [0, 1, 256 * 1024, 3 * MEGABYTE, 20 * MEGABYTE + 1])
def test_what_is_put_comes_back_with_its_size_and_hash(files: Files, size: int) -> None:
    content = (b"%020d" % size * (size // 20 + 1))[:size]
    id, file = put(files, content)
    assert (file.size, file.sha256) == (size, hashlib.sha256(content).hexdigest())
    assert read(files, id, file) == content
    id, file = put(files, io.BytesIO(content))
    assert read(files, id, file) == content


def test_a_file_that_lies_on_this_machine_shows_its_path_and_no_other_does(files: Files, where: str) -> None:
    id, file = put(files, b"here")
    with files.open_input("acme", id, file) as opened:
        if where.startswith("s3:"):
            assert not isinstance(opened.name, str)
        else:
            assert Path(opened.name).read_bytes() == b"here"


def test_memory_does_not_grow_with_the_file(files: Files) -> None:
    tracemalloc.start()
    try:
        id, file = put(files, Endless(90 * 1024 * 1024))
        files.open_input("acme", id, file).close()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert file.size == 90 * 1024 * 1024
    assert peak < 32 * 1024 * 1024


def test_what_is_too_large_is_refused_and_nothing_stays(files: Files) -> None:
    with pytest.raises(BadValue, match="content is 'more than 100,000,000 bytes'; it must be at most 100,000,000 bytes"):
        put(files, Endless(150_000_000))
    assert keys(files) == []
    assert list(files.blobs.list_folder("unfinished")) == []


def test_a_file_that_breaks_while_it_is_read_leaves_nothing(files: Files) -> None:
    for size in (0, 20 * MEGABYTE):
        with pytest.raises(Mistake, match=r"the content cannot be read to its end: .*gone"):
            put(files, Endless(size, OSError(5, "gone")))
        with pytest.raises(ZeroDivisionError):
            put(files, Endless(size, ZeroDivisionError()))
    with pytest.raises(BadValue, match="bytes, or a file that is open for reading bytes"):
        put(files, io.StringIO("text"))
    assert keys(files) == []
    assert list(files.blobs.list_folder("unfinished")) == []


def test_what_is_not_there_is_unknown(files: Files) -> None:
    id, file = put(files, b"one")
    files.remove_inputs("acme", [id])
    files.remove_inputs("acme", [id])
    assert keys(files) == []
    with pytest.raises(Unknown, match=f"the bytes of document {id} are not in"):
        files.open_input("acme", id, file)
    with pytest.raises(Unknown, match="its id was not made by the queue"):
        files.open_input("acme", "../" * 12, file)


@pytest.mark.parametrize("token", [3, 1000])
def test_all_files_of_a_document_are_removed_whatever_its_token(files: Files, token: int) -> None:
    id, _ = put(files, b"one")
    other, _ = put(files, b"other")
    for number in (1, token - 1, token):
        files.put_results("acme", id, number, text="text", facts={}, thumbnail=b"png")
    files.remove_documents([(id, "acme", token), (new_ids(1)[0], "acme", token), ("another-sort-of-id", "acme", 1)])
    assert [file.document for file in files.list_files()] == [other]
    files.remove_documents([(other, "acme", 0), (id, "acme", token)])
    assert keys(files) == []


def test_damaged_bytes_are_an_error_and_never_handed_out(files: Files) -> None:
    content = bytes(range(256)) * 2000
    id, file = put(files, content)
    (key,) = keys(files)
    damages = (content[:-1], content + b"x", b"", content[:70_000] + b"\x00" + content[70_001:], b"y" + content[1:])
    for damaged in damages:
        files.blobs.put({key: [damaged]})
        with pytest.raises(BlobDamaged, match=f"the bytes of document {id} are damaged: there should be 512,000 bytes"):
            files.open_input("acme", id, file)
    files.blobs.put({key: [content]})
    assert read(files, id, file) == content


def test_results_carry_the_token_so_a_late_worker_overwrites_nothing(files: Files) -> None:
    (id,) = new_ids(1)
    first = files.put_results("acme", id, 7, text="late", facts={"pages": 1}, thumbnail=b"png")
    second = files.put_results("acme", id, 8, text="żółw")
    assert set(first) == {"text", "facts", "thumbnail"}
    assert set(second) == {"text"}
    for token, written, wanted in ((7, first, "late"), (8, second, "żółw")):
        with files.open_result("acme", id, token, "text", written["text"]) as file:
            assert file.read().decode() == wanted
    with pytest.raises(BlobDamaged):
        files.open_result("acme", id, 8, "text", first["text"])
    tokens: list[Any] = [-1, True, "1", 1.0]
    for wrong in tokens:
        with pytest.raises(BadValue, match="the token of the claim"):
            files.put_results("acme", id, wrong, text="x")


def test_customers_never_meet_whatever_their_ids(files: Files) -> None:
    (id,) = new_ids(1)
    customers = [
        "../x",
        "x",
        "/etc",
        "..",
        ".",
        "a/b",
        "a",
        "caf\u00e9",
        "cafe\u0301",
        "CON",
        "ACME",
        "acme",
        "*",
        "%2e%2e",
        "~" * 200,
    ]
    written = {customer: put(files, customer.encode(), customer, id)[1] for customer in customers}
    assert len(keys(files)) == len(customers)
    for customer, file in written.items():
        assert read(files, id, file, customer) == customer.encode()
        assert [file.document for file in files.list_files(customer)] == [id]


def test_queues_share_a_store_without_seeing_each_other(files: Files, where: str) -> None:
    other = Files(where, "fedcba9876543210")
    id, _ = put(files, b"one")
    put(other, b"other", id=id)
    assert len(keys(files)) == len(keys(other)) == 1
    other.blobs.remove(keys(other))
    assert len(keys(files)) == 1


def test_a_listing_is_in_order_and_goes_on_after_any_key(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlane.blobs.folder.NAMES_MAX", 2)
    monkeypatch.setattr("fairlane.blobs.s3.LIST_PAGE_SIZE", 2)
    for customer in ("a", "b", "c"):
        for id in new_ids(3):
            put(files, b"x", customer, id)
            files.put_results(customer, id, 3, text="t", facts={})
    listed = list(files.list_files())
    assert len(listed) == 27
    assert [file.key for file in listed] == sorted(file.key for file in listed)
    assert {(file.token, file.size) for file in listed} == {(None, 1), (3, 1), (3, 2)}
    assert all(-5 < file.age_seconds < 300 for file in listed)
    for number, file in enumerate(listed):
        assert [later.key for later in files.list_files(after=file.key)] == [later.key for later in listed[number + 1 :]]


def test_what_is_not_ours_is_passed_over(files: Files) -> None:
    id, _ = put(files, b"one")
    (key,) = keys(files)
    folder = key.rpartition("/")[0]
    for foreign in (f"{folder}/notes", f"{folder}/1-other", f"{files.namespace}/x/y/input", f"{files.namespace}/README"):
        files.blobs.put({foreign: [b"mine"]})
    assert [file.document for file in files.list_files()] == [id]


def test_writers_and_removers_of_one_document_do_not_hinder_each_other(files: Files) -> None:
    (id,) = new_ids(1)
    errors: list[FairlaneError] = []

    def write_and_remove(token: int) -> None:
        try:
            for _ in range(20):
                written = files.put_results("acme", id, token, text=str(token))["text"]
                files.open_result("acme", id, token, "text", written).close()
                files.blobs.remove([file.key for file in files.list_files("acme") if file.token == token])
        except FairlaneError as error:
            errors.append(error)

    threads = [threading.Thread(target=write_and_remove, args=(token,)) for token in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert keys(files) == []


def test_the_cap_is_what_the_documentation_says() -> None:
    assert files_module.SIZE_MAX == 100_000_000
    assert BlobDigest(1, "a") == (1, "a")


def never_ending() -> Iterator[bytes]:
    yield b"x" * MEGABYTE
    raise KeyboardInterrupt


def test_an_interrupt_leaves_nothing(files: Files) -> None:
    with pytest.raises(KeyboardInterrupt):
        files.blobs.put({f"{files.namespace}/a/b/input": never_ending()})
    assert keys(files) == []
    assert list(files.blobs.list_folder("unfinished")) == []


def test_of_several_results_nothing_is_left_if_one_cannot_be_read(files: Files) -> None:
    folder = f"{files.namespace}/a/b"
    with pytest.raises(KeyboardInterrupt):
        files.blobs.put({f"{folder}/1-text": [b"whole"], f"{folder}/1-thumbnail": never_ending()})
    assert [key for key in keys(files) if key.endswith("thumbnail")] == []
    assert list(files.blobs.list_folder("unfinished")) == []
