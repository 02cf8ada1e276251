"""What OpenDocument files hold beside plain paragraphs, and the previews that office documents carry."""

from __future__ import annotations

import io

import pytest
from PIL import Image

from chaos.corpus.office import HEAD, ODF, frame, make_docx, make_odp, make_ods, make_odt, make_pptx, odf_table, rels, zipped
from chaos.corpus.others import make_image
from chaos.corpus.samples import BY_LANGUAGE
from fairlane.extract import Extraction, Limits

from .conftest import NO_OCR, Read, Refused, codes
from .test_packages import parts_of

SAMPLE = BY_LANGUAGE["en"]
A, B = "<text:p>a</text:p>", "<text:p>b</text:p>"
COMMENT = (
    "<office:annotation><dc:creator>Zoë</dc:creator><dc:date>2026-03-01</dc:date><text:p>re|mark</text:p></office:annotation>"
)
NOTE = (
    "<text:note{}><text:note-citation>7</text:note-citation><text:note-body><text:p>aside</text:p></text:note-body></text:note>"
)
CHART = (
    f"{HEAD}<office:document-content {ODF}><office:body><office:chart><chart:chart>"
    "<chart:title><text:p>Sales</text:p></chart:title>"
    "<chart:plot-area><chart:axis><chart:title><text:p>years</text:p></chart:title></chart:axis></chart:plot-area>"
    + odf_table((("", "north"), ("2025", "9.1")), "local-table")
    + "</chart:chart></office:chart></office:body></office:document-content>"
)
OBJECT = '<draw:frame><draw:object xlink:href="./Object 1"/><draw:image xlink:href="x"/><svg:desc>a map</svg:desc></draw:frame>'
CHART_TEXT = "Sales\n\n|  | north |\n| --- | --- |\n| 2025 | 9.1 |"


def own(styles: str) -> str:
    return f"<office:automatic-styles>{styles}</office:automatic-styles>"


def styles(numbers: str) -> str:
    """A list style whose levels are numbers, bullets or nothing."""
    levels = "".join(
        f'<text:list-level-style-bullet text:level="{level}"/>'
        if kind == "-"
        else f'<text:list-level-style-number text:level="{level}" style:num-format="{kind.strip()}"/>'
        for level, kind in enumerate(numbers, start=1)
    )
    return own(f'<text:list-style style:name="L">{levels}</text:list-style>')


def items(*texts: str, style: str = ' text:style-name="L"') -> str:
    return f"<text:list{style}>" + "".join(f"<text:list-item>{text}</text:list-item>" for text in texts) + "</text:list>"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ('<text:p>a<text:s text:c="3"/>b<text:tab/>c<text:line-break/>d</text:p>', "a   b\tc\nd"),
        ('<text:p><text:a xlink:href="https://example.org">there</text:a></text:p>', "[there](https://example.org)"),
        (f"<text:p>a{COMMENT}b</text:p>", "a[^c1]b\n\n[^c1]: **Comment by Zoë:** re|mark"),
        (f"<text:p>a{NOTE.format('')}b</text:p>", "a[^1]b\n\n[^1]: aside"),
        ("<text:p>a" + NOTE.format(' text:note-class="endnote"') + "</text:p>", "a[^e1]\n\n[^e1]: aside"),
        (f"<text:p>a{NOTE.format('').replace('aside', f'as{COMMENT}ide')}</text:p>", "a[^1]\n\n[^1]: as re|mark ide"),
        ('<text:s text:c="999999999"/><text:p>x</text:p>', "x"),
        ('<text:h text:outline-level="3">three</text:h>', "### three"),
        ('<text:p text:style-name="Heading_20_2">two</text:p>', "## two"),
        (own('<style:style style:name="P1" style:parent-style-name="Heading_20_3"/>') +
         '<text:p text:style-name="P1">three</text:p>', "### three"),
        (own('<style:style style:name="P1" style:parent-style-name="P1"/>') +
         '<text:p text:style-name="P1">plain</text:p>', "plain"),
        (items("<text:p>a</text:p>" + items("<text:p>b</text:p>", style="")), "- a\n  - b"),
        (styles("1-") + items(A + items(B, style=""), A), "1. a\n  - b\n1. a"),
        ("<text:list><text:list-header><text:p>a</text:p></text:list-header></text:list>", "a"),
        (f"<text:p>after{frame(A + items(B))}wards</text:p>", "a\n\n- b\n\nafterwards"),
        (f"<text:p>a {OBJECT}</text:p>", f"{CHART_TEXT}\n\na ![a map]()"),
        ('<draw:frame><draw:object xlink:href="./Object 2"/></draw:frame><text:p>x</text:p>', "x"),
        ('<draw:frame><draw:object xlink:href="."/></draw:frame><text:p>x</text:p>', "x"),
        (f"<table:table><table:table-row><table:table-cell>{A}</table:table-cell><table:covered-table-cell/>"
         f"<table:table-cell>{B}</table:table-cell></table:table-row></table:table>", "| a |  | b |\n| --- | --- | --- |"),
        ("<text:tracked-changes><text:p>gone</text:p></text:tracked-changes><text:p>kept</text:p>", "kept"),
    ],
)  # fmt: skip
def test_odt(read: Read, content: str, text: str) -> None:
    assert read(make_odt(SAMPLE, content, more={"Object 1/content.xml": CHART}), "a.odt").text == text


