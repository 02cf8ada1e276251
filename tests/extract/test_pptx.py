"""Structure of slides: titles, lists by inheritance, links, pictures, charts, comments."""

from __future__ import annotations

import pytest

from chaos.corpus.office import HEAD, SHOW, make_pptx, rels, zipped
from chaos.corpus.samples import BY_LANGUAGE

from .conftest import Read
from .test_docx import chart, points, series
from .test_packages import parts_of

SAMPLE = BY_LANGUAGE["en"]
LINKS = 'xmlns:q="http://schemas.microsoft.com/office/powerpoint/2018/8/main"'


def run(text: str, properties: str = "") -> str:
    return f"<a:r><a:rPr>{properties}</a:rPr><a:t>{text}</a:t></a:r>"


def line(text: str, properties: str = "", level: str = "") -> str:
    shown = text if text.startswith("<") else run(text)
    return f"<a:p><a:pPr{level and f' lvl={level!r}'}>{properties}</a:pPr>{shown}</a:p>"


def shape(placeholder: str, *lines: str, styles: str = "", name: str = "<p:cNvPr id='1' name='x'/>") -> str:
    body = f"<a:lstStyle>{styles}</a:lstStyle>{''.join(lines)}"
    return f"<p:sp><p:nvSpPr>{name}<p:nvPr>{placeholder}</p:nvPr></p:nvSpPr><p:txBody>{body}</p:txBody></p:sp>"


def bullet(level: int, kind: str) -> str:
    return f"<a:lvl{level}pPr><a:{kind}/></a:lvl{level}pPr>"


def show(read: Read, slide: str, layout: str = "", master: str = "", more: dict[str, str | bytes] | None = None) -> str:
    """The text of one slide."""
    targets = [
        ("y", "slideLayout", "../layouts/l.xml"),
        ("t", "hyperlink", "https://a.example"),
        ("u", "hyperlink", "mailto:b@a.example"),
        ("s", "slide", "slide1.xml"),
        ("c", "chart", "../charts/c.xml"),
        ("k", "comments", "../comments/c.xml"),
    ]
    parts: dict[str, str | bytes] = {
        "ppt/presentation.xml": f'{HEAD}<p:presentation {SHOW}><p:sldIdLst><p:sldId r:id="r1"/></p:sldIdLst></p:presentation>',
        "ppt/_rels/presentation.xml.rels": rels(
            ("r1", "slide", "slides/slide2.xml"), ("a", "commentAuthors", "authors.xml"), ("b", "authors", "people.xml")
        ),
        "ppt/slides/slide2.xml": f"{HEAD}<p:sld {SHOW}>{slide}</p:sld>",
        "ppt/slides/_rels/slide2.xml.rels": rels(*targets),
        "ppt/layouts/l.xml": f"{HEAD}<p:sldLayout {SHOW}>{layout}</p:sldLayout>",
        "ppt/layouts/_rels/l.xml.rels": rels(("m", "slideMaster", "../master.xml")),
        "ppt/master.xml": f"{HEAD}<p:sldMaster {SHOW}>{master}</p:sldMaster>",
    }
    return read(zipped(parts_of(make_pptx(SAMPLE)) | parts | (more or {})), "a.pptx").text.strip("\n")


BODY = '<p:ph type="body" idx="7"/>'
STYLES = f"<p:txStyles><p:bodyStyle>{bullet(1, 'buChar')}{bullet(2, 'buAutoNum')}</p:bodyStyle></p:txStyles>"


@pytest.mark.parametrize(
    ("slide", "layout", "master", "text"),
    [
        (shape(BODY, line("a"), line("b", level="1")), "", STYLES, "- a\n  1. b"),
        (shape('<p:ph idx="7"/>', line("a")), shape(BODY), STYLES, "- a"),
        (shape(BODY, line("a")), shape(BODY, styles=bullet(1, "buNone")), STYLES, "a"),
        (shape(BODY, line("a")), "", shape('<p:ph type="body"/>', styles=bullet(1, "buNone")) + STYLES, "a"),
        (shape(BODY, line("a"), styles=bullet(1, "buAutoNum")), shape(BODY, styles=bullet(1, "buNone")), "", "1. a"),
        (shape(BODY, line("a", "<a:buNone/>"), line("b")), "", STYLES, "a\n\n- b"),
        (shape(BODY, line("a", "<a:buBlip/>")), "", "", "- a"),
        (shape("", line("a")), "", STYLES, "a"),
        (shape("", line("a", '<a:buFont typeface="x"/><a:buChar char="o"/>')), "", "", "- a"),
        (shape("", line("a", level="1")), "", "", "  - a"),
        (shape("", line("a", "<a:buNone/>", level="1")), "", "", "a"),
        (shape('<p:ph type="subTitle" idx="1"/>', line("a")), shape('<p:ph type="subTitle" idx="1"/>'), "", "a"),
    ],
)
def test_lists_are_inherited(read: Read, slide: str, layout: str, master: str, text: str) -> None:
    assert show(read, slide, layout, master) == text


