"""What does a PDF say? Page by page through PDFium; pages without text but with something on them go through OCR.

Laws:
- PDFium is not ours and not safe: it is used in the child only. Streams that would unpack to far too much are refused before
  it sees them, by unpacking them in blocks and counting.
- No script runs (this PDFium has no engine for them), no link is followed, files inside are not opened.
- A page that cannot be read is a warning; a document none of whose pages can be read is corrupt.
"""

from __future__ import annotations

import mmap
import re
import zlib
from typing import TYPE_CHECKING, Any

from .draft import Draft
from .failure import Unreadable, foreign
from .ocr import Ocr
from .pictures import shrink

if TYPE_CHECKING:
    from PIL.Image import Image

PASSWORD_ERRORS = (4, 5)  # FPDF_ERR_PASSWORD, FPDF_ERR_SECURITY
POINTS_PER_INCH = 72
OCR_DPI = 200
STREAM_CHECKED_LEAST = 60_000  # bytes; deflate gives at most 1032 for one, and a stream of 60 MB is bearable
STREAM_MAX = 256_000_000
LAYERS_MAX = 3
_STREAM = re.compile(rb"stream\r?\n")
_LAYERS = re.compile(rb"/Filter\s*\[\s*(?:/Fl(?:ateDecode)?\s*){2,}")
_HYPHEN = re.compile("[\ufffe\x02]\r?\n")
_DATE = re.compile(r"D?:?(\d{4})(\d\d)?(\d\d)?(\d\d)?(\d\d)?(\d\d)?(?:(Z)|([+-])(\d\d)'?(\d\d)?)?")


def read(draft: Draft) -> None:
    """Facts, pages, thumbnail."""
    _refuse_bombs(draft)
    import pypdfium2  # type: ignore[import-untyped]

    with foreign("PDFium"):
        try:
            document = pypdfium2.PdfDocument(draft.path)
        except pypdfium2.PdfiumError as error:
            if error.err_code in PASSWORD_ERRORS:
                raise Unreadable("encrypted", "the PDF needs a password") from error
            raise
        with document:
            _read_document(draft, document)


def _read_document(draft: Draft, document: Any) -> None:
    count = len(document)
    draft.meter.pages(count)
    if count == 0:
        raise Unreadable("corrupt", "a PDF without pages")
    _read_facts(draft, document)
    ocr = Ocr(draft)
    damaged = 0
    for number in range(count):
        draft.new_page(str(number + 1))
        try:
            page = document[number]
        except Exception as error:  # noqa: BLE001 - PDFium's words for a damaged page
            damaged += 1
            draft.warn("damaged_parts", f"page {number + 1}: {error}")
            continue
        _read_page(draft, page, ocr)
        if number == 0 and draft.limits.thumbnail_side:
            _keep_thumbnail(draft, page)
        page.close()
    if damaged == count:
        raise Unreadable("corrupt", "no page of the PDF can be read")
    if document.count_attachments() > 0:
        draft.warn("attachments_ignored")


def _read_page(draft: Draft, page: Any, ocr: Ocr) -> None:
    textpage = page.get_textpage()
    draft.meter.hold(textpage.count_chars())
    text: str = _HYPHEN.sub("", textpage.get_text_bounded()).replace("\r\n", "\n").strip()
    textpage.close()
    if text:
        draft.write(text)
    elif next(iter(page.get_objects(max_depth=1)), None) is not None and ocr.is_wanted:
        draft.write(ocr.read(_drawn(draft, page, OCR_DPI / POINTS_PER_INCH)))


def _drawn(draft: Draft, page: Any, scale: float) -> Image:
    """A page as an image, as large as it may be."""
    width, height = page.get_size()
    scale = min(scale, (draft.limits.pixels_max / 4 / max(width * height, 1)) ** 0.5)
    draft.meter.pixels(max(1, round(width * scale)), max(1, round(height * scale)))
    draft.meter.tick()
    image: Image = page.render(scale=scale, rev_byteorder=True).to_pil()
    return image


def _keep_thumbnail(draft: Draft, page: Any) -> None:
    side = draft.limits.thumbnail_side
    thumbnail = shrink(_drawn(draft, page, side / max(*page.get_size(), 1)), side)
    draft.picture = lambda: thumbnail


def _read_facts(draft: Draft, document: Any) -> None:
    facts: dict[str, str] = document.get_metadata_dict(skip_empty=True)
    draft.fact("title", facts.get("Title"))
    draft.fact("author", facts.get("Author"))
    draft.fact("created", moment(facts.get("CreationDate", "")))
    draft.fact("modified", moment(facts.get("ModDate", "")))


def moment(text: str) -> str:
    """`D:20260301093000+01'00'` as ISO 8601."""
    found = _DATE.match(text)
    if found is None:
        return ""
    year, month, day, hour, minute, second, utc, sign, hours, minutes = found.groups()
    told = f"{year}-{month or '01'}-{day or '01'}T{hour or '00'}:{minute or '00'}:{second or '00'}"
    return told + ("+00:00" if utc else f"{sign}{hours}:{minutes or '00'}" if sign else "")


def _refuse_bombs(draft: Draft) -> None:
    """Unpack, in blocks and without keeping anything, every stream that could be huge."""
    with draft.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        has_layers = _LAYERS.search(content) is not None
        place = 0
        while (found := _STREAM.search(content, place)) is not None:
            end = content.find(b"endstream", found.end())
            end = end if end >= 0 else len(content)
            if has_layers or end - found.end() >= STREAM_CHECKED_LEAST:
                _measure(draft, content, found.end(), end, LAYERS_MAX if has_layers else 1)
            place = end


def _measure(draft: Draft, content: mmap.mmap, start: int, end: int, layers: int) -> None:
    inflaters = [zlib.decompressobj() for _ in range(layers)]
    counts = [0] * layers
    try:
        for place in range(start, end, 8192):
            _inflate(draft, content[place : min(end, place + 8192)], inflaters, counts, 0)
    except zlib.error:
        pass  # not deflated, or not in so many layers


def _inflate(draft: Draft, block: bytes, inflaters: list[Any], counts: list[int], layer: int) -> None:
    """Give a block to the inflater of a layer, and what comes out, in pieces, to the next."""
    while block and layer < len(inflaters):
        piece = inflaters[layer].decompress(block, 65_536)
        block = inflaters[layer].unconsumed_tail
        counts[layer] += len(piece)
        draft.meter.unpack(len(piece))
        if counts[layer] > STREAM_MAX:
            raise Unreadable("too_large", f"a stream of the PDF unpacks to more than {STREAM_MAX:,} bytes")
        if not piece and not block:
            return
        _inflate(draft, piece, inflaters, counts, layer + 1)
