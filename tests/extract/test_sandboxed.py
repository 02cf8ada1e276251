"""Files read in the sandbox give what they give outside of it, and nothing that comes back is trusted."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from chaos.corpus.all import corpus
from chaos.corpus.hostile import HOSTILE
from chaos.corpus.hostile_office import HOSTILE_OFFICE
from chaos.corpus.office import zipped
from chaos.corpus.others import draw, make_image
from chaos.files import run as run_chaos
from fairlane import sandbox
from fairlane.core.errors import BadValue, Mistake
from fairlane.extract import Extraction, Limits, Unreadable, extract, sandbox_entry, sandboxed, warm
from fairlane.extract.builder import ExtractionBuilder
from fairlane.extract.sandboxed import extract_isolated
from fairlane.extract.validation import validate_response
from fairlane.sandbox import Response
from tests.sandbox.harness import (
    CALLERS,
    Caller,
    call_in_fork,
    children_of,
    error_name,
    fork_server_of,
    open_folder,
    parent_of,
    supervisors_of,
    wait_until_ended,
)

NO_OCR = Limits(ocr_pages_max=0)


@pytest.fixture
def folder() -> Iterator[Path]:
    warm()
    with open_folder() as folder:
        yield folder


def write_input(folder: Path, content: bytes) -> tuple[Path, Path]:
    path, scratch = folder / "file", folder / "scratch"
    path.write_bytes(content)
    scratch.mkdir()
    return path, scratch


def with_contents(result: Extraction) -> tuple[Extraction, list[bytes]]:
    contents = [member.path.read_bytes() for member in result.members]
    for member in result.members:
        member.path.unlink()
    return result, contents


def test_every_good_file_gives_the_very_same(folder: Path) -> None:
    for number, (name, content) in enumerate(corpus().items()):
        (folder / str(number)).mkdir()
        path, scratch = write_input(folder / str(number), content)
        plain = with_contents(extract(path, name, scratch, NO_OCR))
        assert with_contents(extract_isolated(path, name, scratch, NO_OCR)) == plain, name
        assert list(scratch.iterdir()) == []
        assert with_contents(extract_isolated(path, name, scratch, NO_OCR, without=sandbox.NAMESPACES)) == plain, name


@pytest.mark.parametrize("offset", range(5))
def test_a_long_text_is_whole_wherever_its_blocks_end(folder: Path, offset: int) -> None:
    """Characters of one to four bytes, of which every block's end cuts another."""
    text = "a" * offset + "🦊żół \xa0" * 40_000
    path, scratch = write_input(folder, text.encode())
    for result in (extract(path, "a.txt", scratch), extract_isolated(path, "a.txt", scratch)):
        assert (result.text, result.text_bytes) == (text, text.encode())
        assert [(page.start, page.end) for page in result.pages] == [(0, len(text))]
        assert [warning.code for warning in result.warnings] == []


@pytest.mark.parametrize("letter", ["a", "ż", "€", "🦊"])
def test_a_sample_has_as_many_characters_as_its_length(folder: Path, letter: str) -> None:
    builder = ExtractionBuilder(folder / "file", "a.txt", None, NO_OCR)
    builder.write(letter * 100)
    assert [len(builder.sample(length)) for length in (0, 7, 99, 100, 101)] == [0, 7, 99, 100, 100]


def test_a_text_of_spaces_only_is_none(folder: Path) -> None:
    path, scratch = write_input(folder, ("\xa0 \n" * 50_000).encode())
    result = extract(path, "a.txt", scratch)
    assert [warning.code for warning in result.warnings] == ["no_text"]
    path.write_bytes(path.read_bytes() + b"x")
    assert "no_text" not in [warning.code for warning in extract(path, "a.txt", scratch).warnings]


def file_of(name: str) -> bytes:
    return make_image(draw(["Invoice number 4217"], (700, 120), 48), "PNG") if name == "scan.png" else corpus()[name]


@cache
def extract_outside(name: str) -> tuple[str, object]:
    """Text and facts of a file that is read outside of the sandbox."""
    with open_folder() as folder:
        path, scratch = write_input(folder, file_of(name))
        result = extract(path, name, scratch)
        return result.text, json.loads(json.dumps(result.facts()))


