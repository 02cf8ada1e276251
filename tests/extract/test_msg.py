"""Outlook messages: headers, texts in three forms, attachments, messages in messages, appointments."""

from __future__ import annotations

import struct

import pytest

from chaos.corpus.all import of_sample
from chaos.corpus.old_office import CREATED, message, msg_attachment, msg_tree, workbook
from chaos.corpus.samples import BY_LANGUAGE, SAMPLES, Sample
from fairlane.extract import Limits
from fairlane.extract.ole_writer import write_ole

from .conftest import Read, Refused, codes

SAMPLE = BY_LANGUAGE["en"]


def msg(more: dict[str, object] | None = None, **texts: str) -> bytes:
    return write_ole(message(SAMPLE, more=more, **texts))  # type: ignore[arg-type]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.language)
def test_messages_of_every_language(read: Read, sample: Sample) -> None:
    result = read(of_sample(sample)[f"{sample.language}.msg"], "a.msg")
    assert (result.media_type, result.warnings) == ("application/vnd.ms-outlook", ())
    assert result.text.startswith(
        f"# {sample.title}\n\n**From:** {sample.author} <sender@example.org>  \n**To:** Office <office@example.org>  \n"
        "**Date:** 2026-03-01T08:30:00+00:00  \n\n" + "\n\n".join([sample.paragraph, *sample.items]) + "\n\nAttachments:\n\n"
    )
    assert (result.title, result.language, result.created) == (sample.title, sample.language, "2026-03-01T08:30:00+00:00")
    attached, inner = result.members
    assert (attached.name, attached.path.read_bytes()) == ("a.csv", ";".join(sample.table[0]).encode())
    assert inner.name == f"{sample.items[0]}.msg"
    again = read(inner.path.read_bytes(), inner.name, depth=1)
    assert again.text.startswith(f"# {sample.title}\n\n**From:** {sample.author} <sender@example.org>")
    assert sample.paragraph in again.text
    assert again.created == "2026-03-01T08:30:00+00:00", "numbers are found behind the longer header"


def without_text(**streams: bytes) -> bytes:
    """A message with other forms of its text."""
    tree = message(SAMPLE, more=dict(streams))
    del tree["__substg1.0_1000001F"]
    return write_ole(tree)  # type: ignore[arg-type]


def test_html_where_there_is_no_plain_text(read: Read) -> None:
    page = "<html><head><meta charset=iso-8859-2></head><body><p>zażółć <b>gęślą</b><ul><li>jaźń</ul>".encode("iso-8859-2")
    assert "zażółć gęślą\n\n- jaźń\n" in read(without_text(**{"__substg1.0_10130102": page}), "a.msg").text
    wide = "<p>zażółć</p>".encode("utf-16-le")
    assert "\n\nzażółć\n" in read(without_text(**{"__substg1.0_1013001F": wide}), "a.msg").text


def compressed(rtf: bytes) -> bytes:
    """RTF as Outlook keeps it, every letter as it is; then a reference that is the end."""
    out = b""
    for start in range(0, len(rtf), 8):
        out += b"\0" + rtf[start : start + 8]
    body = out[: len(out)] if len(rtf) % 8 else out
    return struct.pack("<2L4sL", len(body) + 12, len(rtf), b"LZFu", 0) + body


def test_rtf_where_there_is_no_other_text(read: Read) -> None:
    rtf = rb"{\rtf1\ansi\ansicpg1250 za\'bf\'f3\'b3\'e6\par second}"
    assert "zażółć\n\nsecond\n" in read(without_text(**{"__substg1.0_10090102": compressed(rtf.ljust(56))}), "a.msg").text
    plain = struct.pack("<2L4sL", len(rtf) + 12, len(rtf), b"MELA", 0) + rtf
    assert "zażółć\n\nsecond\n" in read(without_text(**{"__substg1.0_10090102": plain}), "a.msg").text


def test_references_into_the_window(read: Read) -> None:
    """The first eleven letters come from what the window holds at first; six letters become twelve out of themselves."""
    written = 207 + 11 + 7
    body = b"\x01" + struct.pack(">H", 0 << 4 | 9) + b" words "
    body += b"\x03" + struct.pack(">H", (written - 6) << 4 | 10) + struct.pack(">H", (written + 12) << 4)
    content = struct.pack("<2L4sL", len(body) + 12, 0, b"LZFu", 0) + body
    assert "words words words" in read(without_text(**{"__substg1.0_10090102": content}), "a.msg").text


