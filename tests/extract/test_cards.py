"""Calendars, contacts and drawings: folded lines, old encodings, what is dropped, what tries to do harm."""

from __future__ import annotations

import pytest

from chaos.corpus.others import folded
from fairlane.extract import Limits

from .conftest import Read, Refused, codes


def calendar(*lines: str, kind: str = "VEVENT") -> bytes:
    return "\r\n".join(["BEGIN:VCALENDAR", f"BEGIN:{kind}", *lines, f"END:{kind}", "END:VCALENDAR", ""]).encode()


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (["SUMMARY:a\\, b\\; c\\\\d"], "## a, b; c\\d"),
        (["summary:x", "Dtstart:20260301T093000Z", "DURATION:PT1H"], "## x\n\n**When:** 2026-03-01T09:30:00Z, PT1H"),
        (["DTSTART;VALUE=DATE:20260301", "DTEND;VALUE=DATE:20260302"], "**When:** 2026-03-01"),
        (["DTSTART;VALUE=DATE:20260301", "DTEND;VALUE=DATE:20260303"], "**When:** 2026-03-01 – 2026-03-02"),
        (["DTSTART;VALUE=DATE:20260301", "DTEND;VALUE=DATE:x"], "**When:** 2026-03-01 – x"),
        (["DTSTART:sometime"], "**When:** sometime"),
        (
            ['ATTENDEE;CN="Doe, Jane";PARTSTAT=DECLINED:mailto:j@example.org', "ATTENDEE:MAILTO:b@example.org"],
            "**Attendees:** Doe, Jane <j@example.org> (declined), b@example.org",
        ),
        (["RRULE:FREQ=DAILY", "EXDATE:20260302,20260303"], "**Repeats:** FREQ=DAILY  \n**Except:** 2026-03-02, 2026-03-03"),
        (["DESCRIPTION:one\\ntwo\\n\\nthree"], "one\ntwo\n\nthree"),
        (["DESCRIPTION;ALTREP=\"cid:a:b;c\":words"], "words"),
        (["SUMMARY;CHARSET=UTF-8;ENCODING=QUOTED-PRINTABLE:Za=C5=BC=C3=B3=", "=C5=82=C4=87"], "## Zażółć"),
        (["X-OTHER:x", "no colon", ":", "SUMMARY:x"], "## x"),
    ],
)  # fmt: skip
def test_entries(read: Read, lines: list[str], text: str) -> None:
    assert read(calendar(*lines), "a.ics").text == text


def test_several_entries_tasks_and_what_is_inside_them(read: Read) -> None:
    alarm = ("BEGIN:VALARM", "SUMMARY:alarm", "END:VALARM")
    content = calendar("SUMMARY:one", *alarm, "LOCATION:here") + calendar("SUMMARY:two", "DUE:20260301", kind="VTODO")
    result = read(b"BEGIN:VCALENDAR\nX-WR-CALNAME:Team\nEND:VCALENDAR\n" + content, "a.ics")
    assert result.text == "## one\n\n**Where:** here\n\n## two\n\n**Due:** 2026-03-01"
    assert (result.title, result.author) == ("Team", None)


def test_facts_of_the_only_entry(read: Read) -> None:
    result = read(calendar("SUMMARY:one", "CREATED:20260301T093000Z", "LAST-MODIFIED:20260302T100000Z"), "a.ics")
    assert (result.title, result.created, result.modified) == (
        *("one", "2026-03-01T09:30:00+00:00"),
        "2026-03-02T10:00:00+00:00",
    )


def test_a_letter_may_be_folded_in_its_middle(read: Read) -> None:
    line = folded("SUMMARY:x" + "ż" * 100)
    assert b"\xc5\r\n \xbc" in line
    content = b"BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\n" + line + b"END:VEVENT\r\n"
    assert read(content, "a.ics").text == "## x" + "ż" * 100


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "cp1250"])
def test_encodings(read: Read, encoding: str) -> None:
    result = read(calendar("SUMMARY:zażółć gęślą jaźń").decode().encode(encoding), "a.ics")
    assert (result.text, codes(result)) == ("## zażółć gęślą jaźń", {"encoding_guessed"} if encoding == "cp1250" else set())