@pytest.mark.parametrize("name", CALLERS)
@pytest.mark.parametrize("file", ["pl.pdf", "de.zip", "scan.png"])
def test_every_caller_reads_the_same_with_words_on_pictures(folder: Path, name: str, file: str) -> None:
    """Tesseract runs inside, if it is here at all."""
    path = folder / "file"
    path.write_bytes(file_of(file))
    expected = extract_outside(file)

    def call() -> list[object]:
        scratch = folder / "scratch"
        scratch.mkdir()
        with ExitStack() as stack:
            fork_server = None
            if CALLERS[name].has_fork_server:
                work = fork_server_of(lambda *arguments: sandbox_entry.work(*arguments)())
                fork_server, _ = stack.enter_context(work)
            result = extract_isolated(path, file, scratch, without=CALLERS[name].without, fork_server=fork_server)
        return [result.text, result.facts()]

    assert tuple(call_in_fork(CALLERS[name], call)) == expected
    if file == "scan.png" and shutil.which("tesseract"):
        assert "Invoice number 4217" in expected[0]


@pytest.mark.parametrize("key", [*HOSTILE, *HOSTILE_OFFICE])
def test_every_hostile_file_ends_with_its_code(folder: Path, key: str) -> None:
    hostile = (HOSTILE | HOSTILE_OFFICE)[key]
    path, scratch = write_input(folder, hostile.make())
    try:
        result = extract_isolated(path, hostile.name, scratch, NO_OCR)
        code, left = None, [member.path for member in result.members]
    except Unreadable as failure:
        code, left = failure.code, []
    assert code == hostile.code
    assert sorted(scratch.iterdir()) == left
    assert sorted(folder.iterdir()) == [path, scratch]


def test_a_relative_path_works_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_input(folder, corpus()["en.zip"])
    monkeypatch.chdir(folder)
    result = extract_isolated(Path("file"), "a.zip", Path("scratch"), NO_OCR)
    assert result.members[0].path == Path("scratch/member-00001")
    assert result.members[0].path.stat().st_uid == os.geteuid()


def test_the_folder_must_be_empty_and_the_promises_kept(folder: Path) -> None:
    path, scratch = write_input(folder, b"text")
    with pytest.raises(Mistake, match="no network"):
        extract_isolated(path, "a.txt", scratch, without=frozenset({"seccomp"}))
    (scratch / "old").touch()
    with pytest.raises(BadValue, match=r"scratch is .*; it must be an empty folder"):
        extract_isolated(path, "a.txt", scratch)


def test_time_and_memory_are_limited(folder: Path) -> None:
    path, scratch = write_input(folder, HOSTILE["many cells"].make())
    with pytest.raises(Unreadable) as caught:
        extract_isolated(path, "a.xlsx", scratch, Limits(seconds_max=0.2))
    assert caught.value.code == "timed_out"
    with pytest.raises(Unreadable) as caught:
        extract_isolated(path, "a.xlsx", scratch, memory_max=1_000_000)
    assert caught.value.code == "too_large"
    assert list(scratch.iterdir()) == []


# -- by the fork server


@pytest.fixture
def standby() -> Iterator[int]:
    """The pid of the standby process of the built-in worker's fork server."""
    before = children_of(os.getpid())
    sandboxed.prepare()
    (pid,) = set(children_of(os.getpid())) - {*before}
    yield pid
    sandboxed.release()


def test_every_good_file_gives_the_very_same_by_the_fork_server(folder: Path, standby: int) -> None:
    for number, (name, content) in enumerate(corpus().items()):
        (folder / str(number)).mkdir()
        path, scratch = write_input(folder / str(number), content)
        plain = with_contents(extract(path, name, scratch, NO_OCR))
        assert with_contents(extract_isolated(path, name, scratch, NO_OCR)) == plain, name
    assert len(supervisors_of(standby)) == 1, "one supervisor for all"


def test_the_longest_paths_fit_into_a_request(folder: Path, standby: int) -> None:
    deep = bytes(folder)
    while len(deep) < 3_800:
        deep = os.path.join(deep, b"\xff" * 200)  # not UTF-8: such a name is the longest as JSON
    os.makedirs(deep)
    path, scratch = write_input(Path(os.fsdecode(deep)), b"deep")
    assert extract_isolated(path, "\udcff" * 255, scratch, NO_OCR).text == "deep"
    assert len(supervisors_of(standby)) == 1


def kill_fork_server(standby: int) -> None:
    """Kill all of its processes, once it has a supervisor."""
    (supervisor,) = supervisors_of(standby)
    server = parent_of(supervisor)
    for pid in (standby, server, supervisor):
        os.kill(pid, signal.SIGKILL)
        wait_until_ended(pid)


