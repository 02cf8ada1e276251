"""A writer of small PDFs: text in any letters, pages, facts, pictures, a password."""

from __future__ import annotations

import hashlib
import io
import zlib
from collections.abc import Sequence

from PIL import Image

PADDING = bytes.fromhex("28BF4E5E4E758A4164004E56FFFA01082E2E00B6D0683E802F0CA9FE6453697A")
IDENTITY = hashlib.md5(b"fairlane").digest()
PERMISSIONS = -4


def rc4(key: bytes, content: bytes) -> bytes:
    """The cipher of old PDFs."""
    box = list(range(256))
    other = 0
    for index in range(256):
        other = (other + box[index] + key[index % len(key)]) % 256
        box[index], box[other] = box[other], box[index]
    first = second = 0
    out = bytearray()
    for byte in content:
        first = (first + 1) % 256
        second = (second + box[first]) % 256
        box[first], box[second] = box[second], box[first]
        out.append(byte ^ box[(box[first] + box[second]) % 256])
    return bytes(out)


class Pdf:
    """Objects by number, written in their order."""

    def __init__(self, password: str | None = None) -> None:
        self.objects: list[bytes] = []
        self._key: bytes | None = None
        self._encrypt = b""
        if password is not None:
            owner = rc4(hashlib.md5(_padded(password)).digest()[:5], _padded(password))
            seed = _padded(password) + owner + PERMISSIONS.to_bytes(4, "little", signed=True) + IDENTITY
            self._key = hashlib.md5(seed).digest()[:5]
            user = rc4(self._key, PADDING)
            self._encrypt = b"<< /Filter /Standard /V 1 /R 2 /O <%s> /U <%s> /P %d >>" % (
                owner.hex().encode(),
                user.hex().encode(),
                PERMISSIONS,
            )

    def add(self, content: bytes) -> int:
        """Add an object; its number comes back."""
        self.objects.append(content)
        return len(self.objects)

    def stream(self, content: bytes, extra: bytes = b"") -> int:
        """Add a stream, encrypted if there is a password."""
        number = len(self.objects) + 1
        if self._key is not None:
            salted = self._key + number.to_bytes(3, "little") + b"\0\0"
            content = rc4(hashlib.md5(salted).digest()[:10], content)
        return self.add(b"<< /Length %d %s >>\nstream\n" % (len(content), extra) + content + b"\nendstream")

    def written(self, root: int, facts: int | None = None) -> bytes:
        """The whole file."""
        out = io.BytesIO()
        out.write(b"%PDF-1.5\n%\xe2\xe3\xcf\xd3\n")
        offsets = []
        for number, content in enumerate(self.objects, start=1):
            offsets.append(out.tell())
            out.write(b"%d 0 obj\n" % number + content + b"\nendobj\n")
        start = out.tell()
        out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(offsets) + 1))
        for offset in offsets:
            out.write(b"%010d 00000 n \n" % offset)
        trailer = b"<< /Size %d /Root %d 0 R" % (len(offsets) + 1, root)
        if facts is not None:
            trailer += b" /Info %d 0 R" % facts
        if self._encrypt:
            trailer += b" /Encrypt %s /ID [<%s><%s>]" % (self._encrypt, IDENTITY.hex().encode(), IDENTITY.hex().encode())
        out.write(b"trailer\n" + trailer + b" >>\nstartxref\n%d\n%%%%EOF\n" % start)
        return out.getvalue()


def _padded(password: str) -> bytes:
    return (password.encode("latin-1") + PADDING)[:32]


def text_string(text: str) -> bytes:
    return b"<" + (b"\xfe\xff" + text.encode("utf-16-be")).hex().encode() + b">"


def _font(pdf: Pdf, letters: str) -> tuple[int, dict[str, int]]:
    """A font whose codes stand for these letters, by a ToUnicode map."""
    codes = {letter: 32 + index for index, letter in enumerate(letters)}
    names = b" ".join(b"/uni%04X" % ord(letter) for letter in letters)
    pairs = b"\n".join(b"<%02X> <%s>" % (code, letter.encode("utf-16-be").hex().encode()) for letter, code in codes.items())
    cmap = (
        b"/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /F def /CMapType 2 def\n"
        b"1 begincodespacerange <00> <FF> endcodespacerange\n%d beginbfchar\n" % len(codes)
    )
    cmap += pairs + b"\nendbfchar endcmap end end"
    mapping = pdf.stream(cmap)
    widths = b" ".join([b"500"] * len(codes))
    font = pdf.add(
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /FirstChar 32 /LastChar %d /Widths [%s] /ToUnicode %d 0 R "
        b"/Encoding << /Type /Encoding /Differences [32 %s] >> >>" % (31 + len(codes), widths, mapping, names)
    )
    return font, codes