def test_an_object_that_holds_itself_ends(read: Read) -> None:
    inner = CHART.replace("</chart:title>", "</chart:title>" + OBJECT)
    assert (
        read(make_odt(SAMPLE, f"<text:p>{OBJECT}</text:p>", more={"Object 1/content.xml": inner}), "a.odt").text.count("Sales")
        == 2
    )


def test_odt_pages(read: Read) -> None:
    content = "<text:p>one</text:p><text:soft-page-break/><text:p>two</text:p>"
    assert [page.start for page in read(make_odt(SAMPLE, content), "a.odt").pages] == [0, 5]


# -- ODP


@pytest.mark.parametrize(
    ("slide", "text"),
    [
        (frame("<text:p>one</text:p><text:p>two</text:p>", "title") + frame("<text:p>x</text:p>"), "## one two\n\nx"),
        (frame("<text:p/>", "title") + frame("<text:p>x</text:p>"), "x"),
        ("<draw:custom-shape><text:p>in a shape</text:p></draw:custom-shape>", "in a shape"),
        ("<draw:g><draw:g><draw:custom-shape><text:p>x</text:p></draw:custom-shape></draw:g></draw:g>", "x"),
        (frame(styles("-1") + items("<text:p>a</text:p>" + items("<text:p>b</text:p>", style="")), "outline"), "- a\n  1. b"),
        (frame("<text:p>x</text:p>") + COMMENT, "x\n\n**Comment by Zoë:** re|mark"),
        (f"<draw:a xlink:href='https://example.org'>{OBJECT}</draw:a>", f"{CHART_TEXT}\n\n![a map]()"),
        (
            "<draw:frame><draw:image xlink:href='x'/><svg:title>t</svg:title><svg:desc>a map</svg:desc></draw:frame>",
            "![a map]()",
        ),
        (frame("<text:p>3</text:p>", "footer") + frame("<text:p>x</text:p>"), "x"),
    ],
)
def test_odp(read: Read, slide: str, text: str) -> None:
    slides = f"<draw:page>{slide}</draw:page>"
    assert read(make_odp(SAMPLE, slides, {"Object 1/content.xml": CHART}), "a.odp").text.strip() == text


def test_slides_without_words_count(read: Read, refused: Refused) -> None:
    content = make_odp(SAMPLE, "<draw:page/>" * 3)
    assert (len(read(content, "a.odp").pages), codes(read(content, "a.odp"))) == (3, {"no_text"})
    assert refused(content, "a.odp", Limits(pages_max=2)).code == "too_many_pages"


# -- ODS


def sheet(read: Read, rows: str, limits: Limits = NO_OCR) -> str:
    content = make_ods(SAMPLE, f'<table:table table:name="s">{rows}</table:table>', {"Object 1/content.xml": CHART})
    return read(content, "a.ods", limits).text.partition("\n\n")[2]


