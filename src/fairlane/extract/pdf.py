"""PDF extractor, by PDFium; pages with content but no text go through OCR.

Laws:
- PDFium is third-party C++: use it in a confined child only. Streams that would unpack to far too much are refused before
  PDFium sees them, by unpacking them in blocks and counting.
- No script runs (this PDFium has no engine for them), no link is followed, embedded files are not opened.
- What is typed into a form comes after the text of its page.
- A page whose own text is garbled, or whose fonts do not say which letters they draw, is read by OCR too. What the page shows
  decides: text that only looks garbled stays, and so does what OCR is not sure to read better.
- A page that cannot be read is a warning; a document with no readable page is corrupt.
"""

from __future__ import annotations

import mmap
import re
import zlib
from contextlib import closing
from typing import TYPE_CHECKING, Any

from .builder import ExtractionBuilder
from .failure import Unreadable, corrupt_on_error
from .garbled import agree, is_garbled
from .ocr import UNSURE, Ocr
from .pdf_blocks import Block, plain_block, read_blocks
from .pdf_forms import FormReader
from .pdf_lines import PageText
from .pdf_text import UNKNOWN_MOST, UNKNOWN_SHARE, read_textpage, unknown_share
from .pdf_writer import PdfWriter
from .result import WarningCode
from .thumbnail import shrink

if TYPE_CHECKING:
    from PIL.Image import Image

PASSWORD_ERRORS = (4, 5)  # FPDF_ERR_PASSWORD, FPDF_ERR_SECURITY
POINTS_PER_INCH = 72
OCR_DPI = 200
LETTERS_LEAST = 8  # that OCR must have read to replace the text of a page
STREAM_CHECKED_LEAST = 60_000  # bytes; deflate expands at most 1032-fold, and 60 MB fit into memory
STREAM_MAX = 256_000_000
LAYERS_MAX = 3
_STREAM = re.compile(rb"stream\r?\n")
_LAYERS = re.compile(rb"/Filter\s*\[\s*(?:/Fl(?:ateDecode)?\s*){2,}")
_HYPHEN = re.compile("[\ufffe\x02]\r?\n")
_DATE = re.compile(r"D?:?(\d{4})(\d\d)?(\d\d)?(\d\d)?(\d\d)?(\d\d)?(?:(Z)|([+-])(\d\d)'?(\d\d)?)?")


def read(builder: ExtractionBuilder) -> None:
    """Read facts, pages and thumbnail."""
    if builder.limits.pages is None or builder.only_lists_pages:  # before slices are read, all of it was listed
        _refuse_bombs(builder)
    import pypdfium2  # type: ignore[import-untyped]

    with corrupt_on_error("PDFium"):
        try:
            document = pypdfium2.PdfDocument(builder.path)
        except pypdfium2.PdfiumError as error:
            if error.err_code in PASSWORD_ERRORS:
                raise Unreadable("encrypted", "the PDF needs a password") from error
            raise
        with document:
            _read_document(builder, document)


def _read_document(builder: ExtractionBuilder, document: Any) -> None:
    count = len(document)
    builder.meter.check_pages(count)
    if count == 0:
        raise Unreadable("corrupt", "a PDF without pages")
    _read_facts(builder, document)
    with closing(FormReader(builder, document)) as forms:
        damaged = _read_pages(builder, document, forms)
    if damaged == count:
        raise Unreadable("corrupt", "no page of the PDF can be read")
    if document.count_attachments() > 0:
        builder.warn("attachments_ignored")


def _read_pages(builder: ExtractionBuilder, document: Any, forms: FormReader) -> int:
    """Read all pages; return how many cannot be read."""
    ocr, writer = Ocr(builder), PdfWriter(builder)
    damaged = 0
    if builder.only_lists_pages:
        for number in range(len(document)):
            writer.add_page(str(number + 1), [])
    for number in builder.pages_to_read(len(document)):
        builder.meter.check_time()
        try:
            page = document[number]
        except Exception as error:  # noqa: BLE001 - PDFium has several errors for a damaged page
            damaged += 1
            builder.warn("damaged_parts", f"page {number + 1}: {error}")
            writer.add_page(str(number + 1), [])
            continue
        with closing(page):
            writer.add_page(str(number + 1), _read_page(builder, document, page, number, ocr, forms))
            if number == 0 and builder.limits.thumbnail_side:
                _keep_thumbnail(builder, page)
    writer.flush()
    return damaged


def _read_page(builder: ExtractionBuilder, document: Any, page: Any, number: int, ocr: Ocr, forms: FormReader) -> list[Block]:
    """Return the blocks of a page; one with its text where it is too much for layout, or comes from OCR."""
    with closing(page.get_textpage()) as textpage:
        builder.meter.check_text(textpage.count_chars())
        text = PageText(textpage, page.get_bbox())
        unknown = unknown_share(textpage, text.text)
        if text.is_simple:
            blocks = read_blocks(document, page, text)
        else:
            blocks = plain_block(_HYPHEN.sub("", read_textpage(builder, textpage)).replace("\r\n", "\n"))
    if unknown > UNKNOWN_MOST:
        blocks = _read_doubtful(builder, page, number, ocr, blocks, "letters_unknown")
    elif unknown >= UNKNOWN_SHARE:
        builder.warn("letters_unknown", f"page {number + 1}")
    elif is_garbled(text.text):
        blocks = _read_doubtful(builder, page, number, ocr, blocks, "text_garbled", text.text)
    elif not blocks and next(iter(page.get_objects(max_depth=1)), None) is not None and ocr.can_read:
        blocks = plain_block(ocr.read(_render_for_ocr(builder, page), number))
    return blocks + plain_block("\n".join(forms.values(page)))