def test_the_window_goes_round(read: Read) -> None:
    rtf = rb"{\rtf1 " + b"".join(b"word%04d " % number for number in range(700))
    literal = b"".join(b"\0" + rtf[start : start + 8] for start in range(0, len(rtf) // 8 * 8, 8))
    written = 207 + len(rtf) // 8 * 8
    body = literal + b"\x03" + struct.pack(">H", (written - 9) % 4_096 << 4 | 7) + struct.pack(">H", (written + 9) % 4_096 << 4)
    content = struct.pack("<2L4sL", len(body) + 12, 0, b"LZFu", 0) + body
    again = rtf[: len(rtf) // 8 * 8][-9:].decode()
    assert read(without_text(**{"__substg1.0_10090102": content}), "a.msg").text.rstrip().endswith((again + again).strip())


def test_texts_of_one_byte_a_letter(read: Read) -> None:
    tree = msg_tree({}, {0x3FFD: (3, 1250)}, 32) | {"__substg1.0_1000001E": "zażółć gęślą".encode("cp1250")}
    assert "zażółć gęślą" in read(write_ole(tree), "a.msg").text  # type: ignore[arg-type]
    tree = msg_tree({}, {}, 32) | {"__substg1.0_1000001E": "zażółć gęślą jaźń".encode()}
    assert "zażółć gęślą jaźń" in read(write_ole(tree), "a.msg").text  # type: ignore[arg-type]


def test_recipients_by_kind(read: Read) -> None:
    people: dict[str, object] = {
        f"__recip_version1.0_#{number:08X}": msg_tree({0x3001: name, 0x3003: address}, {0x0C15: (3, kind)}, 8)
        for number, (name, address, kind) in enumerate(
            [("A", "a@example.org", 1), ("b@example.org", "b@example.org", 1), ("C", "/o=x/cn=c", 2), ("D", "d@example.org", 3)]
        )
    }
    text = read(msg(people), "a.msg").text
    assert "**To:** A <a@example.org>, b@example.org  \n**Cc:** C  \n" in text
    assert "D" not in text.partition("**Date")[0].partition("**Cc")[2]
    tree = {name: content for name, content in message(SAMPLE, _0E04="Somebody").items() if not name.startswith("__recip")}
    assert "**To:** Somebody  \n" in read(write_ole(tree), "a.msg").text  # type: ignore[arg-type]


def test_a_document_that_was_put_into_a_message(read: Read) -> None:
    """An object comes out as the file that it is."""
    sheet: dict[str, object] = {"Workbook": workbook({"a": [("words", 2.0)]})}
    (member,) = read(msg({"__attach_version1.0_#00000000": msg_attachment("prices", sheet, method=6)}), "a.msg").members
    assert member.name == "prices"
    assert "| words | 2 |" in read(member.path.read_bytes(), member.name).text


def test_files_elsewhere_are_not_fetched(read: Read) -> None:
    result = read(msg({"__attach_version1.0_#00000000": msg_attachment("//server/a.doc", b"", method=7)}), "a.msg")
    assert result.members == ()
    assert codes(result) == {"references_ignored"}
    assert result.text.endswith("Attachments:\n\n- //server/a.doc\n")


def test_messages_in_messages_end_at_their_depth(read: Read) -> None:
    content = of_sample(SAMPLE)["en.msg"]
    result = read(content, "a.msg", depth=Limits().depth_max)
    assert result.members == ()
    assert codes(result) == {"members_skipped"}


APPOINTMENT = bytes.fromhex("0220060000000000c000000000000046")


def appointment(kind: str) -> bytes:
    entries = (
        struct.pack("<LHH", 0x820D, 3 << 1, 0) + struct.pack("<LHH", 0x8208, 3 << 1, 1) + struct.pack("<LHH", 0x820D, 1, 2)
    )
    names = {"__substg1.0_00020102": APPOINTMENT, "__substg1.0_00030102": entries, "__substg1.0_00040102": b""}
    fixed = {0x39: (0x40, CREATED), 0x8000: (0x40, CREATED + 36_000_000_000), 0x8002: (0x40, 1)}
    tree = msg_tree({0x37: "Meeting", 0x1A: kind, 0x8001: "Room 7", 0x3A1C: "+48 1"}, fixed, 32, {"__nameid_version1.0": names})
    return write_ole(tree)  # type: ignore[arg-type]


def test_appointments_and_contacts(read: Read) -> None:
    text = read(appointment("IPM.Appointment"), "a.msg").text
    assert (
        "# Meeting\n\n**Date:** 2026-03-01T08:30:00+00:00  \n**Start:** 2026-03-01T09:30:00+00:00  \n**Location:** Room 7  \n"
        in text
    )
    assert "**Mobile:** +48 1  \n" in read(appointment("IPM.Contact"), "a.msg").text
    assert "Room 7" not in read(appointment("IPM.Note"), "a.msg").text


def test_damaged_properties(read: Read, refused: Refused) -> None:
    tree = message(SAMPLE)
    tree["__properties_version1.0"] = bytes(37)
    assert SAMPLE.paragraph in read(write_ole(tree), "a.msg").text  # type: ignore[arg-type]
    broken = without_text(**{"__substg1.0_10090102": b"words"})
    assert refused(broken, "a.msg").code == "corrupt"