def test_files_in_entries_are_passed_over_whatever_their_size(read: Read) -> None:
    attached = "ATTACH;FMTTYPE=text/plain;ENCODING=BASE64;VALUE=BINARY:" + "\r\n ".join(["A" * 70] * 50_000)
    result = read(
        calendar("SUMMARY:x", attached, "LOCATION:y", "ATTACH:https://example.org/a"), "a.ics", Limits(text_max=1_000)
    )
    assert result.text == "## x\n\n**Where:** y  \n**Attached:** https://example.org/a"
    assert codes(result) == {"attachments_ignored"}


def test_a_calendar_that_is_cut_off_keeps_what_it_has(read: Read) -> None:
    result = read(b"BEGIN:VCALENDAR\nBEGIN:VEVENT\nSUMMARY:one\nLOCATION:he", "a.ics")
    assert (result.text, codes(result)) == ("## one\n\n**Where:** he", {"damaged_parts"})
    assert codes(read(b"BEGIN:VCALENDAR\nEND:VCALENDAR\n", "a.ics")) == {"no_text"}


def test_limits_of_calendars(refused: Refused) -> None:
    assert refused(b"BEGIN:VCALENDAR\n" * 300, "a.ics").code == "too_large"
    assert refused(calendar("DESCRIPTION:" + "words " * 1_000), "a.ics", Limits(text_max=5_000)).code == "too_large"
    many = calendar(*["ATTENDEE:mailto:a@example.org"] * 1_000)
    assert refused(many, "a.ics", Limits(text_max=5_000)).code == "too_large"


# -- contacts


def card(*lines: str) -> bytes:
    return "\r\n".join(["BEGIN:VCARD", *lines, "END:VCARD", ""]).encode()


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (["N:Weiß;Jürgen;;Dr.;jun."], "## Dr. Jürgen Weiß jun."),
        (["N:a;b", "FN:c d"], "## c d"),
        (["ORG:ACME\\, Inc;Sales"], "## ACME, Inc, Sales\n\n**Organization:** ACME, Inc, Sales"),
        (["item1.TEL;HOME;VOICE;PREF:1", 'TEL;TYPE="work,fax":2'], "**Phone (home):** 1  \n**Phone (work, fax):** 2"),
        (["ADR;TYPE=home:;;Street 5;Gdańsk;;80-001;"], "**Address (home):** Street 5, Gdańsk, 80-001"),
        (["BDAY:19800102", "ANNIVERSARY:--0102"], "**Birthday:** 1980-01-02  \n**Anniversary:** --0102"),
        (["FN:x", "NOTE:one\\ntwo"], "## x\n\none\ntwo"),
        (["NOTE;ENCODING=QUOTED-PRINTABLE;CHARSET=ISO-8859-2:za=BF=F3=B3=E6"], "zażółć"),
        (["FN:x", "TEL:", "X-OTHER:y"], "## x"),
    ],
)
def test_cards(read: Read, lines: list[str], text: str) -> None:
    assert read(card(*lines), "a.vcf").text == text


def test_pictures_of_cards_are_dropped(read: Read) -> None:
    photo = "PHOTO;JPEG;ENCODING=BASE64:\r\n " + "\r\n ".join(["/9j/4AAQ" * 9] * 20_000)
    result = read(card("FN:x", photo, "", "LOGO:data:image/png;base64,AAAA", "TEL:1"), "a.vcf", Limits(text_max=1_000))
    assert (result.text, result.title, codes(result)) == ("## x\n\n**Phone:** 1", "x", {"attachments_ignored"})


def test_damaged_letters_before_a_value_do_not_move_it(read: Read) -> None:
    content = card("FN:" + "zażółć gęślą jaźń" * 9, "NOTE;X=??;ENCODING=QUOTED-PRINTABLE:=41:b").replace(b"??", b"\xff\xff")
    assert read(content, "a.vcf").text.endswith("\n\nA:b")


