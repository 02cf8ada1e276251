"""HTML, RTF, e-mail, CSV and the rest of the texts, as they are found in the wild."""

from __future__ import annotations

from email.message import EmailMessage

import pytest

from chaos.corpus.others import make_eml, make_rtf
from chaos.corpus.samples import BY_LANGUAGE, Sample
from fairlane.extract import Limits
from fairlane.extract.builder import clean, is_clean
from fairlane.extract.language import guess
from fairlane.extract.markdown import code_block

from .conftest import Read, Refused, codes

SAMPLE = BY_LANGUAGE["pl"]


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<p>a<p>b", "a\n\nb"),
        ("a<br>b", "a\nb"),
        ("<p>a   b\n c</p>", "a b c"),
        ("<h2>x</h2>y", "## x\n\ny"),
        ("<ul><li>a<ul><li>b</ul><li>c</ul>d", "- a\n  - b\n- c\n\nd"),
        ("<ol><li>a</li><li>b</li></ol>", "1. a\n1. b"),
        ("<ul><li><p>a</p><p>more</p><ol><li> <div>b</div></ol></li><li></li></ul><p>c", "- a\n\n  more\n\n  1. b\n\nc"),
        ("<table><tr><th colspan=2>a<th>b<tr><td>c<td>d<td>e</table>", "| a |  | b |\n| --- | --- | --- |\n| c | d | e |"),
        (
            "<table><tr><td rowspan=2>a<td>b<td rowspan=9>c</tr><tr><td>d</tr><tr><td>e<td colspan=x>f</table>",
            "| a | b | c |\n| --- | --- | --- |\n|  | d |\n| e | f |",
        ),
        ("<a href='/x'>a </a><a href='/x'>b</a><a href='/y'>c </a><a href='/y'>d</a>", "[a b](/x)[c d](/y)"),
        ('<a href="https://example.org/a b">x [y]</a>', "[x (y)](https://example.org/a%20b)"),
        ('<a href="javascript:alert(1)">x</a>', "x"),
        ('<a href=" JavaScript:alert(1)">x</a>', "x"),
        ('<a href="data:text/html,x">x</a>', "x"),
        ("<a href=page.html>x</a>", "[x](page.html)"),
        ("<a href=x></a>y", "y"),
        ("<img src=a.png alt='a cat'>", "a cat"),
        ("<script>a</script>b<style>c</style>d<template>e</template>", "bd"),
        ("<script>if (a<b) '</p>'</script>x", "x"),
        ("<!-- a -->b<!doctype x>c<?php d ?>e", "bce"),
        ("a<!-- b > c -->d", "ad"),
        ("a<!-- never closed", "a"),
        ("a<script>never closed", "a"),
        ("a < b &lt; c &amp; d &oacute; &#380; &#x17c;", "a < b < c & d ó ż ż"),
        ("&#99999999999999999999999999; x", "\ufffd x"),
        ("<pre>a\n  b</pre>c", "```\na\n  b\n```\n\nc"),
        ("<pre>```</pre>", "````\n```\n````"),
        ("<table><tr><td>a<td>b<tr><td>c<td>d</table>", "| a | b |\n| --- | --- |\n| c | d |"),
        ("<table><tr><td><table><tr><td>a</td><td>b</td></tr></table></td></tr></table>", "| a | b |\n| --- | --- |"),
        ("<table role=presentation><tr><td><h1>x</h1></td><td>y</td></tr></table>", "# x\n\ny"),
        ("<p title='>'>a</p>", "a"),
        ('<p title="a\nb>c">a</p>', "a"),
        ("<head><title>t</title>dropped</head><body>x", "x"),
        ("<noscript>n</noscript><svg><title>s</title><text>t</text></svg>x", "nx"),
    ],
)
def test_html(read: Read, page: str, text: str) -> None:
    assert read(f"<html>{page}".encode(), "a.html").text == text


