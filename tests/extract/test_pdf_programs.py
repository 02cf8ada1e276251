"""Structure of PDFs as LibreOffice, wkhtmltopdf and ReportLab draw them: each test is what one of them does."""

from __future__ import annotations

from chaos.corpus.pdf import Pdf

from .conftest import Read
from .drawing import Sheet
from .test_pdf_structure import PROSE, ROWS, ROWS_MARKDOWN, fill, grid

MORE = " ".join(PROSE)


def blocks(read: Read, sheet: Sheet) -> list[str]:
    return read(sheet.written()).text.split("\n\n")


def test_the_white_page_that_is_drawn_behind_the_text_is_no_table(read: Read) -> None:
    sheet = Sheet().draw("1 1 1 rg 10 300 575 532 re f 0 g").lines(50, 800, PROSE)
    fill(sheet, [55, 155, 205], 740, 16)
    for y in (736, 720, 704, 688):
        sheet.draw(f"10 {y} 140 16 re 150 {y} 50 16 re 200 {y} 385 16 re S")
    assert blocks(read, sheet.lines(50, 600, PROSE)) == [MORE, ROWS_MARKDOWN, MORE]


def test_a_box_around_text_and_table_is_no_row(read: Read) -> None:
    sheet = fill(Sheet().lines(50, 820, PROSE * 3), [55, 155, 205], 640, 16)
    grid(sheet, [50, 150, 200, 280], [652, 636, 620, 604, 588])
    for x in (50, 280):
        sheet.rule(x, 652, x, 835)
    assert blocks(read, sheet.rule(50, 835, 280, 835))[-1] == ROWS_MARKDOWN


def test_columns_hardly_wider_apart_than_words(read: Read) -> None:
    sheet = Sheet().lines(50, 800, PROSE)
    for number, (name, pieces, price) in enumerate(ROWS):
        y = 740 - 14 * number
        sheet.text(50, y, name).text(78, y, pieces).text(113, y, price)
    assert blocks(read, sheet.lines(50, 660, PROSE)) == [MORE, ROWS_MARKDOWN, MORE]


def test_prose_that_is_drawn_word_by_word_is_no_table(read: Read) -> None:
    sheet = Sheet()
    for number, line in enumerate(PROSE):
        x = 50.0
        for word in line.split():
            sheet.text(x, 800 - 12 * number, word)
            x += 5.2 * len(word) + 4
    assert "|" not in read(sheet.written()).text


def test_a_cell_whose_words_go_on_below(read: Read) -> None:
    sheet = fill(Sheet(), [50, 120, 190], 740, 12, [ROWS[0], ("round oak", "4", "45.50")])
    sheet.text(50, 716, "table 12").text(50, 704, "chair").text(120, 704, "1").text(190, 704, "320.00")
    sheet.text(50, 692, "long desk").text(120, 692, "7").text(190, 692, "19.90").text(50, 680, "lamp")
    assert read(sheet.written()).text == (
        "| item | pieces | price |\n| --- | --- | --- |\n| round oak table 12 | 4 | 45.50 |\n| chair | 1 | 320.00 |\n"
        "| long desk lamp | 7 | 19.90 |"
    )


def test_cells_that_stand_between_the_lines_of_others(read: Read) -> None:
    sheet = fill(Sheet(), [50, 120, 190], 760, 20, ROWS[:2])
    sheet.text(50, 726, "round oak").text(120, 720, "1").text(190, 720, "320.00").text(50, 714, "table")
    sheet.text(50, 696, "lamp").text(120, 696, "12").text(190, 696, "19.90")
    assert read(sheet.written()).text == ROWS_MARKDOWN.replace("| table", "| round oak table")


def test_headers_on_another_side_than_their_cells(read: Read) -> None:
    sheet = Sheet().text(50, 740, "item").text(150, 740, "pieces").text(250, 740, "price")
    for number, (name, pieces, price) in enumerate(ROWS[1:]):
        y = 724 - 16 * number
        sheet.text(50, y, name).text(235 - 5.6 * len(pieces), y, pieces).text(330 - 5 * len(price), y, price)
    assert read(sheet.written()).text == ROWS_MARKDOWN


def test_numbers_on_their_own_are_a_list(read: Read) -> None:
    sheet = Sheet().lines(50, 800, PROSE)
    for number, text in enumerate(["Weigh the parcel.", "Write the address.", "Send it."]):
        sheet.text(50, 750 - 18 * number, str(number + 1)).text(70, 750 - 18 * number, text)
    sheet.text(70, 696, "1").text(90, 696, "By post.").text(70, 678, "2").text(90, 678, "By courier.")
    expected = "1. Weigh the parcel.\n2. Write the address.\n3. Send it.\n  1. By post.\n  2. By courier."
    assert blocks(read, sheet)[-1] == expected


