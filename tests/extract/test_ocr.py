"""OCR of pages as scanners and cameras make them: turned, askew, pale, with grain; and how sure it says it is."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageFilter

from chaos.corpus.others import make_image
from chaos.corpus.pdf import make_pdf, make_scan
from chaos.corpus.scans import BY_LANGUAGE, DEFECTS, Letter, draw_page, draw_receipt, recall, skewed, turned, words_of
from fairlane.extract import Limits
from fairlane.extract.language import guess
from fairlane.extract.scan import even_out, find_lines, straighten
from tests.system import LANGUAGES

from .conftest import Read, codes

DPI = 150  # smaller pages than usual take less time
Spy = Callable[[], list[str]]


@pytest.fixture
def tesseract(program: Callable[[str], str]) -> None:
    for name in ("tesseract", *LANGUAGES):
        program(name)


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The languages of each reading, in their order; `osd` where only the orientation was looked for."""
    used: list[str] = []
    run = subprocess.run

    def spy(command: list[str], **options: Any) -> object:
        if "-l" in command:
            used.append(command[command.index("-l") + 1])
        return run(command, **options)

    monkeypatch.setattr(subprocess, "run", spy)
    return used


def page_of(language: str, defect: str = "clean") -> bytes:
    return make_image(DEFECTS[defect](draw_page(BY_LANGUAGE[language], DPI)), "PNG")


@pytest.mark.usefixtures("tesseract")
@pytest.mark.parametrize(
    ("language", "defect"),
    [
        ("eng", "skewed by -5°"),
        ("pol", "turned by 180°"),
        ("por", "turned by 90°, skewed by 3°"),
        ("spa", "low contrast"),
        ("deu", "noisy"),
    ],
)
def test_pages_with_a_defect_are_read_as_clean_ones(read: Read, language: str, defect: str) -> None:
    result = read(page_of(language, defect), "a.png", Limits())
    assert recall(BY_LANGUAGE[language].words, result.text) > 0.9
    assert (result.ocr_confidence or 0) >= 0.8  # below that it would be a warning
    assert codes(result) == {"ocr_used"}


@pytest.mark.usefixtures("tesseract")
def test_a_receipt_is_read(read: Read) -> None:
    receipt = BY_LANGUAGE["por"]
    result = read(make_image(draw_receipt(receipt), "JPEG", quality=85), "a.jpg", Limits())
    assert recall(words_of("\n".join(receipt.receipt)), result.text) > 0.9


@pytest.mark.usefixtures("tesseract")
def test_small_letters_are_read(read: Read) -> None:
    result = read(make_image(draw_page(BY_LANGUAGE["deu"], 65), "PNG"), "a.png", Limits())
    assert recall(BY_LANGUAGE["deu"].words, result.text) > 0.9


@pytest.mark.usefixtures("tesseract")
def test_a_clean_page_is_read_once(read: Read, readings: list[str]) -> None:
    result = read(page_of("eng"), "a.png", Limits(ocr_languages=("eng",)))
    assert readings == ["eng"]
    assert recall(BY_LANGUAGE["eng"].words, result.text) > 0.98


@pytest.mark.usefixtures("tesseract")
def test_pages_after_a_turned_one_are_turned_at_once(read: Read, readings: list[str]) -> None:
    page = turned(180)(draw_page(BY_LANGUAGE["eng"], DPI))
    result = read(make_image(page, "TIFF", save_all=True, append_images=[page]), "a.tiff", Limits(ocr_languages=("eng",)))
    assert readings == ["eng", "osd", "eng", "eng"], "noise, which way up it is, the first page, the second page"
    assert all(recall(BY_LANGUAGE["eng"].words, result.text_of(number)) > 0.9 for number in (0, 1))


@pytest.mark.usefixtures("tesseract")
@pytest.mark.parametrize("degrees", [90, 180])
def test_pages_are_turned_without_the_model_for_it(
    read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, degrees: int
) -> None:
    models = tmp_path / "models"
    models.mkdir()
    shown = subprocess.run(["tesseract", "--list-langs"], capture_output=True, text=True, check=True).stdout
    (models / "eng.traineddata").symlink_to(Path(shown.split('"')[1]) / "eng.traineddata")
    monkeypatch.setenv("TESSDATA_PREFIX", str(models))
    page = turned(degrees)(draw_page(BY_LANGUAGE["eng"], DPI))
    result = read(make_image(page, "PNG"), "a.png", Limits(ocr_languages=("eng",)))
    assert recall(BY_LANGUAGE["eng"].words, result.text) > 0.9


