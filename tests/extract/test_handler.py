"""The worker that comes with Fairlane: what is sent comes out as text, facts and a picture, whatever the file does."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from chaos.corpus.all import of_sample
from chaos.corpus.hostile import HOSTILE, pdf_of_pages, zip_of_zips
from chaos.corpus.office import make_docx, paragraph
from chaos.corpus.others import draw, make_image
from chaos.corpus.samples import BY_LANGUAGE
from fairlane import Input, Mistake, Queue, sandbox
from fairlane.core.document import ENDED, Retried
from fairlane.encryption.keyring import EncryptionKeyring
from fairlane.extract import Limits, extract, failure_code, sandboxed
from fairlane.extract.handler import ExtractHandler, ExtractOptions, built_in_worker, open_source
from fairlane.folders.scan import FOLDER_KIND
from fairlane.queue import FILE_KIND
from fairlane.queue.files import open_files_of
from fairlane.worker import Document, Retry
from fairlane.worker.document import outcome_of_error
from tests.sandbox.harness import open_folder
from tests.worker.conftest import AT_ONCE, Bench, until

POLISH = of_sample(BY_LANGUAGE["pl"])


@pytest.fixture(autouse=True, scope="module")
def release_fork_server() -> Iterator[None]:
    """Later tests of this process start fork servers of their own."""
    yield
    sandboxed.release()


def process_all(bench: Bench, url: str) -> None:
    worker = built_in_worker(ExtractOptions(url), 2, backoff=AT_ONCE)
    worker.on("*", bench.events.append)
    bench.run(worker)


def result_of(handler: ExtractHandler, document: Document) -> dict[str, Any]:
    """Return what the handler returns for a document that is read in one piece."""
    result = handler(document)
    assert isinstance(result, dict)
    return result


def zipped(*members: tuple[str, bytes]) -> bytes:
    held = BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for name, content in members:
            archive.writestr(name, content)
    return held.getvalue()


def test_every_format_comes_out_as_its_text_its_facts_and_a_picture(
    bench: Bench, queue: Queue, url: str, tmp_path: Path
) -> None:
    names = [name for name in POLISH if not name.endswith(("eml", "msg", "zip"))]  # without members
    ids = [receipt.id for receipt in queue.submit_files("acme", [Input(content=POLISH[name], name=name) for name in names])]
    process_all(bench, url)
    for name, id in zip(names, ids, strict=True):
        path = tmp_path / name
        path.write_bytes(POLISH[name])
        expected = extract(path, name)
        assert queue.text(id) == expected.text, name
        assert queue.facts(id) == expected.facts(), name
        assert queue.thumbnail(id) == expected.thumbnail, name
        result = queue.result(id)
        assert (result["media_type"], result["pages"]) == (expected.media_type, len(expected.pages))


def test_a_worker_that_runs_reads_scans_as_soon_as_tesseract_is_installed(
    bench: Bench, queue: Queue, url: str, program: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tesseract = program("tesseract")
    scan = make_image(draw(["Invoice number 4217"], (700, 120), 48), "PNG")
    sandboxed.release()  # an earlier test's fork server has another PATH
    with open_folder() as folder:
        monkeypatch.setenv("PATH", str(folder))
        stop = bench.start(built_in_worker(ExtractOptions(url), 1))
        try:
            first = queue.submit("acme", content=scan, name="scan.png").id
            until(lambda: queue.document(first).state in ENDED)
            (folder / "tesseract").symlink_to(tesseract)
            second = queue.submit("acme", content=scan, name="scan.png").id
            until(lambda: queue.document(second).state in ENDED)
        finally:
            stop()
            sandboxed.release()
    assert [queue.document(id).reason for id in (first, second)] == [None, None]
    warnings = [[warning["code"] for warning in queue.facts(id)["warnings"]] for id in (first, second)]
    assert (queue.text(first), "ocr_missing" in warnings[0]) == ("", True)
    assert ("Invoice number 4217" in queue.text(second), "ocr_missing" in warnings[1]) == (True, False)


@pytest.mark.parametrize("name", ["encrypted pdf", "truncated docx", "empty", "noise", "many sheets", "huge image", "zip bomb"])
def test_a_bad_file_fails_at_once_with_a_reason_that_has_a_code(bench: Bench, queue: Queue, url: str, name: str) -> None:
    hostile = HOSTILE[name]
    id = queue.submit("acme", content=hostile.make(), name=hostile.name).id
    good = queue.submit("acme", content=b"good", name="good.txt").id
    process_all(bench, url)
    document = queue.document(id)
    assert (document.state, document.attempts) == ("failed", 1)
    assert failure_code(document.reason) == hostile.code
    assert queue.text(good) == "good"


def test_what_another_attempt_may_help_is_tried_again(bench: Bench, queue: Queue, url: str) -> None:
    id = queue.submit("acme", content=b"word " * 1000, name="slow.txt").id
    worker = built_in_worker(ExtractOptions(url, limits=Limits(seconds_max=0.0)), 1, backoff=AT_ONCE)
    bench.run(worker)
    document = queue.document(id)
    assert (document.state, document.attempts) == ("failed", 3)
    assert failure_code(document.reason) == "timed_out"


def test_members_of_an_archive_are_documents_with_a_check_each(bench: Bench, queue: Queue, url: str) -> None:
    archive = zipped(*((f"letters/{number}.txt", f"letter {number}".encode()) for number in range(5)), ("broken.pdf", b"%PDF-"))
    id = queue.submit("acme", content=archive, name="letters.zip").id
    process_all(bench, url)
    ids = queue.result(id)["members"]
    assert [member["document"] for member in queue.facts(id)["members"]] == ids
    assert [queue.input(member).parent for member in ids] == [id] * 6
    assert [queue.document(member).counter for member in ids] == [-1, -2, -3, -4, -5, -6]
    assert sorted(queue.text(member) for member in ids[:5]) == [f"letter {number}" for number in range(5)]
    assert queue.document(ids[5]).state == "failed"
    assert (queue.look("acme").done, queue.look("acme").failed) == (6, 1)


def test_archives_in_archives_come_to_an_end(bench: Bench, queue: Queue, url: str) -> None:
    queue.submit("acme", content=zip_of_zips(6), name="nested.zip")
    process_all(bench, url)
    ended = list(queue.documents("acme"))
    assert max(queue.input(document.id).depth for document in ended) == Limits().depth_max
    (failed,) = [document for document in ended if document.state == "failed"]
    assert str(failed.reason).startswith("too_large: archives inside each other")


def claim_document(queue: Queue, id: str) -> Document:
    """A document in a handler's hands, for a handler that is called here."""
    (claim,) = queue.engine.claim("here", 1, 60_000, {"extract": 3})
    assert claim.id == id
    return Document(claim, lambda report: None, lambda: open_files_of(queue.url, None, EncryptionKeyring()))


