"""Text layers of PDFs that are not what the page shows: they are read by OCR, and left alone where they only look garbled."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from chaos.corpus.pdf import Pdf
from chaos.corpus.samples import SAMPLES
from chaos.corpus.scans import BY_LANGUAGE, Letter, recall, words_of
from fairlane.extract import Limits
from fairlane.extract.garbled import agree, is_garbled
from tests.system import LANGUAGES

from .conftest import NO_OCR, Read, codes

TEXTS = {letter.language: "\n".join(letter.paragraphs) for letter in BY_LANGUAGE.values()}
OTHERS = {
    "Czech": "Zpráva o dodání. Vážená paní, děkujeme za Vaši objednávku. Jedenáct z dvanácti balíků opustilo v úterý náš "
    "sklad a mělo by dorazit před koncem týdne. Prst, krk, vlk a smrt jsou slova bez samohlásek.",
    "Vietnamese": "Thông báo giao hàng. Kính gửi bà, cảm ơn bà đã đặt hàng. Mười một trong số mười hai kiện hàng đã rời kho "
    "của chúng tôi vào thứ Ba và sẽ đến trước cuối tuần.",
    "Russian": "Извещение о доставке. Уважаемая госпожа, благодарим Вас за заказ. Одиннадцать посылок покинули наш склад.",
    "Japanese": "納品のお知らせ。ご注文いただきありがとうございます。十二個のうち十一個の荷物が火曜日に倉庫を出ました。" * 4,
    "numbers": "\n".join(f"{number:05d} {number * 17 % 1000},{number % 100:02d} PLN 23% szt." for number in range(80)),
    "code": Path(__file__).read_text(encoding="utf-8"),
    "contents": "\n".join(f"{number} Kapitel {'. ' * 40}{number * 7}" for number in range(1, 30)),
    "a form": "Name: ______________ Date: ____/____/______ [ ] yes [ ] no\n" * 12,
}  # fmt: skip


def shifted(text: str, by: int) -> str:
    """What fonts give whose letters are counted from another number."""
    return "".join(letter if letter.isspace() else chr(max(33, ord(letter) - by)) for letter in text)


@pytest.mark.parametrize("name", [*TEXTS, *OTHERS])
def test_texts_are_not_garbled(name: str) -> None:
    assert not is_garbled({**TEXTS, **OTHERS}[name])


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.language)
def test_short_texts_are_not_garbled(sample: object) -> None:
    assert not is_garbled(str(sample))


@pytest.mark.parametrize("language", TEXTS)
@pytest.mark.parametrize("by", [1, 3, 29, 31, -3])
def test_shifted_letters_are_garbled(language: str, by: int) -> None:
    assert is_garbled(shifted(TEXTS[language], by))


def test_most_shuffled_alphabets_are_garbled() -> None:
    found = 0
    for seed in range(100):
        letters = list("abcdefghijklmnopqrstuvwxyz")
        shuffled = Random(seed).sample(letters, len(letters))
        found += is_garbled(TEXTS["deu"].lower().translate(str.maketrans("".join(letters), "".join(shuffled))))
    assert found >= 70


@pytest.mark.parametrize("language", ["pol", "por", "spa", "deu"])
def test_mixed_up_encodings_are_garbled(language: str) -> None:
    assert is_garbled(TEXTS[language].encode().decode("cp1252", "replace"))
    assert is_garbled(2 * OTHERS["Russian"].encode("cp1251").decode("cp1252"))


def test_texts_agree_by_their_words() -> None:
    assert agree("Total 14 pieces", "total 12 pieces")
    assert not agree("Total 14 pieces", "3URGXNW 14")
    assert not agree("", "words")


def layered(lines: list[str], map_letter: Callable[[str], str], times: int = 1) -> bytes:
    """A PDF that shows these lines and says that its letters are others."""
    pdf = Pdf()
    letters = sorted(set("".join(lines)))
    pairs = "\n".join(f"<{ord(letter):02X}> <{ord(map_letter(letter)):04X}>" for letter in letters)
    table = (
        "/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /F def /CMapType 2 def\n"
        f"1 begincodespacerange <00> <FF> endcodespacerange\n{len(letters)} beginbfchar\n{pairs}\nendbfchar endcmap end end"
    )
    font = pdf.add(
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding /ToUnicode %d 0 R >>"
        % pdf.stream(table.encode())
    )
    shown = "".join(f"<{line.encode('cp1252').hex()}> Tj T*\n" for line in lines)
    content = pdf.stream(f"BT /F 12 Tf 16 TL 50 780 Td\n{shown}ET".encode())
    tree = len(pdf.objects) + times + 1
    pages = [
        pdf.add(
            b"<< /Type /Page /Parent %d 0 R /MediaBox [0 0 595 842] /Contents %d 0 R /Resources << /Font << /F %d 0 R >> >> >>"
            % (tree, content, font)
        )
        for _ in range(times)
    ]
    kids = b" ".join(b"%d 0 R" % page for page in pages)
    pdf.add(b"<< /Type /Pages /Count %d /Kids [%s] >>" % (times, kids))
    return pdf.written(pdf.add(b"<< /Type /Catalog /Pages %d 0 R >>" % tree))


def lines_of(letter: Letter) -> list[str]:
    words = letter.paragraphs[1].split()
    return [" ".join(words[start : start + 10]) for start in range(0, len(words), 10)]


@pytest.fixture
def tesseract(program: Callable[[str], str]) -> None:
    for name in ("tesseract", *LANGUAGES):
        program(name)


@pytest.mark.usefixtures("tesseract")
@pytest.mark.parametrize("language", ["eng", "deu"])
def test_a_garbled_page_is_read_by_ocr(read: Read, language: str) -> None:
    lines = lines_of(BY_LANGUAGE[language])
    content = layered(lines, lambda letter: letter if letter == " " else chr(ord(letter) - 29 if ord(letter) > 61 else 33))
    result = read(content, "a.pdf", Limits())
    assert [tuple(warning) for warning in result.warnings if warning.code != "ocr_used"] == [
        ("text_garbled", "page 1: read by OCR instead")
    ]
    assert recall(words_of(" ".join(lines)), result.text) > 0.9
    assert (result.ocr_confidence or 0) > 0.9


@pytest.mark.usefixtures("tesseract")
def test_a_page_whose_fonts_do_not_say_their_letters_is_read_by_ocr(read: Read) -> None:
    lines = lines_of(BY_LANGUAGE["eng"])
    result = read(layered(lines, lambda letter: chr(0xE000 + ord(letter))), "a.pdf", Limits())
    assert codes(result) == {"text_garbled", "ocr_used"}
    assert recall(words_of(" ".join(lines)), result.text) > 0.9


@pytest.mark.usefixtures("tesseract")
def test_what_only_looks_garbled_stays_as_it_is(read: Read) -> None:
    noise = base64.b64encode(Random(5).randbytes(900)).decode()
    words = [noise[start : start + 6].translate(str.maketrans("01lIO+/", "abcdefg")) for start in range(0, 600, 6)]
    lines = [" ".join(words[start : start + 8]) for start in range(0, len(words), 8)]
    assert is_garbled("\n".join(lines))
    result = read(layered(lines, lambda letter: letter), "a.pdf", Limits(ocr_languages=("eng",)))
    assert result.text.split() == words
    assert codes(result) == set()


def test_without_ocr_garbled_text_stays_with_a_warning(read: Read) -> None:
    content = layered(lines_of(BY_LANGUAGE["eng"]), lambda letter: letter if letter == " " else chr(ord(letter) + 1))
    result = read(content, "a.pdf", NO_OCR)
    assert [tuple(warning) for warning in result.warnings] == [("text_garbled", "page 1")]
    assert "uif" in result.text


def test_a_piece_in_letters_that_are_unknown_is_a_warning(read: Read) -> None:
    lines = [*lines_of(BY_LANGUAGE["eng"]), "0123456789"]
    result = read(layered(lines, lambda letter: chr(0xE100 + ord(letter)) if letter.isdigit() else letter), "a.pdf", NO_OCR)
    assert [tuple(warning) for warning in result.warnings] == [("letters_unknown", "page 1")]
    assert recall(BY_LANGUAGE["eng"].words, result.text) > 0.3


def test_stars_and_bullets_of_private_use_are_no_reason_for_a_warning(read: Read) -> None:
    lines = [*lines_of(BY_LANGUAGE["eng"]), "0000000000000"]
    result = read(layered(lines, lambda letter: chr(0xE100 + ord(letter)) if letter.isdigit() else letter), "a.pdf", NO_OCR)
    assert codes(result) == set()
