"""Images and scans: how they are looked at, and what is read from them."""

from __future__ import annotations

import io
import struct
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from chaos.corpus.all import corpus
from chaos.corpus.others import HEIC, draw, make_image
from chaos.corpus.pdf import make_pdf, make_scan
from chaos.corpus.samples import BY_LANGUAGE, Sample
from fairlane.extract import Limits, Unreadable, image
from fairlane.extract.pdf import parse_pdf_date
from fairlane.extract.thumbnail import font
from tests.conftest import missing
from tests.system import LANGUAGES

from .conftest import Read, Refused, codes


@pytest.fixture
def tesseract(program: Callable[[str], str]) -> None:
    for name in ("tesseract", *LANGUAGES):
        program(name)


@pytest.fixture
def no_tesseract(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")


def test_an_image_stands_as_it_is_looked_at(read: Read) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    exif[0x010E], exif[0x013B], exif[0x0132] = "Łódź".encode(), "Zoë".encode(), "2026:03:01 09:30:00"
    image = Image.new("RGB", (100, 40), "red")
    image.paste("blue", (0, 0, 50, 40))
    result = read(make_image(image, "JPEG", exif=exif), "a.jpg")
    assert (result.width, result.height) == (40, 100)
    assert (result.title, result.author, result.modified) == ("Łódź", "Zoë", "2026-03-01T09:30:00")
    assert result.thumbnail is not None
    with Image.open(io.BytesIO(result.thumbnail)) as small:
        assert small.size == (40, 100)
        red, _, blue = small.getpixel((20, 10))  # type: ignore[misc]
        assert blue > red, "what was left is on top"
        assert small.info == {}


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16", "CMYK"])
def test_images_of_every_mode_have_a_thumbnail(read: Read, mode: str) -> None:
    kind = "TIFF" if mode in ("I;16", "CMYK") else "PNG"
    result = read(make_image(Image.new(mode, (700, 300)), kind), "a")
    assert result.thumbnail is not None
    with Image.open(io.BytesIO(result.thumbnail)) as small:
        assert small.size == (256, 110)


@pytest.mark.parametrize("name", ["pl.pdf", "pl.txt", "picture.png"])
def test_there_is_no_thumbnail_where_none_is_wanted(read: Read, name: str) -> None:
    assert read(corpus()[name], name, Limits(thumbnail_side=0, ocr_pages_max=0)).thumbnail is None


def test_an_animation_is_one_page(read: Read) -> None:
    frames = [Image.new("L", (20, 20), shade) for shade in (0, 100, 200)]
    assert len(read(make_image(frames[0], "GIF", save_all=True, append_images=frames[1:]), "a.gif").pages) == 1


def test_a_picture_of_a_phone(read: Read) -> None:
    if find_spec("pi_heif") is None:
        missing("pi-heif is not installed, so pictures of phones (HEIC) cannot be tested; make installs it")
    result = read(HEIC, "a.heic")
    assert (result.media_type, result.width, result.height, codes(result)) == ("image/heic", 160, 60, {"no_text"})
    with pytest.raises(Unreadable, match="too_large"):
        read(HEIC, "a.heic", Limits(pixels_max=9_599, ocr_pages_max=0))


def test_without_its_decoder_heic_is_unsupported(refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image, "HEIC_DECODERS", ("no_such_module",))
    image.heic_decoder.cache_clear()
    try:
        failure = refused(HEIC, "a.heic")
    finally:
        image.heic_decoder.cache_clear()
    assert (failure.code, failure.detail) == ("unsupported", "image/heic; its decoder is not installed, see the extra `heic`")


@pytest.mark.parametrize("kind", ["BMP", "JPEG2000", "AVIF"])
def test_pixels_of_other_pictures_are_limited_too(read: Read, refused: Refused, kind: str) -> None:
    content = make_image(Image.new("L", (200, 200)), kind)
    assert refused(content, "a", Limits(pixels_max=39_999, ocr_pages_max=0)).code == "too_large"
    assert read(content, "a", Limits(pixels_max=40_000, ocr_pages_max=0)).width == 200


def test_a_jpeg_2000_without_its_box_is_one(read: Read) -> None:
    result = read(make_image(Image.new("RGB", (30, 20), "red"), "JPEG2000", no_jp2=True), "a.j2k")
    assert (result.media_type, result.width, result.warnings[0].code) == ("image/jp2", 30, "no_text")


def test_a_jpeg_2000_that_says_it_is_small_is_corrupt(refused: Refused) -> None:
    content = bytearray(make_image(Image.new("L", (4_000, 4_000)), "JPEG2000"))
    position = content.index(b"ihdr") + 4
    content[position : position + 8] = struct.pack(">II", 100, 100)
    assert refused(bytes(content), "a.jp2").code == "corrupt"


def test_too_many_pages_of_a_tiff(refused: Refused) -> None:
    pages = [Image.new("1", (8, 8)) for _ in range(5)]
    content = make_image(pages[0], "TIFF", save_all=True, append_images=pages[1:])
    assert refused(content, "a.tiff", Limits(pages_max=4, ocr_pages_max=0)).code == "too_many_pages"


def test_pixels_are_limited_before_they_are_decoded(refused: Refused) -> None:
    content = make_image(Image.new("L", (200, 200)), "PNG")
    assert refused(content, "a.png", Limits(pixels_max=39_999, ocr_pages_max=0)).code == "too_large"


def test_the_second_page_of_a_tiff_is_limited_too(refused: Refused) -> None:
    pages = [Image.new("L", (20, 20)), Image.new("L", (300, 300))]
    content = make_image(pages[0], "TIFF", save_all=True, append_images=pages[1:])
    assert refused(content, "a.tiff", Limits(pixels_max=50_000, ocr_pages_max=0)).code == "too_large"


@pytest.mark.usefixtures("no_tesseract")
@pytest.mark.parametrize("name", ["a.png", "a.pdf"])
def test_without_the_program_that_is_a_warning(read: Read, name: str) -> None:
    image = draw(["Hello"])
    result = read(make_scan(image) if name == "a.pdf" else make_image(image, "PNG"), name, Limits())
    assert result.text == ""
    assert codes(result) == {"ocr_missing", "no_text"}


@pytest.mark.usefixtures("no_tesseract")
def test_pages_with_text_need_no_program(read: Read) -> None:
    assert codes(read(make_pdf([["words"]]), "a.pdf", Limits())) == set()


def test_blank_pages_count_and_take_no_room(read: Read) -> None:
    result = read(make_pdf([["one"], [], ["two"]]), "a.pdf")
    assert result.text == "one\n\ntwo"
    assert [result.text_of(number).strip() for number in range(3)] == ["one", "", "two"]


def test_a_blank_page_is_no_scan(read: Read) -> None:
    assert codes(read(make_pdf([["words"], []]), "a.pdf", Limits())) == set()


@pytest.mark.usefixtures("tesseract")
@pytest.mark.parametrize(
    ("language", "name"), [("en", "a.png"), ("pl", "a.pdf"), ("pt", "a.png"), ("es", "a.pdf"), ("de", "a.png")]
)
def test_scans_are_read_in_five_languages(read: Read, language: str, name: str) -> None:
    words = BY_LANGUAGE[language].paragraph.split()[:12]
    image = draw([" ".join(words[:6]), " ".join(words[6:])], (1000, 160))
    codes_of = {"en": "eng", "pl": "pol", "pt": "por", "es": "spa", "de": "deu"}
    limits = Limits(ocr_languages=(codes_of[language],))
    result = read(_content(image, name), name, limits)
    assert result.text.split() == words
    assert codes(result) == {"ocr_used"}


def _content(image: Image.Image, name: str) -> bytes:
    if name == "a.png":
        return make_image(image, "PNG")
    page = Image.new("RGB", (1240, 1754), "white")
    page.paste(image, (100, 100))
    return make_scan(page)


@pytest.mark.usefixtures("tesseract")
def test_after_the_first_page_only_its_language_is_read(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    languages_used: list[str] = []
    run = subprocess.run

    def spy(command: list[str], **options: Any) -> object:
        languages_used.append(command[command.index("-l") + 1] if "-l" in command else "")
        return run(command, **options)

    monkeypatch.setattr(subprocess, "run", spy)
    words = BY_LANGUAGE["en"].paragraph.split()[:16]
    page = draw([" ".join(words[:8]), " ".join(words[8:])], (1100, 160))
    result = read(make_image(page, "TIFF", save_all=True, append_images=[page]), "a.tiff", Limits(ocr_languages=("deu", "eng")))
    assert [languages for languages in languages_used if languages] == ["deu+eng", "eng"]
    assert result.text_of(0).split() == words == result.text_of(1).split()


@pytest.mark.usefixtures("tesseract")
def test_limits_and_failures_of_reading_pictures_are_reported(
    read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = draw(["Hello"], (200, 80))
    pages = make_image(page, "TIFF", save_all=True, append_images=[page])
    assert "ocr_pages_skipped" in codes(read(pages, "a.tiff", Limits(ocr_pages_max=1, ocr_languages=("eng",))))
    assert "ocr_language_missing" in codes(read(pages, "a.tiff", Limits(ocr_languages=("xxx",))))
    assert "ocr_failed" in codes(read(pages, "a.tiff", Limits(ocr_page_seconds=0.001, ocr_languages=("eng",))))
    broken = tmp_path / "tesseract"
    broken.write_text('#!/bin/sh\n[ "$1" = --list-langs ] && echo "List:" && echo eng || exit 1\n')
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "ocr_failed" in codes(read(pages, "a.tiff", Limits(ocr_languages=("eng",))))


@pytest.mark.parametrize(
    ("date", "iso"),
    [
        ("D:20260301093000+01'00'", "2026-03-01T09:30:00+01:00"),
        ("D:20260301093000Z", "2026-03-01T09:30:00+00:00"),
        ("D:2026", "2026-01-01T00:00:00"),
        ("yesterday", ""),
    ],
)
def test_dates_of_pdfs(date: str, iso: str) -> None:
    assert parse_pdf_date(date) == iso


@pytest.mark.parametrize("sample", BY_LANGUAGE.values(), ids=lambda sample: sample.language)
def test_the_font_that_the_package_carries_has_the_letters_of_five_languages(sample: Sample) -> None:
    no_letter = bytes(font().getmask("\u0378"))
    letters = {letter for text in (sample.title, sample.paragraph) for letter in text + text.upper() if not letter.isspace()}
    assert [letter for letter in sorted(letters) if bytes(font().getmask(letter)) == no_letter] == []
