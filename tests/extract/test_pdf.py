"""Text and forms of PDFs: breaks between words, letters that cannot be told, values that were typed in."""

from __future__ import annotations

import zlib
from random import Random

import pytest

from chaos.corpus.pdf import HELVETICA, Pdf, field, make_form, make_page, make_pdf, text_string
from fairlane.extract import Limits
from fairlane.extract.pdf import STREAM_CHECKED_LEAST

from .conftest import NO_OCR, Read, Refused, codes


def shown(x: int, y: int, text: str) -> str:
    return f"BT /F 9 Tf {x} {y} Td ({text}) Tj ET "


def test_words_of_columns_are_not_glued(read: Read) -> None:
    """PDFium's text within an area drops the break between two words of one height."""
    content = shown(100, 690, "below") + shown(300, 700, "3") + shown(50, 700, "01")
    assert read(make_page(content.encode()), "a.pdf").text.split() == ["below", "01", "3"]


def test_text_beside_the_page_is_left_out(read: Read) -> None:
    content = shown(100, 690, "below") + shown(300, 700, "3") + shown(50, 700, "01") + shown(900, 500, "beside")
    assert read(make_page(content.encode()), "a.pdf").text.split() == ["below", "01", "3"]


def test_letters_of_more_than_16_bits(read: Read) -> None:
    font = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /ToUnicode 3 0 R >>"
    cmap = b"1 begincodespacerange <00> <FF> endcodespacerange 1 beginbfchar <41> <D83DDE00> endbfchar"
    pdf = Pdf()
    pdf.add(font)
    content = pdf.stream(shown(100, 690, "A").encode())
    pdf.stream(cmap)
    pdf.add(
        b"<< /Type /Page /Parent 5 0 R /MediaBox [0 0 595 842] /Contents %d 0 R /Resources << /Font << /F 1 0 R >> >> >>"
        % content
    )
    pdf.add(b"<< /Type /Pages /Count 1 /Kids [4 0 R] >>")
    assert read(pdf.written(pdf.add(b"<< /Type /Catalog /Pages 5 0 R >>")), "a.pdf").text == "\U0001f600"


# -- letters that cannot be told

MISSING_FONT = (
    b"<< /Type /Font /Subtype /Type0 /BaseFont /Nobody /Encoding /Identity-H /DescendantFonts [<< /Type /Font /Subtype /%s "
    b"/BaseFont /Nobody /CIDSystemInfo << /Registry (Adobe) /Ordering (%s) /Supplement 0 >> /DW 1000 >>] >>"
)


def test_fonts_that_do_not_say_which_letters_they_draw_are_told(read: Read) -> None:
    content = b"BT /F 9 Tf 100 700 Td <0450045100220123> Tj ET"
    result = read(make_page(content, MISSING_FONT % (b"CIDFontType2", b"Identity")), "a.pdf")
    assert [(warning.code, warning.detail) for warning in result.warnings] == [("letters_unknown", "page 1")]


def test_fonts_of_a_known_order_need_no_warning(read: Read) -> None:
    content = b"BT /F 9 Tf 100 700 Td <0450045100220123> Tj ET"
    result = read(make_page(content, MISSING_FONT % (b"CIDFontType2", b"Korea1")), "a.pdf")
    assert (len(result.text), codes(result)) == (4, set())


def test_letters_of_private_use_are_told(read: Read) -> None:
    assert codes(read(make_pdf([["\ue001\ue002\ue003 \ue004\ue005"]]), "a.pdf")) == {"letters_unknown"}
    assert codes(read(make_pdf([["\uf0b7 one point of a list, with its bullet"]]), "a.pdf")) == set()


# -- forms


def test_what_was_filled_in_comes_after_the_text_of_the_page(read: Read) -> None:
    result = read(make_form(), "a.pdf")
    assert result.text == "Application\n\n- name: Łucja Żółkiewska\n- country: Poland\n- terms: Yes"
    assert codes(result) == set()


@pytest.mark.parametrize(
    ("kind", "value", "more", "line"),
    [
        (b"Tx", b"(one\\rtwo)", b"/Ff 4096", "- a.b: one\n  two"),
        (b"Tx", b"(x)", b"/TU " + text_string("City\nof birth"), "- City of birth: x"),
        (b"Tx", b"(secret)", b"/Ff 8192", ""),
        (b"Tx", b"(unseen)", b"/F 2", ""),
        (b"Tx", b"(  )", b"", ""),
        (b"Ch", b"(other)", b"/Ff 393216 /Opt [(a) (b)]", "- a.b: other"),
        (b"Ch", b"[(a) (c)]", b"/Ff 2097152 /Opt [(a) (b) (c)]", "- a.b: a, c"),
        (b"Btn", b"/Off", b"/AS /Off /AP << /N << /Yes 2 0 R /Off 2 0 R >> >>", ""),
        (b"Btn", b"/red", b"/Ff 49152 /AS /red /AP << /N << /red 2 0 R /Off 2 0 R >> >>", "- a.b: red"),
        (b"Btn", b"(push)", b"/Ff 65536", ""),
        (b"Sig", b"<< /Type /Sig >>", b"", ""),
    ],
)
def test_fields_of_forms(read: Read, kind: bytes, value: bytes, more: bytes, line: str) -> None:
    assert read(make_page(b"", fields=[field(kind, "a.b", value, more)]), "a.pdf").text == line