def test_a_list_goes_on_where_it_was_left(read: Read) -> None:
    sheet = Sheet().lines(50, 800, ["6. Weigh the parcel.", "7. Write the address."])
    sheet.lines(70, 776, ["1. On two sides.", "2. With a pen."]).lines(50, 752, ["8. Send it.", *PROSE])
    assert blocks(read, sheet)[0].startswith(
        "6. Weigh the parcel.\n7. Write the address.\n  1. On two sides.\n  2. With a pen.\n8. Send it."
    )


def test_a_large_bullet_does_not_make_its_item_large(read: Read) -> None:
    sheet = Sheet().lines(50, 800, PROSE * 2)
    for number in range(2):  # the middle of the line is between two words
        sheet.text(50, 700 - 20 * number, "\u2022", 16).text(70, 702 - 20 * number, f"Scanning service {10 + number}")
    assert blocks(read, sheet)[-1] == "- Scanning service 10\n- Scanning service 11"


def test_an_indent_like_the_one_before_begins_a_paragraph(read: Read) -> None:
    lines = [PROSE[0], PROSE[1], PROSE[0]]
    sheet = Sheet()
    for number in range(2):
        y = 800 - 36 * number
        sheet.text(65, y, lines[0][:50]).text(50, y - 12, lines[1]).text(50, y - 24, lines[2])
    assert [block[:9] for block in blocks(read, sheet)] == ["The goods", "The goods"]


def test_a_link_whose_box_is_beside_its_words(read: Read) -> None:
    sheet = Sheet().lines(50, 800, ["Please write to us about it", "today, or tomorrow."])
    sheet.link(90, 797, 200, 809, "https://example.org/").link(50, 785, 74, 796, "https://example.org/")
    assert "Please [write to us about it today](https://example.org/), or" in read(sheet.written()).text.replace("\n", " ")


def test_letters_that_are_taken_for_lines(read: Read) -> None:
    sheet = Sheet()
    for number in range(3):
        for index, letter in enumerate("Oak desk and lamps"):
            if letter != " ":
                sheet.text(20 + 6 * index, 820 - 19 * number, letter, font="code")
        for place in (300, 400, 500):
            for index, letter in enumerate("4711"):
                sheet.text(place + 6 * index, 820 - 19 * number, letter, font="code")
    assert read(sheet.written()).text.count("| Oak desk and lamps | 4711 | 4711 | 4711 |") == 3


def japanese(lines: list[str]) -> bytes:
    """A page of lines in a font whose letters look like Latin ones and stand for Japanese ones."""
    pdf = Pdf()
    codes = {letter: 65 + index for index, letter in enumerate(sorted(set("".join(lines))))}
    pairs = b"".join(b"<%02X> <%s>\n" % (code, letter.encode("utf-16-be").hex().encode()) for letter, code in codes.items())
    head = b"begincmap 1 begincodespacerange <00> <FF> endcodespacerange %d beginbfchar\n" % len(codes)
    mapping = pdf.stream(head + pairs + b"endbfchar endcmap")
    font = pdf.add(b"<< /Type /Font /Subtype /Type1 /BaseFont /Courier /ToUnicode %d 0 R >>" % mapping)
    shown = b"".join(b"<%s> Tj T* " % bytes(codes[letter] for letter in line).hex().encode() for line in lines)
    content = pdf.stream(b"BT /F 10 Tf 12 TL 40 800 Td " + shown + b"ET")
    page = b"<< /Type /Page /Parent %d 0 R /MediaBox [0 0 595 842] /Contents %d 0 R /Resources << /Font << /F %d 0 R >> >> >>"
    tree = len(pdf.objects) + 2
    number = pdf.add(page % (tree, content, font))
    pdf.add(b"<< /Type /Pages /Count 1 /Kids [%d 0 R] >>" % number)
    return pdf.written(pdf.add(b"<< /Type /Catalog /Pages %d 0 R >>" % tree))


def test_lines_of_a_script_without_spaces_are_joined_without_one(read: Read) -> None:
    lines = ["商品は月曜日に発送され今週末", "までに届く予定ですすべて届い", "たかどうか"]
    assert read(japanese(lines)).text == "".join(lines)


def test_a_link_with_one_box_around_two_lines(read: Read) -> None:
    sheet = Sheet().lines(50, 800, [PROSE[0][:52]]).draw("0 0 1 rg").text(282, 800, "at the end of")
    sheet.text(50, 788, "the week.").draw("0 g").text(96, 788, "Please check that all of them have arrived")
    text = read(sheet.link(50, 785, 400, 811, "https://example.org/").written()).text
    assert text.count("](https://example.org/)") == 1
    assert "[at the end of the week.](https://example.org/) Please" in text.replace("\n", " ")


def test_two_tables_beside_each_other(read: Read) -> None:
    sheet = Sheet()
    for number, row in enumerate(ROWS):  # PDFium puts what stands on one height into one line
        for x in (50, 300):
            fill(sheet, [x + 5, x + 105, x + 155], 740 - 16 * number, 16, [row])
    for x in (50, 300):
        grid(sheet, [x, x + 100, x + 150, x + 230], [752, 736, 720, 704, 688])
    assert blocks(read, sheet) == [ROWS_MARKDOWN, ROWS_MARKDOWN]