def test_a_fork_server_of_which_all_was_killed_is_replaced(folder: Path, standby: int) -> None:
    """A fork of this process would know its passwords."""
    path, scratch = write_input(folder, b"text")
    assert extract_isolated(path, "a.txt", scratch).text == "text"
    kill_fork_server(standby)
    before = children_of(os.getpid())
    assert extract_isolated(path, "a.txt", scratch).text == "text"
    (replaced,) = set(children_of(os.getpid())) - {*before}
    assert len(supervisors_of(replaced)) == 1
    assert extract_isolated(path, "a.txt", scratch).text == "text"
    assert {replaced} == set(children_of(os.getpid())) - {*before}


def test_a_fork_server_that_cannot_be_replaced_is_a_crash_and_nothing_is_read_without_it(
    folder: Path, standby: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, scratch = write_input(folder, b"text")
    assert extract_isolated(path, "a.txt", scratch).text == "text"
    kill_fork_server(standby)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "executable", str(folder / "no python"))
        for _ in range(2):
            with pytest.raises(Unreadable, match="no python cannot be started") as caught:
                extract_isolated(path, "a.txt", scratch)
            assert (caught.value.code, caught.value.can_retry) == ("crashed", True)
            assert list(scratch.iterdir()) == []
    assert extract_isolated(path, "a.txt", scratch).text == "text"


def test_without_a_fork_server_nothing_is_prepared(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(folder / "no python"))
    with pytest.raises(Mistake, match=r"untrusted files are not opened here: .*no python cannot be started"):
        sandboxed.prepare()


def test_every_sample_is_read(folder: Path) -> None:
    for name, content in sandbox_entry.samples().items():
        (folder / name).write_bytes(content)
        assert extract(folder / name, name, folder).text.strip() == "This is the sample", name


@pytest.mark.parametrize("is_fork", [False, True])
def test_nothing_is_left_open_when_python_ends(tmp_path: Path, is_fork: bool) -> None:
    (tmp_path / "a.txt").write_text("one two")
    (tmp_path / "scratch").mkdir()
    script = f"""
import os
from pathlib import Path
from fairlane.extract.sandboxed import extract_isolated, prepare

prepare()
def read():
    return extract_isolated(Path("a.txt"), "a.txt", Path("scratch")).text
read()
if {is_fork} and os.fork():
    assert os.wait()[1] == 0
    assert "one two" in read()
"""
    command = [sys.executable, "-W", "default", "-W", "ignore::DeprecationWarning", "-c", script]
    completed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
    assert completed.stderr == ""


# -- what it may have


def test_only_with_ocr_can_another_process_be_started(folder: Path, program: Callable[[str], str]) -> None:
    program("tesseract")

    def work(*arguments: object) -> None:
        raise sandbox.WorkFailed("corrupt", error_name(os.fork) or "forked")

    path, scratch = write_input(folder, b"text")
    for limits, detail in ((NO_OCR, "EPERM"), (Limits(), "forked")):
        with fork_server_of(work) as (fork_server, _), pytest.raises(Unreadable) as caught:
            extract_isolated(path, "a.txt", scratch, limits, fork_server=fork_server)
        assert caught.value.detail == detail


# -- what comes back


def test_a_code_that_no_extractor_has_is_a_crash(folder: Path) -> None:
    def work(*arguments: object) -> None:
        raise sandbox.WorkFailed("hacked", "by the file")

    path, scratch = write_input(folder, b"text")
    with fork_server_of(work) as (fork_server, _), pytest.raises(Unreadable) as caught:
        extract_isolated(path, "a.txt", scratch, fork_server=fork_server)
    assert (caught.value.code, caught.value.detail) == ("crashed", "the response is malformed")