@pytest.mark.parametrize(
    "piece",
    ["<!--", "<![CDATA[", "<a b='", '<a b="', "</", "<?", "<a ", "&", "<!", "<table>", "<li>", "<script>", "<a href=x>"],
)
def test_html_costs_its_length_however_broken(read: Read, piece: str) -> None:
    read(("<html>" + piece * 100_000).encode(), "a.html", Limits(seconds_max=8, ocr_pages_max=0))


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("a\\par b", "a\n\nb"),
        ("\\'b3\\'f3d\\'9f", "łódź"),
        ("\\u322?\\u243?d\\u378?", "łódź"),
        ("\\uc2\\u322ab\\uc1x", "łx"),
        ("\\uc0\\u322 x", "łx"),
        ("{\\uc0\\u322}\\u243?", "łó"),
        ("\\u-10179?\\u-8704?", "\U0001f600"),
        ("\\u-10179?x", "x"),
        ("\\u-9216?x", "\ufffdx"),
        ("a{\\*\\unknown b{c}}d", "ad"),
        ("a\\bin3 }}}b", "ab"),
        ("a\\{b\\}c\\\\d\\~e\\_f", "a{b}c\\d\xa0e-f"),
        ("a{\\pict 0123}b{\\object x}c", "abc"),
        ("a\\tab b\\line c\\emdash", "a\tb\nc—"),
        ("a\\page b", "a\n\nb"),
        ("{\\deleted gone}kept", "kept"),
        ("\\trowd\\intbl a\\cell b\\cell\\row\\pard after", "| a | b |\n| --- | --- |\n\nafter"),
        ("{\\field{\\*\\fldinst HYPERLINK x}{\\fldrslt words}}", "[words](x)"),
        ("{\\f1\\'e6}\\'e6", "жć"),
        ("}}}a", "a"),
    ],
)
def test_rtf(read: Read, body: str, text: str) -> None:
    head = "{\\rtf1\\ansi\\ansicpg1250{\\fonttbl{\\f0 Arial;}{\\f1\\fcharset204 Arial;}}"
    assert read(f"{head}{body}}}".encode(), "a.rtf").text == text


def test_rtf_that_ends_with_a_backslash(read: Read) -> None:
    assert read(b"{\\rtf1 a\\", "a.rtf").text == "a"


def test_rtf_that_does_not_end_is_reported(read: Read) -> None:
    assert codes(read(make_rtf(SAMPLE)[:-20], "a.rtf")) == {"damaged_parts"}


# -- e-mail


def test_mail_with_html_only(read: Read) -> None:
    result = read(make_eml(SAMPLE, is_html=True), "a.eml")
    assert SAMPLE.markdown in result.text
    assert "script" not in result.text


@pytest.mark.parametrize("charset", ["iso-8859-2", "utf-8", "windows-1250"])
def test_mail_in_other_encodings(read: Read, charset: str) -> None:
    assert SAMPLE.paragraph in read(make_eml(SAMPLE, charset=charset), "a.eml").text


def test_a_message_in_a_message_is_a_member(read: Read) -> None:
    inner, outer = EmailMessage(), EmailMessage()
    inner["Subject"], outer["Subject"] = "inside", "outside"
    inner["From"] = outer["From"] = "a@example.org"
    inner.set_content("deep words")
    outer.set_content("see below")
    outer.add_attachment(inner)
    result = read(outer.as_bytes(), "a.eml")
    assert "deep words" not in result.text
    (member,) = result.members
    assert "deep words" in read(member.path.read_bytes(), member.name).text


def test_attachments_are_left_out_where_nothing_may_be_inside_any_more(read: Read) -> None:
    result = read(make_eml(SAMPLE), "a.eml", depth=3)
    assert result.members == ()
    assert codes(result) == {"members_skipped"}
    assert "należność.csv" in result.text


def test_names_of_attachments_are_only_shown(read: Read) -> None:
    message = EmailMessage()
    message["Subject"], message["From"] = "x", "a@example.org"
    message.set_content("y")
    message.add_attachment(b"z", maintype="application", subtype="pdf", filename="../../../etc/passwd")
    (member,) = read(message.as_bytes(), "a.eml").members
    assert (member.name, member.path.name) == ("../../../etc/passwd", "member-00001")


