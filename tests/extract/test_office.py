"""What office documents hold beside plain paragraphs."""

from __future__ import annotations

import io
import zipfile

import pytest

from chaos.corpus.hostile import locked
from chaos.corpus.office import HEAD, SHEET, WORD, make_docx, make_odt, make_xlsx, paragraph, rels, word_table, zipped
from chaos.corpus.samples import BY_LANGUAGE
from fairlane.extract import Limits
from fairlane.extract.number_format import format_kind, serial_datetime
from fairlane.extract.xlsx import column_number

from .conftest import NO_OCR, Read, Refused, codes

SAMPLE = BY_LANGUAGE["en"]
BREAK = '<w:r><w:br w:type="page"/></w:r>'


def run(text: str) -> str:
    return f"<w:r><w:t>{text}</w:t></w:r>"


def docx(read: Read, body: str) -> str:
    return read(make_docx(SAMPLE, body), "a.docx").text


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (f"<w:p>{run('a')}{run('b')}<w:r><w:tab/></w:r>{run('c')}</w:p>", "ab\tc"),
        (f"<w:p>{run('a')}<w:r><w:br/></w:r>{run('b')}</w:p>", "a\nb"),
        (f'<w:p>see <w:hyperlink r:id="r3">{run("the page")}</w:hyperlink></w:p>', "[the page](https://example.org/a)"),
        (f'<w:p><w:hyperlink r:id="nowhere">{run("words")}</w:hyperlink></w:p>', "words"),
        (f"<w:p>{run('kept')}<w:del><w:r><w:delText>gone</w:delText></w:r></w:del></w:p>", "kept"),
        (f"<w:p>{run('kept')}<w:del>{run('gone')}</w:del><w:moveFrom>{run('moved')}</w:moveFrom></w:p>", "kept"),
        (f"<w:p><w:r><w:instrText>PAGE</w:instrText></w:r>{run('1')}</w:p>", "1"),
        (f"<w:p><Choice>{run('new')}</Choice><Fallback>{run('old')}</Fallback></w:p>", "new"),
        (paragraph("one", '<w:numPr><w:ilvl w:val="0"/><w:numId w:val="2"/></w:numPr>'), "1. one"),
        (paragraph("deep", '<w:numPr><w:ilvl w:val="1"/><w:numId w:val="1"/></w:numPr>'), "  - deep"),
        (paragraph("no list", '<w:numPr><w:ilvl w:val="0"/><w:numId w:val="0"/></w:numPr>'), "no list"),
        (paragraph("small", '<w:outlineLvl w:val="2"/>'), "### small"),
        (word_table((("a|b", "c"),)), "| a\\|b | c |\n| --- | --- |"),
        (f"<w:tbl><w:tr><w:tc>{paragraph('x')}{paragraph('y')}</w:tc></w:tr></w:tbl>", "| x y |\n| --- |"),
        (f"<w:tbl><w:tr><w:tc>{word_table((('in', 'ner'),))}</w:tc></w:tr></w:tbl>", "| in | ner |\n| --- | --- |"),
    ],
)
def test_docx(read: Read, body: str, text: str) -> None:
    assert docx(read, body) == text


def test_docx_pages_end_between_paragraphs_and_once(read: Read) -> None:
    rendered = "<w:r><w:lastRenderedPageBreak/></w:r>"
    body = paragraph("one") + f"<w:p>{BREAK}</w:p><w:p>{rendered}{run('two')}</w:p><w:p>{run('a')}{rendered}{run('b')}</w:p>"
    result = read(make_docx(SAMPLE, body + paragraph("three")), "a.docx")
    assert [result.text_of(number).strip() for number in range(len(result.pages))] == ["one", "two\n\nab", "three"]


def test_docx_headers_notes_and_footers(read: Read) -> None:
    targets = [("h", "header", "header1.xml"), ("f", "footer", "footer1.xml"), ("n", "footnotes", "footnotes.xml")]
    more: dict[str, str | bytes] = {"word/_rels/document.xml.rels": rels(*targets)}
    for _, kind, target in targets:
        more[f"word/{target}"] = f"{HEAD}<w:x {WORD}>{paragraph(kind)}</w:x>"
    assert read(make_docx(SAMPLE, paragraph("body"), more), "a.docx").text == "header\n\nbody\n\nfootnotes\n\nfooter"


def test_docx_macros_are_reported(read: Read) -> None:
    assert codes(read(make_docx(SAMPLE, more={"word/vbaProject.bin": b"x"}), "a.docm")) == {"macros_ignored"}


def test_a_document_whose_main_part_has_another_name(read: Read) -> None:
    parts = {
        "[Content_Types].xml": f'{HEAD}<Types><Override PartName="/x/main.xml" ContentType="a.wordprocessingml.b"/></Types>',
        "_rels/.rels": rels(("a", "officeDocument", "/x/main.xml")),
        "x/main.xml": f"{HEAD}<w:document {WORD}>{paragraph('here')}</w:document>",
    }
    assert read(zipped(parts), "a.docx").text == "here"


def test_an_office_document_without_its_main_part_is_corrupt(refused: Refused) -> None:
    assert refused(zipped({"[Content_Types].xml": f"{HEAD}<Types/>", "_rels/.rels": rels()}), "a.docx").code == "corrupt"