def test_a_second_attempt_submits_no_member_twice(queue: Queue, url: str) -> None:
    id = queue.submit("acme", content=zipped(("a.txt", b"a"), ("b.txt", b"b")), name="two.zip").id
    document, handler = claim_document(queue, id), ExtractHandler(ExtractOptions(url))
    first, second = (result_of(handler, document)["members"] for _ in range(2))
    assert first == second
    assert queue.look("acme").waiting == 2
    assert queue.sweep(grace=0).removed == 0, "the bytes that were written twice are gone"


def test_files_inside_an_archive_inherit_the_best_priority(bench: Bench, queue: Queue, url: str) -> None:
    inner = zipped(("inner.txt", b"deep"))
    queue.submit("acme", content=zipped(("a.txt", b"a"), ("more.zip", inner)), name="two.zip", no_better_than=6)
    process_all(bench, url)
    documents = list(queue.documents("acme"))
    assert [(document.priority, document.no_better_than) for document in documents] == [(6, 6)] * 4
    assert queue.look("acme").counter == -3, "members are documents, one check each"


def letters(count: int, prefix: str = "") -> bytes:
    return zipped(*((f"{prefix}{number}.txt", b"letter") for number in range(count)))


def test_an_archive_bomb_does_not_pass_the_limit_of_what_may_wait(bench: Bench, queue: Queue, url: str, tmp_path: Path) -> None:
    queue.configure(waiting_max=5)
    id = queue.submit("acme", content=letters(446), name="bomb.zip").id
    process_all(bench, url)
    document, look = queue.document(id), queue.look("acme")
    assert (document.state, document.attempts, failure_code(document.reason)) == ("failed", 1, "too_many_files")
    assert document.reason == (
        "too_many_files: none of the 446 files inside was submitted, because customer 'acme' has 0 of at most 5 documents "
        "waiting (waiting_max), so 446 more cannot be taken; submit again when some are done, or have an operator raise the "
        "limit"
    )
    assert (look.waiting, look.documents, look.counter) == (0, 1, 0)
    assert len(list(tmp_path.rglob("input"))) == 1  # nor are their bytes kept


