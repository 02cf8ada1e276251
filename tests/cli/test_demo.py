"""Sample documents: valid files, the same for the same seed."""

from __future__ import annotations

import csv
import email
import email.policy
import html.parser
import json
import re
import xml.etree.ElementTree as ElementTree
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from fairlane.extract import extract
from fairlane.folders.scan import scan

from .running import run, run_json

WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"


def made(folder: Path, *options: str) -> dict[str, bytes]:
    assert run("demo", str(folder), *options).exit_code == 0
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_one_big_and_several_small_customers(tmp_path: Path) -> None:
    (row,) = run_json("demo", str(tmp_path / "new/inbox"))
    counts = {"northwind": 150, **dict.fromkeys(("ada-law", "bakery", "clinic", "dentist", "elm-school"), 4)}
    assert row["documents"] == counts
    found = scan(str(tmp_path / "new/inbox"))
    assert {customer: len(paths) for customer, paths in found.documents.items()} == counts
    assert found.skipped == []


def test_the_same_seed_makes_the_same_bytes(tmp_path: Path) -> None:
    one, again, other = (made(tmp_path / f"{n}", "--seed", seed, "--big", "20") for n, seed in enumerate(("7", "7", "8")))
    assert one == again
    assert one != other


def test_sizes_are_options(tmp_path: Path) -> None:
    options = ("--big", "9", "--small", "2", "--each", "1", "--paragraphs", "200")
    files = made(tmp_path / "inbox", *options)
    assert Counter(name.split("/")[0] for name in files) == {"northwind": 9, "ada-law": 1, "bakery": 1}
    (text,) = (content for name, content in files.items() if name.endswith(".txt"))
    assert text.count(b"\n\n") == 202


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--big=0", "--big is 0; it must be a whole number from 1 to 100,000"),
        ("--small=11", "--small is 11; it must be a whole number from 0 to 10"),
        ("--each=0", "--each is 0"),
        ("--paragraphs=0", "--paragraphs is 0"),
    ],
)
def test_sizes_that_cannot_be_are_refused(tmp_path: Path, option: str, message: str) -> None:
    result = run("demo", str(tmp_path / "inbox"), option)
    assert (result.exit_code, message in result.stderr, list(tmp_path.iterdir())) == (2, True, [])


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    for folder, message in ((tmp_path, "is not empty; name one that is new or empty"), (tmp_path / "mine.txt", "is a file")):
        result = run("demo", str(folder))
        assert (result.exit_code, message in result.stderr) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = run("demo", str(tmp_path / "file/inbox"))
    assert (result.exit_code, "cannot be written: Not a directory" in result.stderr) == (2, True)


def test_every_file_is_what_its_name_says(tmp_path: Path) -> None:
    made(tmp_path, "--big", "80")
    kinds = {
        ".pdf": "application/pdf", ".txt": "text/plain", ".eml": "message/rfc822", ".html": "text/html", ".md": "text/markdown",
        ".csv": "text/csv", ".json": "application/json",
        ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    }  # fmt: skip
    paths = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.suffix for path in paths} == set(kinds)
    for path in paths:
        assert extract(path, path.name).media_type == kinds[path.suffix]


def test_five_languages_are_in_the_documents(tmp_path: Path) -> None:
    made(tmp_path, "--big", "80")
    assert {json.loads(path.read_text())["language"] for path in tmp_path.rglob("*.json")} == {"en", "pl", "pt", "es", "de"}
    everything = "".join(path.read_text() for path in tmp_path.rglob("*.*") if path.suffix in (".md", ".html", ".txt"))
    for letters in ("ąęłż", "ãçõ", "ñ¿", "äöüß"):
        assert set(letters) <= set(everything), letters


def test_the_formats_can_be_read_back(tmp_path: Path) -> None:
    made(tmp_path, "--big", "40")
    for path in tmp_path.rglob("*.docx"):
        with zipfile.ZipFile(path) as archive:
            assert archive.testzip() is None
            parts = {name: ElementTree.fromstring(archive.read(name)) for name in archive.namelist()}
        assert len(list(parts["word/document.xml"].iter(f"{WORD}t"))) == 9
    for path in tmp_path.rglob("*.eml"):
        message = email.message_from_bytes(path.read_bytes(), policy=email.policy.default)
        assert message["Subject"]
        (lines,) = message.iter_attachments()
        assert len(list(csv.reader(lines.get_content().splitlines()))) >= 2
    for path in tmp_path.rglob("*.csv"):
        assert {len(row) for row in csv.reader(path.read_text(encoding="utf-8-sig").splitlines())} == {3}
    for path in tmp_path.rglob("*.html"):
        html.parser.HTMLParser().feed(path.read_text())


def test_the_table_of_a_pdf_points_at_its_objects(tmp_path: Path) -> None:
    made(tmp_path, "--big", "9", "--paragraphs", "40")
    for path in tmp_path.rglob("*.pdf"):
        content = path.read_bytes()
        start = int(re.findall(rb"startxref\n(\d+)\n%%EOF\n$", content)[0])
        table = content[start:].split(b"trailer")[0].splitlines()
        for number, line in enumerate(table[3:], start=1):
            assert len(line) == 19
            assert content[int(line[:10]) :].startswith(f"{number} 0 obj\n".encode())
        streams = re.findall(rb"/Length (\d+) >>\nstream\n(.*?)\nendstream", content, re.DOTALL)
        assert len(streams) > 1, "several pages"
        assert all(int(length) == len(stream) for length, stream in streams)