@pytest.mark.parametrize(
    ("kind", "code"), [("application/x-other", "unsupported"), ("application/vnd.oasis.opendocument.graphics", "unsupported")]
)
def test_other_packages_are_unsupported(refused: Refused, kind: str, code: str) -> None:
    failure = refused(zipped({"mimetype": kind, "content.xml": "<a/>"}), "a.odg")
    assert (failure.code, failure.detail) == (code, kind)


def test_an_encrypted_part_is_encrypted(read: Read, refused: Refused) -> None:
    assert refused(locked(make_odt(SAMPLE), "content.xml"), "a.odt").code == "encrypted"
    result = read(locked(zipped({"one.txt": "open", "two.txt": "closed"}), "two.txt"), "a.zip")
    assert [member.name for member in result.members] == ["one.txt"]
    assert [(warning.code, "encrypted" in warning.detail) for warning in result.warnings] == [("members_skipped", True)]


# -- sheets


def xlsx(read: Read, rows: str, limits: Limits = NO_OCR) -> str:
    return read(make_xlsx(SAMPLE, rows), "a.xlsx", limits).text.partition("\n\n")[2]


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ('<row><c r="C1"><v>1</v></c></row>', "| 1 |"),
        ('<row><c r="C1"><v>1</v></c><c><v>2</v></c></row>', "| 1 | 2 |"),
        ('<row><c t="s"><v>99</v></c><c><v>x</v></c></row>', "| x |"),
        ('<row><c t="s"><v>-1</v></c><c><v>x</v></c></row>', "| x |"),
        ('<row><c t="str"><f>A1</f><v>a|b</v></c></row>', "| a\\|b |"),
        ('<row><c t="e"><v>#DIV/0!</v></c></row>', "| #DIV/0! |"),
        ('<row><c s="1"><v>-5</v></c></row>', "| -5 |"),
        ('<row><c s="1"><v>1e99</v></c></row>', "| 1e99 |"),
        ('<row><c s="99"><v>7</v></c></row>', "| 7 |"),
        ('<row><c s="3"><v>1.5</v></c></row>', "| 36:00:00 |"),
        ('<row><c r="ZZZ1"><v>7</v></c></row>', "| 7 |"),
    ],
)
def test_cells(read: Read, rows: str, text: str) -> None:
    assert xlsx(read, rows).split("\n")[0] == text


def test_rows_and_columns_that_are_empty_are_left_out(read: Read) -> None:
    rows = '<row r="3"><c r="B3"><v>1</v></c></row><row r="9"><c r="A9"><v></v></c><c r="F9"><v>2</v></c></row>'
    assert xlsx(read, rows) == "| 1 |  |\n| --- | --- |\n|  | 2 |\n"


def test_a_workbook_that_counts_from_1904(read: Read) -> None:
    book = f'{HEAD}<workbook {SHEET}><workbookPr date1904="1"/><sheets><sheet name="x" r:id="s1"/></sheets></workbook>'
    with zipfile.ZipFile(io.BytesIO(make_xlsx(SAMPLE, '<row><c s="1"><v>0</v></c></row>'))) as package:
        parts: dict[str, str | bytes] = {name: package.read(name) for name in package.namelist()}
    assert "| 1904-01-01 |" in read(zipped(parts | {"xl/workbook.xml": book}), "a.xlsx").text


def test_limits_of_sheets(refused: Refused) -> None:
    rows = "<row>" + "<c><v>1</v></c>" * 20 + "</row>"
    assert refused(make_xlsx(SAMPLE, rows), "a.xlsx", Limits(cells_max=19)).code == "too_large"
    assert refused(make_xlsx(SAMPLE, more_sheets=3), "a.xlsx", Limits(pages_max=3)).code == "too_many_pages"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("General", ""),
        ("0.00", ""),
        ('#,##0.00 "zł"', ""),
        ('"day" 0', ""),
        ("[Red]0.0", ""),
        ("yyyy-mm-dd", "date"),
        ("d. mmmm yyyy", "date"),
        ("[$-407]d/m/yy", "date"),
        ("mmm", "date"),
        ("h:mm", "time"),
        ("[h]:mm:ss", "duration"),
        ("m/d/yy h:mm", "date"),
        ("0\\d", ""),
    ],
)
def test_which_formats_are_dates(code: str, kind: str) -> None:
    assert format_kind(code) == kind


@pytest.mark.parametrize(
    ("serial", "expected"),
    [
        (1, "1900-01-01"),
        (59, "1900-02-28"),
        (61, "1900-03-01"),
        (46082, "2026-03-01"),
        (46082.5, "2026-03-01T12:00:00"),
        (-1, None),
    ],
)
def test_serial_numbers_as_spreadsheets_count_them(serial: float, expected: str | None) -> None:
    assert serial_datetime(serial, "date", is_1904=False) == expected


@pytest.mark.parametrize(
    ("reference", "column"), [("A1", 0), ("Z9", 25), ("AA1", 26), ("XFD1", 16383), ("XFE1", None), ("1", None)]
)
def test_columns(reference: str, column: int | None) -> None:
    assert column_number(reference) == column