def test_archives_in_archives_share_one_limit(bench: Bench, queue: Queue, url: str) -> None:
    queue.configure(descendants_max=10)
    archive = zipped(*((f"{name}.zip", letters(5, name)) for name in "abc"))
    queue.submit("acme", content=archive, name="three.zip")
    process_all(bench, url)
    ended = [(document.state, failure_code(document.reason)) for document in queue.documents("acme")]
    assert sorted(ended, key=str) == [("done", None)] * 7 + [("failed", "too_many_files")] * 2
    assert queue.look("acme").documents == 1 + 3 + 5


def test_files_that_may_fit_later_are_tried_again_and_none_is_lost(queue: Queue, url: str) -> None:
    queue.configure(waiting_max=5)
    id = queue.submit("acme", content=letters(3), name="three.zip").id
    document, handler = claim_document(queue, id), ExtractHandler(ExtractOptions(url))
    others = queue.submit_many("acme", range(3))
    with pytest.raises(Retry, match="queue_full: none of the 3 files inside was submitted") as caught:
        handler(document)
    outcome = outcome_of_error(document, caught.value, AT_ONCE, 0)
    assert isinstance(outcome, Retried)
    assert (outcome.after_ms, outcome.counted) == (60_000, True)
    assert queue.look("acme").waiting == 3
    queue.cancel(others[0].id)
    assert len(result_of(handler, document)["members"]) == 3


def test_files_beyond_the_quota_fail_their_archive(bench: Bench, queue: Queue, url: str) -> None:
    queue.tune("acme", documents_max=3)
    id = queue.submit("acme", content=letters(3), name="three.zip").id
    process_all(bench, url)
    document = queue.document(id)
    assert (document.state, failure_code(document.reason)) == ("failed", "quota_full")
    assert queue.look("acme").documents == 1


def test_small_files_do_not_grow_beyond_the_quota(bench: Bench, queue: Queue, url: str, tmp_path: Path) -> None:
    """A text that compresses well grows a hundredfold: without this a quota of 1 MB kept 160 MB."""
    queue.tune("acme", bytes_max=1_000_000)
    grown = make_docx(BY_LANGUAGE["en"], paragraph("a b c d e " * 60_000))  # 600 kB of text
    assert len(grown) < 20_000
    ids = []
    for number in range(3):
        ids.append(queue.submit("acme", content=grown, name=f"{number}.docx").id)
        process_all(bench, url)
    assert [queue.document(id).state for id in ids] == ["done", "failed", "failed"]
    for id in ids[1:]:
        reason = queue.document(id).reason
        assert failure_code(reason) == "quota_full"
        assert reason is not None
        assert reason.startswith("quota_full: its text was not kept, because customer 'acme' keeps 6")
    assert 600_000 < queue.look("acme").bytes < 1_000_000
    assert len([path for path in tmp_path.rglob("1-*") if path.stat().st_size > 500_000]) == 1
    queue.tune("acme", bytes_max=10_000_000)
    for id in ids[1:]:
        queue.retry(id)
    process_all(bench, url)
    assert {queue.document(id).state for id in ids} == {"done"}


