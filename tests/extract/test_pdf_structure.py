"""PDFs keep their structure: paragraphs, headings, lists, tables, links and columns, by where things stand on a page."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from .conftest import Read
from .drawing import Sheet, write

SENTENCE = "The goods were sent on Monday, and they should be with you by the end of the week."
PROSE = [
    "The goods were sent on Monday, and they should be with you by the end of",
    "the week. Please check that all of them have arrived, and write to us if",
    "something is missing. We shall answer on the day after, or on Monday.",
]
NARROW = [
    "The goods were sent on Monday, and",
    "they should be with you by the end",
    "of the week. Please check that all",
    "of them have arrived, and write to",
    "us if something is missing.",
]
ROWS = [("item", "pieces", "price"), ("chair", "4", "45.50"), ("table", "1", "320.00"), ("lamp", "12", "19.90")]
ROWS_MARKDOWN = (
    "| item | pieces | price |\n| --- | --- | --- |\n| chair | 4 | 45.50 |\n| table | 1 | 320.00 |\n| lamp | 12 | 19.90 |"
)


def grid(sheet: Sheet, xs: list[float], ys: list[float]) -> Sheet:
    for x in xs:
        sheet.rule(x, ys[0], x, ys[-1])
    for y in ys:
        sheet.rule(xs[0], y, xs[-1], y)
    return sheet


def fill(sheet: Sheet, xs: list[float], y: float, pitch: float, rows: Sequence[tuple[str, ...]] | None = None) -> Sheet:
    for number, row in enumerate(rows or ROWS):
        for x, cell in zip(xs, row, strict=True):
            sheet.text(x, y - number * pitch, cell)
    return sheet


def test_lines_become_paragraphs(read: Read) -> None:
    sheet = Sheet().lines(50, 800, PROSE).lines(50, 740, PROSE)
    paragraph = " ".join(PROSE)
    assert read(sheet.written()).text == f"{paragraph}\n\n{paragraph}"


def test_lines_that_end_early_stay_lines(read: Read) -> None:
    sheet = Sheet().lines(50, 800, ["Acme Ltd", "12 Main Street", "Warsaw"]).lines(50, 700, PROSE)
    assert read(sheet.written()).text.split("\n\n") == ["Acme Ltd\n12 Main Street\nWarsaw", " ".join(PROSE)]


def test_an_indented_line_begins_a_paragraph(read: Read) -> None:
    sheet = Sheet().lines(50, 800, PROSE).text(65, 764, PROSE[0][:66]).lines(50, 752, PROSE[1:])
    assert [block[:9] for block in read(sheet.written()).text.split("\n\n")] == ["The goods", "The goods"]


def test_a_word_parted_by_a_hyphen_becomes_one(read: Read) -> None:
    sheet = Sheet().lines(
        50, 800, ["The goods were sent on Monday, and they should be with you by the mid-", "dle of the week."]
    )
    assert "by the middle of the week." in read(sheet.written()).text


def test_headings_by_size_and_weight_of_their_letters(read: Read) -> None:
    sheet = Sheet().text(50, 800, "Yearly report", 20, "bold").lines(50, 770, PROSE)
    sheet.text(50, 715, "Results", 14).lines(50, 695, PROSE)
    sheet.text(50, 645, "In the north", 10, "bold").lines(50, 632, PROSE)
    lines = read(sheet.written()).text.split("\n")
    assert [line for line in lines if line.startswith("#")] == ["# Yearly report", "## Results", "### In the north"]


def test_levels_hold_for_the_whole_document(read: Read) -> None:
    first = Sheet().text(50, 800, "Turns", 14, "bold").lines(50, 780, PROSE)
    second = Sheet().text(50, 800, "Handbook", 20, "bold").lines(50, 770, PROSE)
    text = read(write([first, second] + [Sheet().text(50, 800, "Leases", 14).lines(50, 780, PROSE) for _ in range(20)])).text
    assert "# Handbook" in text.split("\n")
    assert "## Turns" in text.split("\n")
    assert text.split("\n").count("## Leases") == 20


def test_bold_sentences_and_labels_are_no_headings(read: Read) -> None:
    sheet = Sheet().text(50, 800, "This sentence is important.", 10, "bold").lines(50, 780, PROSE)
    sheet.text(50, 730, "Total:", 10, "bold").lines(50, 710, PROSE)
    assert "#" not in read(sheet.written()).text


def test_lists_with_bullets_and_numbers(read: Read) -> None:
    sheet = Sheet().lines(50, 800, PROSE)
    sheet.text(60, 750, "\u2022").text(75, 750, "two boxes of paper").text(60, 738, "\u2022").text(75, 738, "a table")
    sheet.text(75, 726, "\u2013 of oak").lines(50, 700, [*PROSE, "1. Weigh it.", "2. Send it."])
    assert read(sheet.written()).text.split("\n\n")[1:] == [
        "- two boxes of paper\n- a table\n  - of oak",
        " ".join(PROSE),
        "1. Weigh it.\n2. Send it.",
    ]


def test_bullets_that_are_drawn(read: Read) -> None:
    sheet = Sheet().lines(50, 800, PROSE)
    for y in (750, 738):
        sheet.draw(f"60 {y + 2} m 60 {y + 4} 63 {y + 4} 63 {y + 2} c 63 {y} 60 {y} 60 {y + 2} c f").text(70, y, f"item at {y}")
    assert read(sheet.written()).text.endswith("- item at 750\n- item at 738")


def test_a_number_that_begins_a_line_by_chance_is_no_item(read: Read) -> None:
    lines = [
        "The goods were sent to the office in Warsaw, and they should be there on",
        "12. March at the latest, unless it snows.",
    ]
    assert read(Sheet().lines(50, 800, lines).written()).text == " ".join(lines)


def test_ruled_tables(read: Read) -> None:
    sheet = fill(Sheet().lines(50, 800, PROSE), [55, 155, 205], 740, 16)
    grid(sheet, [50, 150, 200, 280], [752, 736, 720, 704, 688]).lines(50, 660, PROSE)
    assert read(sheet.written()).text.split("\n\n") == [" ".join(PROSE), ROWS_MARKDOWN, " ".join(PROSE)]


def test_a_grid_drawn_in_one_go(read: Read) -> None:
    sheet = fill(Sheet(), [55, 155, 205], 740, 16)
    ways = [f"50 {y} m 280 {y} l" for y in (752, 736, 720, 704, 688)] + [f"{x} 688 m {x} 752 l" for x in (50, 150, 200, 280)]
    assert read(sheet.draw(" ".join(ways) + " S").written()).text == ROWS_MARKDOWN


def test_cells_of_several_lines_and_columns(read: Read) -> None:
    sheet = (
        Sheet()
        .text(55, 740, "Opening hours of all offices, from May")
        .text(55, 716, "Warsaw")
        .lines(155, 716, ["Monday to", "Friday"])
    )
    sheet.text(55, 688, "Lisbon").text(155, 688, "Tuesday")
    for y in (752, 728, 700, 680):
        sheet.rule(50, y, 280, y)
    for x in (50, 280):
        sheet.rule(x, 680, x, 752)
    sheet.rule(150, 680, 150, 728)
    assert read(sheet.written()).text == (
        "| Opening hours of all offices, from May |  |\n| --- | --- |\n| Warsaw | Monday to Friday |\n| Lisbon | Tuesday |"
    )


def test_tables_without_lines(read: Read) -> None:
    sheet = fill(Sheet().lines(50, 800, PROSE), [50, 150, 200], 740, 14).lines(50, 660, PROSE)
    assert read(sheet.written()).text.split("\n\n") == [" ".join(PROSE), ROWS_MARKDOWN, " ".join(PROSE)]


def test_a_row_written_by_one_operator(read: Read) -> None:
    sheet = Sheet()
    for number, row in enumerate(ROWS):
        cells = " -4000 ".join(f"({cell.ljust(7, '.')})" for cell in row)
        sheet.draw(f"BT /code 10 Tf 50 {740 - 14 * number} Td [{cells}] TJ ET")
    assert read(sheet.written()).text.replace(".", "") == ROWS_MARKDOWN.replace(".", "")


def test_two_pairs_of_words_are_no_table(read: Read) -> None:
    sheet = Sheet().text(50, 800, "Warsaw").text(400, 800, "1 May 2026").text(50, 786, "Office").text(400, 786, "Page 1")
    assert "|" not in read(sheet.lines(50, 740, PROSE).written()).text


def test_columns_are_read_one_after_the_other(read: Read) -> None:
    sheet = Sheet().text(50, 800, "On queues", 20)
    for number, line in enumerate(NARROW * 2):  # as a program that prints row by row writes them
        sheet.text(50, 760 - 12 * number, line).text(300, 760 - 12 * number, line.replace("goods", "parcels"))
    paragraph = " ".join(NARROW)
    expected = f"{paragraph} {paragraph}"
    text = read(sheet.lines(50, 600, [SENTENCE]).written()).text.replace("missing.\nThe", "missing. The")
    assert text.split("\n\n") == ["# On queues", expected, expected.replace("goods", "parcels"), SENTENCE]


def test_links(read: Read) -> None:
    sheet = (
        Sheet()
        .lines(50, 800, PROSE)
        .link(50, 797, 95, 808, "https://example.org/a b")
        .link(50, 785, 300, 796, "javascript:x()")
    )
    text = read(sheet.written()).text
    assert text.startswith("[The goods](https://example.org/a%20b) were sent")
    assert "javascript" not in text


@pytest.mark.parametrize(
    ("rotate", "matrix"),
    [(90, "0 1 -1 0 595 0 cm"), (270, "0 -1 1 0 0 842 cm"), (180, "-1 0 0 -1 595 842 cm"), (0, "0.5 0 0 0.5 0 0 cm")],
)
def test_turned_and_scaled_pages(read: Read, rotate: int, matrix: str) -> None:
    sheet = fill(Sheet(rotate, matrix).text(50, 540, "Prices", 20), [55, 155, 205], 440, 16)
    grid(sheet, [50, 150, 200, 280], [452, 436, 420, 404, 388]).lines(50, 360, PROSE)
    assert read(sheet.written()).text.split("\n\n") == ["# Prices", ROWS_MARKDOWN, " ".join(PROSE)]


def test_code_keeps_its_lines_and_indents(read: Read) -> None:
    code = ["def measure(count):", "for number in range(count):", "submit(number)"]
    sheet = Sheet().lines(50, 800, PROSE * 3)
    for depth, line in enumerate(code):
        sheet.text(50 + 24 * depth, 670 - 12 * depth, line, font="code")
    assert (
        "```\ndef measure(count):\n    for number in range(count):\n        submit(number)\n```" in read(sheet.written()).text
    )


def test_text_that_runs_aslant_or_across_comes_last(read: Read) -> None:
    sheet = Sheet().draw("BT /text 40 Tf 0.7 0.7 -0.7 0.7 100 300 Tm (DRAFT) Tj ET").lines(50, 800, PROSE)
    assert read(sheet.written()).text == f"{' '.join(PROSE)}\n\nDRAFT"


def words(text: str) -> list[str]:
    return sorted(re.findall(r"\w+", text))


def test_no_word_is_lost_or_comes_twice(read: Read) -> None:
    sheet = Sheet().text(50, 810, "On queues", 20).lines(50, 780, PROSE)
    for number, line in enumerate(NARROW):
        sheet.text(50, 730 - 12 * number, line).text(300, 733 - 12 * number, line)
    grid(fill(sheet, [55, 155, 205], 640, 16), [50, 150, 200, 280], [652, 636, 620, 604, 588])
    sheet.text(40, 560, "words across the side of a table").rule(60, 580, 60, 540).rule(30, 570, 300, 570).rule(
        30, 550, 300, 550
    )
    sheet.rule(100, 580, 100, 540).text(35, 560, "overprinted")
    expected = words(" ".join(["On queues", *PROSE, *NARROW, *NARROW, *(" ".join(row) for row in ROWS)]))
    expected += words("words across the side of a table overprinted")
    assert words(read(sheet.written()).text.replace("---", "")) == sorted(expected)
