"""Long documents in slices: pages are read by several workers at once, and come out as if one had read them all."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

from fairlane import Input, Queue
from fairlane.core.document import PARTS_MAX, Claim, Continued, Failed
from fairlane.extract import Limits, extract, failure_code, sandboxed
from fairlane.extract.handler import ExtractOptions, built_in_worker
from fairlane.extract.slices import split_pages
from fairlane.worker.document import ClaimedDocument, outcome_of_value
from tests.worker.conftest import AT_ONCE, Bench

from .drawing import Sheet, write


@pytest.fixture(autouse=True, scope="module")
def release_fork_server() -> Iterator[None]:
    """Later tests of this process start fork servers of their own."""
    yield
    sandboxed.release()


def pdf_of(count: int) -> bytes:
    return write(
        [Sheet().text(60, 700, f"This is the page with number {number} of the contract.") for number in range(1, count + 1)]
    )


def tiff_of(count: int) -> bytes:
    held, frames = BytesIO(), [Image.new("L", (120, 160), 255 - number) for number in range(count)]
    frames[0].save(held, "TIFF", save_all=True, append_images=frames[1:])
    return held.getvalue()


def process_all(bench: Bench, url: str, limits: Limits = Limits()) -> None:  # noqa: B008 - frozen
    bench.run(built_in_worker(ExtractOptions(url, limits=limits), 2, backoff=AT_ONCE))


@pytest.mark.parametrize(("content", "name"), [(pdf_of(11), "contract.pdf"), (tiff_of(7), "scan.tiff")], ids=["pdf", "tiff"])
def test_slices_come_out_as_the_whole_does(
    bench: Bench, queue: Queue, url: str, tmp_path: Path, content: bytes, name: str
) -> None:
    whole, sliced = (queue.submit("acme", content=content, name=name, slices=slices, cost="pages").id for slices in (None, 3))
    process_all(bench, url)
    pages = len(queue.facts(whole)["pages"])
    assert [queue.document(id).state for id in (whole, sliced)] == ["done", "done"]
    assert queue.text(sliced) == queue.text(whole)
    assert queue.facts(sliced) == queue.facts(whole)
    assert queue.thumbnail(sliced) == queue.thumbnail(whole)
    assert queue.result(sliced) == queue.result(whole)
    assert queue.document(sliced).cost == queue.document(whole).cost == pages
    parts = queue.parts(sliced)
    assert (len(parts), sum(part.cost for part in parts)) == (-(-pages // 3), pages)
    assert queue.look("acme").counter == -(2 * pages - 1)  # slices are no checks


def test_a_short_document_and_another_format_are_read_in_one_piece(bench: Bench, queue: Queue, url: str) -> None:
    ids = [
        receipt.id
        for receipt in queue.submit_files(
            "acme", [Input(content=pdf_of(3), name="short.pdf"), Input(content=b"a text", name="a.txt")], slices=3
        )
    ]
    process_all(bench, url)
    assert [queue.document(id).parts for id in ids] == [0, 0]
    assert "number 3" in queue.text(ids[0])
    assert queue.text(ids[1]) == "a text"


def test_a_slice_reads_its_pages_and_a_list_reads_none(tmp_path: Path) -> None:
    path = tmp_path / "contract.pdf"
    path.write_bytes(pdf_of(9))
    listed = extract(path, path.name, limits=Limits(pages=(0, 0)))
    assert (len(listed.pages), listed.text.strip()) == (9, "")
    read = extract(path, path.name, limits=Limits(pages=(3, 5)))
    assert [page.label for page in read.pages] == ["4", "5"]
    assert "number 4" in read.text
    assert "number 5" in read.text
    assert "number 6" not in read.text


def test_a_slice_that_cannot_be_read_fails_the_document_with_its_reason(bench: Bench, queue: Queue, url: str) -> None:
    id = queue.submit("acme", content=pdf_of(6), name="contract.pdf", slices=2).id
    (claim,) = queue.engine.claim("w", 1, 60_000)

    document = ClaimedDocument(claim, lambda _: None, queue.files.open)
    outcome = outcome_of_value(document, split_pages(6, 2))
    assert isinstance(outcome, Continued)
    queue.engine.settle([(claim, outcome)])
    (part,) = queue.engine.claim("w", 1, 60_000)
    queue.engine.settle([(part, Failed("timed_out: took longer than 60 s"))])
    document_now = queue.document(id)
    assert (document_now.state, failure_code(document_now.reason)) == ("failed", "timed_out")
    assert [each.state for each in queue.parts(id)] == ["failed", "cancelled", "cancelled"]
    queue.retry(id)
    process_all(bench, url)
    assert "number 6" in queue.text(id)


def test_the_text_of_all_slices_has_a_limit(bench: Bench, queue: Queue, url: str) -> None:
    id = queue.submit("acme", content=pdf_of(8), name="contract.pdf", slices=2).id
    process_all(bench, url, dataclasses.replace(Limits(), text_max=150))
    assert failure_code(queue.document(id).reason) == "too_large"


def test_slices_are_larger_where_there_would_be_too_many() -> None:
    split = split_pages(PARTS_MAX * 2 + 1, 1)
    assert len(split.payloads) <= PARTS_MAX
    assert split.payloads[0] == {"pages": (0, 3)}
    assert split.payloads[-1]["pages"][1] == PARTS_MAX * 2 + 1
    assert sum(split.costs or ()) == 1000 * (PARTS_MAX * 2 + 1)


def test_claims_of_parts_name_the_file_of_their_whole(queue: Queue) -> None:
    id = queue.submit("acme", content=pdf_of(2), name="contract.pdf", slices=1).id
    (claim,) = queue.engine.claim("w", 1, 60_000)

    whole = ClaimedDocument(claim, lambda _: None, queue.files.open)
    queue.engine.settle([(claim, outcome_of_value(whole, split_pages(2, 1)))])
    part_claim: Claim = queue.engine.claim("w", 1, 60_000)[0]
    part = ClaimedDocument(part_claim, lambda _: None, queue.files.open)
    assert (part.part, part.file and part.file.of) == (1, id)
    with part.open() as file, queue.file(part.id) as same:
        assert file.read() == same.read() == pdf_of(2)