@pytest.mark.parametrize(
    "head",
    [
        "Subject: =?utf-8?B?!!!?=",
        "Subject: =?nonsense?Q?abc?=",
        "Date: yesterday",
        "Date: Mon, 99 Xyz 99999 99:99:99 +9999",
        "Content-Type: text/plain; charset=nonsense",
        "Content-Type: multipart/mixed",
        "Content-Type: ;;;===",
        "Content-Disposition: attachment; filename*=utf-9''%%%",
        "Content-Transfer-Encoding: base64",
        'From: "' + "\\" * 500,
    ],
)
def test_broken_headers_do_no_harm(read: Read, head: str) -> None:
    result = read(f"From: a@example.org\nMessage-ID: <x>\n{head}\n\nd29yZHM=\n".encode(), "a.eml")
    assert result.media_type == "message/rfc822"


# -- CSV, JSON, XML, text


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_csv_separators(read: Read, separator: str) -> None:
    content = f'name{separator}price\n"a{separator}b"{separator}1\n'.encode()
    shown = f"a{separator}b".replace("|", "\\|").replace("\t", " ")
    assert read(content, "a.csv").text == f"| name | price |\n| --- | --- |\n| {shown} | 1 |\n"


def test_csv_with_quotes_old_line_ends_and_blank_lines(read: Read) -> None:
    assert read(b'\n\na;b\r"x\ry";2\r', "a.csv").text == "| a | b |\n| --- | --- |\n| x y | 2 |\n"


def test_csv_limits(refused: Refused) -> None:
    assert refused(b"a;b\n" * 20, "a.csv", Limits(cells_max=30)).code == "too_large"


def test_json_is_known_by_its_content(read: Read) -> None:
    assert read(b'{"a": [1, 2]}', "a.txt").media_type == "application/json"
    assert read(b'{"a": [1, 2', "a.txt").media_type == "text/plain"
    broken = read(b'{"a": [1, 2', "a.json")
    assert (broken.media_type, codes(broken)) == ("application/json", {"damaged_parts"})


def test_xml_with_a_harmless_doctype_is_read(read: Read) -> None:
    assert read(b'<?xml version="1.0"?><!DOCTYPE a SYSTEM "http://127.0.0.1:9/a.dtd"><a>x</a>', "a.xml").text.count("x") > 1


def test_pages_of_a_text_end_at_form_feeds(read: Read) -> None:
    result = read(b"one\ftwo\fthree", "a.txt")
    assert [result.text_of(number).strip() for number in range(3)] == ["one", "two", "three"]


def test_too_many_pages_of_a_text(refused: Refused) -> None:
    assert refused(b"\fx" * 10, "a.txt", Limits(pages_max=9)).code == "too_many_pages"


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("plain ż\n\t", "plain ż\n\t"),
        ("a\r\nb\rc\x0bd\x85e", "a\nb\nc\nd\ne"),
        ("a\0b\x1bc\x7fd\x9fe\ufffef", "abcdef"),
        ("a\ud800b", "a\ufffdb"),
        ("\ud83d\ude00", "\U0001f600"),
    ],
)
def test_text_that_can_be_stored_and_sent_anywhere(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned


def test_bytes_are_cleaned_as_text_is() -> None:
    for number in (*range(0xD800), *range(0xE000, 0x11000), *range(0x11000, 0x110000, 997), 0x10FFFF):
        text = f"ż{chr(number)}a"
        assert is_clean(text.encode()) == (clean(text) == text), hex(number)


def test_a_fence_that_its_text_cannot_close() -> None:
    assert code_block("a\n````\nb") == "`````\na\n````\nb\n`````"


@pytest.mark.parametrize(
    "text", ["", "12 34", "Hyvää huomenta kaikille ystäville ja tervetuloa", "lorem ipsum dolor sit amet consectetur"]
)
def test_no_language_rather_than_a_wrong_one(text: str) -> None:
    assert guess(text) is None


@pytest.mark.parametrize("sample", BY_LANGUAGE.values(), ids=lambda sample: sample.language)
def test_the_language_of_one_sentence(sample: Sample) -> None:
    assert guess(sample.paragraph.split(". ")[0]) == sample.language
