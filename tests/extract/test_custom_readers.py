"""Readers of your own: another engine reads some files, in the sandbox or outside, and nobody sees a difference in shape."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from chaos.corpus.others import draw, make_image
from fairlane import BadValue, Mistake, Queue
from fairlane.extract import CustomReader, Limits, ReaderPage, ReaderResult, Unreadable, extract, failure_code, sandboxed
from fairlane.extract.handler import ExtractOptions, built_in_handler, built_in_worker
from fairlane.extract.sandboxed import extract_isolated, prepare
from fairlane.queue import FILE_KIND
from tests.docs.snippets import snippet
from tests.worker.conftest import AT_ONCE, Bench

from .test_handler import zipped
from .test_slices import pdf_of

ROOT = Path(__file__).parents[2]
ENGINE = '''
import os, socket, threading
from pathlib import Path
from fairlane.extract import ExtractionWarning, ReaderPage, ReaderResult, Unreadable
from fairlane.worker import Fail

def pages_of(file):
    return [file.extraction.text_of(number).strip().upper() for number in range(len(file.extraction.pages))]

def read(file):
    return ReaderResult(pages_of(file), title="By the engine", warnings=[ExtractionWarning("ocr_used", "all of it")])

def read_one_page(file):
    return ReaderResult([ReaderPage("all in one", "all", 0.75)])

def skip(file):
    return None

def obey(file):
    """Do what the file says."""
    order = file.extraction.text.strip()
    if order == "connect":
        socket.socket()
    elif order == "write":
        Path("/tmp/written").write_text("x")
    elif order == "look around":
        Path("/etc/passwd").read_text()
    elif order == "read the model":
        return ReaderResult([Path(MODEL).read_text()])
    elif order == "import":
        from engines import late
        return ReaderResult([late.TEXT])
    elif order == "refuse":
        raise Unreadable("encrypted", "the engine needs a password")
    elif order == "fail":
        raise Fail("the engine has no licence")
    elif order == "raise":
        raise ValueError("no such model")
    elif order == "eat":
        raise MemoryError
    elif order == "text":
        return "a text"
    elif order == "number":
        return ReaderResult(["a", 5])
    elif order == "date":
        return ReaderResult(["a"], created="yesterday")
    elif order == "long":
        return ReaderResult(["a" * 5000])
    elif order == "die":
        os._exit(7)
    elif order == "wait":
        threading.Event().wait(600)
    return ReaderResult([order])
'''


@pytest.fixture(autouse=True, scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A package `engines` as users have one beside their worker; returns the folder of its model."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "engines").mkdir()
    model = folder / "model"
    model.mkdir()
    (model / "weights").write_text("weights")
    for path in (*folder.parents, folder, model):  # in the sandbox it is another user who reads them
        if path.owner() == Path.home().owner() and str(path).startswith("/tmp/"):
            path.chmod(path.stat().st_mode | 0o055)
    (folder / "engines" / "__init__.py").write_text(ENGINE.replace("MODEL", repr(str(model / "weights"))))
    (folder / "engines" / "late.py").write_text('TEXT = "imported late"\n')
    sys.path.insert(0, str(folder))
    sandboxed.release()
    prepare(readers=[CustomReader(f"engines:{name}") for name in ("read", "read_one_page", "skip", "obey")])  # once for all
    yield model
    sandboxed.release()
    sys.path.remove(str(folder))


def reader(name: str, where: str, **options: Any) -> CustomReader:
    return CustomReader(f"engines:{name}", sandbox=where == "inside", **options)


def process_all(bench: Bench, url: str, media_type: str, custom: CustomReader, limits: Limits = Limits()) -> None:  # noqa: B008
    worker = built_in_worker(ExtractOptions(url, limits=limits, readers={media_type: custom}), 2, backoff=AT_ONCE)
    worker.on("*", bench.events.append)
    bench.run(worker)


both = pytest.mark.parametrize("where", ["inside", "outside"])


@both
def test_the_result_has_the_shape_of_the_built_in_readers(
    bench: Bench, queue: Queue, url: str, tmp_path: Path, where: str
) -> None:
    path = tmp_path / "contract.pdf"
    path.write_bytes(pdf_of(3))
    built_in = extract(path, "contract.pdf")
    id, other = (queue.submit("acme", path=path, cost="pages").id, queue.submit("acme", content=b"a,b\n1,2\n", name="a.csv").id)
    process_all(bench, url, "application/pdf", reader("read", where))
    facts = queue.facts(id)
    assert queue.text(id) == "\n\n".join(built_in.text_of(number).strip().upper() for number in range(3))
    assert facts.keys() == built_in.facts().keys()
    texts = [queue.text(id)[page["start"] : page["end"]] for page in facts["pages"]]
    assert [re.findall(r"NUMBER \d", text) for text in texts] == [["NUMBER 1"], ["NUMBER 2"], ["NUMBER 3"]]
    own = {name: facts[name] for name in ("title", "warnings", "pages")}
    assert facts == built_in.facts() | own
    assert [page["label"] for page in own["pages"]] == ["1", "2", "3"]
    assert (own["title"], own["warnings"]) == ("By the engine", [{"code": "ocr_used", "detail": "all of it"}])
    assert queue.thumbnail(id) == built_in.thumbnail
    assert queue.result(id)["characters"] == len(queue.text(id))
    assert queue.document(id).cost == 3
    assert queue.text(other).startswith("| a | b |")


@both
def test_pages_of_the_readers_own_with_how_sure_it_is(bench: Bench, queue: Queue, url: str, where: str) -> None:
    id = queue.submit("acme", content=pdf_of(3), name="contract.pdf").id
    process_all(bench, url, "application/pdf", reader("read_one_page", where))
    assert queue.facts(id)["pages"] == [{"label": "all", "start": 0, "end": 10, "ocr_confidence": 0.75}]
    assert queue.facts(id)["ocr_confidence"] == 0.75
    assert queue.facts(id)["unit"] == "page"


@both
def test_what_a_reader_leaves_is_read_as_if_there_were_none(
    bench: Bench, queue: Queue, url: str, tmp_path: Path, where: str
) -> None:
    path = tmp_path / "scan.png"
    path.write_bytes(make_image(draw(["Invoice number 4217"], (700, 120), 48), "PNG"))
    id = queue.submit("acme", path=path).id
    limits = Limits(ocr_languages=("eng",))
    process_all(bench, url, "image/png", reader("skip", where), limits)
    built_in = extract(path, "scan.png", limits=limits)
    assert {"ocr_used", "ocr_missing"} & {warning.code for warning in built_in.warnings}
    assert (queue.text(id), queue.facts(id)) == (built_in.text, built_in.facts())


@both
@pytest.mark.parametrize("name", ["read", "skip"])
def test_files_inside_become_documents_with_a_reader_too(bench: Bench, queue: Queue, url: str, where: str, name: str) -> None:
    id = queue.submit("acme", content=zipped(("a.txt", b"one"), ("b.txt", b"two")), name="letters.zip").id
    process_all(bench, url, "application/zip", reader(name, where))
    assert [queue.text(member) for member in queue.result(id)["members"]] == ["one", "two"]
    assert ("A.TXT" in queue.text(id)) == (name == "read")


WRONG = {
    "refuse": ("encrypted", "the engine needs a password", 1),
    "raise": ("crashed", "the reader engines:obey failed: ValueError: no such model", 3),
    "eat": ("too_large", "memory", 1),
    "text": ("crashed", "the reader engines:obey returned a str, not a ReaderResult or None", 3),
    "number": ("crashed", "pages[1] is 5; it must be a text, or a ReaderPage", 3),
    "date": ("crashed", "created is 'yesterday'; it must be a date or time as ISO 8601", 3),
    "long": ("too_large", "has more than 1,000 characters of text", 1),
}


@both
def test_what_is_wrong_is_named_and_costs_what_it_must(
    bench: Bench, queue: Queue, url: str, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    ids = {order: queue.submit("acme", content=order.encode(), name="a.txt").id for order in (*WRONG, "go on")}
    process_all(bench, url, "text/plain", reader("obey", where), Limits(text_max=1000))
    for order, (code, words, attempts) in WRONG.items():
        document = queue.document(ids[order])
        assert (failure_code(document.reason), document.attempts) == (code, attempts), order
        assert words in str(document.reason)
    assert queue.text(ids["go on"]) == "go on"
    if where == "outside":
        assert "Traceback" in caplog.text
        assert 'raise ValueError("no such model")' in caplog.text


def test_in_the_sandbox_a_reader_reaches_nothing_but_its_file(bench: Bench, queue: Queue, url: str) -> None:
    orders = ("connect", "write", "look around", "read the model")
    ids = [queue.submit("acme", content=order.encode(), name="a.txt").id for order in orders]
    process_all(bench, url, "text/plain", reader("obey", "inside"))
    assert [failure_code(queue.document(id).reason) for id in ids] == ["crashed"] * len(orders)
    refusals = "Permission denied|not permitted|No such file|Read-only"
    assert all(re.search(refusals, str(queue.document(id).reason)) for id in ids)


def test_outside_a_reader_may_do_what_its_worker_may(bench: Bench, queue: Queue, url: str) -> None:
    ids = [queue.submit("acme", content=order, name="a.txt").id for order in (b"connect", b"look around", b"read the model")]
    process_all(bench, url, "text/plain", reader("obey", "outside"))
    assert [queue.text(id) for id in ids] == ["connect", "look around", "weights"]


def test_in_the_sandbox_a_reader_reads_its_files_and_its_package(bench: Bench, queue: Queue, url: str, engine: Path) -> None:
    ids = [queue.submit("acme", content=order, name="a.txt").id for order in (b"read the model", b"import")]
    process_all(bench, url, "text/plain", reader("obey", "inside", files=[str(engine)]))
    assert [queue.text(id) for id in ids] == ["weights", "imported late"]


@both
def test_a_reader_that_dies_costs_its_document_an_attempt_and_nobody_else_anything(
    bench: Bench, queue: Queue, url: str, where: str
) -> None:
    id = queue.submit("acme", content=b"die", name="a.txt").id
    others = [queue.submit("acme", content=b"live", name="a.txt").id for _ in range(3)]
    process_all(bench, url, "text/plain", reader("obey", where))
    assert (queue.document(id).state, queue.document(id).attempts) == ("failed", 3)
    assert [(queue.text(other), queue.document(other).attempts) for other in others] == [("live", 1)] * 3


def test_time_ends_a_reader_in_the_sandbox(tmp_path: Path) -> None:
    path, scratch = tmp_path / "a.txt", tmp_path / "scratch"
    path.write_text("wait")
    scratch.mkdir()
    with pytest.raises(Unreadable) as caught:
        extract_isolated(path, "a.txt", scratch, Limits(seconds_max=0.5), readers={"text/plain": reader("obey", "inside")})
    assert caught.value.code == "timed_out"


def test_the_workers_time_limit_ends_a_reader_outside(bench: Bench, queue: Queue, url: str) -> None:
    id = queue.submit("acme", content=b"wait", name="a.txt").id
    options = ExtractOptions(url, readers={"text/plain": reader("obey", "outside")})
    worker = bench.worker()
    worker.handler(FILE_KIND, timeout=2, attempts=1)(built_in_handler(options))
    bench.run(worker)
    assert (queue.document(id).state, queue.document(id).attempts) == ("failed", 1)
    assert "2 s" in str(queue.document(id).reason)


def test_an_executor_runs_readers_too_and_a_handlers_own_words_end_a_document(bench: Bench, queue: Queue, url: str) -> None:
    failed = queue.submit("acme", content=b"fail", name="a.txt").id
    ids = [queue.submit("acme", content=b"in a thread", name="a.txt").id for _ in range(6)]
    with ThreadPoolExecutor(2) as executor:
        worker = bench.worker(executor=executor, slots=2)
        worker.handler(FILE_KIND)(built_in_handler(ExtractOptions(url, readers={"text/plain": reader("obey", "outside")})))
        bench.run(worker)
    assert [queue.text(id) for id in ids] == ["in a thread"] * 6
    assert (queue.document(failed).reason, queue.document(failed).attempts) == ("the engine has no licence", 1)


# -- slices


@both
def test_a_reader_that_knows_slices_reads_them(bench: Bench, queue: Queue, url: str, where: str) -> None:
    whole, sliced = (queue.submit("acme", content=pdf_of(5), name="contract.pdf", slices=size).id for size in (None, 2))
    process_all(bench, url, "application/pdf", reader("read", where, slices=True))
    assert [queue.document(id).parts for id in (whole, sliced)] == [0, 3]
    assert (queue.text(sliced), queue.facts(sliced)) == (queue.text(whole), queue.facts(whole))


def test_without_slices_a_reader_gets_the_whole_document(bench: Bench, queue: Queue, url: str) -> None:
    id = queue.submit("acme", content=pdf_of(5), name="contract.pdf", slices=2).id
    process_all(bench, url, "application/pdf", reader("read", "outside"))
    assert queue.document(id).parts == 0
    assert queue.text(id).count("NUMBER") == 5


def test_a_slice_with_another_number_of_pages_is_refused(bench: Bench, queue: Queue, url: str) -> None:
    id = queue.submit("acme", content=pdf_of(5), name="contract.pdf", slices=2).id
    process_all(bench, url, "application/pdf", reader("read_one_page", "outside", slices=True))
    assert "the reader engines:read_one_page returned 1 pages for a slice of 2" in str(queue.document(id).reason)


# -- mistakes


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: CustomReader("engine.read"), 'a name such as "engine:read"'),
        (lambda: CustomReader(5), "or a function"),  # type: ignore[arg-type]
        (lambda: CustomReader(lambda file: None), "for the sandbox, which imports the module by itself"),
        (lambda: CustomReader("engines:read", files="/model"), "a list of files and folders"),
        (lambda: CustomReader("engines:read", sandbox=False, files=["/model"]), "left out without the sandbox"),
        (lambda: ReaderResult("text"), "a list with the Markdown of each page"),
        (lambda: ReaderResult([ReaderPage("a", ocr_confidence=2)]), "ocr_confidence of pages[0]"),
        (lambda: ReaderResult([], title=5), "title is 5"),  # type: ignore[arg-type]
        (lambda: ReaderResult([], language="xx"), "language is 'xx'"),
        (lambda: ReaderResult([], warnings=["odd"]), "warnings[0] is 'odd'"),  # type: ignore[list-item]
    ],
)
def test_a_bad_value_is_refused_where_it_is_written(make: Any, words: str) -> None:
    with pytest.raises(BadValue, match=re.escape(words)):
        make()


@pytest.mark.parametrize(
    ("readers", "words"),
    [
        ({"application/x-none": CustomReader("engines:read")}, "a media type that Fairlane detects"),
        ({"application/pdf": "engines:read"}, "a CustomReader"),
        ({"application/pdf": CustomReader("no_such_engine:read")}, "there is no module no_such_engine"),
        ({"application/pdf": CustomReader("no_such_engine:read", sandbox=False)}, "No module named 'no_such_engine'"),
        ({"application/pdf": CustomReader("engines:none", sandbox=False)}, "the module engines has no function none"),
    ],
)
def test_a_worker_does_not_start_with_a_reader_that_cannot_be(url: str, readers: Any, words: str) -> None:
    with pytest.raises(Mistake, match=re.escape(words)):
        built_in_handler(ExtractOptions(url, readers=readers))


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        (
            "import no_library",
            "the reader own_engine:read cannot be imported: ModuleNotFoundError: No module named 'no_library'",
        ),
        ("1 / 0", "the reader own_engine:read cannot be imported: ZeroDivisionError: division by zero"),
        ("nothing = 1", "the module own_engine has no function read"),
        ("import own_worker", "put the reader into a module of its own"),
    ],
)
def test_a_module_that_the_sandbox_cannot_import_is_said_in_a_line(tmp_path: Path, engine: str, words: str) -> None:
    (tmp_path / "own_engine.py").write_text(engine)
    (tmp_path / "own_worker.py").write_text(
        textwrap.dedent("""
        from fairlane.extract import CustomReader
        from fairlane.extract.handler import ExtractOptions, built_in_worker
        readers = {"application/pdf": CustomReader("own_engine:read")}
        worker = built_in_worker(ExtractOptions("sqlite:///q.db", readers=readers))
        """)
    )
    done = work(tmp_path, "own_worker:worker")
    assert done.returncode != 0
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def work(folder: Path, worker: str) -> subprocess.CompletedProcess[str]:
    return fairlane(folder, "work", "--until-empty", worker)


def fairlane(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLANE_")}
    return subprocess.run(
        [sys.executable, "-m", "fairlane", *arguments], cwd=folder, env=environment | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


# -- the docs


def test_the_example_of_the_docs_runs(tmp_path: Path) -> None:
    (tmp_path / "engine.py").write_text(snippet("docs/documents.md", "from fairlane.extract import ReaderInput, ReaderResult"))
    (tmp_path / "worker.py").write_text(
        snippet("docs/documents.md", "from fairlane.extract import CustomReader\nfrom fairlane.extract.handler")
    )
    (tmp_path / "invoice.pdf").write_bytes(pdf_of(2))
    (tmp_path / "letter.txt").write_text("Dear ACME")
    ids = [fairlane(tmp_path, "submit", "--customer", "acme", "--json", name).stdout for name in ("invoice.pdf", "letter.txt")]
    done = work(tmp_path, "worker:worker")
    assert done.returncode == 0, done.stderr
    assert "2 done" in done.stdout, done.stdout
    with Queue(f"sqlite:///{tmp_path}/fairlane.db") as queue:
        ids = [json.loads(line)["id"] for line in ids]
        assert "agreement" in queue.text(ids[0])
        assert "contract" not in queue.text(ids[0])
        assert queue.text(ids[1]) == "Dear ACME"
