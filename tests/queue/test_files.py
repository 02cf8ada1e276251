"""Files of documents: in with the submission, out by id, gone with the document."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane import AsyncQueue, BadValue, Input, KeyConflict, Mistake, Queue, Receipt, StoreError, Unknown, WrongState
from fairlane.blobs.envelope import unwrap_payload
from fairlane.blobs.page_count import PageCounter
from fairlane.core.document import Done, Failed
from fairlane.core.errors import StoreBusy, StoreFrozen
from fairlane.core.policy import Rules
from fairlane.queue.files import QueueFiles
from tests.engine.conftest import ENGINES, url_of
from tests.servers import redis

from .conftest import age, bytes_of, done_with_results, stored_documents

# -- in and out ------------------------------------------------------------------------------------------------------


def test_a_file_comes_back_with_its_name_beside_the_payload(queue: Queue, tmp_path: Path) -> None:
    (tmp_path / "invoice.pdf").write_bytes(b"%PDF-1.7 one")
    first = queue.submit("acme", {"order": 17}, path=tmp_path / "invoice.pdf")
    (tmp_path / "invoice.pdf").unlink()
    second = queue.submit("acme", content=b"two", name="two.txt")
    third = queue.submit("acme", content=io.BytesIO(b"three"))
    assert [bytes_of(queue, receipt.id) for receipt in (first, second, third)] == [b"%PDF-1.7 one", b"two", b"three"]
    assert [queue.input(receipt.id).name for receipt in (first, second, third)] == ["invoice.pdf", "two.txt", None]
    assert [queue.payload(receipt.id) for receipt in (first, second, third)] == [{"order": 17}, None, None]
    assert [receipt.counter for receipt in (first, second, third)] == [0, -1, -2]
    (claim,) = queue.engine.claim("w", 1, 60_000)
    file, payload = unwrap_payload(json.loads(claim.payload))
    assert (file, payload) == (queue.input(first.id), {"order": 17})


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_keeps_files_and_a_repeated_key_keeps_one(engine: str, tmp_path: Path) -> None:
    url = url_of(engine, tmp_path)
    with Queue(url, blobs=str(tmp_path / "blobs")) as queue:
        receipts = [queue.submit("acme", content=b"one", key="k") for _ in range(2)]
        assert receipts[1] == receipts[0]._replace(repeated=True)
        assert stored_documents(queue) == [receipts[0].id]
        with pytest.raises(KeyConflict):
            queue.submit("acme", content=b"other", key="k")
        assert stored_documents(queue) == [receipts[0].id]
        id = done_with_results(queue, text="text")
        assert (queue.text(id), bytes_of(queue, id)) == ("text", b"one")
        assert queue.sweep(grace=0).removed == 0
        assert queue.forget("acme").documents == 1
        assert stored_documents(queue) == []
    redis.drop_url(url)


def test_many_files_are_one_commit_all_or_none(queue: Queue, tmp_path: Path) -> None:
    (parent,) = (queue.submit("acme", content=b"PK").id,)
    members = [Input(content=b"%d" % n, name=f"{n}.txt", key=f"{parent}/{n}", depth=1, parent=parent) for n in range(5)]
    receipts = queue.submit_files("acme", members)
    assert [receipt.counter for receipt in receipts] == [-1, -2, -3, -4, -5]
    assert queue.submit_files("acme", members) == [receipt._replace(repeated=True) for receipt in receipts]
    assert [queue.input(receipt.id)[3:5] + queue.input(receipt.id)[:1] for receipt in receipts] == [
        (1, parent, f"{n}.txt") for n in range(5)
    ]
    before = stored_documents(queue)
    assert len(before) == 6
    for bad in (Input(path=tmp_path / "nope"), Input(content=b"other", key=f"{parent}/0")):
        with pytest.raises(Mistake):
            queue.submit_files("acme", [Input(content=b"new"), bad])
    assert stored_documents(queue) == before
    assert queue.look("acme").waiting == 6
    assert queue.submit_files("acme", []) == []


def test_the_same_key_twice_in_one_call_is_one_document(queue: Queue) -> None:
    first, second = queue.submit_files("acme", [Input(content=b"one", key="k"), Input(content=b"one", key="k")])
    assert second == first._replace(repeated=True)
    assert stored_documents(queue) == [first.id]


def test_what_cannot_be_is_refused_before_a_byte_is_written(queue: Queue, tmp_path: Path) -> None:
    content = io.BytesIO(b"one")
    wrong: list[dict[str, Any]] = [
        {"content": content, "path": "README.md"},
        {"name": "a.pdf"},
        {"content": content, "payload": float("nan")},
        {"content": content, "payload": "x" * 260_000},
        {"content": content, "key": ""},
        {"content": content, "kind": ""},
        {"content": content, "cost": "page"},
        {"content": content, "cost": 0},
        {"content": content, "name": ""},
        {"content": content, "name": 7},
        {"content": "text"},
        {"cost": "pages"},
        {"payload": {"fairlane.file": {}}},
    ]
    for options in wrong:
        with pytest.raises(BadValue):
            queue.submit("acme", **options)
    files: list[Any] = [
        Input(content=b""),
        "a.pdf",
        [b"one"],
        [Input(content=b"", depth=-1)],
        [Input(content=b"", parent="")],
        7,
    ]
    for inputs in files:
        with pytest.raises(BadValue):
            queue.submit_files("acme", inputs)
    assert content.tell() == 0
    assert not (tmp_path / "blobs").exists() or stored_documents(queue) == []
    assert queue.look("acme").waiting == 0


def test_a_queue_that_is_no_file_needs_a_location_for_files() -> None:
    with Queue("memory://") as queue:
        with pytest.raises(Mistake, match=r"this queue has no storage for files: configure one, .* FAIRLANE_BLOBS"):
            queue.submit("acme", content=b"one")
        assert queue.submit("acme", {"n": 1}).counter == 0
        assert queue.purge(0) == 0
        assert queue.forget("acme").documents == 1
        assert queue.sweep() == (0, 0, 0, None)


def test_a_queue_in_a_file_has_its_files_beside_it_wherever_it_is_opened_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Queue("sqlite:///queue.db") as queue:
        queue.submit("acme", {"n": 1})
        assert not (tmp_path / "queue.db.blobs").exists()  # nothing is made until it is needed
        monkeypatch.chdir("/")
        id = queue.submit("acme", content=b"one").id
    with Queue(f"sqlite:///{tmp_path}/queue.db") as queue:
        assert bytes_of(queue, id) == b"one"
    assert (tmp_path / "queue.db.blobs").is_dir()


def test_files_of_a_queue_without_a_configured_location_are_not_forgotten(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/queue.db"
    with Queue(url, blobs=str(tmp_path / "blobs")) as queue:
        id = queue.submit("acme", content=b"one").id
        queue.files = QueueFiles(queue.engine, "memory://", None)  # as on a server without --blobs
        with pytest.raises(Mistake, match="no storage for files"):
            queue.forget("acme")
        assert queue.document(id).state == "ready"


def test_awaited_verbs_do_the_same(tmp_path: Path) -> None:
    async def run() -> None:
        async with AsyncQueue(f"sqlite:///{tmp_path}/queue.db", blobs=str(tmp_path / "elsewhere")) as queue:
            receipt = await queue.submit("acme", content=b"one", name="a")
            await queue.submit_files("acme", [Input(content=b"two")])
            with await queue.file(receipt.id) as file:
                assert file.read() == b"one"
            assert (await queue.input(receipt.id)).name == "a"
            done_with_results(queue.queue, text="t", facts={"a": 1}, thumbnail=b"p")
            results = (await queue.text(receipt.id), await queue.facts(receipt.id), await queue.thumbnail(receipt.id))
            assert results == ("t", {"a": 1}, b"p")
            assert (await queue.sweep(grace=0)).removed == 0

    asyncio.run(run())
    assert (tmp_path / "elsewhere").is_dir()


# -- results ---------------------------------------------------------------------------------------------------------


def test_results_are_read_when_the_document_is_done(queue: Queue) -> None:
    with pytest.raises(Unknown, match="there is no document nope"):
        queue.text("nope")
    id = queue.submit("acme", content=b"one").id
    with pytest.raises(WrongState, match=f"document {id} has no result: it is ready"):
        queue.text(id)
    assert done_with_results(queue, text="żółw\n", facts={"pages": [1]}) == id
    assert (queue.text(id), queue.facts(id), queue.result(id)["pages"]) == ("żółw\n", {"pages": [1]}, 2)
    with pytest.raises(Unknown, match=f"document {id} has no thumbnail"):
        queue.thumbnail(id)
    plain = queue.submit("acme", {"n": 1}).id
    for verb in (queue.file, queue.input):
        with pytest.raises(Unknown, match="was submitted without a file"):
            verb(plain)


def test_results_of_other_attempts_are_swept(queue: Queue, tmp_path: Path) -> None:
    id = queue.submit("acme", content=b"one").id
    (late,) = queue.engine.claim("w", 1, 1, now_ms=1)
    queue.put_results("acme", id, late.token, text="late")
    assert queue.engine.reclaim(10, now_ms=10**12) == 1
    assert queue.sweep(grace=0).removed == 0  # it is still the newest token
    done_with_results(queue, text="last")
    queue.put_results("acme", id, late.token, thumbnail=b"late")
    result = queue.sweep(grace=0)
    assert (result.looked, result.removed, result.bytes) == (4, 2, 8)
    assert (queue.text(id), bytes_of(queue, id)) == ("last", b"one")
    failed = queue.submit("acme", content=b"two").id
    (claim,) = queue.engine.claim("w", 1, 60_000)
    queue.put_results("acme", failed, claim.token, text="half")
    queue.engine.settle([(claim, Failed("torn"))])
    assert queue.sweep(grace=0).removed == 1
    assert bytes_of(queue, failed) == b"two"  # a person may retry it


# -- at the same time --------------------------------------------------------------------------------------------------


def test_the_same_key_at_once_is_one_document_with_one_file(queue: Queue) -> None:
    receipts: list[Receipt] = []
    together = threading.Barrier(32)

    def send() -> None:
        together.wait()
        receipts.append(queue.submit("acme", content=b"one" * 1000, key="k"))

    threads = [threading.Thread(target=send) for _ in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(receipts), len({receipt.id for receipt in receipts})) == (32, 1)
    assert stored_documents(queue) == [receipts[0].id]
    assert bytes_of(queue, receipts[0].id) == b"one" * 1000


def test_a_submission_that_surely_failed_leaves_nothing_and_a_doubtful_one_everything(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    for error, left in ((StoreBusy("busy"), 0), (StoreFrozen("is moved"), 0), (StoreError("the disk failed"), 1)):

        def fails(*_: Any, error: Exception = error, **__: Any) -> Any:
            raise error

        with monkeypatch.context() as patched:
            patched.setattr(queue.engine, "submit", fails)
            with pytest.raises(type(error)):
                queue.submit("acme", content=b"one")
        assert len(stored_documents(queue)) == left
    assert queue.sweep().removed == 0  # too young
    assert queue.sweep(grace=0).removed == 1


# -- the sweep -------------------------------------------------------------------------------------------------------


def test_the_sweep_goes_in_slices_and_goes_on_where_it_was(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlane.blobs.gc.REMOVE_BATCH_SIZE", 3)
    needed = {queue.submit(f"c{n % 3}", content=b"1").id for n in range(10)}
    files = queue.files.open()
    for n in range(10):
        files.put_input(f"c{n % 3}", f"{n:08x}-0000-7000-8000-000000000000", b"orphan")
    mark, removed, slices = None, 0, 0
    while slices == 0 or mark is not None:
        result = queue.sweep(grace=0, timeout=0, after=mark)
        mark, removed, slices = result.mark, removed + result.removed, slices + 1
        assert result.looked <= 1
        assert slices < 100
    assert (removed, slices) == (10, 21)
    assert set(stored_documents(queue)) == needed
    assert all(bytes_of(queue, id) == b"1" for id in needed)


def test_sweepers_do_not_hinder_each_other(queue: Queue) -> None:
    files, needed = queue.files.open(), queue.submit("acme", content=b"1").id
    for n in range(100):
        files.put_input("acme", f"{n:08x}-0000-7000-8000-000000000000", b"orphan")
    errors: list[Exception] = []

    def sweep() -> None:
        try:
            queue.sweep(grace=0)
        except StoreError as error:
            errors.append(error)

    threads = [threading.Thread(target=sweep) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (errors, stored_documents(queue)) == ([], [needed])


def test_a_frozen_queue_does_not_sweep_what_may_live_on_elsewhere(queue: Queue, tmp_path: Path) -> None:
    queue.submit("acme", content=b"one")
    rules = queue.rules()
    queue.engine.configure(Rules(rules.policy, rules.dispatch, rules.open_turn_every, rules.version, "was moved"))
    age(tmp_path / "blobs")
    with pytest.raises(StoreFrozen, match="was moved"):
        queue.sweep()
    assert len(stored_documents(queue)) == 1


@pytest.mark.parametrize(("option", "value"), [("grace", -1), ("grace", "1d"), ("timeout", -1), ("timeout", float("nan"))])
def test_a_sweep_of_strange_length_is_refused(queue: Queue, option: str, value: Any) -> None:
    with pytest.raises(BadValue, match=option):
        queue.sweep(**{option: value})


# -- names and pages -------------------------------------------------------------------------------------------------


@given(customer=st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=50), name=st.text(min_size=1))
def test_whatever_customers_and_files_are_called_they_are_kept_apart(
    tmp_path_factory: pytest.TempPathFactory, customer: str, name: str
) -> None:
    folder = tmp_path_factory.mktemp("hostile")
    with Queue("memory://", blobs=str(folder / "blobs")) as queue:
        id = queue.submit(customer, content=name.encode(errors="replace"), name=name).id
        twin = queue.submit(f"{customer}x", content=b"twin", name=name).id
        assert bytes_of(queue, id) == name.encode(errors="replace")
        assert bytes_of(queue, twin) == b"twin"
        shown = queue.input(id).name
        assert shown is not None
        assert 1 <= len(shown) <= 255
        assert not any(ord(letter) < 32 or 0xD800 <= ord(letter) < 0xE000 for letter in shown)
        if name.isprintable() and len(name) <= 255:
            assert shown == name
        assert [path.name for path in folder.iterdir()] == ["blobs"]
        assert {path.name for path in (folder / "blobs").rglob("*") if path.is_file()} == {"input"}


def pdf(pages: int) -> bytes:
    objects = b"".join(b"%d 0 obj <</Type /Page /Parent 1 0 R>> endobj\n" % n for n in range(pages))
    return b"%PDF-1.4\n1 0 obj <</Type /Pages /Count 9>> endobj <</Type/PageLabel>>\n" + objects + b"%%EOF" + b" " * 2000


@pytest.mark.parametrize(
    ("content", "pages"),
    [
        (pdf(1), 1), (pdf(7), 7), (pdf(7).replace(b"/Type /Page", b"/Type\r\n/Page"), 7), (pdf(20_000), 10_000),
        (pdf(0), 1), (pdf(0) + b"x" * 149_000, 4), (b"", 1), (b"x" * 50_000, 1), (b"x" * 50_001, 2),
        (b"x" * 10_000 + pdf(3), 1), (b"x" * 500 + pdf(3), 3), (b"%PDF-1.4 /Type /Page", 1),
        (b"%PDF-1.4 /Type/Page /Type/Page", 2), (b"/Type/Page /Type/Page", 1),
    ],
    ids=itertools.count(),
)  # fmt: skip
def test_pages_are_estimated_however_the_bytes_come_in_pieces(content: bytes, pages: int) -> None:
    for size in (262_144, 1000, 17, 1):
        if len(content) / size > 100_000:
            continue
        counter = PageCounter()
        for at in range(0, len(content), size):
            counter.feed(content[at : at + size])
        assert counter.pages() == pages


def test_a_cost_in_pages_moves_the_counter_as_far(queue: Queue) -> None:
    first = queue.submit("acme", content=pdf(7), cost="pages")
    second = queue.submit("acme", content=pdf(5), cost="pages")
    plain = queue.submit("acme", content=pdf(5))
    assert [receipt.counter for receipt in (first, second, plain)] == [-6, -11, -12]
    assert [queue.document(receipt.id).cost for receipt in (first, second, plain)] == [7, 5, 1]
    assert [queue.input(receipt.id).by_pages for receipt in (first, second, plain)] == [True, True, False]
    (claim,) = queue.engine.claim("w", 1, 60_000)
    queue.engine.settle([(claim, Done(cost=3000))])  # the true number is known now
    assert queue.look("acme").counter == -8
