"""Files that try to do harm end with the right code, in little memory and time, and nothing is written outside."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from chaos.corpus.all import of_sample
from chaos.corpus.hostile import HOSTILE, docx_with, external_entity, pdf_of_objects, zip_of_zips
from chaos.corpus.hostile_office import HOSTILE_OFFICE
from chaos.corpus.office import zipped
from chaos.corpus.samples import BY_LANGUAGE
from fairlane.extract import Limits, extract

from .conftest import NO_OCR, Read, Refused, codes

ROOT = Path(__file__).parents[2]
MEGABYTES_MAX, SECONDS_MAX = 300, 30
CHILD = """
import json, resource, sys
from pathlib import Path
from fairlane.extract import Limits, Unreadable, extract, warm

warm()
for line in sys.stdin:
    path, name, scratch = json.loads(line)
    Path("/proc/self/clear_refs").write_text("5")
    began = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    try:
        result = extract(Path(path), name, Path(scratch), Limits(ocr_pages_max=0))
        said = {"code": None, "text": result.text[:500], "warnings": [warning.code for warning in result.warnings]}
    except Unreadable as error:
        said = {"code": error.code, "detail": error.detail}
    status = Path("/proc/self/status").read_text()
    most = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    print(json.dumps(said | {"megabytes": most / 1024, "seconds": resource.getrusage(resource.RUSAGE_SELF).ru_utime - began}))
    sys.stdout.flush()
"""


class Child:
    """One process that reads one hostile file after the other, and says how much each took."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def read(self, path: Path, name: str, scratch: Path) -> dict[str, object]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(path), name, str(scratch)]) + "\n")
        self._process.stdin.flush()
        said: dict[str, object] = json.loads(self._process.stdout.readline())
        return said

    def end(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="module")
def child() -> object:
    child = Child()
    yield child
    child.end()


@pytest.mark.parametrize("key", [*HOSTILE, *HOSTILE_OFFICE])
def test_each_ends_with_its_code_in_little_memory_and_time(child: Child, tmp_path: Path, key: str) -> None:
    hostile = (HOSTILE | HOSTILE_OFFICE)[key]
    path, scratch = tmp_path / "file", tmp_path / "scratch"
    path.write_bytes(hostile.make())
    scratch.mkdir()
    said = child.read(path, hostile.name, scratch)
    assert said["code"] == hostile.code, said
    assert float(str(said["megabytes"])) < MEGABYTES_MAX
    assert float(str(said["seconds"])) < SECONDS_MAX
    assert sorted(tmp_path.iterdir()) == [path, scratch]
    if hostile.code is not None:
        assert list(scratch.iterdir()) == [], "a failure leaves nothing behind"


def test_names_in_archives_are_only_shown(read: Read) -> None:
    result = read(HOSTILE["hostile names"].make(), HOSTILE["hostile names"].name)
    assert [member.path.name for member in result.members] == [f"member-{number:05d}" for number in range(1, 8)]
    assert all(member.path.read_bytes() == b"harmless" for member in result.members)
    assert result.members[0].name == "../../etc/passwd"
    assert all(len(member.name) <= 255 and member.name.isprintable() for member in result.members)
    assert codes(result) == {"members_skipped"}  # the link


def test_a_file_in_an_archive_that_is_too_large_is_left_out_alone(read: Read, refused: Refused) -> None:
    limits = replace(NO_OCR, size_max=1000)
    result = read(zipped({"large.txt": "x" * 1001, "just.txt": "x" * 1000}), "a.zip", limits=limits)
    assert [(member.name, member.size) for member in result.members] == [("just.txt", 1000)]
    assert [(warning.code, warning.detail) for warning in result.warnings] == [
        ("members_skipped", "large.txt: too_large: more than 1,000 bytes")
    ]
    assert [path.name for path in result.members[0].path.parent.iterdir() if path.name.startswith("member")] == ["member-00001"]
    assert refused(zipped({"large.txt": "x" * 1001}), "a.zip", limits=limits).code == "too_large"


def test_archives_in_archives_end_at_their_depth(read: Read, refused: Refused) -> None:
    content = zip_of_zips(6)
    for depth in range(Limits().depth_max):
        (member,) = read(content, "a.zip", depth=depth).members
        content = member.path.read_bytes()
    assert refused(content, "a.zip", depth=Limits().depth_max).code == "too_large"