@pytest.mark.usefixtures("tesseract")
def test_a_page_in_another_language_than_those_before_is_read_in_all(read: Read, readings: list[str]) -> None:
    pages = [draw_page(BY_LANGUAGE[language], DPI) for language in ("eng", "spa")]
    limits = Limits(ocr_languages=("eng", "spa"))
    result = read(make_image(pages[0], "TIFF", save_all=True, append_images=pages[1:]), "a.tiff", limits)
    assert readings == ["eng+spa", "eng", "eng+spa"]
    assert recall(BY_LANGUAGE["spa"].words, result.text_of(1)) > 0.95


@pytest.mark.usefixtures("tesseract")
def test_a_page_that_it_is_not_sure_of_is_a_warning(read: Read) -> None:
    page = draw_page(BY_LANGUAGE["eng"], 70).filter(ImageFilter.GaussianBlur(1.4))
    result = read(make_image(page, "PNG"), "a.png", Limits(ocr_languages=("eng",)))
    assert 0 < (result.ocr_confidence or 0) < 0.8
    assert codes(result) == {"ocr_used", "ocr_unsure"}


@pytest.mark.usefixtures("tesseract")
def test_how_sure_it_is_stands_in_the_facts_of_each_page(read: Read) -> None:
    page = draw_page(Letter("eng", BY_LANGUAGE["eng"].paragraphs[:2], ()), 100)
    facts = read(make_scan(page), "a.pdf", Limits(ocr_languages=("eng",))).facts()
    assert isinstance(facts["pages"], list)
    assert facts["ocr_confidence"] == facts["pages"][0]["ocr_confidence"]
    assert isinstance(facts["ocr_confidence"], float)
    assert 0.9 < facts["ocr_confidence"] <= 1


def test_text_that_was_not_recognised_has_no_such_figure(read: Read) -> None:
    result = read(make_pdf([["words"]]), "a.pdf", Limits())
    assert (result.ocr_confidence, result.pages[0].ocr_confidence) == (None, None)


@pytest.mark.parametrize("degrees", [-11, -3, -0.75, 0, 1, 4.5, 11])
@pytest.mark.parametrize("turn", [0, 90])
def test_the_skew_of_lines_is_found_within_a_quarter_of_a_degree(degrees: float, turn: int) -> None:
    page = turned(turn)(skewed(degrees)(draw_page(BY_LANGUAGE["deu"], 100)))
    lines = find_lines(page)
    assert lines.is_clear
    assert lines.is_down == (turn == 90)
    assert abs(lines.skew - degrees) <= 0.25


def test_a_photo_has_no_lines_and_a_clean_page_is_not_touched() -> None:
    photo = Image.effect_mandelbrot((800, 600), (-2, -1.5, 1, 1.5), 60)
    assert straighten(photo, find_lines(photo)) is photo
    page = draw_page(BY_LANGUAGE["eng"], 100)
    assert even_out(page) is page


@pytest.mark.usefixtures("tesseract")
def test_black_letters_on_nothing_are_read_as_on_white(read: Read) -> None:
    page = draw_page(Letter("eng", BY_LANGUAGE["eng"].paragraphs[:1], ()), DPI)
    clear = Image.new("LA", page.size, (0, 0))
    clear.putalpha(page.point(lambda value: 255 - value))
    assert "delivery" in read(make_image(clear, "PNG"), "a.png", Limits(ocr_languages=("eng",))).text


@pytest.mark.parametrize("letter", BY_LANGUAGE.values(), ids=lambda letter: letter.language)
def test_the_language_of_each_letter_is_found(letter: Letter) -> None:
    names = {"eng": "en", "pol": "pl", "por": "pt", "spa": "es", "deu": "de"}
    assert guess("\n".join(letter.paragraphs)) == names[letter.language]
