"""Structure of ODT files: lists and titles by style, notes, comments, merged cells, text boxes, pictures, pages."""

from __future__ import annotations

import pytest

from chaos.corpus.office import HEAD, ODF, make_odt, zipped
from chaos.corpus.samples import BY_LANGUAGE

from .conftest import Read
from .test_packages import parts_of

SAMPLE = BY_LANGUAGE["en"]
LEVEL = '<text:list-level-style-number text:level="{}" style:num-format="{}"/>'
NUMBERED = f'<text:list-style style:name="L1">{LEVEL.format(1, 1)}{LEVEL.format(2, "")}</text:list-style>'


def with_styles(body: str, styles: str, named: str = "") -> bytes:
    """A document with styles of its own and named ones."""
    parts = parts_of(make_odt(SAMPLE, body))
    content = parts["content.xml"]
    assert isinstance(content, bytes)
    own = f"<office:automatic-styles>{styles}</office:automatic-styles><office:body>"
    parts["content.xml"] = content.replace(b"<office:body>", own.encode())
    parts["styles.xml"] = f"{HEAD}<office:document-styles {ODF}><office:styles>{named}</office:styles></office:document-styles>"
    return zipped(parts)


def odt(read: Read, body: str, styles: str = "", named: str = "") -> str:
    return read(with_styles(body, styles, named), "a.odt").text


def item(content: str) -> str:
    return f"<text:list-item>{content}</text:list-item>"


def listing(content: str, style: str = "") -> str:
    return f'<text:list text:style-name="{style}">{content}</text:list>'


@pytest.mark.parametrize("is_named", [False, True])
def test_numbered_lists(read: Read, is_named: bool) -> None:
    inner = "<text:list>" + item("<text:p>c</text:p>") + "</text:list>"  # of the style of the list around it
    body = listing(item("<text:p>a</text:p>") + item(f"<text:p>b</text:p>{inner}"), "L1")
    text = odt(read, body, "" if is_named else NUMBERED, NUMBERED if is_named else "")
    assert text == "1. a\n1. b\n  - c"


def test_the_first_paragraph_of_an_item_has_its_marker(read: Read) -> None:
    body = listing(item("<text:p>a</text:p><text:p>more</text:p>") + item("<text:p>b</text:p>")) + "<text:p>after</text:p>"
    assert odt(read, body) == "- a\n\n  more\n\n- b\n\nafter"


def test_a_title(read: Read) -> None:
    style = '<style:style style:name="P1" style:parent-style-name="Title"/>'
    body = '<text:p text:style-name="P1">one</text:p><text:p text:style-name="Title">two</text:p><text:p>three</text:p>'
    assert odt(read, body, style) == "# one\n\n# two\n\nthree"


def test_notes_and_comments_stand_at_the_end(read: Read) -> None:
    def note(kind: str, text: str) -> str:
        body = f"<text:note-citation>7</text:note-citation><text:note-body><text:p>{text}</text:p></text:note-body>"
        return f'<text:note text:note-class="{kind}">{body}</text:note>'

    comment = "<office:annotation><dc:creator>Grace</dc:creator><text:p>is</text:p><text:p>it</text:p></office:annotation>"
    text = odt(read, f"<text:p>a{note('footnote', 'x')}b{note('endnote', 'y')}c{comment}d</text:p><text:p>e</text:p>")
    assert text == "a[^1]b[^e1]c[^c1]d\n\ne\n\n[^1]: x\n\n[^e1]: y\n\n[^c1]: **Comment by Grace:** is it"


def test_merged_cells_leave_their_columns(read: Read) -> None:
    def row(*cells: str) -> str:
        return "<table:table-row>" + "".join(cells) + "</table:table-row>"

    def cell(text: str) -> str:
        return f"<table:table-cell><text:p>{text}</text:p></table:table-cell>"

    covered = "<table:covered-table-cell><text:p>hidden</text:p></table:covered-table-cell>"
    empty = '<table:table-cell table:number-columns-repeated="2"/>'
    table = row(cell("a"), covered, cell("b")) + row(cell("c"), empty)
    assert odt(read, f"<table:table>{table}</table:table>") == "| a |  | b |\n| --- | --- | --- |\n| c |  |  |"


def test_text_boxes_come_before_their_paragraph_and_pictures_show_their_words(read: Read) -> None:
    box = f"<draw:frame><draw:text-box><text:p>boxed</text:p>{listing(item('<text:p>i</text:p>'))}</draw:text-box></draw:frame>"
    picture = "<draw:frame><draw:image/><svg:title>short</svg:title><svg:desc>a map</svg:desc></draw:frame>"
    field = "<text:title>of the file</text:title>"
    assert odt(read, f"<text:p>a{box}b{picture}{field}</text:p>") == "boxed\n\n- i\n\nab![a map]()of the file"


def test_styles_that_begin_a_page(read: Read) -> None:
    style = '<style:style style:name="P1"><style:paragraph-properties fo:break-before="page"/></style:style>'
    body = '<text:p>one</text:p><text:p text:style-name="P1">two</text:p>'
    assert len(read(with_styles(body, style), "a.odt").pages) == 2