Spoil = Callable[[dict[str, Any]], object]
SPOILED: dict[str, Spoil] = {
    "another fact": lambda facts: facts.update(more=1),
    "a missing fact": lambda facts: facts.pop("title"),
    "a size that is not the file's": lambda facts: facts.update(size=1),
    "a hash that is none": lambda facts: facts.update(sha256="x" * 64),
    "the hash of other bytes": lambda facts: facts.update(sha256=hashlib.sha256(b"other").hexdigest()),
    "a media type with a line": lambda facts: facts.update(media_type="text/plain\n"),
    "an unknown unit": lambda facts: facts.update(unit="book"),
    "an unhashable unit": lambda facts: facts.update(unit=[]),
    "a title of two lines": lambda facts: facts.update(title="a\nb"),
    "a title without end": lambda facts: facts.update(title="a" * 501),
    "a date that is none": lambda facts: facts.update(created="yesterday"),
    "an unknown language": lambda facts: facts.update(language="xx"),
    "a width below zero": lambda facts: facts.update(width=-1),
    "a width that is true": lambda facts: facts.update(width=True),
    "a confidence above 1": lambda facts: facts.update(ocr_confidence=1.5),
    "a confidence that is true": lambda facts: facts.update(ocr_confidence=True),
    "a confidence that is no number": lambda facts: facts["pages"][0].update(ocr_confidence=float("nan")),
    "no pages": lambda facts: facts.update(pages=[]),
    "pages beyond the text": lambda facts: facts["pages"][-1].update(end=10**9),
    "pages with a gap": lambda facts: facts["pages"][0].update(start=1),
    "a page that is a word": lambda facts: facts.update(pages=["one"]),
    "an unknown warning": lambda facts: facts.update(warnings=[{"code": "x", "detail": ""}]),
    "a warning twice": lambda facts: facts.update(warnings=[{"code": "no_text", "detail": ""}] * 2),
    "a member elsewhere": lambda facts: facts["members"][0].update(path="../file"),
    "a member twice": lambda facts: facts["members"].append(facts["members"][0]),
    "a member of another size": lambda facts: facts["members"][0].update(size=1),
    "a member below zero": lambda facts: spoil_sizes(facts, -1),
    "a member that is larger than a file may be": lambda facts: spoil_sizes(facts, NO_OCR.size_max + 1),
    "a member whose size is no number": lambda facts: facts["members"][0].update(size="1"),
    "no members": lambda facts: facts.update(members=[]),
}


def spoil_sizes(facts: dict[str, Any], size: int) -> None:
    """One member of this size, and others that make the sum right."""
    first, second, *_ = facts["members"]
    second["size"] += first["size"] - size
    first["size"] = size


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


class Returned(NamedTuple):
    """A response, and what is known of the file that was read."""

    response: Response
    size: int
    sha256: str
    row_size: int

    def validate(self, scratch: Path) -> Extraction:
        return validate_response(self.response, self.size, self.sha256, self.row_size, scratch, NO_OCR)


def honest_response(folder: Path) -> Returned:
    path, scratch = write_input(folder, corpus()["pl.zip"])
    result = extract(path, "a.zip", scratch, NO_OCR)
    facts: dict[str, Any] = json.loads(json.dumps(result.facts()))
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    response = Response(facts, (result.text_bytes, b""))
    return Returned(response, path.stat().st_size, sha256, sum(member.size for member in result.members))


def test_an_honest_response_is_accepted(folder: Path) -> None:
    returned = honest_response(folder)
    assert returned.validate(folder).facts() == returned.response.value


@pytest.mark.parametrize("how", [*SPOILED, *PARTS])
def test_a_response_that_breaks_a_law_is_a_crash(folder: Path, how: str) -> None:
    returned = honest_response(folder)
    facts = returned.response.value
    assert isinstance(facts, dict)
    if how in SPOILED:
        SPOILED[how](facts)
    else:
        text, picture = PARTS[how]
        returned = returned._replace(response=Response(facts, (returned.response.parts[0] if text is None else text, picture)))
    with pytest.raises(Unreadable, match="sent an invalid result") as caught:
        returned.validate(folder)
    assert caught.value.code == "crashed"


def test_an_output_file_with_more_than_the_members_is_a_crash(folder: Path) -> None:
    returned = honest_response(folder)
    with pytest.raises(Unreadable, match="sent an invalid result: members"):
        returned._replace(row_size=returned.row_size + 1).validate(folder)


def test_members_that_cannot_be_stored_are_a_failure_that_may_pass(folder: Path) -> None:
    path, scratch = write_input(folder, zipped({"small": "x", "large": "x" * 20_000_000}))
    limits = Limits(ocr_pages_max=0, text_max=1000)

    def call() -> list[object]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (16_000_000, resource.RLIM_INFINITY))  # as if the disk were full then
        with pytest.raises(Unreadable, match=r"the files inside cannot be stored: .*File too large") as caught:
            extract_isolated(path, "a.zip", scratch, limits)
        return [caught.value.code, caught.value.can_retry, os.listdir(scratch)]

    assert call_in_fork(Caller(os.geteuid(), frozenset()), call) == ["crashed", True, []]


def test_500_damaged_files_leave_no_process_and_no_trace(tmp_path: Path) -> None:
    report = run_chaos(count=500, seed=20260302, folder=tmp_path, batch=100, is_confined=True)
    assert report.wrong == []
    assert report.outcomes.total() == 500
    assert report.outcomes["read"] > 50
    assert report.outcomes["corrupt"] > 50
