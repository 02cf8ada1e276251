"""Export of a customer: everything of it and nothing of others, complete or not there, in bounded memory."""

from __future__ import annotations

import io
import json
import os
import signal
import stat
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from fairlane import BadValue, Mistake, Queue, StoreError, Unknown
from fairlane.api import auth
from fairlane.core.document import Claim, Done
from fairlane.queue import export as export_module
from fairlane.queue.export import CustomerExport
from fairlane.queue.export_archive import read_summary
from tests.engine.conftest import ENGINES, url_of
from tests.servers import redis

from .archive import Exported
from .everything import CUSTOMER, MARK, fill, fill_records

OTHER = "hjw4402"


@pytest.fixture(params=ENGINES)
def queue(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Queue]:
    url = url_of(request.param, tmp_path)
    with Queue(url, blobs=str(tmp_path / "blobs")) as queue:
        yield queue
    redis.drop_url(url)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Queue]:
    with Queue(f"sqlite:///{tmp_path}/queue.db") as queue:
        yield queue


def test_everything_of_a_customer_is_in_its_export_and_nothing_of_others(queue: Queue, tmp_path: Path) -> None:
    fill(queue, f"{OTHER} neighbour", OTHER, "other")
    fill(queue, CUSTOMER)
    fill_records(queue, CUSTOMER)
    auth.create(queue.engine, customer=f"{OTHER} neighbour")
    exported = queue.export(CUSTOMER, tmp_path / "all.tar")
    assert exported == (10, 11, (tmp_path / "all.tar").stat().st_size, 0, ())
    archive = Exported(tmp_path / "all.tar")
    documents = {row["id"]: row for row in archive.rows("documents")}
    assert list(documents) == [document.id for document in queue.documents(CUSTOMER)]
    for id, row in documents.items():
        assert (row["payload"], row["state"], row["reason"]) == (
            queue.payload(id),
            queue.document(id).state,
            queue.document(id).reason,
        )
        assert [each["traceback"] for each in row["failed_attempts"]] == [f"{MARK} traceback"] * len(row["failed_attempts"])
    assert sum(len(row["failed_attempts"]) for row in documents.values()) == 2
    (partial,) = (row["progress"]["partial"] for row in documents.values() if row["progress"])
    assert partial == {"partial": f"{MARK} so far"}
    (done,) = (row for row in documents.values() if row["state"] == "done")
    assert done["result"] == queue.result(done["id"])
    files = {file["name"]: archive.members[file["path"]].decode() for file in done["files"]}
    assert files == {
        "original.txt": f"{MARK} content 0", "text.md": f"{MARK} text", "facts.json": f'{{"author": "{MARK} author"}}',
        "thumbnail.png": f"{MARK} png",
    }  # fmt: skip
    history = [change["event"] for change in archive.rows("changes") if change["document"] == done["id"]]
    assert history == ["submitted", "claimed", "corrected", "done"]
    assert {row["group"] for row in archive.rows("records")} == {
        "keys", "upload tokens", "people", "webhooks", "webhook customers", "webhook deliveries", "webhook failures",
        "webhook status",
        "batches", "celery retries",
    }  # fmt: skip
    assert json.loads(archive.members["customer.json"])["terms"] == {
        "weight": 2, "cap": 100, "documents_max": 1000, "bytes_max": 10**9, "retries_max": 7, "cost_min": 0.5,
    }  # fmt: skip
    assert not [path for path, content in archive.members.items() if OTHER.encode() in content]


def test_nothing_that_grants_access_is_in_an_export(small: Queue, tmp_path: Path) -> None:
    for _ in range(3):
        small.submit("acme", {"digest": "the customer's own word", "secret": 1})
    fill_records(small, "acme")
    secrets = [json.loads(record.value) for group in ("keys", "webhooks") for record in small.engine.records(group, "", 10)]
    small.export("acme", tmp_path / "acme.tar")
    archive = Exported(tmp_path / "acme.tar")
    text = b"".join(archive.members.values()).decode()
    assert secrets[0]["digest"] not in text
    assert f"{MARK} name" in text  # somebody who is signed in
    assert f"{MARK} token" not in text
    assert secrets[1]["secrets"][0]["secret"] not in text
    assert archive.rows("documents")[-1]["payload"] == {"digest": "the customer's own word", "secret": 1}


def test_pages_for_people_escape_what_customers_wrote(small: Queue, tmp_path: Path) -> None:
    name = '<script>alert(1)</script>"x.html'
    small.submit("<b>acme", content=b"x", name=name)
    small.export("<b>acme", tmp_path / "acme.tar.gz")
    archive = Exported(tmp_path / "acme.tar.gz")
    page = archive.members["documents/000001.html"].decode()
    assert "&lt;script&gt;" in page
    assert "<script" not in page + archive.members["index.html"].decode()
    (document,) = archive.rows("documents")
    assert (document["file"]["name"], document["files"][0]["name"]) == (name, "original.html")
    assert f'<a href="../files/{document["id"]}/original.html">' in page