def test_an_archive_that_holds_itself_ends(refused: Refused) -> None:
    """Whatever a quine unpacks to, what counts is how deep it came out of itself."""
    assert refused(zipped({"a.txt": "x"}), "quine.zip", depth=3).code == "too_large"


def test_nothing_outside_is_read(read: Read, refused: Refused, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    canary.write_text("canary")
    for content, name in (
        (external_entity(canary.as_uri()), "a.xml"),
        (docx_with(external_entity(canary.as_uri()).decode()), "a.docx"),
    ):
        assert "canary" not in refused(content, name).detail.replace(str(canary), "")
    page = f"<html><iframe src='{canary.as_uri()}'></iframe><img src='{canary.as_uri()}' alt='x'><p>y</p>".encode()
    assert read(page, "a.html").text == "x\n\ny"


def test_references_outside_are_reported(read: Read) -> None:
    assert "references_ignored" in codes(read(HOSTILE["docx from outside"].make(), "a.docx"))


def test_the_far_corner_is_one_cell(read: Read) -> None:
    assert read(HOSTILE["far corner"].make(), "a.xlsx").text.endswith("| 1 |  |\n| --- | --- |\n|  | 2 |\n")


def test_the_bottom_of_deep_html_is_read(read: Read) -> None:
    assert read(HOSTILE["deep html"].make(), "a.html").text == "dno źródła"


def test_lone_surrogates_and_zeros_do_not_come_out(read: Read) -> None:
    assert read(HOSTILE["lone surrogates"].make(), "a.txt").text == "ab\ufffdc"
    assert set(read(HOSTILE["zeros in text"].make(), "a.txt").text) & set("\0\x07") == set()


@pytest.mark.parametrize("kind", ["pdf", "docx", "odt", "html", "zip", "json", "xml"])
@pytest.mark.parametrize("name", ["invoice.png", "invoice", "invoice.pdf.exe", "../../x.csv", "x" * 4000, "a\0b.txt", ""])
def test_the_content_decides_whatever_the_name_says(read: Read, kind: str, name: str) -> None:
    content = of_sample(BY_LANGUAGE["de"])[f"de.{kind}"]
    result = read(content, name)
    assert result.media_type == read(content, f"a.{kind}").media_type
    assert ("wrong_name" in codes(result)) == name.endswith(".png")


def test_time_is_limited(refused: Refused) -> None:
    began = time.monotonic()
    failure = refused(HOSTILE["many cells"].make(), "a.xlsx", Limits(seconds_max=0.2))
    assert (failure.code, failure.can_retry) == ("timed_out", True)
    assert time.monotonic() - began < 5


def test_memory_that_runs_out_is_too_large(tmp_path: Path) -> None:
    """In a child that may take 100 MB more than it has, an image of 45 million pixels: 135 MB."""
    script = (
        "import resource, sys\nfrom pathlib import Path\nfrom PIL import Image\n"
        "from fairlane.extract import Unreadable, extract, warm\nwarm()\n"
        "held = int(Path('/proc/self/statm').read_text().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (held + (100 << 20),) * 2)\n"
        "try:\n    extract(Path(sys.argv[1]), 'a.png')\nexcept Unreadable as error:\n    print(error.code)\n"
    )
    from PIL import Image

    path = tmp_path / "a.png"
    Image.new("RGB", (9000, 5000)).save(path)
    ran = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=False)
    assert ran.stdout.strip() == "too_large", ran.stderr


def test_half_a_pdf_is_read_or_refused_but_nothing_else(tmp_path: Path, refused: Refused) -> None:
    content = of_sample(BY_LANGUAGE["pl"])["pl.pdf"]
    path = tmp_path / "half.pdf"
    for share in (0.1, 0.3):
        assert refused(content[: int(len(content) * share)], "half.pdf").code == "corrupt"
    path.write_bytes(content[: content.rindex(b"startxref")])  # where the table of objects is: PDFium finds out
    assert "Zażółć" in extract(path, "half.pdf", None, NO_OCR).text


def test_a_pdf_of_a_million_objects(read: Read) -> None:
    assert len(read(pdf_of_objects(1_000_000), "a.pdf").pages) == 1
