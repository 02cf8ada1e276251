"""The built-in handler: what is said of a file is what is in it."""

from __future__ import annotations

import codecs
import hashlib
import io
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.core.errors import BadValue, Mistake
from fairlane.process.facts import END_BYTES, PIECE_BYTES, facts, facts_of_document
from tests.conftest import as_nobody


def put(folder: Path, name: str, content: bytes) -> str:
    (folder / name).write_bytes(content)
    return str(folder / name)


def zipped(*names: str, filler: int = 0) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr("filler.bin", bytes(filler))
        for name in names:
            archive.writestr(name, "x")
    return held.getvalue()


def odf() -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.text")
        archive.writestr("content.xml", "<x/>")
    return held.getvalue()


OFFICE = "application/vnd.openxmlformats-officedocument."


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("a.pdf", b"%PDF-1.7\n...", "application/pdf"),
        ("a.txt", b"%PDF-1.7\n...", "application/pdf"),
        ("a.pdf", b"printer line\n%PDF-1.4\n\xe2\xe3", "application/pdf"),
        ("a.pdf", b"only text\n", "text/plain"),
        ("a.pdf", b"\x00\x01garbage", "application/octet-stream"),
        ("scan", b"\x89PNG\r\n\x1a\n\0\0", "image/png"),
        ("scan.png", b"\xff\xd8\xff\xe0\0\x10JFIF", "image/jpeg"),
        ("scan", b"GIF89a\x01\0", "image/gif"),
        ("scan", b"GIF87a\x01\0", "image/gif"),
        ("scan", b"II*\0\x08\0", "image/tiff"),
        ("scan", b"MM\0*\0\0", "image/tiff"),
        ("scan", b"RIFF\x10\0\0\0WEBPVP8 ", "image/webp"),
        ("a.zip", zipped("a.txt"), "application/zip"),
        ("a.docx", zipped("a.txt"), "application/zip"),
        ("a.zip", zipped("word/document.xml"), OFFICE + "wordprocessingml.document"),
        ("late.zip", zipped("word/document.xml", filler=END_BYTES), OFFICE + "wordprocessingml.document"),
        ("a", zipped("xl/workbook.xml"), OFFICE + "spreadsheetml.sheet"),
        ("a", zipped("ppt/presentation.xml"), OFFICE + "presentationml.presentation"),
        ("a.odt", odf(), "application/vnd.oasis.opendocument.text"),
        ("none.zip", zipped()[-22:], "application/zip"),
        ("a.doc", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0", "application/msword"),
        ("a", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0", "application/x-ole-storage"),
        ("a.gz", b"\x1f\x8b\x08\0", "application/gzip"),
        ("a.md", b"# Title\n", "text/markdown"),
        ("a.CSV", b"a,b\n1,2\n", "text/csv"),
        ("a.json", b"{}", "application/json"),
        ("a.eml", b"From: a@example.org\n\nHi\n", "message/rfc822"),
        ("a.txt", b"\xef\xbb\xbf<!-- a --><!DOCTYPE html><p>", "text/html"),
        ("a", b"<?xml version='1.0'?><a/>", "application/xml"),
        ("a.svg", b"<svg xmlns='x'/>", "image/svg+xml"),
        ("a.html", b"just words", "text/html"),
        ("song.mp3", b"\x00\x01\x02", "audio/mpeg"),
        ("a.txt", b"\x00\x01\x02", "application/octet-stream"),
        ("README", b"words", "text/plain"),
        ("empty", b"", "text/plain"),
    ],
)
def test_the_media_type_is_read_from_content_first_and_the_name_second(
    tmp_path: Path, name: str, content: bytes, kind: str
) -> None:
    assert facts(put(tmp_path, name, content)).media_type == kind


@pytest.mark.parametrize(
    ("content", "encoding", "lines", "words"),
    [
        (b"", "utf-8", 0, 0),
        (b"one", "utf-8", 1, 1),
        (b"one two\nthree\n", "utf-8", 2, 3),
        (b"one two\r\nthree", "utf-8", 2, 3),
        (b"old mac\rlines\r", "utf-8", 2, 3),
        ("Zażółć gęślą jaźń".encode(), "utf-8", 1, 3),
        ("Zażółć gęślą jaźń".encode("cp1250"), "unknown-8bit", 1, 3),
        (codecs.BOM_UTF8 + b"one\n", "utf-8", 1, 1),
        ("ação é fácil\n".encode("utf-16"), "utf-16", 1, 3),
        ("ação é fácil\n".encode("utf-32"), "utf-32", 1, 3),
        (b"\n\n\n", "utf-8", 3, 0),
        (b"half a letter \xc3", "unknown-8bit", 1, 4),
    ],
)
def test_lines_and_words_of_text(tmp_path: Path, content: bytes, encoding: str, lines: int, words: int) -> None:
    told = facts(put(tmp_path, "a.txt", content))
    assert (told.encoding, told.lines, told.words, told.size) == (encoding, lines, words, len(content))


