"""Structure of DOCX files: lists and headings by style, links, tables, text boxes, notes, comments, charts, pictures."""

from __future__ import annotations

import pytest

from chaos.corpus.office import DOCUMENT, HEAD, WORD, make_docx, paragraph, rels, word_table, zipped
from chaos.corpus.samples import BY_LANGUAGE
from fairlane.extract import Limits

from .conftest import NO_OCR, Read, Refused
from .test_packages import parts_of

SAMPLE = BY_LANGUAGE["en"]
CHART = 'xmlns:c="http://schemas.openxmlformats.org/drawingml/2006/chart" xmlns:a="x"'


def run(text: str) -> str:
    return f'<w:r><w:t xml:space="preserve">{text}</w:t></w:r>'


def mark(kind: str) -> str:
    return f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>'


def code(text: str) -> str:
    return f"<w:r><w:instrText>{text}</w:instrText></w:r>"


def linked(field: str, text: str) -> str:
    return f"<w:p>{mark('begin')}{code(field)}{mark('separate')}{run(text)}{mark('end')}</w:p>"


def box(content: str) -> str:
    return f"<w:r><w:drawing><w:txbxContent>{content}</w:txbxContent></w:drawing></w:r>"


def points(*values: str) -> str:
    return "".join(f'<c:pt idx="{index}"><c:v>{value}</c:v></c:pt>' for index, value in enumerate(values))


def series(name: str, values: tuple[str, ...], categories: str = "", role: str = "val") -> str:
    named = f"<c:tx><c:strRef><c:strCache>{points(name)}</c:strCache></c:strRef></c:tx>{categories}"
    return f"<c:ser>{named}<c:{role}><c:numRef><c:numCache>{points(*values)}</c:numCache></c:numRef></c:{role}></c:ser>"


def chart(content: str, title: str = "") -> str:
    shown = f"<c:title><c:tx><c:rich><a:p><a:r><a:t>{title}</a:t></a:r></a:p></c:rich></c:tx></c:title>"
    return f"{HEAD}<c:chartSpace {CHART}><c:chart>{shown}<c:plotArea>{content}</c:plotArea></c:chart></c:chartSpace>"


def docx(read: Read, body: str, more: dict[str, str | bytes] | None = None, limits: Limits = NO_OCR) -> str:
    return read(make_docx(SAMPLE, body, more), "a.docx", limits).text


def styled(read: Read, style: str, styles: str, numbering: str = "", more: str = "") -> str:
    """The text of one paragraph `x` in this style, with these styles and numberings."""
    parts: dict[str, str | bytes] = {
        "word/styles.xml": f"{HEAD}<w:styles {WORD}>{styles}</w:styles>",
        "word/numbering.xml": f"{HEAD}<w:numbering {WORD}>{numbering}</w:numbering>",
    }
    return docx(read, paragraph("x", f'<w:pStyle w:val="{style}"/>{more}'), parts)


def style(name: str, properties: str, based_on: str = "") -> str:
    return f'<w:style w:styleId="{name}"><w:basedOn w:val="{based_on}"/><w:pPr>{properties}</w:pPr></w:style>'


def numbered(number: str, level: str = "") -> str:
    return f"<w:numPr>{level and f'<w:ilvl w:val={level!r}/>'}<w:numId w:val='{number}'/></w:numPr>"


def abstract(number: str, content: str) -> str:
    return f'<w:abstractNum w:abstractNumId="{number}">{content}</w:abstractNum>'


def level(number: int, kind: str, more: str = "") -> str:
    return f'<w:lvl w:ilvl="{number}"><w:numFmt w:val="{kind}"/>{more}</w:lvl>'


def num(number: str, of: str, more: str = "") -> str:
    return f'<w:num w:numId="{number}"><w:abstractNumId w:val="{of}"/>{more}</w:num>'


DECIMAL = abstract("1", level(0, "decimal") + level(1, "decimal")) + num("3", "1")


