"""Files read in the sandbox give what they give outside of it, and nothing that comes back is believed unseen."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from chaos.corpus.all import corpus
from chaos.corpus.hostile import HOSTILE
from chaos.corpus.others import draw, make_image
from chaos.files import run as run_chaos
from fairlane import sandbox
from fairlane.core.errors import BadValue, Mistake
from fairlane.extract import Extraction, Limits, Unreadable, extract, sandbox_entry, sandboxed, warm
from fairlane.extract.builder import ExtractionBuilder
from fairlane.extract.sandboxed import extract_isolated
from fairlane.extract.validation import validate_response
from fairlane.sandbox import Heard
from tests.sandbox.confined import CALLERS, forked, open_folder, template_of

NO_OCR = Limits(ocr_pages_max=0)


@pytest.fixture
def place() -> Iterator[Path]:
    warm()
    with open_folder() as folder:
        yield folder


def made(folder: Path, content: bytes) -> tuple[Path, Path]:
    path, scratch = folder / "file", folder / "scratch"
    path.write_bytes(content)
    scratch.mkdir()
    return path, scratch


def with_contents(result: Extraction) -> tuple[Extraction, list[bytes]]:
    contents = [one.path.read_bytes() for one in result.members]
    for one in result.members:
        one.path.unlink()
    return result, contents


def test_every_good_file_gives_the_very_same(place: Path) -> None:
    for number, (name, content) in enumerate(corpus().items()):
        folder = place / str(number)
        folder.mkdir()
        path, scratch = made(folder, content)
        plain = with_contents(extract(path, name, scratch, NO_OCR))
        assert with_contents(extract_isolated(path, name, scratch, NO_OCR)) == plain, name
        assert list(scratch.iterdir()) == []
        assert with_contents(extract_isolated(path, name, scratch, NO_OCR, without=sandbox.NAMESPACES)) == plain, name


@pytest.mark.parametrize("shift", range(5))
def test_a_long_text_is_whole_wherever_its_blocks_end(place: Path, shift: int) -> None:
    """Characters of one to four bytes, of which every block's end cuts another."""
    text = "a" * shift + "🦊żół \xa0" * 40_000
    path, scratch = made(place, text.encode())
    for result in (extract(path, "a.txt", scratch), extract_isolated(path, "a.txt", scratch)):
        assert (result.text, result.text_bytes) == (text, text.encode())
        assert [(page.start, page.end) for page in result.pages] == [(0, len(text))]
        assert [one.code for one in result.warnings] == []


@pytest.mark.parametrize("letter", ["a", "ż", "€", "🦊"])
def test_a_sample_has_as_many_characters_as_were_asked_for(place: Path, letter: str) -> None:
    builder = ExtractionBuilder(place / "file", "a.txt", None, NO_OCR)
    builder.write(letter * 100)
    assert [len(builder.sample(length)) for length in (0, 7, 99, 100, 101)] == [0, 7, 99, 100, 100]


def test_a_text_of_spaces_only_is_none(place: Path) -> None:
    path, scratch = made(place, ("\xa0 \n" * 50_000).encode())
    result = extract(path, "a.txt", scratch)
    assert [one.code for one in result.warnings] == ["no_text"]
    path.write_bytes(path.read_bytes() + b"x")
    assert "no_text" not in [one.code for one in extract(path, "a.txt", scratch).warnings]


def file_of(name: str) -> bytes:
    return make_image(draw(["Invoice number 4217"], (700, 120), 48), "PNG") if name == "scan.png" else corpus()[name]


@cache
def plainly(name: str) -> tuple[str, object]:
    """Text and facts of a file that is read outside of the sandbox."""
    with open_folder() as folder:
        path, scratch = made(folder, file_of(name))
        result = extract(path, name, scratch)
        return result.text, json.loads(json.dumps(result.facts()))


