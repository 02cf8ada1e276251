"""Presentations of before 2007: titles, lists by master and level, tables, links, notes, comments."""

from __future__ import annotations

import struct

import pytest

from chaos.corpus.all import of_sample
from chaos.corpus.old_office import by_libreoffice, ppt_record, ppt_shape, ppt_slide, ppt_table, ppt_text, presentation
from chaos.corpus.samples import BY_LANGUAGE, SAMPLES, Sample
from fairlane.extract.ole_writer import write_ole
from fairlane.extract.ppt_records import PptRecord
from fairlane.extract.ppt_text import Bullets, read_master_styles

from .conftest import Read, Refused, codes

SAMPLE = BY_LANGUAGE["en"]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.language)
def test_slides_of_every_language(read: Read, sample: Sample) -> None:
    result = read(of_sample(sample)[f"{sample.language}.ppt"], "a.ppt")
    first, second = sample.items
    assert (result.media_type, result.unit, result.warnings) == ("application/vnd.ms-powerpoint", "slide", ())
    assert [page.label for page in result.pages] == ["1", "2"]
    assert result.text_of(0).strip() == f"## {sample.title}\n\n- {first}\n- {second}\n\n{sample.paragraph}\n\n{sample.title}"
    assert result.text_of(1) == f"## {first}\n\n{sample.table_markdown}"
    assert (result.title, result.author, result.language) == (sample.title, sample.author, sample.language)


def test_slides_by_libreoffice(read: Read) -> None:
    result = read(by_libreoffice()["plans.ppt"], "plans.ppt")
    assert result.text_of(0).strip() == (
        "## Zażółć gęślą jaźń\n\n- two boxes of paper\n- a café table\n  - of oak\n\n"
        "A free box with [a link](https://example.org/a) in it\n\nSay hello first 日本"
    )
    assert result.text_of(1) == (
        "The second slide\n\nA plain sentence of the body.\n\n| item | price |\n| --- | --- |\n| chair | 45.50 |\n\n"
        "And then goodbye"
    )
    assert (result.title, result.author, result.warnings) == ("Plans of the harbour", "Łucja Weiß", ())


def text_of(read: Read, content: bytes, more: bytes = b"", links: bytes = b"") -> str:
    return read(presentation([(ppt_slide(content, more=more), b"")], [], SAMPLE, links), "a.ppt").text.strip()


def levels(*runs: tuple[int, int, int | None]) -> bytes:
    """Formats of runs of paragraphs: how many letters, the level, and whether there is a bullet."""
    return b"".join(
        struct.pack("<LHL", count, level, 0 if bullet is None else 1) + (b"" if bullet is None else struct.pack("<H", bullet))
        for count, level, bullet in runs
    )


def test_a_paragraph_is_an_item_if_it_says_so_or_is_indented(read: Read) -> None:
    text = ppt_text(1, "a\rb\rc\rd", levels((2, 0, 1), (2, 1, None), (2, 0, 0), (2, 0, None)))
    assert text_of(read, ppt_shape(text)) == "- a\n  - b\n\nc\n\nd"


def test_long_formats_are_skipped(read: Read) -> None:
    """Whatever else a paragraph has, what follows is in its place."""
    everything = 0xF | sum(1 << bit for bit in (4, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15, 16, 17, 20, 21))
    styles = struct.pack("<LHL", 2, 0, everything) + struct.pack("<H", 1) + bytes(4 * 2 - 2 + 4 + 7 * 2)
    styles += struct.pack("<H8x", 2) + bytes(6) + levels((2, 1, 1))
    assert text_of(read, ppt_shape(ppt_text(1, "a\rb", styles))) == "- a\n  - b"


def test_bullets_of_masters() -> None:
    level = struct.pack("<LHL", 1, 1, 0x20000) + b"\0\x20"
    bullets: Bullets = {}
    content = struct.pack("<H", 2) + level + struct.pack("<LHL", 1, 0, 0)
    read_master_styles(content, PptRecord(0x0FA3, 1, 0, len(content)), bullets)
    assert bullets == {(1, 0): True, (1, 1): False}
    named = struct.pack("<HH", 1, 3) + level
    read_master_styles(named, PptRecord(0x0FA3, 7, 0, len(named)), bullets)
    assert bullets[7, 3] is True


def test_links_of_words_and_of_shapes(read: Read) -> None:
    def link(number: int) -> bytes:
        return ppt_record(0xFF2, ppt_record(0xFF3, struct.pack("<2L8x", 0, number)), is_container=True)

    target = ppt_record(0xFBA, "https://example.org/a".encode("utf-16-le"), instance=1)
    external = ppt_record(0xFD7, ppt_record(0xFD3, struct.pack("<L", 5)) + target, is_container=True)
    words = ppt_text(4, "see the terms here") + link(5) + ppt_record(0xFDF, struct.pack("<2L", 4, 13))
    assert text_of(read, ppt_shape(words), links=external) == "see [the terms](https://example.org/a) here"
    words = ppt_text(4, "see a\rb here") + link(5) + ppt_record(0xFDF, struct.pack("<2L", 4, 7))
    assert text_of(read, ppt_shape(words), links=external) == (
        "see [a](https://example.org/a)\n\n[b](https://example.org/a) here"
    )
    assert text_of(read, ppt_shape(ppt_text(4, "words") + link(9)), links=external) == "words"