def cell(attributes: str = "", text: str = "") -> str:
    return f"<table:table-cell {attributes}>{text}</table:table-cell>"


def row(*cells: str, times: int = 1) -> str:
    return f'<table:table-row table:number-rows-repeated="{times}">{"".join(cells)}</table:table-row>'


WORD = cell(text="<text:p>x</text:p>")


@pytest.mark.parametrize(
    ("attributes", "shown"),
    [
        ('office:value-type="float" office:value="0.30000000000000004"', "0.3"),
        ('office:value-type="float" office:value="12345678901234567890"', "12345678901234567890"),
        ('office:value-type="float"', "as shown"),
        ('office:value-type="float" office:value="0" calcext:value-type="error"', "as shown"),
        ('office:value-type="percentage" office:value="0.075"', "7.5%"),
        ('office:value-type="percentage" office:value="1E999"', "inf%"),
        ('office:value-type="percentage" office:value="x"', "as shown"),
        ('office:value-type="currency" office:value="1.1"', "1.1"),
        ('office:value-type="date" office:date-value="2026-02-30"', "2026-02-30"),
        ('office:value-type="date"', "as shown"),
        ('office:value-type="time" office:time-value="PT9H5M7.25S"', "09:05:07"),
        ('office:value-type="time" office:time-value="-PT9H"', "as shown"),
        ('office:value-type="boolean" office:boolean-value="false"', "FALSE"),
        ('office:value-type="string" office:string-value="other"', "as shown"),
        ("", "as shown"),
    ],
)
def test_values_by_their_type(read: Read, attributes: str, shown: str) -> None:
    assert sheet(read, row(cell(attributes, "<text:p>as <text:span>shown</text:span></text:p>"))).startswith(f"| {shown} |\n")


def test_a_truth_that_is_stored_as_a_number(read: Read) -> None:
    stored = 'table:formula="of:=FALSE()" office:value-type="float" office:value="0"'
    assert sheet(read, row(cell(stored, "<text:p>FALSE</text:p>"))).startswith("| FALSE |\n")


def test_cells_rows_and_lines_that_repeat(read: Read) -> None:
    twice = cell('table:number-columns-repeated="2"', "<text:p>a|b</text:p><text:p>c</text:p>")
    rows = row(twice, cell('table:number-columns-repeated="9"'), WORD, times=2) + row(times=999_999)
    assert sheet(read, rows) == "| a\\|b c | a\\|b c | x |\n| --- | --- | --- |\n| a\\|b c | a\\|b c | x |\n"


def test_what_repeats_is_counted(read: Read, refused: Refused) -> None:
    for rows in (
        row(WORD, times=1_048_576),
        row(cell('table:number-columns-repeated="9999"', "<text:p>x</text:p>"), times=200),
    ):
        assert refused(make_ods(SAMPLE, f"<table:table>{rows}</table:table>"), "a.ods").code == "too_large"
    long = cell(text=f"<text:p>{'words ' * 1_000}</text:p>")
    content = make_ods(SAMPLE, f"<table:table>{row(long, times=100_000)}</table:table>")
    assert refused(content, "a.ods").code == "too_large"
    limits = Limits(cells_max=10, ocr_pages_max=0)
    assert sheet(read, row(WORD, times=10), limits).count("| x |") == 10
    assert sheet(read, row(cell(), times=1_048_576) + row(WORD), limits) == "| x |\n| --- |\n"


def test_comments_and_charts_follow_their_sheet(read: Read) -> None:
    rows = row(cell('office:value-type="float" office:value="5"', f"{COMMENT}<text:p>5,00</text:p>"), cell("", COMMENT))
    drawings = f"<table:shapes>{OBJECT}</table:shapes>"
    assert sheet(read, drawings + rows) == (
        "| 5 [^c1] | [^c2] |\n| --- | --- |\n\n" + CHART_TEXT
        + "\n[^c1]: **Comment by Zoë:** re\\|mark\n\n[^c2]: **Comment by Zoë:** re\\|mark\n"
    )  # fmt: skip