@pytest.mark.parametrize("name", CALLERS)
@pytest.mark.parametrize("file", ["pl.pdf", "de.zip", "scan.png"])
def test_every_caller_reads_the_same_with_words_on_pictures(place: Path, name: str, file: str) -> None:
    """Tesseract runs inside, if it is here at all."""
    path = place / "file"
    path.write_bytes(file_of(file))
    expected = plainly(file)

    def call() -> list[object]:
        scratch = place / "scratch"
        scratch.mkdir()
        by_template = template_of(lambda *arguments: sandbox_entry.work(*arguments)())
        with by_template if CALLERS[name].has_template else nullcontext((None, 0)) as (sandboxed._template, _):
            result = extract_isolated(path, file, scratch, without=CALLERS[name].without)
        return [result.text, result.facts()]

    assert tuple(forked(CALLERS[name], call)) == expected
    if file == "scan.png" and shutil.which("tesseract"):
        assert "Invoice number 4217" in expected[0]


@pytest.mark.parametrize("key", HOSTILE)
def test_every_hostile_file_ends_with_its_code(place: Path, key: str) -> None:
    path, scratch = made(place, HOSTILE[key].make())
    try:
        result = extract_isolated(path, HOSTILE[key].name, scratch, NO_OCR)
        code, left = None, [one.path for one in result.members]
    except Unreadable as failure:
        code, left = failure.code, []
    assert code == HOSTILE[key].code
    assert sorted(scratch.iterdir()) == left
    assert sorted(place.iterdir()) == [path, scratch]


