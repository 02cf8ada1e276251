"""Word documents of before 2007: text in pieces, styles, lists, tables, links, notes, comments, text boxes."""

from __future__ import annotations

import struct

import pytest

from chaos.corpus.all import of_sample
from chaos.corpus.old_office import BULLET, HEADING, IN_TABLE, NUMBERED, ROW_END, by_libreoffice, document
from chaos.corpus.samples import BY_LANGUAGE, SAMPLES, Sample
from fairlane.extract.doc_format import ParagraphFormat, apply_sprms, read_sprms
from fairlane.extract.ole_writer import write_ole

from .conftest import Read, Refused, codes

SAMPLE = BY_LANGUAGE["en"]
LETTER = """Harbour office, page header

# Zażółć gęślą jaźń

Payment is due[^1] in ten days, see [our terms](https://example.org/terms?a=1) please. 120 € and 日本語 😀 end.

## What is rented

- two boxes of paper
  - one of them blue
- a café table
1. first step
1. second step

| item | price |
| --- | --- |
| chair of oak | 45.50 |

After the table[^c1], a comment and an endnote[^e1].

"""
SECOND_PAGE = """Inside a text box

On the second page.

outer a

| inner 1 | inner 2 |
| --- | --- |

below

The last paragraph.
On a new line.

Footer of every page

[^1]: by the end of the month

[^c1]: **Comment by Begoña:** is this the right price?

[^e1]: said at the end"""


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.language)
def test_documents_of_every_language(read: Read, sample: Sample) -> None:
    result = read(of_sample(sample)[f"{sample.language}.doc"], "a.doc")
    assert (result.media_type, result.warnings) == ("application/msword", ())
    assert result.text.strip() == sample.markdown
    assert (result.title, result.author, result.language) == (sample.title, sample.author, sample.language)
    assert result.created == "2026-03-01T08:30:00+00:00"


def test_a_letter_by_libreoffice(read: Read) -> None:
    """With everything that is read: headers, headings, links, lists, tables, notes, a comment, a text box, a page break."""
    result = read(by_libreoffice()["letter.doc"], "letter.doc")
    assert (result.title, result.author, result.warnings) == ("Rent for the harbour", "Łucja Weiß", ())
    assert [result.text_of(number) for number in range(len(result.pages))] == [LETTER, SECOND_PAGE]


def text_of(read: Read, *paragraphs: tuple[str, int, bytes], deleted: str = "") -> str:
    return read(document(list(paragraphs), SAMPLE, deleted), "a.doc").text.strip()


def test_headings_by_style_and_by_level(read: Read) -> None:
    """The style's number decides, whatever its name in the author's language."""
    made = text_of(read, ("By style\r", 1, b""), ("By level\r", 0, b"\x40\x26\2"), ("Text\r", 0, b"\x40\x26\x09"))
    assert made == "# By style\n\n### By level\n\nText"
    assert text_of(read, ("First\r", 0, HEADING)) == "# First"


def test_lists(read: Read) -> None:
    inner = BULLET[:-1] + b"\1"
    made = text_of(read, ("a\r", 0, BULLET), ("b\r", 0, inner), ("c\r", 0, NUMBERED), ("d\r", 0, b"\x0b\x46\0\0"))
    assert made == "- a\n  - b\n1. c\n\nd"


def test_tables_side_by_side_and_in_each_other(read: Read) -> None:
    deep = IN_TABLE + b"\x49\x66\2\0\0\0"
    inner_cell, inner_row = deep + b"\x4b\x24\1", deep + b"\x4b\x24\1\x4c\x24\1"
    table = [("a\x07", 0, IN_TABLE), ("b\rmore\x07", 0, IN_TABLE), ("\x07", 0, ROW_END)]
    made = text_of(read, *table, *table, ("between\r", 0, b""), *table)
    rows = "| a | b more |\n| --- | --- |"
    assert made == f"{rows}\n| a | b more |\n\nbetween\n\n{rows}"
    nested = [("in\r", 0, inner_cell), ("ner\r", 0, inner_cell), ("\r", 0, inner_row), ("out\x07", 0, IN_TABLE)]
    assert text_of(read, *nested, ("\x07", 0, ROW_END)) == "| in | ner |\n| --- | --- |\n\nout"


