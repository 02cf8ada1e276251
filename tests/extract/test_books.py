"""Books (EPUB): reading order, XHTML, covers, protection."""

from __future__ import annotations

import io

import pytest
from PIL import Image

from chaos.corpus.office import HEAD, make_epub, zipped
from chaos.corpus.others import make_image, make_xhtml
from chaos.corpus.samples import BY_LANGUAGE
from fairlane.extract import Limits

from .conftest import Read, Refused, codes
from .test_packages import parts_of

SAMPLE = BY_LANGUAGE["en"]


def book(**chapters: str) -> bytes:
    return make_epub(SAMPLE, {f"{name}.xhtml": make_xhtml(SAMPLE, body) for name, body in chapters.items()})


def replaced(content: bytes, part: str, old: str, new: str) -> bytes:
    parts = parts_of(content)
    text = bytes(parts[part]).decode()  # type: ignore[arg-type]
    assert old in text
    return zipped(parts | {part: text.replace(old, new)})


def test_chapters_come_in_reading_order_and_once(read: Read) -> None:
    content = book(one="<h1>one</h1>", two="<h2>two</h2>")
    order = '<itemref idref="c0"/><itemref idref="c1"/>'
    other = '<itemref idref="c1"/><itemref idref="c0"/><itemref idref="c1"/><itemref idref="nothing"/><itemref idref="cover"/>'
    result = read(replaced(content, "OEBPS/book.opf", order, other), "a.epub")
    assert [result.text_of(number).strip() for number in range(len(result.pages))] == ["## two", "# one"]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("<p>a<br/>b</p><p/><a id='x'/><p><a href='2.xhtml#x'>there</a></p>", "a\nb\n\n[there](2.xhtml#x)"),
        ("<script src='x'/><p>after</p><style/><p>all</p>", "after\n\nall"),
        ("<p><![CDATA[1 < 2 & 3]]></p>", "1 < 2 & 3"),
        ("<p>a&nbsp;b &amp; c</p><ol><li><p>one</p></li></ol>", "a\xa0b & c\n\n1. one"),
        ("<table><tr><td/><td>x</td></tr></table>", "|  | x |\n| --- | --- |"),
        ("<p>before <![CDATA[never closed", "before never closed"),
    ],
)
def test_xhtml(read: Read, body: str, text: str) -> None:
    chapter = make_xhtml(SAMPLE, body)
    assert read(make_epub(SAMPLE, {"a.xhtml": chapter}), "a.epub").text.removesuffix("</body></html>") == text


def test_what_ends_itself_in_html_does_not(read: Read) -> None:
    assert read(b"<!DOCTYPE html><title>t</title><p>a<script/>b</script>c", "a.html").text == "ac"


def test_a_book_without_its_type_is_one(read: Read) -> None:
    parts = parts_of(book(one="<p>words</p>"))
    del parts["mimetype"]
    assert read(zipped(parts), "a").media_type == "application/epub+zip"


def test_the_cover_is_the_thumbnail(read: Read) -> None:
    cover = Image.new("RGB", (200, 300), "white")
    cover.paste("red", (0, 0, 100, 300))
    content = make_epub(SAMPLE, more={"OEBPS/cover.png": make_image(cover, "PNG")})
    older = replaced(content, "OEBPS/book.opf", 'properties="cover-image"', "")
    older = replaced(older, "OEBPS/book.opf", "</metadata>", '<meta name="cover" content="cover"/></metadata>')
    for book in (content, older):
        thumbnail = read(book, "a.epub").thumbnail
        assert thumbnail is not None
        with Image.open(io.BytesIO(thumbnail)) as small:
            assert small.size == (171, 256)


def test_protected_chapters_are_encrypted_and_protected_fonts_are_not(read: Read, refused: Refused) -> None:
    def protected(path: str) -> bytes:
        inner = f'<enc:EncryptedData><enc:CipherData><enc:CipherReference URI="{path}"/></enc:CipherData></enc:EncryptedData>'
        return make_epub(SAMPLE, more={"META-INF/encryption.xml": f'{HEAD}<encryption xmlns:enc="x">{inner}</encryption>'})

    assert refused(protected("OEBPS/text/a%20b.xhtml"), "a.epub").code == "encrypted"
    assert read(protected("OEBPS/fonts/a.otf"), "a.epub").warnings == ()


def test_what_is_missing_or_elsewhere_is_a_warning(read: Read, refused: Refused) -> None:
    parts = parts_of(make_epub(SAMPLE))
    del parts["OEBPS/text/2.xhtml"]
    result = read(zipped(parts), "a.epub")
    assert (len(result.pages), codes(result)) == (2, {"damaged_parts"})
    elsewhere = replaced(make_epub(SAMPLE), "OEBPS/book.opf", "cover.png", "https://example.org/x.png")
    assert codes(read(elsewhere, "a.epub")) == {"references_ignored"}
    outside = replaced(make_epub(SAMPLE), "OEBPS/book.opf", "text/2.xhtml", "../../../etc/passwd")
    assert codes(read(outside, "a.epub")) == {"damaged_parts"}
    del parts["OEBPS/book.opf"]
    assert refused(zipped(parts), "a.epub").code == "corrupt"
    assert refused(zipped(parts | {"META-INF/container.xml": "<container/>"}), "a.epub").code == "corrupt"


def test_limits_of_books(refused: Refused) -> None:
    content = make_epub(SAMPLE, {f"{number}.xhtml": make_xhtml(SAMPLE, "<p>x</p>") for number in range(5)})
    assert refused(content, "a.epub", Limits(pages_max=4)).code == "too_many_pages"
    assert refused(make_epub(SAMPLE, {"a.xhtml": "<p>" + "x" * 21_000_000}), "a.epub").code == "too_large"
