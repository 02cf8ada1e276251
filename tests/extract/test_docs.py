"""docs/documents.md: one file is read, documents are submitted and read, and the recipes have workers that start."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import flask
import pytest
from PIL import Image

from chaos.corpus.hostile import HOSTILE
from chaos.corpus.others import make_image
from fairlane import Queue
from fairlane.blobs.envelope import RESULTS
from fairlane.extract import sandboxed
from fairlane.extract.handler import ExtractOptions, built_in_worker
from tests.docs.snippets import ROOT, snippet
from tests.worker.conftest import Bench

from .drawing import Sheet, write
from .test_slices import pdf_of

MODEL = """
class Model:
    def __init__(self, device):
        self.device = device

    def read_page(self, path, number):
        return f"Page {number} as read on {self.device}", 0.75

load = Model
"""


@pytest.fixture(autouse=True, scope="module")
def release_fork_server() -> Iterator[None]:
    """Later tests of this process start fork servers of their own."""
    yield
    sandboxed.release()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, which is also where modules are found."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def run(program: str, **names: Any) -> dict[str, Any]:
    exec(program, names)
    return names


def test_one_file_is_read_or_refused_with_a_sentence(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = snippet("docs/documents.md", "from pathlib import Path\n\nfrom fairlane.extract import Limits")
    (folder / "scratch").mkdir()
    (folder / "invoice.bin").write_bytes(pdf_of(2))
    run(program)
    assert re.match("application/pdf 2 en .*This is the page with number 1", capsys.readouterr().out, re.DOTALL)
    (folder / "invoice.bin").write_bytes(HOSTILE["encrypted pdf"].make())
    run(program)
    assert capsys.readouterr().out == "encrypted False Plik jest zabezpieczony hasłem. Prosimy wysłać go bez hasła.\n"


def test_one_file_is_read_in_the_sandbox(folder: Path) -> None:
    (folder / "invoice.bin").write_bytes(pdf_of(1))
    (folder / "empty-folder").mkdir()
    names = run(snippet("docs/documents.md", "from pathlib import Path\n\nfrom fairlane.extract.sandboxed import"))
    assert "This is the page with number 1" in names["result"].text


def test_documents_are_submitted_and_read(folder: Path, url: str, queue: Queue, bench: Bench) -> None:
    (folder / "invoice.pdf").write_bytes(pdf_of(1))
    (folder / "archive-1987.pdf").write_bytes(pdf_of(21))
    with flask.Flask("shop").test_request_context(data=pdf_of(2)):
        run(snippet("docs/documents.md", 'queue.submit("acme", path="invoice.pdf")'), queue=queue, request=flask.request)
    run(snippet("docs/documents.md", 'queue.submit("acme", path="archive-1987.pdf"'), queue=queue)
    bench.run(built_in_worker(ExtractOptions(url), 2))
    archive, order, invoice = (document for document in queue.documents("acme") if document.whole is None)
    assert [document.state for document in (archive, order, invoice)] == ["done"] * 3
    assert (archive.parts, archive.cost, order.cost, order.key, invoice.cost) == (2, 21, 2, "order-17", 1)
    assert queue.payload(order.id)["order"] == 17
    names = run(snippet("docs/documents.md", "result = queue.result(id)"), queue=queue, id=archive.id)
    assert (names["result"]["pages"], len(names["facts"]["pages"])) == (21, 21)
    assert "This is the page with number 21" in names["text"]
    assert names["picture"].startswith(b"\x89PNG")
    sentence = (ROOT / "docs/documents.md").read_text().partition("What the result holds, ")[2].partition(".\n")[0]
    assert set(re.findall("`(.*?)`", sentence)) == {*names["facts"], "characters"} > names["result"].keys() - {RESULTS}


def test_a_model_reads_the_scans(folder: Path, url: str, queue: Queue, bench: Bench) -> None:
    worker = snippet("docs/documents.md", "from fairlane import Worker\nfrom fairlane.extract import CustomReader", 1)
    (folder / "gpu_engine.py").write_text(snippet("docs/documents.md", "from functools import cache\n\nfrom fairlane.extract"))
    (folder / "your_model.py").write_text(MODEL)
    worker = worker.replace("postgresql://fairlane@db/fairlane", url).replace("s3://scans", f"{folder}/scans")
    with Queue(url, blobs=f"{folder}/scans") as scans:
        contents = {
            "picture.png": make_image(Image.new("L", (200, 100), 255), "PNG"),
            "half.pdf": write([Sheet().text(60, 700, "A printed page"), Sheet()]),
        }
        ids = [scans.submit("acme", content=contents[name], name=name, kind="scan").id for name in contents]
        bench.run(run(worker)["worker"])
        picture, half = (scans.facts(id) for id in ids)
        assert scans.text(ids[0]).strip() == "Page 0 as read on cuda:0"
        assert "A printed page" in scans.text(ids[1])
        assert "Page 1 as read on cuda:0" in scans.text(ids[1])
    assert [picture["ocr_confidence"], half["ocr_confidence"]] == [0.75, 0.75]


def test_the_worker_with_docling_reads_everything_else_itself(folder: Path, queue: Queue, bench: Bench, url: str) -> None:
    worker = snippet("docs/documents.md", "from fairlane import Worker\nfrom fairlane.extract import CustomReader", 0)
    engine = snippet("docs/documents.md", "from functools import cache\nfrom io import BytesIO")
    (folder / "docling_engine.py").write_text(engine)  # is imported; docling itself is not here
    id = queue.submit("acme", content=b"Dear ACME", name="letter.txt").id
    bench.run(run(worker.replace("sqlite:///fairlane.db", url))["worker"])
    assert queue.text(id) == "Dear ACME"