@pytest.mark.parametrize(
    "content",
    [
        b"%PDF-1.4 all of it printable",
        b"{\\rtf1 words}",
        b"\x00",
        b"text and \x00",
        "x".encode("utf-16") + b"\x00\xd8",
        b"\x7fELF",
    ],
)
def test_what_is_not_text_has_no_lines(tmp_path: Path, content: bytes) -> None:
    told = facts(put(tmp_path, "a.txt", content))
    assert (told.encoding, told.lines, told.words) == (None, None, None)


@given(
    before=st.integers(0, 3),
    text=st.text(st.sampled_from("aé€😀 \t\n\r"), max_size=12),
    filler=st.sampled_from(["a", "a ", "é\n"]),
)
def test_where_a_file_is_cut_into_pieces_does_not_matter(
    tmp_path_factory: pytest.TempPathFactory, before: int, text: str, filler: str
) -> None:
    start = (filler * PIECE_BYTES).encode()[: PIECE_BYTES - 3 - before].decode(errors="ignore")
    whole = start + text + "end of it"
    told = facts(put(tmp_path_factory.mktemp("cut"), "a.txt", whole.encode()))
    as_lines = whole.replace("\r\n", "\n").replace("\r", "\n")
    assert (told.encoding, told.words, told.lines) == ("utf-8", len(whole.split()), as_lines.count("\n") + 1)
    assert told.sha256 == hashlib.sha256(whole.encode()).hexdigest()


def test_bytes_of_another_encoding_late_in_a_file_keep_the_counts(tmp_path: Path) -> None:
    content = b"word " * PIECE_BYTES + b"\xe9 end"
    assert facts(put(tmp_path, "a.txt", content)).words == PIECE_BYTES + 2


def test_a_huge_file_needs_no_more_memory_than_a_small_one(tmp_path: Path) -> None:
    path = tmp_path / "huge.bin"
    with path.open("wb") as file:
        file.write(b"text " * 1000)
        file.truncate(600 * 1024 * 1024)  # a hole: nothing on the disk
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_DATA, (200 << 20, 200 << 20)); import sys; "
        "from fairlane.process.facts import facts; told = facts(sys.argv[1]); print(told.size, told.media_type)"
    )
    told = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=False)
    assert told.stdout.split() == [str(600 * 1024 * 1024), "application/octet-stream"], told.stderr


def test_a_file_full_of_comments_is_not_a_riddle(tmp_path: Path) -> None:
    assert facts(put(tmp_path, "a.txt", b"<!---->" * 5000 + b"<p>")).media_type == "text/plain"


def test_what_cannot_be_read_is_told_clearly(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    signal.alarm(30)  # ends the run rather than wait for a pipe for ever
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for name, message in [
        ("missing.pdf", "there is no file"),
        ("dangling", "there is no file"),
        ("pipe", "is a pipe or a device, not an ordinary file"),
        ("", "is a folder, not an ordinary file"),
        ("bad\0name", "cannot be opened"),
        ("x" * 300, "cannot be opened: File name too long"),
        ("missing\udcff\n.pdf", "missing��.pdf"),
    ]:
        with pytest.raises(Mistake, match=message) as told:
            facts(f"{tmp_path}/{name}")
        assert str(told.value).isprintable()
    signal.alarm(0)


def test_a_file_that_may_not_be_read_is_told_clearly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "secret.txt", b"x")
    tmp_path.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    Path("secret.txt").chmod(0)
    with as_nobody(), pytest.raises(Mistake, match=r"secret\.txt may not be read by this user"):
        facts("secret.txt")


def test_the_handler_answers_with_the_facts_that_there_are(tmp_path: Path) -> None:
    content = b"one two\n"
    assert facts_of_document({"path": put(tmp_path, "a.txt", content), "name": "a.txt"}) == {
        "size": 8,
        "sha256": hashlib.sha256(content).hexdigest(),
        "media_type": "text/plain",
        "encoding": "utf-8",
        "lines": 1,
        "words": 2,
    }
    assert "lines" not in facts_of_document({"path": put(tmp_path, "a.png", b"\x89PNG\r\n\x1a\n\0")})


@pytest.mark.parametrize("payload", [None, "a.txt", {}, {"path": 7}])
def test_a_payload_without_a_path_is_refused(payload: object) -> None:
    with pytest.raises(BadValue, match="an object with the path of a file"):
        facts_of_document(payload)