def test_links_and_other_fields(read: Read) -> None:
    link = '\x13 HYPERLINK "https://example.org/a" \\l "b" \x14the terms\x15'
    assert text_of(read, (f"See {link} here.\r", 0, b"")) == "See [the terms](https://example.org/a#b) here."
    assert text_of(read, ("Page \x13 PAGE \x147\x15 of \x13 NUMPAGES \x15two\r", 0, b"")) == "Page 7 of two"
    assert (
        text_of(read, (f"\x13 IF \x13 PAGE \x141\x15 = 1 \x14{link}\x15\r", 0, b"")) == "[the terms](https://example.org/a#b)"
    )
    assert text_of(read, (f"a \x13 IF {link} = 1 \x14yes\x15\r", 0, b""), ("b\r", 0, b"")) == "a yes\n\nb"
    assert text_of(read, ('\x13 HYPERLINK "javascript:x()" \x14no\x15 \x13 open\r', 0, b""), ("next\r", 0, b"")) == "no\n\nnext"


def test_deleted_text_is_left_out(read: Read) -> None:
    assert text_of(read, ("It costs 120 or 90 francs.\r", 0, b""), deleted=" or 90") == "It costs 120 francs."


def test_page_breaks(read: Read) -> None:
    result = read(document([("one\x0c", 0, b""), ("two\r", 0, b""), ("three\r", 0, b"\x07\x24\1")], SAMPLE), "a.doc")
    assert [result.text_of(number).strip() for number in range(3)] == ["one", "two", "three"]


def test_letters_of_two_halves_keep_positions_right(read: Read) -> None:
    assert text_of(read, ("😀😀 smiles\r", 1, b""), ("next\r", 0, b"")) == "# 😀😀 smiles\n\nnext"


def patched(flags: int = 0x0200, version: int = 0xC1) -> bytes:
    stream = bytearray(2_000)
    struct.pack_into("<2H6xH", stream, 0, 0xA5EC, version, flags)
    return write_ole({"WordDocument": bytes(stream), "1Table": b"\2" + bytes(4)})


def test_passwords_and_versions(refused: Refused) -> None:
    assert refused(by_libreoffice()["password.doc"], "a.doc").code == "encrypted"
    assert refused(patched(flags=0x0300), "a.doc").code == "encrypted"
    failure = refused(patched(version=0x68), "a.doc")
    assert (failure.code, failure.detail) == ("unsupported", "a document of Word 95 or older")
    assert refused(write_ole({"WordDocument": b"words"}), "a.doc").code == "corrupt"
    assert refused(write_ole({"WordDocument": bytes(2_000)}), "a.doc").code == "unsupported"
    assert refused(patched(flags=0), "a.doc").detail == "a document without its stream 0table"


def test_text_that_is_missing_is_said(read: Read) -> None:
    content = document([("words\r", 0, b""), ("more words\r", 0, b"")], SAMPLE)
    place = content.index(struct.pack("<3L", 0, 6, 17)) + 12 + 8 + 2
    cut = content[:place] + struct.pack("<L", (4_000 * 2) | 0x40000000) + content[place + 4 :]
    result = read(cut, "a.doc")
    assert result.text.strip() == "words"
    assert codes(result) == {"damaged_parts"}


def test_sprms_of_every_length() -> None:
    content = b"\x16\x24\1" + b"\x08\xd6\5\0abcd" + b"\x0d\xc6\2xy" + b"\x0b\x46\7\0"
    assert [sprm for sprm, _, _ in read_sprms(content)] == [0x2416, 0xD608, 0xC60D, 0x460B]
    assert apply_sprms(ParagraphFormat(), content) == ParagraphFormat(list=7, depth=1)
    assert apply_sprms(ParagraphFormat(), b"\x0b\x46\xff\x07") == ParagraphFormat(list=0)
    for length in range(len(content)):
        list(read_sprms(content[:length]))


def test_a_name_that_does_not_fit(read: Read) -> None:
    content = of_sample(SAMPLE)["en.doc"]
    assert codes(read(content, "a.dot")) == set()
    assert codes(read(content, "a.xls")) == {"wrong_name"}
    assert codes(read(of_sample(SAMPLE)["en.rtf"], "a.doc")) == set()