def test_a_text_no_larger_than_its_file_is_kept_beyond_the_quota(bench: Bench, queue: Queue, url: str) -> None:
    content = b"".join(b"line %d of a letter\n" % number for number in range(10_000))
    queue.tune("acme", bytes_max=len(content) + 1000)
    id = queue.submit("acme", content=content, name="letter.txt").id
    process_all(bench, url)
    assert queue.document(id).state == "done"
    look = queue.look("acme")
    assert look.bytes_max is not None
    assert look.bytes > look.bytes_max


def test_what_a_document_takes_is_its_file_its_result_and_the_files_of_that(
    bench: Bench, queue: Queue, url: str, tmp_path: Path
) -> None:
    id = queue.submit("acme", content=b"one letter", name="a.txt").id
    process_all(bench, url)
    stored = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.name == "input" or path.name.startswith("1-"))
    body = queue.engine.body(id)
    assert body is not None
    assert body.result is not None
    assert stored > len(b"one letter")
    assert queue.look("acme").bytes == stored + len(body.payload.encode()) + len(body.result.encode())


def test_the_cost_by_pages_is_corrected_when_their_number_is_known(bench: Bench, queue: Queue, url: str) -> None:
    packed = zipped(("pages.pdf", pdf_of_pages(7)))
    id = queue.submit("acme", content=packed, name="pages.zip", cost="pages").id
    before = queue.document(id).cost
    process_all(bench, url)
    (member,) = queue.result(id)["members"]
    assert (before, queue.document(id).cost, queue.document(member).cost) == (1, 1, 7)


def test_bytes_that_were_damaged_in_the_store_are_never_read(bench: Bench, queue: Queue, url: str, tmp_path: Path) -> None:
    id = queue.submit("acme", content=b"what was sent", name="a.txt").id
    (path,) = tmp_path.rglob("input")
    path.write_bytes(b"what was sunk")
    process_all(bench, url)
    assert (queue.document(id).state, queue.document(id).attempts) == ("failed", 1)
    assert "SHA-256" in str(queue.document(id).reason)


def test_a_document_without_a_file_is_left_to_the_handlers_of_users(bench: Bench, queue: Queue, url: str) -> None:
    payloads = [receipt.id for receipt in queue.submit_many("acme", [{"n": n} for n in range(3)])]
    payloads.append(queue.submit("acme", {"order": 17}).id)
    file = queue.submit("acme", content=b"text", name="a.txt").id
    process_all(bench, url)
    assert (queue.document(file).kind, queue.document(file).state) == (FILE_KIND, "done")
    worker = bench.worker()
    worker.handler()(lambda document: document.payload)
    bench.run(worker)
    assert [queue.result(id) for id in payloads] == [{"n": 0}, {"n": 1}, {"n": 2}, {"order": 17}]


def test_a_path_in_a_payload_is_not_read_but_for_the_kind_of_folders(
    bench: Bench, queue: Queue, url: str, tmp_path: Path
) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    payload = {"path": str(tmp_path / "secret.txt")}
    sent = queue.submit("acme", payload, kind=FILE_KIND).id
    own = queue.submit("acme", payload, kind=FOLDER_KIND).id
    process_all(bench, url)
    assert str(queue.document(sent).reason).startswith("unsupported: the document has no file")
    assert queue.text(own) == "secret"


def test_nothing_begins_where_files_cannot_be_confined(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(**_: object) -> None:
        raise Mistake("no network cannot be promised")

    monkeypatch.setattr(sandbox, "require", refused)
    with pytest.raises(Mistake, match="cannot be promised"):
        built_in_worker(ExtractOptions(url))


def test_stored_bytes_are_read_where_they_lie_and_nothing_is_left(
    queue: Queue, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    id = queue.submit("acme", content=b"here", name="a.txt").id
    document = claim_document(queue, id)
    (path,) = tmp_path.rglob("input")
    with open_source(document) as source:
        assert (source.path, source.name) == (path, "a.txt")
    assert result_of(ExtractHandler(ExtractOptions(url)), document)["characters"] == 4
    assert [*(tmp_path / "temporary").iterdir()] == []
