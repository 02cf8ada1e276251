"""What a file is taken for where its beginning could be several things."""

from __future__ import annotations

import io
import struct
import wave
from collections.abc import Callable

import pytest
from PIL import Image

from chaos.corpus.others import make_image

from .conftest import Read, Refused

PAGE = "<h1>Words</h1>\n\nof *several* <b>kinds</b>\n"


@pytest.mark.parametrize(
    ("content", "name", "kind"),
    [
        (PAGE, "a.md", "text/markdown"),
        ("<!-- about -->\n<p align=center>\n\n# Words\n", "a.markdown", "text/markdown"),
        (PAGE, "a", "text/html"),
        (f"<!DOCTYPE html>{PAGE}", "a.md", "text/html"),
        (f"<html><body>{PAGE}", "a.md", "text/html"),
        ("<a: b> and more words", "a.txt", "text/plain"),
        ("<p-name> is a variable", "a", "text/plain"),
        ("<br/>words", "a", "text/html"),
        ("<a\nhref=x>words</a>", "a", "text/html"),
    ],
)
def test_text_that_begins_with_a_tag(read: Read, content: str, name: str, kind: str) -> None:
    result = read(content.encode(), name)
    assert result.media_type == kind
    if kind != "text/html":
        assert result.text == content


def wav(width: int) -> bytes:
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(width)
        sound.setframerate(8_000)
        sound.writeframes(bytes(range(40, 120)) * 400)
    return buffer.getvalue()


BINARY: dict[str, Callable[[], bytes]] = {
    "audio/wav": lambda: wav(1),
    "image/vnd.adobe.photoshop": lambda: b"8BPS\0\1" + bytes(6) + struct.pack(">HIIHH", 3, 20, 20, 8, 3) + b"words" * 9_000,
}


@pytest.mark.parametrize("kind", BINARY)
def test_files_that_are_mostly_text_inside_are_still_unsupported(refused: Refused, kind: str) -> None:
    failure = refused(BINARY[kind](), "a.txt")
    assert (failure.code, failure.detail) == ("unsupported", kind)


def test_a_bitmap_that_is_mostly_text_inside_is_a_picture(read: Read) -> None:
    result = read(make_image(Image.new("RGB", (200, 200), (65, 66, 67)), "BMP"), "a.txt")
    assert (result.media_type, result.width) == ("image/bmp", 200)


@pytest.mark.parametrize("brand", [b"isom", b"qt  ", b"M4A ", b"crx ", b"mif1"])
def test_files_of_boxes_that_are_no_pictures_are_unsupported(refused: Refused, brand: bytes) -> None:
    content = struct.pack(">I4s4sI4s", 20, b"ftyp", brand, 0, b"mp42") + bytes(100)
    assert refused(content, "a.avif").detail.endswith(brand.decode().strip())


def test_numbers_are_no_wide_letters(refused: Refused) -> None:
    numbers = struct.pack("<9000H", *(number % 60 + 1 for number in range(9_000)))
    assert refused(numbers, "a.dat").code == "unsupported"


@pytest.mark.parametrize("text", ["BMW builds cars", "RIFF, a chord", "8BPS of words", "a" * 257 + "ustar 00"])
def test_words_that_begin_like_them_are_text(read: Read, text: str) -> None:
    assert read(text.encode(), "a").text == text


@pytest.mark.parametrize("text", ["one\u2029two", "one\u2028two", "one\u0085two", "\u2029", "\u202etwo", "a\u0301\u0302"])
def test_no_letter_keeps_a_document_from_its_thumbnail(read: Read, text: str) -> None:
    assert read(f"words {text} words".encode(), "a.txt").thumbnail is not None
