"""OLE files: what is in them, whichever program wrote them, and what they are."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from chaos.corpus.old_office import by_libreoffice, properties, workbook
from chaos.corpus.samples import BY_LANGUAGE
from fairlane.extract import Limits, Unreadable
from fairlane.extract.builder import ExtractionBuilder
from fairlane.extract.ole import OleFile, Tree
from fairlane.extract.ole_properties import codec_of, filetime
from fairlane.extract.ole_writer import write_ole

from .conftest import Read, Refused, codes

Open = Callable[[bytes], Tree]


@pytest.fixture
def opened(tmp_path: Path) -> Open:
    """The whole content of an OLE file."""

    def call(content: bytes) -> Tree:
        path = tmp_path / "file"
        path.write_bytes(content)
        with OleFile(ExtractionBuilder(path, "", None, Limits())) as ole:
            return ole.tree(ole.root)

    return call


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 511, 4_095, 4_096, 4_097, 70_000, 8_000_000])
def test_streams_of_every_size_come_out_as_they_went_in(opened: Open, size: int) -> None:
    tree: Tree = {"a": random.Random(size).randbytes(size), "b": b"beside it", "c": {"d": {"e": b"deep"}, "f": {}}}
    assert opened(write_ole(tree)) == tree


def test_many_streams(opened: Open) -> None:
    tree: Tree = {f"stream {number}": bytes([number % 256]) * number for number in range(600)}
    assert opened(write_ole(tree)) == tree


def test_what_libreoffice_wrote(opened: Open) -> None:
    tree = opened(by_libreoffice()["letter.doc"])
    assert {"WordDocument", "1Table", "Data", "\5SummaryInformation"} <= set(tree)
    assert opened(write_ole(tree)) == tree


def test_a_stream_that_is_cut_is_read_as_far_as_it_goes(read: Read) -> None:
    content = write_ole({"Workbook": workbook({"a": [("words", number) for number in range(600)]})})
    result = read(content.replace(struct.pack("<LQ", 0, len(workbook({"a": []}))), b""), "a.xls")
    assert "words" in result.text
    place = content.index("Workbook".encode("utf-16-le")) + 120
    longer = content[:place] + struct.pack("<Q", 2**31) + content[place + 8 :]
    assert codes(read(longer, "a.xls")) == {"damaged_parts"}


@pytest.mark.parametrize(
    ("name", "code", "detail"),
    [
        ("EncryptedPackage", "encrypted", "an office document with a password"),
        ("\tDRMContent", "encrypted", "an office document with a password"),
        ("VisioDocument", "unsupported", "application/vnd.visio"),
        ("Quill", "unsupported", "application/x-mspublisher"),
        ("Notes", "unsupported", "an OLE file of an unknown kind, with notes"),
    ],
)
def test_what_is_not_read(refused: Refused, name: str, code: str, detail: str) -> None:
    failure = refused(write_ole({name: bytes(5_000)}), "a.doc")
    assert (failure.code, failure.detail) == (code, detail)


def test_cut_and_broken_containers(refused: Refused) -> None:
    content = write_ole({"Workbook": workbook({"a": []})})
    assert refused(content[:300], "a.xls").code == "corrupt"
    assert refused(content[:512], "a.xls").code == "corrupt"
    assert refused(content[:30] + b"\xff" + content[31:], "a.xls").detail == "an OLE file with sectors of 2^255 bytes"


def test_times_and_code_pages() -> None:
    assert filetime(0) is None
    assert filetime(2**64 - 1) is None
    assert filetime(134_167_878_000_000_000) == "2026-02-28T21:30:00+00:00"
    assert [codec_of(number) for number in (1252, 1250, 1200, 932, 65001, 31_337, 10000)] == [
        *("cp1252", "cp1250", "utf-16-le", "cp932", "utf-8", "cp1252", "mac_roman")
    ]


def test_properties_that_are_damaged_are_left_out(read: Read) -> None:
    whole = properties(BY_LANGUAGE["pl"])
    book = workbook({"a": [("words",)]})
    assert read(write_ole({"Workbook": book, "\5SummaryInformation": whole}), "a.xls").author == BY_LANGUAGE["pl"].author
    for length in (0, 20, 47, 60, 90):
        result = read(write_ole({"Workbook": book, "\5SummaryInformation": whole[:length]}), "a.xls")
        assert "words" in result.text
        assert result.author is None


def test_an_entry_is_read_once(opened: Open, refused: Refused) -> None:
    """Whatever its neighbours say: a directory in a circle ends."""
    content = bytearray(write_ole({"a": {"b": b"c"}}))
    place = content.index("a\0\0\0".encode("latin-1"))
    child = struct.unpack_from("<L", content, place + 76)[0]
    inner = content.index("b\0\0\0".encode("latin-1"))
    struct.pack_into("<3L", content, inner + 68, child, child, 1)
    assert opened(bytes(content)) == {"a": {"b": b"c"}}
    with pytest.raises(Unreadable):
        raise refused(bytes(content), "a.doc")
