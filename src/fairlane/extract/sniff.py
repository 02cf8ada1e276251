"""File type detection, by content.

Laws:
- The name decides only between kinds of text: content alone cannot tell Markdown or CSV for certain.
- Any other type is `unsupported`, with the type in the detail if it is known.
"""

from __future__ import annotations

import re
from pathlib import Path

from .builder import ExtractionBuilder
from .encoding import detect, detect_bom, detect_wide
from .epub import CONTAINER as EPUB_CONTAINER
from .failure import Unreadable
from .mailbox import is_mailbox
from .ole import SIGNATURE
from .ole_kind import DOC, MSG, PPT, XLS, detect_ole_type
from .ooxml import KINDS, main_part
from .plain import JSON_CHECKED_MAX, is_json
from .tar import is_tar
from .zip_package import Package

OFFICE = "application/vnd.openxmlformats-officedocument."
DOCX, PPTX = OFFICE + "wordprocessingml.document", OFFICE + "presentationml.presentation"
XLSX = OFFICE + "spreadsheetml.sheet"
OPENDOCUMENT = "application/vnd.oasis.opendocument."
ODT, ODS, ODP = (OPENDOCUMENT + kind for kind in ("text", "spreadsheet", "presentation"))
XLSB = "application/vnd.ms-excel.sheet.binary.macroenabled.12"
EPUB = "application/epub+zip"
READERS = {
    "application/pdf": "pdf.read",
    DOCX: "docx.read",
    PPTX: "pptx.read",
    XLSX: "xlsx.read",
    ODT: "odt.read",
    ODS: "ods.read",
    ODP: "odp.read",
    XLS: "xls.read",
    XLSB: "xlsb.read",
    DOC: "doc.read",
    PPT: "ppt.read",
    MSG: "msg.read",
    EPUB: "epub.read",
    "application/rtf": "rtf.read",
    "text/html": "html.read",
    "message/rfc822": "mail.read",
    "text/plain": "plain.read",
    "text/markdown": "plain.read",
    "text/csv": "plain.read_csv",
    "application/json": "plain.read_json",
    "application/xml": "plain.read_markup",
    "image/svg+xml": "svg.read",
    "text/calendar": "ics.read",
    "text/vcard": "vcf.read",
    "application/zip": "archive.read",
    "application/x-tar": "tar.read",
    **dict.fromkeys(("application/gzip", "application/x-bzip2", "application/x-xz"), "unpacking.read"),
    "application/mbox": "mailbox.read",
    **{f"image/{kind}": "image.read" for kind in ("png", "jpeg", "tiff", "webp", "gif", "bmp", "jp2", "avif", "heic")},
}
PACKAGED = (OPENDOCUMENT, EPUB)
SUFFIXES = {  # the usual suffixes of each type; another one gives a warning
    "application/pdf": "pdf",
    DOCX: "docx docm dotx dotm",
    PPTX: "pptx pptm ppsx ppsm potx",
    XLSX: "xlsx xlsm xltx xltm",
    ODT: "odt ott",
    ODS: "ods ots",
    ODP: "odp otp",
    XLS: "xls xlt xla xlm",
    XLSB: "xlsb",
    DOC: "doc dot",
    PPT: "ppt pps pot",
    MSG: "msg",
    EPUB: "epub",
    "application/rtf": "rtf doc",
    "text/html": "html htm xhtml",
    "message/rfc822": "eml mail msg",
    "application/mbox": "mbox",
    "application/json": "json geojson ipynb",
    "image/svg+xml": "svg",
    "text/calendar": "ics ical ifb vcs",
    "text/vcard": "vcf vcard",
    "application/zip": "zip",
    "application/x-tar": "tar",
    "application/gzip": "gz gzip tgz svgz",
    "application/x-bzip2": "bz2 tbz tbz2",
    "application/x-xz": "xz txz",
    "image/png": "png",
    "image/jpeg": "jpg jpeg jpe",
    "image/tiff": "tif tiff",
    "image/webp": "webp",
    "image/gif": "gif",
    "image/bmp": "bmp dib",
    "image/jp2": "jp2 j2k j2c jpc jpf jpx",
    "image/avif": "avif avifs",
    "image/heic": "heic heif heics heifs hif",
}
MAGIC = (
    *((b"\x09\x08" + kind, XLS) for kind in (b"\x08\0\0\5", b"\x10\0\0\6")),  # a workbook without its container
    (b"%PDF-", "application/pdf"),
    (b"{\\rtf", "application/rtf"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"II*\0", "image/tiff"),
    (b"MM\0*", "image/tiff"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"\x1f\x8b\x08", "application/gzip"),
    (b"\xfd7zXZ\0", "application/x-xz"),
    (b"\0\0\0\x0cjP  \r\n\x87\n", "image/jp2"),
    (b"\xff\x4f\xff\x51", "image/jp2"),
)
_BZIP2 = re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)")  # a block, or the end of an empty file
_BITMAP = re.compile(rb"BM.{8}...\0[\x0c\x10\x28\x34\x38\x40\x6c\x7c]\0\0\0", re.DOTALL)
BRANDS = {  # of files that are made of boxes, as films are
    "image/avif": {b"avif", b"avis"},
    "image/heic": {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs"},
}
UNSUPPORTED_MAGIC = (
    *((b"\x09\x08" + kind, XLS) for kind in (b"\x08\0\0\5", b"\x10\0\0\6")),  # a workbook without its container
    (b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (b"Rar!", "application/vnd.rar"),
    (b"\x28\xb5\x2f\xfd", "application/zstd"),
    (b"\x7fELF", "application/x-elf"),
    (b"MZ", "application/x-msdownload"),
    (b"ID3", "audio/mpeg"),
    (b"OggS", "application/ogg"),
    (b"%!PS", "application/postscript"),
    (b"SQLite format 3\0", "application/vnd.sqlite3"),
)
# These have so many bytes of their own that no text begins like them; what follows may well look like text.
BINARY_BEGINNINGS = (
    (re.compile(rb"(?:RIFF|RIFX|RF64)....WAVE", re.DOTALL), "audio/wav"),
    (re.compile(rb"RIFF....(?:AVI |RMID|ACON|sfbk)", re.DOTALL), "a RIFF file"),
    (re.compile(rb"FORM....AIF[FC]", re.DOTALL), "audio/aiff"),
    (re.compile(rb"8BPS\0[\1\2]\0{6}"), "image/vnd.adobe.photoshop"),
)
TEXT_BEGINNINGS = {"BEGIN:VCALENDAR": "text/calendar", "BEGIN:VCARD": "text/vcard"}
MARKDOWN_SUFFIXES = ("md", "markdown")
XML_SUFFIXES = ("xml", "svg", "xsd", "rss", "kml", "gpx", "xsl")
START = 65_536
MIMETYPE_MAX = 1_000  # bytes
BRANDS_BYTES_MAX = 1_000
CONTROL_MAX = 0.02
_CONTROL = re.compile("[\x00-\x07\x0e-\x1a\x1c-\x1f\ufffd]")
_MAIL_HEADER = re.compile(r"^([A-Za-z][A-Za-z0-9-]{1,60}):[ \t]?", re.MULTILINE)
_BLANK_LINES = re.compile(r"(?:[ \t]*\n)+")
MAIL_HEADERS = {
    *("from", "to", "cc", "bcc", "subject", "date", "message-id", "mime-version", "received", "return-path", "delivered-to"),
    *("reply-to", "sender", "in-reply-to", "references", "content-type", "content-transfer-encoding", "dkim-signature"),
}
WEB_HEADERS = {"date", "content-type"}  # a saved answer of a web server begins with these
MAIL_SUFFIXES = ("eml", "mbox", "mail")
_HTML = re.compile(
    r"\s*(?:<!--.{0,4000}?-->\s*){0,3}"
    r"<(?:!doctype\s+html|html|head|body|title|meta|div|p|table|h[1-6]|ul|ol|span|a|br|script|style|center|font|b)(?=[\s/>])",
    re.IGNORECASE | re.DOTALL,
)
_HTML_DOCUMENT = re.compile(
    r"\s*(?:<!--.{0,4000}?-->\s*){0,3}<(?:!doctype\s+html|html|head)(?=[\s/>])", re.IGNORECASE | re.DOTALL
)
_SVG = re.compile(
    r"\s*(?:<\?xml[^>]{0,200}>\s*)?(?:<!--.{0,4000}?-->\s*){0,3}(?:<!doctype\s+(?:\w+:)?svg\b[^\[>]{0,1000}"
    r"(?:\[[^\]]{0,20000}\]\s*)?>\s*)?(?:<!--.{0,4000}?-->\s*){0,3}<(?:\w{1,20}:)?svg[\s>]",
    re.IGNORECASE | re.DOTALL,
)
_XHTML = re.compile(r"\s*<\?xml[^>]{0,200}>\s*(?:<!--.{0,4000}?-->\s*){0,3}<(?:!doctype\s+)?html\b", re.IGNORECASE | re.DOTALL)


def detect_media_type(builder: ExtractionBuilder) -> str:
    """Return the type of a file; refuse an unsupported one."""
    with builder.path.open("rb") as file:
        start = file.read(START)
    media_type = _binary_type(builder, start) or _text_type(builder, start)
    _check_name(builder, media_type)
    return media_type


def _binary_type(builder: ExtractionBuilder, start: bytes) -> str | None:
    for magic, kind in MAGIC:
        if start.startswith(magic):
            return kind
    if start.startswith(b"RIFF") and start[8:12] == b"WEBP":
        return "image/webp"
    if _BITMAP.match(start):
        return "image/bmp"
    if _BZIP2.match(start):
        return "application/x-bzip2"
    if is_tar(start):
        return "application/x-tar"
    if start[4:8] == b"ftyp":
        return _type_of_boxes(start)
    if start.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _zip_type(builder)
    if start.startswith(SIGNATURE):
        return detect_ole_type(builder)
    _refuse_unsupported(start)
    return "application/pdf" if b"%PDF-" in start[:1024] else None


def needs_threads(path: Path) -> bool:
    """Return whether the decoder of a file starts a thread of its own: that of HEIC does."""
    with path.open("rb") as file:
        start = file.read(BRANDS_BYTES_MAX)
    return start[4:8] == b"ftyp" and _picture_of_boxes(start) == "image/heic"


def _picture_of_boxes(start: bytes) -> str | None:
    """Tell a picture from films and sounds by the brands that the file names."""
    length = min(int.from_bytes(start[:4]), BRANDS_BYTES_MAX)
    brands = {start[8:12], *(start[position : position + 4] for position in range(16, length, 4))}
    return next((kind for kind, known in BRANDS.items() if brands & known), None)


def _type_of_boxes(start: bytes) -> str:
    if (kind := _picture_of_boxes(start)) is not None:
        return kind
    raise Unreadable("unsupported", f"a film, a sound or another file of boxes, {start[8:12].decode('ascii', 'replace')}")


def _refuse_unsupported(start: bytes) -> None:
    """Refuse the formats that are known and not read."""
    for beginning, kind in BINARY_BEGINNINGS:
        if beginning.match(start):
            raise Unreadable("unsupported", kind)
    for magic, kind in UNSUPPORTED_MAGIC:
        if start.startswith(magic) and _is_binary(start):
            raise Unreadable("unsupported", kind)


def _zip_type(builder: ExtractionBuilder) -> str:
    """Tell an office document, which is a ZIP with certain parts, from other archives."""
    with Package(builder, max(builder.limits.parts_max, builder.limits.members_max)) as package:
        if (kind := _declared_type(package)) is not None:
            for known in (ODT, ODS, ODP, EPUB):
                if kind.startswith(known):  # templates have a longer type
                    return known
            raise Unreadable("unsupported", kind)
        if "[Content_Types].xml" not in package:
            return EPUB if EPUB_CONTAINER in package else "application/zip"
        _, kind = main_part(builder, package)
    if "sheet.binary" in kind:
        return XLSB
    for word, name in KINDS.items():
        if word in kind or f"ms-{_old_name(name)}" in kind:
            return {"docx": DOCX, "pptx": PPTX, "xlsx": XLSX}[name]
    raise Unreadable("unsupported", kind or "an office document of an unknown type")


def _declared_type(package: Package) -> str | None:
    """Return what the entry `mimetype` says; it should be the first, and where it is not, it must name a type of documents."""
    is_first = bool(package.entries) and package.entries[0].filename == "mimetype"
    if not is_first and not package.is_small("mimetype", MIMETYPE_MAX):
        return None
    kind = package.read_small("mimetype", MIMETYPE_MAX).decode("ascii", "replace").strip()
    return kind if is_first or kind.startswith(PACKAGED) else None


def _old_name(name: str) -> str:
    """Return the program's name, which the types of documents with macros have."""
    return {"docx": "word", "pptx": "powerpoint", "xlsx": "excel"}[name]


def _is_binary(start: bytes) -> bool:
    """Return whether these bytes are not text in any known encoding."""
    if detect_bom(start) is not None:
        return False
    wide = detect_wide(start)
    text = start.decode(wide, "replace") if wide is not None else start.decode("utf-8", "ignore")
    return len(_CONTROL.findall(text)) > max(1, len(text)) * CONTROL_MAX


def _text_type(builder: ExtractionBuilder, start: bytes) -> str:
    if _is_binary(start):
        raise Unreadable("unsupported", "not text, and not a known format")
    encoding, skip, _ = detect(start)
    text = start[skip:].decode(encoding, "replace")
    suffix = _suffix(builder.name)
    html = _HTML_DOCUMENT if suffix in MARKDOWN_SUFFIXES else _HTML  # Markdown may begin with a tag
    if html.match(text) or _XHTML.match(text) or (suffix in ("html", "htm", "xhtml") and "<" in text):
        return "text/html"
    if _SVG.match(text):
        return "image/svg+xml"
    if (kind := TEXT_BEGINNINGS.get(text[:20].strip().partition("\n")[0].strip().upper())) is not None:
        return kind
    if text.lstrip().startswith("<?xml") or (text.lstrip().startswith("<") and suffix in XML_SUFFIXES):
        return "application/xml"
    if _is_mail(text, suffix):
        return "application/mbox" if is_mailbox(builder.path) else "message/rfc822"
    if _is_json_file(builder, text, suffix):
        return "application/json"
    if suffix in MARKDOWN_SUFFIXES:
        return "text/markdown"
    return "text/csv" if suffix in ("csv", "tsv") else "text/plain"


def _is_json_file(builder: ExtractionBuilder, text: str, suffix: str) -> bool:
    if not text.lstrip().startswith(("{", "[")):
        return False
    if suffix in ("json", "geojson", "ipynb"):
        return True
    size = builder.path.stat().st_size
    if size > JSON_CHECKED_MAX:
        return False
    return is_json(text if size <= START else builder.path.read_bytes().decode("utf-8", "replace"))


def _is_mail(text: str, suffix: str) -> bool:
    """Return whether a text begins with headers, at least two of them typical of e-mail; with a suffix of e-mails, one."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if (blank := _BLANK_LINES.match(text)) is not None:
        text = text[blank.end() :]
    if text.startswith("From ") and "\n" in text[:1000]:
        text = text.partition("\n")[2]
    if not _MAIL_HEADER.match(text):
        return False
    head = text.partition("\n\n")[0]
    typical = {name.lower() for name in _MAIL_HEADER.findall(head)} & MAIL_HEADERS
    return bool(typical) if suffix in MAIL_SUFFIXES else len(typical) >= 2 and bool(typical - WEB_HEADERS)


def _suffix(name: str) -> str:
    return name.rpartition(".")[2].lower() if "." in name else ""


def _check_name(builder: ExtractionBuilder, media_type: str) -> None:
    """Warn if the suffix of the name belongs to another type."""
    suffix = _suffix(builder.name)
    expected = [kind for kind, suffixes in SUFFIXES.items() if suffix in suffixes.split()]
    if expected and media_type not in expected:
        builder.warn("wrong_name", f".{suffix}, but the content is {media_type}")