@pytest.mark.parametrize(
    ("name", "styles", "numbering", "text"),
    [
        ("a", style("a", numbered("3")), DECIMAL, "1. x"),
        ("b", style("a", numbered("3")) + style("b", "", "a"), DECIMAL, "1. x"),
        ("b", style("a", numbered("3")) + style("b", numbered("0"), "a"), DECIMAL, "x"),
        ("a", style("a", numbered("3", "1")), DECIMAL, "  1. x"),
        ("a", style("a", numbered("3")), abstract("1", level(2, "bullet", '<w:pStyle w:val="a"/>')) + num("3", "1"), "    - x"),
        (
            "a",
            style("a", numbered("4")) + style("list", numbered("3")),
            DECIMAL + abstract("2", '<w:numStyleLink w:val="list"/>') + num("4", "2"),
            "1. x",
        ),
        ("a", style("a", numbered("3")), DECIMAL[:-8] + f"<w:lvlOverride>{level(0, 'bullet')}</w:lvlOverride></w:num>", "- x"),
        ("a", style("a", numbered("3")).replace(">", '><w:name w:val="List Number 2"/>', 1), DECIMAL, "  1. x"),
        ("a", style("a", numbered("3", "1")).replace(">", '><w:name w:val="List Number 3"/>', 1), DECIMAL, "  1. x"),
        ("b", style("a", '<w:outlineLvl w:val="1"/>') + style("b", "", "a"), "", "## x"),
        ("b", style("a", '<w:outlineLvl w:val="1"/>') + style("b", '<w:outlineLvl w:val="9"/>', "a"), "", "x"),
        ("a", style("a", "", "b") + style("b", "", "a"), "", "x"),
        ("nowhere", "", "", "x"),
    ],
)
def test_what_styles_say(read: Read, name: str, styles: str, numbering: str, text: str) -> None:
    assert styled(read, name, styles, numbering) == text


def test_a_paragraph_says_more_than_its_style(read: Read) -> None:
    assert styled(read, "a", style("a", numbered("3")), DECIMAL, numbered("0")) == "x"
    assert styled(read, "a", style("a", numbered("3")), DECIMAL, '<w:numPr><w:ilvl w:val="1"/></w:numPr>') == "  1. x"


def test_what_a_paragraph_was_before_a_change_does_not_count(read: Read) -> None:
    before = f"<w:pPrChange><w:pPr>{numbered('1', '0')}</w:pPr></w:pPrChange>"
    assert docx(read, paragraph("x", before)) == "x"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (linked(' HYPERLINK "https://example.org/b" ', "b"), "[b](https://example.org/b)"),
        (linked('HYPERLINK "https://example.org" \\l "part" \\o "a tip"', "b"), "[b](https://example.org#part)"),
        (linked("HYPERLINK \\l chapter", "b"), "[b](#chapter)"),
        (linked('HYPERLINK "file:\\\\\\\\host\\\\a b.txt"', "b"), "[b](file:\\\\host\\a%20b.txt)"),
        (linked('HYPERLINK "javascript:alert(1)"', "b"), "b"),
        (linked("PAGEREF x", "17"), "17"),
        (f"<w:p><w:fldSimple w:instr='HYPERLINK \"https://a.example\"'>{run('b')}</w:fldSimple></w:p>", "[b](https://a.example)"),
        (f'<w:p><w:hyperlink w:anchor="top">{run("b")}</w:hyperlink></w:p>', "[b](#top)"),
        (f'<w:p>a<w:hyperlink r:id="r3" w:anchor="x">{run("b ")}</w:hyperlink>c</w:p>', "[b](https://example.org/a#x)"),
        (f'<w:p><w:fldSimple w:instr="TOC">{linked("HYPERLINK https://a.example", "b")[5:-6]}</w:fldSimple></w:p>', "[b](https://a.example)"),
        (mark("begin") * 200 + mark("end") * 200 + paragraph("b"), "b"),
        (f'<w:p><w:docPr descr="a [red] chair"/>{run("b")}</w:p>', "![a (red) chair]()b"),
        (f'<w:p><w:docPr descr="map"><hlinkClick r:id="r3"/></w:docPr>{run("")}</w:p>', "[map](https://example.org/a)"),
        (f'<w:p><w:docPr name="Picture 1"><hlinkClick r:id="r3"/></w:docPr>{run("")}</w:p>', "[picture](https://example.org/a)"),
        (f'<w:p><w:docPr name="Picture 1"/>{run("b")}</w:p>', "b"),
    ],
)  # fmt: skip
def test_links_and_pictures(read: Read, body: str, text: str) -> None:
    assert docx(read, body) == text