def test_sheets_of_other_files_are_left_out(read: Read) -> None:
    foreign = '<table:table table:name="f"><table:table-source xlink:href="file:///x.ods"/>' + row(WORD) + "</table:table>"
    result = read(make_ods(SAMPLE, foreign + f'<table:table table:name="own">{row(WORD)}</table:table>'), "a.ods")
    assert ([page.label for page in result.pages], codes(result)) == (["own"], {"references_ignored"})


def test_too_many_sheets(refused: Refused) -> None:
    assert refused(make_ods(SAMPLE, "<table:table/>" * 4), "a.ods", Limits(pages_max=3)).code == "too_many_pages"


@pytest.mark.parametrize("make", [make_ods, make_odp])
def test_templates_and_late_types(read: Read, make: object) -> None:
    assert callable(make)
    parts = parts_of(make(SAMPLE))
    kind = bytes(parts.pop("mimetype")).decode()  # type: ignore[arg-type]
    assert read(zipped(parts | {"mimetype": kind}), "a").media_type == kind
    assert read(zipped({"mimetype": f"{kind}-template", **parts}), "a").media_type == kind


# -- previews


def picture(color: str = "red", side: int = 300) -> Image.Image:
    image = Image.new("RGB", (side, side), "white")
    image.paste(color, (0, 0, side // 2, side))
    return image


def with_preview(kind: str, content: bytes, name: str) -> bytes:
    if kind == "odt":
        return make_odt(SAMPLE, more={"Thumbnails/thumbnail.png": content})
    parts = parts_of((make_docx if kind == "docx" else make_pptx)(SAMPLE))
    relation = "http://schemas.openxmlformats.org/package/2006/relationships/metadata/thumbnail"
    added = rels(("t", relation, f"docProps/{name}")).partition("<Relationship ")[2].partition("</Relationships>")[0]
    root = bytes(parts["_rels/.rels"]).decode().replace("</Relationships>", f"<Relationship {added}</Relationships>")  # type: ignore[arg-type]
    return zipped(parts | {"_rels/.rels": root, f"docProps/{name}": content})


def thumbnail(result: Extraction) -> Image.Image:
    assert result.thumbnail is not None
    return Image.open(io.BytesIO(result.thumbnail))


@pytest.mark.parametrize(("kind", "name"), [("odt", "t.png"), ("docx", "thumbnail.png"), ("pptx", "thumbnail.jpeg")])
def test_the_preview_of_a_document_is_its_thumbnail(read: Read, kind: str, name: str) -> None:
    result = read(with_preview(kind, make_image(picture(), "JPEG" if name.endswith("jpeg") else "PNG"), name), f"a.{kind}")
    small = thumbnail(result).convert("RGB")
    assert (small.size, result.warnings) == ((256, 256), ())
    assert [small.getpixel((x, 128))[0] > 200 for x in (50, 200)] == [True, True]  # type: ignore[index]
    assert [small.getpixel((x, 128))[2] > 200 for x in (50, 200)] == [False, True]  # type: ignore[index]


@pytest.mark.parametrize(
    "content",
    [
        b"", b"no picture", make_image(picture(), "PNG")[:200], make_image(Image.new("RGB", (90, 90), "white"), "PNG"),
        make_image(picture(), "BMP"), make_image(picture(side=8_000).convert("1"), "PNG"), b"\xd7\xcd\xc6\x9a" + bytes(100),
    ],
    ids=["empty", "text", "cut off", "blank", "another format", "a bomb", "WMF"],
)  # fmt: skip
def test_where_the_preview_shows_nothing_the_first_lines_are_drawn(read: Read, content: bytes) -> None:
    result = read(with_preview("odt", content, ""), "a.odt")
    assert result.thumbnail == read(make_odt(SAMPLE), "a.odt").thumbnail
    assert result.warnings == ()


def test_no_preview_where_no_thumbnail_is_wanted(read: Read) -> None:
    content = with_preview("pptx", make_image(picture(), "PNG"), "thumbnail.png")
    assert read(content, "a.pptx", Limits(thumbnail_side=0, ocr_pages_max=0)).thumbnail is None