def test_a_card_in_a_card_and_one_that_is_cut_off(read: Read) -> None:
    content = b"BEGIN:VCARD\nFN:outer\nBEGIN:VCARD\nFN:inner\nEND:VCARD\nTEL:1\n"
    result = read(content, "a.vcf")
    assert (result.text, codes(result)) == ("## inner\n\n## outer\n\n**Phone:** 1", {"damaged_parts"})


def test_limits_of_cards(refused: Refused) -> None:
    assert refused(b"BEGIN:VCARD\n" * 300, "a.vcf").code == "too_large"
    assert refused(card(*["TEL:1"] * 1_000), "a.vcf", Limits(text_max=5_000)).code == "too_large"


@pytest.mark.parametrize("text", ["BEGIN:VCARDS are nice", "BEGIN: VCARD", "They BEGIN:VCARD"])
def test_words_about_cards_are_text(read: Read, text: str) -> None:
    assert read(text.encode(), "a.txt").media_type == "text/plain"


# -- drawings

SVG = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:x="http://www.w3.org/1999/xlink" xmlns:h="http://www.w3.org/1999/xhtml">'


def drawing(read: Read, content: str) -> str:
    return read(f"{SVG}{content}</svg>".encode(), "a").text


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("<text> a\n <tspan>b</tspan></text><g><text>c</text></g>", "a b\n\nc"),
        ("<text y='1'>a<tspan y='9'>b</tspan><tspan dy='1em'>c</tspan><tspan x='9' dy='0'>d</tspan></text>", "a\nb\nc d"),
        ("<title>plan</title><desc>site</desc><g><title>tooltip</title><text>x</text></g>", "# plan\n\nsite\n\nx"),
        ("<style>text {}</style><script>alert(1)</script><metadata>m</metadata><text>x</text>", "x"),
        ("<a x:href='https://example.org'><text>there</text></a><text>x</text>", "[there](https://example.org)\n\nx"),
        ("<text><a x:href='javascript:alert(1)'>x</a></text>", "x"),
        ("<switch><foreignObject><h:p>a</h:p>b</foreignObject><text>a b</text></switch><text>c</text>", "a\nb\n\nc"),
        ("<switch><g/><text>no</text></switch><text>yes</text>", "yes"),
        ("<foreignObject><h:script>no</h:script><h:ul><h:li>a</h:li><h:li>b</h:li></h:ul></foreignObject>", "a\nb"),
        ("<rect/>", ""),
    ],
)  # fmt: skip
def test_drawings(read: Read, content: str, text: str) -> None:
    assert drawing(read, content) == text


@pytest.mark.parametrize(
    "start",
    [
        "<?xml version='1.0'?>\n<!-- by a program -->\n",
        '<?xml version="1.0"?><!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN" "http://www.w3.org/svg11.dtd">\n',
        '<!DOCTYPE svg [<!ENTITY ns "http://example.org/">]>\n<!-- more -->',
    ],
)
def test_what_is_a_drawing(read: Read, start: str) -> None:
    result = read(f"{start}{SVG}<text>x</text></svg>".encode(), "a.xml")
    assert (result.media_type, result.text) == ("image/svg+xml", "x")


def test_drawings_that_refer_to_something_outside(read: Read, refused: Refused) -> None:
    result = read(f"{SVG}<image x:href='https://example.org/a.png'/><text>x</text></svg>".encode(), "a.svg")
    assert (result.text, codes(result)) == ("x", {"references_ignored"})
    entity = f'<!DOCTYPE svg [<!ENTITY a SYSTEM "file:///etc/passwd">]>{SVG}<text>&a;</text></svg>'
    assert refused(entity.encode(), "a.svg").code == "corrupt"
    assert refused(f"{SVG}<text>".encode(), "a.svg").code == "corrupt"
    assert refused((SVG + "<g>" * 300).encode(), "a.svg").code == "too_large"