@pytest.mark.parametrize(
    ("placeholder", "layout", "text"),
    [
        ('<p:ph type="title"/>', "", "## a b"),
        ('<p:ph type="ctrTitle"/>', "", "## a b"),
        ('<p:ph idx="4"/>', shape('<p:ph type="title" idx="4"/>'), "## a b"),
        ("<p:ph/>", shape('<p:ph type="title"/>') + shape('<p:ph type="body" idx="1"/>'), "## a b"),
        ('<p:ph type="body"/>', shape('<p:ph type="title"/>'), "a\n\nb"),
    ],
)
def test_a_title_is_one_heading(read: Read, placeholder: str, layout: str, text: str) -> None:
    assert show(read, shape(placeholder, line("a"), line("b")), layout) == text


def test_an_empty_title_is_nothing_and_ends(read: Read) -> None:
    assert show(read, shape('<p:ph type="title"/>', line("")) + shape("", line("a"))) == "a"


def test_layouts_of_a_placeholder_do_not_reach_tables(read: Read) -> None:
    cell = f"<a:tc><a:txBody>{line('a')}</a:txBody></a:tc>"
    frame = f"<p:graphicFrame><p:nvPr>{BODY}</p:nvPr><a:tbl><a:tr>{cell}{cell}</a:tr></a:tbl></p:graphicFrame>"
    assert show(read, frame, "", STYLES) == "| a | a |\n| --- | --- |"


A, B, SLIDE = ('<a:hlinkClick r:id="t"/>', '<a:hlinkClick r:id="u"/>', '<a:hlinkClick r:id="s" action="ppaction://x"/>')


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (shape("", line(run("see ") + run("here", A))), "see [here](https://a.example)"),
        (shape("", line(run("he", A) + run("re", A) + run(" and "))), "[here](https://a.example) and"),
        (shape("", line(run("a", A) + run("b", B))), "[a](https://a.example)[b](mailto:b@a.example)"),
        (shape("", line("<a:fld>" + run("a", A)[5:-6] + "</a:fld>")), "[a](https://a.example)"),
        (shape("", line(run("next", SLIDE))), "next"),
        (shape("", line("a"), line("b"), name=f"<p:cNvPr>{A}</p:cNvPr>"), "[a](https://a.example)\n\n[b](https://a.example)"),
        (shape("", line(run("a") + f"<a:endParaRPr>{A}</a:endParaRPr>")), "a"),
        (f"<p:grpSp>{shape('', line(run('a', A)))}</p:grpSp>", "[a](https://a.example)"),
        (f"<a:tbl><a:tr><a:tc>{line(run('a', A))}</a:tc></a:tr></a:tbl>", "| [a](https://a.example) |\n| --- |"),
        ('<p:pic><p:cNvPr name="Picture 1" descr="a red chair"/></p:pic>', "![a red chair]()"),
        (f'<p:pic><p:cNvPr name="Picture 1">{A}</p:cNvPr></p:pic>', "[picture](https://a.example)"),
        ('<p:pic><p:cNvPr name="Picture 1"/></p:pic>' + shape("", line("a")), "a"),
        (f"<mc><Choice>{shape('', line('new'))}</Choice><Fallback>{shape('', line('old'))}</Fallback></mc>", "new"),
    ],
)
def test_links_and_pictures(read: Read, content: str, text: str) -> None:
    assert show(read, content) == text


def test_charts_of_slides(read: Read) -> None:
    categories = f"<c:cat><c:strRef><c:strCache>{points('north')}</c:strCache></c:strRef></c:cat>"
    frame = '<p:graphicFrame><c:chart xmlns:c="x" r:id="c"/></p:graphicFrame>'
    more: dict[str, str | bytes] = {"ppt/charts/c.xml": chart(series("2026", ("3",), categories), "Sold")}
    assert show(read, shape("", line("a")) + frame, more=more) == "a\n\nSold\n\n|  | 2026 |\n| --- | --- |\n| north | 3 |"


@pytest.mark.parametrize(
    ("comments", "text"),
    [
        ('<p:cm authorId="0"><p:text>why</p:text></p:cm>', "**Comment by Zoë:** why"),
        ('<p:cm authorId="9"><p:text>why</p:text></p:cm>', "**Comment:** why"),
        (
            f'<q:cm {LINKS} authorId="{{1}}"><q:replyLst><q:reply authorId="0"><q:txBody>{line("so")}</q:txBody></q:reply>'
            f"</q:replyLst><q:txBody>{line('why')}{line('not')}</q:txBody></q:cm>",
            "**Comment by Łucja:** why\nnot\n\n**Comment by Zoë:** so",
        ),
    ],
)
def test_comments_of_both_kinds(read: Read, comments: str, text: str) -> None:
    more: dict[str, str | bytes] = {
        "ppt/comments/c.xml": f"{HEAD}<p:cmLst {SHOW}>{comments}</p:cmLst>",
        "ppt/authors.xml": f'{HEAD}<p:cmAuthorLst {SHOW}><p:cmAuthor id="0" name="Zoë"/></p:cmAuthorLst>',
        "ppt/people.xml": f'{HEAD}<q:authorLst {LINKS}><q:author id="{{1}}" name="Łucja"/></q:authorLst>',
    }
    assert show(read, shape("", line("a")), more=more) == f"a\n\n{text}"