def test_links_of_every_part_are_its_own(read: Read) -> None:
    link = f'<w:p><w:hyperlink r:id="r3">{run("there")}</w:hyperlink></w:p>'
    more: dict[str, str | bytes] = {
        "word/_rels/document.xml.rels": rels(("r3", "hyperlink", "https://a.example"), ("h", "header", "h.xml")),
        "word/h.xml": f"{HEAD}<w:hdr {WORD}>{link}</w:hdr>",
        "word/_rels/h.xml.rels": rels(("r3", "hyperlink", "mailto:b@example.org")),
    }
    assert docx(read, link, more) == "[there](mailto:b@example.org)\n\n[there](https://a.example)"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (f"<w:p>{run('a')}{box(paragraph('in the box'))}{run('b')}</w:p>", "in the box\n\nab"),
        (f"<w:p>{run('a')}{box(word_table((('c', 'd'),)))}</w:p>", "| c | d |\n| --- | --- |\n\na"),
        (f"<w:p><w:pPr>{numbered('1', '0')}</w:pPr>{box(paragraph('c'))}{run('b')}</w:p>", "c\n\n- b"),
        ("<w:p>" + box("<w:p>" + box(paragraph("deep")) + run("c") + "</w:p>") + run("b") + "</w:p>", "deep\n\nc\n\nb"),
        (
            f"<w:tbl><w:tr><w:tc><w:p>{run('a')}{box(paragraph('c'))}{run('b')}</w:p></w:tc></w:tr></w:tbl>",
            "| a c b |\n| --- |",
        ),
        (f"<w:sdt><w:sdtContent>{word_table((('a', 'b'),))}</w:sdtContent></w:sdt>", "| a | b |\n| --- | --- |"),
        (f"<w:ins>{paragraph('new')}</w:ins><w:del>{paragraph('old')}</w:del>", "new"),
        ('<w:p><w:pPr><w:tabs><w:tab w:pos="720"/></w:tabs></w:pPr><w:r><w:t>a</w:t><w:tab/><w:t>b</w:t></w:r></w:p>', "a\tb"),
    ],
)
def test_boxes_controls_and_changes(read: Read, body: str, text: str) -> None:
    assert docx(read, body) == text


def cells(*texts: str) -> str:
    return "".join(f"<w:tc>{text if text.startswith('<') else paragraph(text)}</w:tc>" for text in texts)


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (
            [f'<w:tc><w:tcPr><w:gridSpan w:val="2"/></w:tcPr>{paragraph("wide")}</w:tc>{cells("c")}', cells("1", "2", "3")],
            "| wide |  | c |\n| --- | --- | --- |\n| 1 | 2 | 3 |",
        ),
        (
            [cells("a", "b"), f'<w:trPr><w:gridBefore w:val="1"/></w:trPr>{cells("d")}'],
            "| a | b |\n| --- | --- |\n|  | d |",
        ),
        ([cells(paragraph("a", numbered("1", "0")) + paragraph("b", numbered("1", "0")))], "| - a - b |\n| --- |"),
        (
            [cells("a", "b"), cells("c", word_table((("1", "2"),)) + paragraph("d"), "e"), cells("f", "g")],
            "| a | b |\n| --- | --- |\n\nc\n\n| 1 | 2 |\n| --- | --- |\n\nd\n\ne\n\n| f | g |\n| --- | --- |",
        ),
        (["<w:tc><w:tcPr><w:gridSpan w:val='99999999'/></w:tcPr></w:tc>" + cells("a")], None),
    ],
)
def test_merged_cells_and_tables_in_tables(read: Read, rows: list[str], text: str | None) -> None:
    shown = docx(read, "<w:tbl>" + "".join(f"<w:tr>{row}</w:tr>" for row in rows) + "</w:tbl>")
    assert shown == text if text is not None else len(shown) < 20_000


def test_notes_and_comments_are_told_apart(read: Read) -> None:
    body = f'<w:p>{run("one")}<w:r><w:footnoteReference w:id="2"/></w:r>{run(" two")}<w:r><w:endnoteReference w:id="2"/></w:r>'
    body += f'{run(" three")}<w:r><w:commentReference w:id="0"/></w:r></w:p>'
    more: dict[str, str | bytes] = {
        "word/_rels/document.xml.rels": rels(
            ("f", "footnotes", "f.xml"), ("e", "endnotes", "e.xml"), ("c", "comments", "c.xml")
        ),
        "word/f.xml": f'{HEAD}<w:x {WORD}><w:footnote w:id="-1"><w:p/></w:footnote>'
        f'<w:footnote w:id="2">{paragraph(" below")}{paragraph("and more")}</w:footnote></w:x>',
        "word/e.xml": f'{HEAD}<w:x {WORD}><w:endnote w:id="2">{paragraph("last")}</w:endnote></w:x>',
        "word/c.xml": f'{HEAD}<w:x {WORD}><w:comment w:id="0" w:author="Zoë">'
        f"{paragraph('why', numbered('1', '0'))}</w:comment></w:x>",
    }
    assert docx(read, body, more) == (
        "one[^2] two[^e2] three[^c0]\n\n[^2]: below\n\nand more\n\n[^e2]: last\n\n[^c0]: **Comment by Zoë:** why"
    )