def test_many_documents_are_split_into_parts(small: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_module, "PART_ROWS", 7)
    small.submit_many("acme", range(20))
    small.export("acme", tmp_path / "acme.tar")
    archive = Exported(tmp_path / "acme.tar")
    assert [row["payload"] for row in archive.rows("documents")] == [*range(19, -1, -1)]
    assert sum(path.startswith("documents/") for path in archive.members) == 6
    assert 'href="documents/000003.html"' in archive.members["index.html"].decode()
    assert len(archive.rows("changes")) == 20


def test_memory_does_not_grow_with_the_documents_and_their_files(small: Queue) -> None:
    for _ in range(6):
        small.submit_many("many", [{"text": "x" * 2000}] * 1000)
    small.submit("many", content=b"x" * 50_000_000)
    small.submit("few", {"text": "x" * 2000})

    def peak(customer: str) -> int:
        tracemalloc.start()
        for _ in CustomerExport(small.engine, small.files, customer):
            pass
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return peak

    peak("few")  # imports and caches
    assert peak("many") < 24_000_000  # a part of 4 MB with what it is made of, and a page of rows


def test_a_document_is_exported_as_it_was_at_one_moment(small: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small.submit("acme", {"n": 1})
    claims: list[Claim] = []
    body, moves = small.engine.body, iter(["claim", "settle"])

    def move_after_reading(document: str) -> object:
        found = body(document)
        match next(moves, None):
            case "claim":
                claims.extend(small.engine.claim("worker", 1, 60_000))
            case "settle":
                small.engine.settle([(claims[0], Done('"made"'))])
        return found

    monkeypatch.setattr(small.engine, "body", move_after_reading)
    small.export("acme", tmp_path / "acme.tar")
    (row,) = Exported(tmp_path / "acme.tar").rows("documents")
    assert (row["state"], row["result"]) == ("done", "made")


def test_files_that_are_missing_or_damaged_are_named(small: Queue, tmp_path: Path) -> None:
    kept, missing, damaged = (small.submit("acme", content=b"bytes").id for _ in range(3))
    (gone,) = tmp_path.rglob(f"*/{missing}/input")
    gone.unlink()
    (changed,) = tmp_path.rglob(f"*/{damaged}/input")
    changed.write_bytes(b"other")
    exported = small.export("acme", tmp_path / "acme.tar")
    assert (exported.files, exported.missing, set(exported.missing_documents)) == (1, 2, {missing, damaged})
    rows = {row["id"]: row for row in Exported(tmp_path / "acme.tar").rows("documents")}
    assert "are damaged" in rows[damaged]["files"][0]["missing"]
    assert "path" in rows[kept]["files"][0]


def test_an_archive_has_its_name_only_when_it_is_complete(small: Queue, tmp_path: Path) -> None:
    small.submit("acme", {"n": 1})
    path = tmp_path / "acme.tar"
    script = (
        "import os, signal, sys; from fairlane import Queue\n"
        "def die(what, done, total):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
        "Queue(sys.argv[1]).export('acme', sys.argv[2], on_progress=die)"
    )
    ran = subprocess.run([sys.executable, "-c", script, small.url, str(path)], check=False)
    assert ran.returncode == -signal.SIGKILL
    assert not path.exists()
    assert (tmp_path / "acme.tar.unfinished").exists()
    small.export("acme", path)  # the next one overwrites what is left
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(each.name for each in tmp_path.glob("acme*")) == ["acme.tar"]
    before = path.read_bytes()
    with pytest.raises(Mistake, match=r"acme.tar exists; it is not overwritten"):
        small.export("acme", path)
    assert path.read_bytes() == before


def test_bad_names_and_places_are_refused(small: Queue, tmp_path: Path) -> None:
    small.submit("acme")
    with pytest.raises(BadValue, match=r"ends with \.tar, \.tar\.gz or \.tgz"):
        small.export("acme", tmp_path / "acme.zip")
    with pytest.raises(Unknown, match="there is no customer 'acmee'"):
        small.export("acmee", tmp_path / "acmee.tar")
    with pytest.raises(Mistake, match="cannot be written: No such file or directory"):
        small.export("acme", tmp_path / "no" / "acme.tar")
    assert list(islice(tmp_path.glob("*.tar*"), 1)) == []
    os.mkfifo(tmp_path / "acme.tar")
    with pytest.raises(Mistake, match="exists"):
        small.export("acme", tmp_path / "acme.tar")


def test_an_archive_that_breaks_off_is_known_by_its_end(small: Queue, tmp_path: Path) -> None:
    small.submit("acme", content=b"bytes")
    small.export("acme", tmp_path / "acme.tar")
    content = (tmp_path / "acme.tar").read_bytes()
    assert read_summary(io.BytesIO(content))["documents"] == 1
    whole = len(content.rstrip(b"\0"))
    for size in (*range(0, whole, 101), whole - 2):
        with pytest.raises(StoreError, match="breaks off before its end"):
            read_summary(io.BytesIO(content[:size]))