def _read_doubtful(
    builder: ExtractionBuilder, page: Any, number: int, ocr: Ocr, blocks: list[Block], code: WarningCode, text: str = ""
) -> list[Block]:
    """Return what OCR reads on a page whose own text is in doubt, if that is better than its blocks; else they stay, with a
    warning. What OCR finds on the page too only looks garbled."""
    label = f"page {number + 1}"
    if ocr.can_read:
        reading = ocr.recognise(_render_for_ocr(builder, page))
        if text and agree(reading.text, text):
            return blocks
        if reading.confidence >= UNSURE and reading.letters >= LETTERS_LEAST and not is_garbled(reading.text):
            builder.warn("text_garbled", f"{label}: read by OCR instead")
            return plain_block(ocr.keep(number, reading))
        blocks = blocks or plain_block(ocr.keep(number, reading))
    builder.warn(code, label)
    return blocks


def _render_for_ocr(builder: ExtractionBuilder, page: Any) -> Image:
    return _render(builder, page, OCR_DPI / POINTS_PER_INCH)


def _render(builder: ExtractionBuilder, page: Any, scale: float) -> Image:
    """Render a page, at this scale or as large as allowed."""
    width, height = page.get_size()
    scale = min(scale, (builder.limits.pixels_max / 4 / max(width * height, 1)) ** 0.5)
    builder.meter.check_pixels(max(1, round(width * scale)), max(1, round(height * scale)))
    builder.meter.check_time()
    image: Image = page.render(scale=scale, rev_byteorder=True).to_pil()
    return image


def _keep_thumbnail(builder: ExtractionBuilder, page: Any) -> None:
    side = builder.limits.thumbnail_side
    thumbnail = shrink(_render(builder, page, side / max(*page.get_size(), 1)), side)
    builder.picture = lambda: thumbnail


def _read_facts(builder: ExtractionBuilder, document: Any) -> None:
    facts: dict[str, str] = document.get_metadata_dict(skip_empty=True)
    builder.fact("title", facts.get("Title"))
    builder.fact("author", facts.get("Author"))
    builder.fact("created", parse_pdf_date(facts.get("CreationDate", "")))
    builder.fact("modified", parse_pdf_date(facts.get("ModDate", "")))


def parse_pdf_date(text: str) -> str:
    """Convert `D:20260301093000+01'00'` to ISO 8601."""
    match = _DATE.match(text)
    if match is None:
        return ""
    year, month, day, hour, minute, second, utc, sign, hours, minutes = match.groups()
    local = f"{year}-{month or '01'}-{day or '01'}T{hour or '00'}:{minute or '00'}:{second or '00'}"
    return local + ("+00:00" if utc else f"{sign}{hours}:{minutes or '00'}" if sign else "")


def _refuse_bombs(builder: ExtractionBuilder) -> None:
    """Unpack every stream that could be huge, in blocks and without keeping them, to count its bytes."""
    with builder.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        has_layers = _LAYERS.search(content) is not None
        position = 0
        while (match := _STREAM.search(content, position)) is not None:
            start, end = match.end(), content.find(b"endstream", match.end())
            end = end if end >= 0 else len(content)
            if has_layers or end - start >= STREAM_CHECKED_LEAST:
                _measure(builder, content, start, end, LAYERS_MAX if has_layers else 1)
            position = end


def _measure(builder: ExtractionBuilder, content: mmap.mmap, start: int, end: int, layers: int) -> None:
    inflaters = [zlib.decompressobj() for _ in range(layers)]
    counts = [0] * layers
    try:
        for position in range(start, end, 8192):
            _inflate(builder, content[position : min(end, position + 8192)], inflaters, counts, 0)
    except zlib.error:
        pass  # not deflated, or not in so many layers


def _inflate(builder: ExtractionBuilder, block: bytes, inflaters: list[Any], counts: list[int], layer: int) -> None:
    """Inflate a block through the filter of a layer, and its output, in pieces, through the next."""
    while block and layer < len(inflaters) and not inflaters[layer].eof:
        piece = inflaters[layer].decompress(block, 65_536)
        block = inflaters[layer].unconsumed_tail
        counts[layer] += len(piece)
        builder.meter.count_unpacked(len(piece))
        if counts[layer] > STREAM_MAX:
            raise Unreadable("too_large", f"a stream of the PDF unpacks to more than {STREAM_MAX:,} bytes")
        if not piece and not block:
            return
        _inflate(builder, piece, inflaters, counts, layer + 1)