def test_charts_become_tables(read: Read) -> None:
    categories = f"<c:cat><c:strRef><c:strCache>{points('north', 'south')}</c:strCache></c:strRef></c:cat>"
    label = (
        "<c:dLbls><c:dLbl><c:tx><c:strRef><c:strCache>" + points("label") + "</c:strCache></c:strRef></c:tx></c:dLbl></c:dLbls>"
    )
    bars = series("2025", ("1.1000000000000001", "2"), label + categories) + series("2026", ("3",), categories)
    more: dict[str, str | bytes] = {
        "word/_rels/document.xml.rels": rels(("c", "chart", "charts/c.xml")),
        "word/charts/c.xml": chart(
            f"<c:barChart>{bars}</c:barChart><c:valAx><c:title><a:t>axis</a:t></c:title></c:valAx>", "Sold"
        ),
    }
    text = "Sold\n\n|  | 2025 | 2026 |\n| --- | --- | --- |\n| north | 1.1 | 3 |\n| south | 2 |  |\n\nbefore after"
    anchor = f'<w:drawing><c:chart {CHART} r:id="c"/></w:drawing>'
    assert docx(read, f"<w:p>{run('before ')}{anchor}{run('after')}</w:p>", more) == text


def test_points_of_a_scatter_chart_have_a_table_each(read: Read) -> None:
    def scatter(name: str, xs: tuple[str, ...], ys: tuple[str, ...]) -> str:
        return series(name, ys, f"<c:xVal><c:numRef><c:numCache>{points(*xs)}</c:numCache></c:numRef></c:xVal>", "yVal")

    dates = (
        "<c:cat><c:numRef><c:numCache><c:formatCode>yyyy-mm-dd</c:formatCode>"
        + points("46082")
        + "</c:numCache></c:numRef></c:cat>"
    )
    content = scatter("a", ("1",), ("2",)) + scatter("b", ("3",), ("4",)) + series("c", ("5",), dates)
    more: dict[str, str | bytes] = {
        "word/_rels/document.xml.rels": rels(("c", "chart", "c.xml")),
        "word/c.xml": chart(content),
    }
    tables = [
        f"|  | {name} |\n| --- | --- |\n| {x} | {y} |" for name, x, y in (("a", 1, 2), ("b", 3, 4), ("c", "2026-03-01", 5))
    ]
    assert docx(read, f'<w:p><c:chart {CHART} r:id="c"/></w:p>', more) == "\n\n".join(tables)


def test_what_waits_counts_as_text(refused: Refused) -> None:
    boxes = "".join(f"<w:p>{run('x' * 200)}<w:r><w:txbxContent>" for _ in range(20))
    body = boxes + "</w:txbxContent></w:r></w:p>" * 20
    assert refused(make_docx(SAMPLE, body), "a.docx", Limits(text_max=3_000, ocr_pages_max=0)).code == "too_large"


def test_points_of_charts_count_as_cells(refused: Refused) -> None:
    more: dict[str, str | bytes] = {
        "word/_rels/document.xml.rels": rels(("c", "chart", "c.xml")),
        "word/c.xml": chart(series("a", ("1",) * 50)),
    }
    body = f'<w:p><c:chart {CHART} r:id="c"/></w:p>'
    assert refused(make_docx(SAMPLE, body, more), "a.docx", Limits(cells_max=40, ocr_pages_max=0)).code == "too_large"


def test_a_relationship_of_a_link_is_never_a_part(read: Read) -> None:
    body = f'<w:p><w:hyperlink r:id="r9">{run("b")}</w:hyperlink></w:p>'
    relations = rels(("r9", "hyperlink", "#top"))
    content = zipped(parts_of(make_docx(SAMPLE, body)) | {"word/_rels/document.xml.rels": relations})
    assert read(content, "a.docx").text == "[b](#top)"
    assert DOCUMENT in relations