def make_pdf(
    pages: Sequence[Sequence[str]],
    title: str = "",
    author: str = "",
    password: str | None = None,
    size: tuple[int, int] = (595, 842),
) -> bytes:
    """A PDF with these lines on its pages."""
    pdf = Pdf(password)
    letters = "".join(sorted(set("".join("".join(page) for page in pages)) | {" "}))
    font, codes = _font(pdf, letters)
    kids = []
    tree = len(pdf.objects) + 2 * len(pages) + 1
    for lines in pages:
        shown = b"BT /F 9 Tf 14 TL 40 800 Td\n"
        for line in lines:
            shown += b"<" + bytes(codes[letter] for letter in line).hex().encode() + b"> Tj T*\n"
        content = zlib.compress(shown + b"ET")
        number = pdf.stream(content, b"/Filter /FlateDecode")
        kids.append(
            pdf.add(
                b"<< /Type /Page /Parent %d 0 R /MediaBox [0 0 %d %d] /Contents %d 0 R "
                b"/Resources << /Font << /F %d 0 R >> >> >>" % (tree, *size, number, font)
            )
        )
    pdf.add(b"<< /Type /Pages /Count %d /Kids [%s] >>" % (len(kids), b" ".join(b"%d 0 R" % kid for kid in kids)))
    root = pdf.add(b"<< /Type /Catalog /Pages %d 0 R >>" % tree)
    facts = None
    if password is None:
        facts = pdf.add(
            b"<< /Title %s /Author %s /CreationDate (D:20260301093000+01'00') /ModDate (D:20260302) >>"
            % (text_string(title), text_string(author))
        )
    return pdf.written(root, facts)


def make_scan(image: Image.Image) -> bytes:
    """A PDF whose only page is a picture."""
    return make_scans([image])


def make_scans(images: Sequence[Image.Image]) -> bytes:
    """A PDF whose pages are pictures."""
    pdf = Pdf()
    tree = pdf.add(b"")
    pages = [_add_scan(pdf, tree, image) for image in images]
    kids = b" ".join(b"%d 0 R" % page for page in pages)
    pdf.objects[tree - 1] = b"<< /Type /Pages /Count %d /Kids [%s] >>" % (len(pages), kids)
    return pdf.written(pdf.add(b"<< /Type /Catalog /Pages %d 0 R >>" % tree))


def _add_scan(pdf: Pdf, tree: int, image: Image.Image) -> int:
    buffer = io.BytesIO()
    image.convert("L").save(buffer, "JPEG", quality=90)
    width, height = image.size
    picture = pdf.stream(
        buffer.getvalue(),
        b"/Type /XObject /Subtype /Image /Width %d /Height %d /ColorSpace /DeviceGray /BitsPerComponent 8 /Filter /DCTDecode"
        % (width, height),
    )
    content = pdf.stream(b"q %d 0 0 %d 0 0 cm /I Do Q" % (595, 842))
    return pdf.add(
        b"<< /Type /Page /Parent %d 0 R /MediaBox [0 0 595 842] /Contents %d 0 R /Resources << /XObject << /I %d 0 R >> >> >>"
        % (tree, content, picture)
    )


HELVETICA = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"


def make_page(content: bytes, font: bytes = HELVETICA, fields: Sequence[bytes] = ()) -> bytes:
    """A PDF whose only page has this content, with a font /F, and these fields of a form, one below the other."""
    pdf = Pdf()
    font_number, content_number = pdf.add(font), pdf.stream(content)
    page, tree = len(pdf.objects) + len(fields) + 1, len(pdf.objects) + len(fields) + 2
    numbers = [
        pdf.add(b"<< /Type /Annot /Subtype /Widget /Rect [50 %d 200 %d] /P %d 0 R %s >>" % (top - 15, top, page, field))
        for top, field in zip(range(750, 0, -20), fields, strict=False)
    ]
    widgets = b" ".join(b"%d 0 R" % number for number in numbers)
    pdf.add(
        b"<< /Type /Page /Parent %d 0 R /MediaBox [0 0 595 842] /Contents %d 0 R /Annots [%s] "
        b"/Resources << /Font << /F %d 0 R >> >> >>" % (tree, content_number, widgets, font_number)
    )
    pdf.add(b"<< /Type /Pages /Count 1 /Kids [%d 0 R] >>" % page)
    return pdf.written(pdf.add(b"<< /Type /Catalog /Pages %d 0 R /AcroForm << /Fields [%s] >> >>" % (tree, widgets)))


def field(kind: bytes, name: str, value: bytes, more: bytes = b"") -> bytes:
    """A field of a form: /Tx for text, /Ch for a choice, /Btn for a box to tick; its value as it is written in the file."""
    return b"/FT /%s /T %s /V %s %s" % (kind, text_string(name), value, more)


def make_form() -> bytes:
    """A form with a field of each kind, filled."""
    ticked = b"/AS /Yes /AP << /N << /Yes 2 0 R /Off 2 0 R >> >>"
    return make_page(
        b"BT /F 9 Tf 50 800 Td (Application) Tj ET",
        fields=(
            field(b"Tx", "name", text_string("Łucja Żółkiewska")),
            field(b"Ch", "country", b"(pl)", b"/Ff 131072 /Opt [[(pl) (Poland)] [(de) (Germany)]]"),
            field(b"Btn", "terms", b"/Yes", ticked),
        ),
    )