def test_what_is_on_every_slide_is_left_out(read: Read) -> None:
    made = b"".join(ppt_shape(ppt_text(4, f"kind {kind}"), placeholder=kind) for kind in (7, 8, 9, 10, 14))
    assert text_of(read, made) == "kind 14"
    deleted = ppt_record(
        0xF004, ppt_record(0xF00A, struct.pack("<2L", 1, 8)) + ppt_record(0xF00D, ppt_text(4, "x"), 0, True), 0, True
    )
    assert text_of(read, deleted + ppt_shape(ppt_text(4, "here"))) == "here"


def test_a_title_of_two_lines_and_fields(read: Read) -> None:
    assert text_of(read, ppt_shape(ppt_text(6, "one\rtwo\x0bthree"))) == "## one two three"
    number = ppt_text(4, "slide *!") + ppt_record(0xFD8, struct.pack("<L", 6))
    assert text_of(read, ppt_shape(number)) == "slide !"


def test_tables_with_missing_cells(read: Read) -> None:
    table = ppt_table([("a", "b"), ("c", "")])
    assert text_of(read, table) == "| a | b |\n| --- | --- |\n| c |  |"


def test_what_a_picture_shows(read: Read) -> None:
    words = "a map\0".encode("utf-16-le")
    options = ppt_record(0xF00B, struct.pack("<HL", 0x8000 | 0x0381, len(words)) + words, instance=1)
    picture = ppt_record(0xF004, ppt_record(0xF00A, struct.pack("<2L", 1, 0)) + options, 0, True)
    assert text_of(read, picture) == "![a map]()"


def test_comments(read: Read) -> None:
    texts = [ppt_record(0xFBA, text.encode("utf-16-le"), number) for number, text in enumerate(("Begoña", "is it right?"))]
    comment = ppt_record(0x2EE0, b"".join(texts), 0, True)
    tags = ppt_record(0x1388, ppt_record(0x138A, ppt_record(0x138B, comment, 0, True), 0, True), 0, True)
    assert text_of(read, ppt_shape(ppt_text(0, "Title")), tags) == "## Title\n\n**Comment by Begoña:** is it right?"


def test_the_last_edit_counts(read: Read) -> None:
    """An edit replaces parts and leaves the others; what it replaced is not read."""
    content = presentation([(ppt_slide(ppt_shape(ppt_text(4, "before"))), b"")], [], SAMPLE)
    stream, _ = streams(content)
    slide = ppt_slide(ppt_shape(ppt_text(4, "after")))
    first_edit = stream.rindex(struct.pack("<2HL", 0, 0xFF5, 28))
    place = len(stream)
    stream += slide
    directory = len(stream)
    stream += ppt_record(0x1772, struct.pack("<2L", 2 | 1 << 20, place))
    edit = len(stream)
    stream += ppt_record(0xFF5, struct.pack("<2L3L2L", 0, 0, first_edit, directory, 1, 3, 0))
    current = ppt_record(0xFF6, struct.pack("<4L", 20, 0xE391C05F, edit, 0))
    assert read(write_ole({"PowerPoint Document": stream, "Current User": current}), "a.ppt").text == "after"


def streams(content: bytes) -> tuple[bytes, bytes]:
    """The stream of a presentation that is in one piece in its file."""
    start = content.index(struct.pack("<2H", 0xF, 0x3E8))
    end = content.index(struct.pack("<2HL", 0, 0xFF5, 28)) + 36
    return content[start:end], b""


def test_passwords_and_damage(read: Read, refused: Refused) -> None:
    content = presentation([(ppt_slide(ppt_shape(ppt_text(4, "words"))), b"")], [], SAMPLE)
    locked = content.replace(struct.pack("<L", 0xE391C05F), struct.pack("<L", 0xF3D1C4DF))
    assert refused(locked, "a.ppt").code == "encrypted"
    stream, _ = streams(content)
    assert refused(write_ole({"PowerPoint Document": stream}), "a.ppt").code == "corrupt"
    assert refused(write_ole({"PowerPoint Document": stream, "Current User": bytes(8)}), "a.ppt").code == "corrupt"
    assert refused(write_ole({"PowerPoint Document": b"", "Current User": bytes(40)}), "a.ppt").code == "corrupt"
    broken = content.replace(struct.pack("<2H", 0xF, 0x3EE), struct.pack("<2H", 0xF, 0x3ED))
    assert codes(read(broken, "a.ppt")) == {"damaged_parts", "no_text"}
