"""Workbooks of before 2007 and binary ones: cells, formats, strings over several records, passwords."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable

import pytest

from chaos.corpus.all import of_sample
from chaos.corpus.office import zipped
from chaos.corpus.old_office import Rows, biff5_workbook, by_libreoffice, record, workbook, xlsb, xlsb_record, xlsb_sheet
from chaos.corpus.samples import BY_LANGUAGE, SAMPLES, Sample
from fairlane.extract.ole_writer import write_ole

from .conftest import Read, Refused, codes

SAMPLE = BY_LANGUAGE["pl"]
ROWS: Rows = [
    ("words", 1.1, 0.1 + 0.2, 3.0, -7.0, 1e21),
    ((46082.0, 1), (46082.395833333336, 1), (1.5, 2), (0.395833333333333, 3), True, False),
]
SHOWN = (
    "| words | 1.1 | 0.3 | 3 | -7 | 1E+21 |\n| --- | --- | --- | --- | --- | --- |\n"
    "| 2026-03-01 | 2026-03-01T09:30:00 | 36:00:00 | 09:30:00 | TRUE | FALSE |\n"
)
Make = Callable[[dict[str, Rows]], bytes]


def xls(sheets: dict[str, Rows]) -> bytes:
    return write_ole({"Workbook": workbook(sheets)})


def binary(sheets: dict[str, Rows]) -> bytes:
    return xlsb(sheets, SAMPLE)


BOTH = pytest.mark.parametrize("make", [xls, binary])


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.language)
@pytest.mark.parametrize(
    ("kind", "media_type"),
    [("xls", "application/vnd.ms-excel"), ("xlsb", "application/vnd.ms-excel.sheet.binary.macroenabled.12")],
)
def test_sheets_of_every_language(read: Read, sample: Sample, kind: str, media_type: str) -> None:
    result = read(of_sample(sample)[f"{sample.language}.{kind}"], f"a.{kind}")
    assert (result.media_type, result.unit, result.warnings) == (media_type, "sheet", ())
    first = sample.title[:31].replace(":", "") if kind == "xls" else sample.title
    assert [page.label for page in result.pages] == [first.strip(), sample.items[1]]
    assert (result.title, result.author, result.language) == (sample.title, sample.author, sample.language)
    assert all(f"| {line} |\n" in result.text_of(0) for line in sample.lines)
    assert sample.table_markdown in result.text_of(1)
    assert result.text_of(1).endswith("| 2026 | 2026-03-01 |\n| 1.1 | TRUE |\n")


@BOTH
def test_numbers_dates_and_truths(read: Read, make: Make) -> None:
    result = read(make({"a": ROWS}), "a")
    assert result.text == f"## a\n\n{SHOWN}"


@BOTH
def test_far_corners_are_one_cell_each(read: Read, make: Make) -> None:
    rows: Rows = [("first", *[None] * 254, "last"), *[()] * 5_000, (None, 2.0)]
    assert read(make({"a": rows}), "a").text.splitlines()[2:] == ["| first |  | last |", "| --- | --- | --- |", "|  | 2 |  |"]


@BOTH
def test_what_breaks_a_table_is_escaped(read: Read, make: Make) -> None:
    assert "| a\\|b c | d |" in read(make({"a|b": [("a|b\nc", "d")]}), "a").text


@BOTH
def test_days_since_1904(read: Read, make: Make) -> None:
    content = make({"a": [((1.0, 1),)]})
    if make is xls:
        content = write_ole({"Workbook": workbook({"a": [((1.0, 1),)]}, is_1904=True)})
    assert ("1904-01-02" if make is xls else "1900-01-01") in read(content, "a").text


@pytest.mark.parametrize("split_at", [60, 61, 75, 100, 8_224])
def test_strings_over_several_records(read: Read, split_at: int) -> None:
    """A string may be cut anywhere between its letters, wide or narrow."""
    texts = ["short", "zażółć gęślą jaźń " * 6, "źrebię " + "narrow from here on " * 9, "x" * 300, "日本 😀" * 30, "", "end"]
    result = read(write_ole({"Workbook": workbook({"a": [(text or "none",) for text in texts]}, split_at)}), "a")
    assert [line[2:-2] for line in result.text.splitlines()[2:] if "---" not in line] == [
        text.strip() or "none" for text in texts
    ]


def test_strings_with_formats_and_readings(read: Read) -> None:
    """What follows the letters is skipped, over the end of a record as well."""
    rich = struct.pack("<HBHL", 5, 12, 2, 6) + b"words" + b"R" * 8 + b"P" * 6
    strings = struct.pack("<2L", 2, 2) + rich
    shared = record(0xFC, strings[:-9]) + record(0x3C, strings[-9:] + struct.pack("<HB", 4, 0) + b"more")
    content = workbook({"a": [("x", "y")]})
    start = content.index(struct.pack("<H", 0xFC))
    length = 4 + struct.unpack_from("<H", content, start + 2)[0]
    place = content.index(struct.pack("<H", 0x85))
    offset = struct.unpack_from("<L", content, place + 4)[0] + len(shared) - length
    content = content[: place + 4] + struct.pack("<L", offset) + content[place + 8 : start] + shared + content[start + length :]
    assert "| words | more |" in read(write_ole({"Workbook": content}), "a").text


def cells(*records: bytes) -> bytes:
    content = workbook({"a": []})
    return write_ole({"Workbook": content[:-4] + b"".join(records) + content[-4:]})


def test_packed_numbers(read: Read) -> None:
    def packed(value: int) -> bytes:
        return struct.pack("<HL", 0, value)

    head = struct.pack("<2H", 0, 0)
    half = struct.unpack("<Q", struct.pack("<d", 0.5))[0] >> 32
    many = (
        head + packed(7 << 2 | 2) + packed((-7 & 0x3FFFFFFF) << 2 | 2) + packed(4550 << 2 | 3) + packed(half) + packed(half | 1)
    )
    assert "| 7 | -7 | 45.5 | 0.5 | 0.005 |" in read(cells(record(0xBD, many + struct.pack("<H", 4))), "a").text
    assert "| 45.5 |" in read(cells(record(0x27E, head + packed(4550 << 2 | 3))), "a").text


def test_results_of_formulas(read: Read) -> None:
    def formula(column: int, result: bytes) -> bytes:
        return record(0x06, struct.pack("<3H", 0, column, 0) + result + bytes(8))

    text = record(0x207, struct.pack("<HB", 3, 0) + b"sum")
    made = cells(
        formula(0, struct.pack("<d", 2.5)),
        formula(1, b"\0\0\0\0\0\0\xff\xff") + text,
        formula(2, b"\1\0\1\0\0\0\xff\xff"),
        formula(3, b"\2\0\x07\0\0\0\xff\xff"),
        formula(4, b"\3\0\0\0\0\0\xff\xff"),
        record(0x205, struct.pack("<3H2B", 0, 5, 0, 42, 1)),
    )
    assert "| 2.5 | sum | TRUE | #DIV/0! | #N/A |\n" in read(made, "a").text


def test_results_in_binary_workbooks(read: Read) -> None:
    def kind(number: int, column: int, value: bytes) -> bytes:
        return xlsb_record(number, struct.pack("<2L", column, 0) + value)

    text = struct.pack("<L", 3) + "sum".encode("utf-16-le")
    row = b"".join(
        [
            *(kind(8, 0, text), kind(9, 1, struct.pack("<d", 2.5)), kind(10, 2, b"\1"), kind(11, 3, b"\x07")),
            *(kind(3, 4, b"\x2a"), kind(6, 5, text), kind(62, 6, b"\0" + text), kind(2, 7, struct.pack("<L", 4550 << 2 | 3))),
        ]
    )
    sheet = xlsb_sheet([], []).replace(xlsb_record(146), xlsb_record(0, bytes(17)) + row + xlsb_record(146))
    content = patched(xlsb({"a": []}, SAMPLE), "xl/worksheets/sheet1.bin", sheet)
    assert "| sum | 2.5 | TRUE | #DIV/0! | #N/A | sum | sum | 45.5 |" in read(content, "a.xlsb").text


def patched(content: bytes, name: str, part: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as package:
        return zipped({key: package.read(key) if key != name else part for key in package.namelist()})


def test_a_workbook_of_excel_95(read: Read) -> None:
    rows: Rows = [("zażółć", "gęślą"), ((46082.0, 1), "café")]
    for content in (write_ole({"Book": biff5_workbook(rows)}), biff5_workbook(rows)):
        result = read(content, "a.xls")
        assert result.text == "## Dane ół\n\n| zażółć | gęślą |\n| --- | --- |\n| 2026-03-01 | café |\n"
        assert result.media_type == "application/vnd.ms-excel"


def test_charts_on_a_sheet_are_skipped(read: Read) -> None:
    inner = record(0x809, bytes(16)) + record(0x203, struct.pack("<3Hd", 0, 0, 0, 99.0)) + record(0x0A)
    made = cells(record(0x203, struct.pack("<3Hd", 0, 0, 0, 1.0)), inner, record(0x203, struct.pack("<3Hd", 1, 0, 0, 2.0)))
    assert read(made, "a").text == "## a\n\n| 1 |\n| --- |\n| 2 |\n"


def test_a_workbook_by_libreoffice(read: Read) -> None:
    result = read(by_libreoffice()["stock.xls"], "stock.xls")
    assert result.text == (
        "## Zapasy ół\n\n| item | należność | 日本 😀 |  |\n| --- | --- | --- | --- |\n| chair | 45.5 | 2026-03-01 |  |\n"
        "| table \\| two | 1.1 | 09:30:00 |  |\n| 91 | sum: 45.5 | #DIV/0! | TRUE |\n\n\n## second\n\n| -7 |\n| --- |\n"
    )
    assert (result.title, result.author, result.warnings) == ("Stock of the harbour", "Łucja Weiß", ())


def test_passwords_versions_and_cut_files(read: Read, refused: Refused) -> None:
    assert refused(by_libreoffice()["password.xls"], "a.xls").code == "encrypted"
    old = record(0x809, struct.pack("<2H", 0x400, 5)) + record(0x0A)
    assert refused(write_ole({"Workbook": old}), "a.xls").code == "unsupported"
    assert refused(write_ole({"Workbook": b"words"}), "a.xls").code == "corrupt"
    content = workbook({"a": [("words",), ("more",)]})
    result = read(write_ole({"Workbook": content[:-10]}), "a.xls")
    assert "words" in result.text
    assert codes(result) == {"damaged_parts"}


def test_the_password_that_excel_tries_by_itself(read: Read, refused: Refused) -> None:
    """People open such a workbook without being asked for one; a digit of its proof changed, and it stays locked."""
    content = by_libreoffice()["opened.xls"]
    result = read(content, "a.xls")
    assert result.text == "## s\n\n| A secret. |\n| --- |\n"
    assert result.warnings == ()
    place = content.index(struct.pack("<5H", 0x2F, 54, 1, 1, 1)) + 10
    for offset in (0, 20, 40):
        changed = bytes([content[place + offset] ^ 1])
        assert refused(content[: place + offset] + changed + content[place + offset + 1 :], "a.xls").code == "encrypted"
    assert refused(content[: place - 2] + b"\2" + content[place - 1 :], "a.xls").code == "encrypted", "another cipher"


def test_a_binary_sheet_of_many_blocks(read: Read) -> None:
    rows: Rows = [("words", float(number)) for number in range(4_000)]
    lines = read(xlsb({"a": rows}, SAMPLE), "a.xlsb").text.splitlines()[2:]
    assert lines == ["| words | 0 |", "| --- | --- |", *(f"| words | {number} |" for number in range(1, 4_000))]


def test_a_binary_workbook_that_is_damaged(read: Read) -> None:
    content = xlsb({"a": [("words", 2.0)]}, SAMPLE)
    sheet = xlsb_sheet([("words", 2.0)], ["words"])
    result = read(patched(content, "xl/worksheets/sheet1.bin", sheet[:-9]), "a.xlsb")
    assert "words" in result.text
    assert codes(result) == {"damaged_parts"}


def test_macros_are_ignored(read: Read) -> None:
    result = read(write_ole({"Workbook": workbook({"a": [("x",)]}), "_VBA_PROJECT_CUR": {"dir": b"x"}}), "a.xls")
    assert codes(result) == {"macros_ignored"}