def test_a_relative_path_works_too(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(place, corpus()["en.zip"])
    monkeypatch.chdir(place)
    result = extract_isolated(Path("file"), "a.zip", Path("scratch"), NO_OCR)
    assert result.members[0].path == Path("scratch/member-00001")
    assert result.members[0].path.stat().st_uid == os.geteuid()


def test_the_folder_must_be_empty_and_the_promises_kept(place: Path) -> None:
    path, scratch = made(place, b"text")
    with pytest.raises(Mistake, match="no network"):
        extract_isolated(path, "a.txt", scratch, without=frozenset({"seccomp"}))
    (scratch / "old").touch()
    with pytest.raises(BadValue, match=r"scratch is .*; it must be an empty folder"):
        extract_isolated(path, "a.txt", scratch)


def test_time_and_memory_are_limited(place: Path) -> None:
    path, scratch = made(place, HOSTILE["many cells"].make())
    with pytest.raises(Unreadable) as caught:
        extract_isolated(path, "a.xlsx", scratch, Limits(seconds_max=0.2))
    assert caught.value.code == "timed_out"
    with pytest.raises(Unreadable) as caught:
        extract_isolated(path, "a.xlsx", scratch, memory_max=1_000_000)
    assert caught.value.code == "too_large"
    assert list(scratch.iterdir()) == []


# -- what comes back

Spoil = Callable[[dict[str, Any], Path], object]
SPOILED: dict[str, Spoil] = {
    "another fact": lambda facts, scratch: facts.update(more=1),
    "a missing fact": lambda facts, scratch: facts.pop("title"),
    "a size that is not the file's": lambda facts, scratch: facts.update(size=1),
    "a hash that is none": lambda facts, scratch: facts.update(sha256="x" * 64),
    "the hash of other bytes": lambda facts, scratch: facts.update(sha256=hashlib.sha256(b"other").hexdigest()),
    "a media type with a line": lambda facts, scratch: facts.update(media_type="text/plain\n"),
    "an unknown unit": lambda facts, scratch: facts.update(unit="book"),
    "an unhashable unit": lambda facts, scratch: facts.update(unit=[]),
    "a title of two lines": lambda facts, scratch: facts.update(title="a\nb"),
    "a title without end": lambda facts, scratch: facts.update(title="a" * 501),
    "a date that is none": lambda facts, scratch: facts.update(created="yesterday"),
    "an unknown language": lambda facts, scratch: facts.update(language="xx"),
    "a width below zero": lambda facts, scratch: facts.update(width=-1),
    "a width that is true": lambda facts, scratch: facts.update(width=True),
    "no pages": lambda facts, scratch: facts.update(pages=[]),
    "pages beyond the text": lambda facts, scratch: facts["pages"][-1].update(end=10**9),
    "pages with a gap": lambda facts, scratch: facts["pages"][0].update(start=1),
    "a page that is a word": lambda facts, scratch: facts.update(pages=["one"]),
    "an unknown warning": lambda facts, scratch: facts.update(warnings=[{"code": "x", "detail": ""}]),
    "a warning twice": lambda facts, scratch: facts.update(warnings=[{"code": "no_text", "detail": ""}] * 2),
    "a member elsewhere": lambda facts, scratch: facts["members"][0].update(path="../file"),
    "a member twice": lambda facts, scratch: facts["members"].append(facts["members"][0]),
    "a member of another size": lambda facts, scratch: facts["members"][0].update(size=1),
    "a member that is not there": lambda facts, scratch: (scratch / "member-00001").unlink(),
    "a member that is a link": lambda facts, scratch: linked(scratch / "member-00001"),
    "a member with two names": lambda facts, scratch: os.link(scratch / "member-00001", scratch / "more"),
}
PARTS = {
    "a text that is no text": (b"\xff\xfe", b""),
    "a text that ends within a character": (b"a" * 65_535 + b"\xc5", b""),
    "a text that ends within a character of its second block": (b"a" * 65_536 + b"\xc5", b""),
    "a text that breaks off where a block ends": (b"a" * 65_535 + b"\xc5" + b"a" * 10, b""),
    "a text with control characters": (b"\x1b[2J", b""),
    "a text without end": (b"a" * (NO_OCR.text_max + 1), b""),
    "no text": (b"", b""),
    "a picture that is none": (None, b"<svg/>"),
    "a huge picture": (None, b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + b"\0\1\0\0" * 2),
    "a picture without end": (None, b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + b"\0\0\0\1" * 2 + b"x" * 10_000_000),
}


def linked(path: Path) -> None:
    """A link to the very same content, elsewhere."""
    moved = path.rename(path.parents[1] / "moved")
    path.symlink_to(moved)


def answered(place: Path) -> tuple[Heard, int, str, Path]:
    path, scratch = made(place, corpus()["pl.zip"])
    result = extract(path, "a.zip", scratch, NO_OCR)
    facts: dict[str, Any] = json.loads(json.dumps(result.facts()))
    return Heard(facts, (result.text_bytes, b"")), path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest(), scratch


def test_an_honest_answer_is_taken(place: Path) -> None:
    heard, size, sha256, scratch = answered(place)
    assert validate_response(heard, size, sha256, scratch, NO_OCR).facts() == heard.value


@pytest.mark.parametrize("how", [*SPOILED, *PARTS])
def test_an_answer_that_breaks_a_law_is_a_crash(place: Path, how: str) -> None:
    heard, size, sha256, scratch = answered(place)
    assert isinstance(heard.value, dict)
    if how in SPOILED:
        SPOILED[how](heard.value, scratch)
    else:
        text, picture = PARTS[how]
        heard = Heard(heard.value, (heard.parts[0] if text is None else text, picture))
    with pytest.raises(Unreadable, match="sent an invalid result") as caught:
        validate_response(heard, size, sha256, scratch, NO_OCR)
    assert caught.value.code == "crashed"


def test_500_damaged_files_leave_no_process_and_no_trace(tmp_path: Path) -> None:
    report = run_chaos(count=500, seed=20260302, folder=tmp_path, batch=100, is_confined=True)
    assert report.wrong == []
    assert report.outcomes.total() == 500
    assert report.outcomes["read"] > 50
    assert report.outcomes["corrupt"] > 50
