"""Text is read in whatever encoding it was written."""

from __future__ import annotations

import codecs

import pytest

from chaos.corpus.others import make_html, make_xml
from chaos.corpus.samples import BY_LANGUAGE, SAMPLES, Sample
from fairlane.extract.encoding import codec_name

from .conftest import Read, codes

LANGUAGES = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.language)
WIDE = ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")
BOMS = {
    "utf-8": codecs.BOM_UTF8,
    "utf-16-le": codecs.BOM_UTF16_LE,
    "utf-16-be": codecs.BOM_UTF16_BE,
    "utf-32-le": codecs.BOM_UTF32_LE,
    "utf-32-be": codecs.BOM_UTF32_BE,
}
LEGACY = [
    ("pl", "cp1250"),
    ("pl", "iso8859_2"),
    ("pt", "cp1252"),
    ("pt", "iso8859_1"),
    ("es", "cp1252"),
    ("es", "iso8859_1"),
    ("de", "cp1250"),
    ("de", "cp1252"),
    ("de", "iso8859_2"),
    ("en", "cp1252"),
]


@LANGUAGES
@pytest.mark.parametrize("encoding", BOMS)
def test_unicode_with_a_mark(read: Read, sample: Sample, encoding: str) -> None:
    result = read(BOMS[encoding] + "\n".join(sample.lines).encode(encoding), "a.txt")
    assert (result.media_type, result.text, result.warnings) == ("text/plain", "\n".join(sample.lines), ())


@LANGUAGES
@pytest.mark.parametrize("encoding", ["utf-8", *WIDE])
def test_unicode_without_a_mark(read: Read, sample: Sample, encoding: str) -> None:
    result = read("\r\n".join(sample.lines).encode(encoding), "a.txt")
    assert (result.media_type, result.text, result.warnings) == ("text/plain", "\n".join(sample.lines), ())


@pytest.mark.parametrize(("language", "encoding"), LEGACY)
@pytest.mark.parametrize("is_long", [False, True])
def test_old_encodings_are_guessed_and_that_is_a_warning(read: Read, language: str, encoding: str, is_long: bool) -> None:
    sample = BY_LANGUAGE[language]
    text = "\n".join(sample.lines) if is_long else sample.title + " " + sample.items[1]
    text = text.encode(encoding, "ignore").decode(encoding)
    result = read(text.encode(encoding), "a.txt")
    assert result.text == text
    assert codes(result) == {"encoding_guessed"} or text.isascii()


def test_cyrillic_is_left_to_the_library(read: Read) -> None:
    text = "Съешь же ещё этих мягких французских булок, да выпей чаю. Счёт выслан в понедельник утром. " * 4
    assert read(text.encode("cp1251"), "a.txt").text == text


@pytest.mark.parametrize("encoding", ["iso-8859-2", "windows-1250", "utf-8"])
def test_what_a_page_declares_is_used(read: Read, encoding: str) -> None:
    sample = BY_LANGUAGE["pl"]
    assert read(make_html(sample, encoding), "a.html").text == sample.markdown
    assert sample.title in read(make_xml(sample, encoding), "a.xml").text


def test_utf_8_is_believed_more_than_what_a_page_declares(read: Read) -> None:
    page = "<html><meta charset=iso-8859-2><p>zażółć</p>".encode()
    assert read(page, "a.html").text == "zażółć"


def test_one_broken_byte_does_not_change_the_encoding(read: Read) -> None:
    content = "\n".join(BY_LANGUAGE["pl"].lines).encode()
    result = read(content[:50] + b"\xff" + content[50:], "a.txt")
    assert "gęślą" in result.text
    assert codes(result) == {"characters_replaced"}


def test_an_old_encoding_far_behind_is_found(read: Read) -> None:
    text = "plain words\n" * 50_000 + "Zażółć gęślą jaźń. Należność płatna w środę.\n" * 5
    assert read(text.encode("cp1250"), "a.txt").text == text


@pytest.mark.parametrize("name", ["hex", "rot13", "zlib", "idna", "unicode_escape", "../x", "", "x" * 50])
def test_encodings_that_are_none_are_not_used(name: str) -> None:
    assert codec_name(name) is None
