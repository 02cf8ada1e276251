"""PDFs made to keep layout busy: each is read within its limits, and what is too much for layout is read as text."""

from __future__ import annotations

import pytest

from fairlane.extract import Limits
from fairlane.extract.pdf_lines import CHARACTERS_MAX, LINES_MAX
from fairlane.extract.pdf_links import LINKS_MAX
from fairlane.extract.pdf_rules import OBJECTS_MAX

from .conftest import Read, Refused
from .drawing import Sheet, write
from .test_pdf_structure import PROSE, ROWS_MARKDOWN, fill, grid

SECONDS_MAX = 10.0  # for a page that takes half of one


def crossed(count: int) -> Sheet:
    """A page of lines across and along that all meet."""
    sheet = Sheet()
    for number in range(count):
        at = 50 + number * 500 / count
        sheet.rule(50, at, 550, at).rule(at, 50, at, 550)
    return sheet


def scattered(count: int) -> Sheet:
    """Words with gaps between them in every row, none below another."""
    sheet = Sheet()
    for number in range(count):
        sheet.text(20 + number * 37 % 500, 820 - number * 13 % 797, f"w{number}", 6)
    return sheet


def one_line(count: int) -> Sheet:
    return Sheet().draw("BT /text 1 Tf 20 800 Td " + " ".join("(a b) Tj 3 0 Td" for _ in range(count)) + " ET")


def nested(count: int) -> Sheet:
    """Boxes in boxes, each with a word."""
    sheet = Sheet()
    for number in range(count):
        sheet.draw(f"{number} {number} {590 - 2 * number} {800 - 2 * number} re S").text(number + 1, number + 2, "x", 1)
    return sheet


def misaligned(count: int) -> Sheet:
    """Rows of two words with a gap that all share, but no side or middle that they share."""
    sheet = Sheet()
    for number in range(count):
        sheet.text(20 + number * 37 % 200, 838 - number * 0.2, "a", 0.1).text(
            300 + number * 53 % 250, 838 - number * 0.2, "b", 0.1
        )
    return sheet


def overlinked() -> Sheet:
    sheet = Sheet().lines(20, 838, ["word " * 15] * 700, 1, leading=1.1)
    for _ in range(LINKS_MAX):
        sheet.link(0, 0, 590, 842, "https://example.org/")
    return sheet


def separate_grids(count: int) -> Sheet:
    sheet = scattered(800)
    for number in range(count):
        grid(sheet, [(x := 5 + number % 30 * 19), x + 5, x + 10], [(y := 5 + number // 30 * 19), y + 5, y + 10])
    return sheet


@pytest.mark.parametrize(
    "sheet",
    [
        crossed(240),
        crossed(2_000),
        scattered(2_500),
        one_line(4_000),
        nested(280),
        misaligned(3_900),
        overlinked(),
        separate_grids(300),
        Sheet().draw("0 0 m " + "9 9 l 300 9 l " * 50_000 + "S"),
    ],
    ids=["grid", "too many lines", "scattered", "one line", "boxes in boxes", "misaligned", "links", "grids", "long path"],
)
def test_pages_that_keep_layout_busy(read: Read, sheet: Sheet) -> None:
    read(sheet.lines(50, 30, PROSE, 5).written(), limits=Limits(ocr_pages_max=0, thumbnail_side=0, seconds_max=SECONDS_MAX))


def test_a_page_of_too_many_characters_is_its_text(read: Read) -> None:
    lines = ["many words " * 20] * (CHARACTERS_MAX // 200)
    text = read(Sheet().text(50, 830, "Title", 20).lines(5, 820, lines, 1).written()).text
    assert text.startswith("Title\nmany words")
    assert text.count("words") == 20 * len(lines)


def test_a_page_of_too_many_lines_is_its_text(read: Read) -> None:
    sheet = Sheet().text(50, 830, "Title", 20).lines(5, 820, ["a"] * LINES_MAX, 0.1)
    assert read(sheet.written()).text == "\n".join(["Title", *"a" * LINES_MAX])


def test_a_drawing_of_too_many_objects_has_no_tables(read: Read) -> None:
    sheet = fill(Sheet(), [55, 155], 740, 16, [("one", "two"), ("five", "six")])
    grid(sheet, [50, 150, 200], [752, 736, 720]).draw("0 0 1 1 re f\n" * OBJECTS_MAX)
    assert "|" not in read(sheet.written(), limits=Limits(ocr_pages_max=0, thumbnail_side=0)).text


def test_links_beyond_the_limit_stay_text(read: Read) -> None:
    sheet = Sheet().lines(50, 800, PROSE)
    for _ in range(LINKS_MAX):
        sheet.link(0, 0, 10, 10, "https://example.org/")
    assert read(sheet.link(50, 797, 95, 808, "https://example.org/").written()).text == " ".join(PROSE)


def test_time_and_cells_are_counted(refused: Refused) -> None:
    sheet = grid(fill(Sheet(), [55, 155, 205], 740, 16), [50, 150, 200, 280], [752, 736, 720, 704, 688])
    assert refused(sheet.written(), limits=Limits(cells_max=11, ocr_pages_max=0)).code == "too_large"
    assert refused(write([sheet] * 30), limits=Limits(seconds_max=0.001, ocr_pages_max=0)).code == "timed_out"


def test_text_of_pages_that_wait_counts(refused: Refused) -> None:
    sheets = [Sheet().lines(50, 800, PROSE) for _ in range(10)]
    assert refused(write(sheets), limits=Limits(text_max=1_000, ocr_pages_max=0)).code == "too_large"


def test_text_from_right_to_left_is_left_as_it_is(read: Read) -> None:
    from chaos.corpus.pdf import make_pdf

    assert read(make_pdf([["שלום עולם", "one two"]])).text.split("\n")[1] == "one two"


def test_letters_of_no_size_and_places_beyond_the_page(read: Read) -> None:
    sheet = Sheet().draw("BT /text 0 Tf 50 50 Td (none) Tj ET BT /text 9 Tf 1e30 1e30 Td (far) Tj ET").lines(50, 800, PROSE)
    sheet.draw("BT /text 10 Tf 1e9 0 0 1e-9 0 0 Tm (wide) Tj ET 1e30 1e30 m 3e38 1e30 l S 0 0 m 1e-30 1e30 l S")
    assert " ".join(PROSE) in read(sheet.written()).text


def test_a_table_goes_on_while_pages_wait(read: Read) -> None:
    sheet = grid(fill(Sheet(), [55, 155, 205], 740, 16), [50, 150, 200, 280], [752, 736, 720, 704, 688])
    result = read(write([sheet] * 20))
    assert [result.text_of(number).strip() for number in range(20)] == [ROWS_MARKDOWN] * 20