def test_names_as_programs_write_them_are_made_short(read: Read) -> None:
    content = make_page(b"", fields=[field(b"Tx", "form1[0].page1[0].city[12]", b"(x)")])
    assert read(content, "a.pdf").text == "- city: x"


def test_a_field_shown_twice_is_told_once(read: Read) -> None:
    assert read(make_page(b"", fields=[field(b"Tx", "a", b"(x)")] * 2), "a.pdf").text == "- a: x"


@pytest.mark.parametrize("form", [b"/AcroForm << /Fields [     ] >>", b"/AcroXorm << /Fields [3 0 R] >>"])
def test_fields_that_the_form_does_not_list(read: Read, form: bytes) -> None:
    """Programs that merge files forget the list."""
    listed = b"/AcroForm << /Fields [3 0 R] >>"
    ticked, empty = field(b"Btn", "a", b"/Yes", b"/AS /Yes"), field(b"Btn", "a", b"/Off", b"/AS /Off")
    texts = [field(b"Tx", "a", b"(x)", more) for more in (b"", b"/TU (A)", b"/Ff 8192", b"/Ff 1e99", b"/Ff -1")]
    expected = ["- a: Yes", "", "- a: x", "- A: x", "", "- a: x", "- a: x"]
    for one, text in zip((ticked, empty, *texts), expected, strict=True):
        content = make_page(b"", fields=[one])
        assert listed in content
        assert read(content.replace(listed, form), "a.pdf").text == text


def test_a_field_inherits_its_value(read: Read) -> None:
    pdf = Pdf()
    pdf.add(b"<< /FT /Tx /T (person) /Kids [2 0 R] >>")
    pdf.add(b"<< /Parent 1 0 R /T (name) /V (Ann) /Kids [3 0 R 4 0 R] >>")
    for y in (700, 600):
        pdf.add(b"<< /Type /Annot /Subtype /Widget /Parent 2 0 R /Rect [50 %d 200 %d] >>" % (y, y + 15))
    pdf.add(b"<< /Type /Page /Parent 6 0 R /MediaBox [0 0 595 842] /Annots [3 0 R 4 0 R] >>")
    pdf.add(b"<< /Type /Pages /Count 1 /Kids [5 0 R] >>")
    root = pdf.add(b"<< /Type /Catalog /Pages 6 0 R /AcroForm << /Fields [1 0 R] >> >>")
    assert read(pdf.written(root), "a.pdf").text == "- person.name: Ann"


def test_what_is_typed_in_counts_as_text(refused: Refused) -> None:
    content = make_page(b"", fields=[field(b"Tx", "a", b"(" + b"x" * 500 + b")")])
    assert refused(content, "a.pdf", Limits(text_max=400, ocr_pages_max=0)).code == "too_large"


# -- streams


def test_bytes_after_the_end_of_a_stream_take_no_time(read: Read) -> None:
    """The check for streams that unpack to too much ends where a stream ends, also where its last block unpacks to much."""
    pdf = Pdf()
    noise = b"% " + Random(1).randbytes(STREAM_CHECKED_LEAST).replace(b"\n", b"").replace(b"\r", b"") + b"\n"
    packed = zlib.compress(shown(100, 700, "words").encode() + noise + b" " * 200_000)
    content = pdf.stream(packed + b"\n\n", b"/Filter /FlateDecode")
    pdf.add(
        b"<< /Type /Page /Parent 3 0 R /MediaBox [0 0 595 842] /Contents %d 0 R /Resources << /Font << /F 4 0 R >> >> >>"
        % content
    )
    pdf.add(b"<< /Type /Pages /Count 1 /Kids [2 0 R] >>")
    pdf.add(HELVETICA)
    limits = Limits(ocr_pages_max=0, seconds_max=10)
    assert read(pdf.written(pdf.add(b"<< /Type /Catalog /Pages 3 0 R >>")), "a.pdf", limits).text == "words"


def test_streams_are_still_measured_before_the_end(refused: Refused) -> None:
    pdf = Pdf()
    pdf.stream(zlib.compress(bytes(100_000_000)) + b"rest" * 1_000, b"/Filter /FlateDecode")
    limits = Limits(unpacked_max=50_000_000, ocr_pages_max=NO_OCR.ocr_pages_max)
    assert refused(pdf.written(pdf.add(b"<< /Type /Catalog >>")), "a.pdf", limits).code == "too_large"
