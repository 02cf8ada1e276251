"""E-mails as they are found in the wild: odd beginnings, letters sent raw, mailboxes of several messages."""

from __future__ import annotations

import pytest

from fairlane.extract import Limits

from .conftest import Read, Refused, codes

MAIL = b"From: a@example.org\nSubject: offer\nDate: Sun, 01 Mar 2026 09:30:00 +0100\n\nwords of the text\n"


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b"   \n\t\n" + MAIL, "a.eml"),
        (b"\r\n" + MAIL.replace(b"\n", b"\r\n"), "a"),
        (MAIL.replace(b"\n", b"\r"), "a.eml"),
        (b"\xef\xbb\xbf" + MAIL, "a.txt"),
        (b"\xff\xfe" + MAIL.decode().encode("utf-16-le"), "a.eml"),
        (b"X-Mailer: x\n" + MAIL.partition(b"\n")[2].replace(b"Date:", b"X-Date:"), "a.eml"),
        (b"Cc: a@example.org\nSubject: offer\n\nwords of the text\n", "a.txt"),
    ],
    ids=["spaces", "blank line", "bare returns", "mark", "UTF-16", "one known header", "other headers"],
)
def test_what_is_an_email(read: Read, content: bytes, name: str) -> None:
    result = read(content, name)
    assert (result.media_type, result.title) == ("message/rfc822", "offer")
    assert result.text.endswith("words of the text\n\n")


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b"Subject: offer\n\nwords\n", "a.txt"),
        (b"Title: offer\nAuthor: me\n\nwords\n", "a.eml"),
        (b"words\n\nFrom: a@example.org\nSubject: offer\n\nwords\n", "a.eml"),
        (b"Date: Sun, 01 Mar 2026 09:30:00 GMT\nContent-Type: text/plain\n\nwords\n", "a.txt"),
        (b"From the beginning\nthere were words\n", "a.txt"),
    ],
)
def test_what_is_no_email(read: Read, content: bytes, name: str) -> None:
    assert read(content, name).media_type == "text/plain"


@pytest.mark.parametrize(
    ("charset", "declared"), [("utf-8", ""), ("iso-8859-2", "iso-8859-2"), ("shift_jis", "shift_jis"), ("utf-8", "us-ascii")]
)
def test_headers_that_were_sent_raw(read: Read, charset: str, declared: str) -> None:
    subject = "見積書" if charset == "shift_jis" else "Zażółć gęślą"
    kind = f"Content-Type: text/plain; charset={declared}\n" if declared else ""
    content = f"From: {subject} <a@example.org>\nSubject: {subject} =?utf-8?Q?=C5=BC?=\n{kind}\nwords\n".encode(charset)
    result = read(content, "a.eml")
    assert result.title == f"{subject} ż"
    assert result.author == f"{subject} <a@example.org>"


def test_raw_letters_of_a_message_in_parts_are_in_the_encoding_of_its_text(read: Read) -> None:
    content = (
        "From: a@example.org\nSubject: 見積書\nContent-Type: multipart/mixed; boundary=x\n\n--x\n"
        'Content-Type: text/plain; charset=shift_jis\n\n見積\n--x\nContent-Disposition: attachment; filename="見積書.txt"\n\n'
        "Gruß\n--x--\n"
    )
    result = read(content.encode("shift_jis", "xmlcharrefreplace"), "a.eml")
    assert (result.title, [member.name for member in result.members]) == ("見積書", ["見積書.txt"])


# -- mailboxes


def mailbox(*bodies: str) -> bytes:
    return "\n".join(
        f"From a@example.org Sun Mar  1 09:3{number}:00 2026\nFrom: a{number}@example.org\nSubject: s{number}\n\n{body}\n"
        for number, body in enumerate(bodies)
    ).encode()


def test_every_message_of_a_mailbox_is_a_member(read: Read) -> None:
    result = read(mailbox("one", "two\n\nFrom here on words.\n\n>From there too.", "three"), "a.mbox")
    assert (result.media_type, codes(result)) == ("application/mbox", set())
    assert result.text.splitlines() == [
        f"- s{number}.eml ({member.size} bytes): a{number}@example.org" for number, member in enumerate(result.members)
    ]
    first, second, third = (read(member.path.read_bytes(), member.name) for member in result.members)
    assert (first.media_type, first.text) == ("message/rfc822", "# s0\n\n**From:** a0@example.org  \n\none\n\n")
    assert "From here on words.\n\nFrom there too." in second.text
    assert third.text.endswith("three\n\n")


def test_messages_without_a_subject_and_with_odd_ones_have_names(read: Read) -> None:
    content = (
        mailbox("one", "two").replace(b"Subject: s0\n", b"").replace(b"s1", b"=?utf-8?q?Za=C5=BC=C3=B3=C5=82=C4=87/../x?=")
    )
    assert [member.name for member in read(content, "a.mbox").members] == ["message 1.eml", "Zażółć .. x.eml"]


def test_a_mailbox_of_one_message_is_that_message(read: Read) -> None:
    result = read(mailbox("one"), "a.mbox")
    assert result.text == "# s0\n\n**From:** a0@example.org  \n\none\n\n"


def test_a_line_that_only_looks_like_the_next_message_is_text(read: Read) -> None:
    result = read(mailbox("one\n\nFrom nine to five\nTo: nobody"), "a.mbox")
    assert (result.media_type, "To: nobody" in result.text) == ("message/rfc822", True)


def test_mailboxes_have_the_limits_of_archives(read: Read, refused: Refused) -> None:
    content = mailbox("one", "two", "three")
    assert len(read(content, "a.mbox", Limits(members_max=3)).members) == 3
    assert refused(content, "a.mbox", Limits(members_max=2)).code == "too_large"
    assert refused(content, "a.mbox", Limits(unpacked_max=100)).code == "too_large"
    assert refused(content, "a.mbox", depth=3).code == "too_large"


def test_a_file_of_separators_takes_little_time(refused: Refused) -> None:
    content = mailbox("x") + b"\nFrom a 09:30 2026\nTo: b\n" * 200_000
    assert refused(content, "a.mbox", Limits(seconds_max=10)).code == "too_large"
