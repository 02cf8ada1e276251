"""A sheet to draw on: text at a place, lines, areas and links, written as a PDF of one page or more."""

from __future__ import annotations

import zlib

from chaos.corpus.pdf import Pdf

FONTS = {"text": b"Helvetica", "bold": b"Helvetica-Bold", "code": b"Courier"}
WIDTH, HEIGHT = 595, 842


class Sheet:
    """A page of A4; y grows upwards."""

    def __init__(self, rotate: int = 0, matrix: str = "") -> None:
        self._drawn: list[str] = []
        self._links: list[tuple[float, float, float, float, str]] = []
        self._rotate, self._matrix = rotate, matrix

    def text(self, x: float, y: float, text: str, size: float = 10, font: str = "text") -> Sheet:
        shown = text.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")
        self._drawn.append(f"BT /{font} {size} Tf {x} {y} Td ({shown}) Tj ET")
        return self

    def lines(self, x: float, y: float, texts: list[str], size: float = 10, font: str = "text", leading: float = 1.2) -> Sheet:
        for index, text in enumerate(texts):
            self.text(x, y - index * size * leading, text, size, font)
        return self

    def draw(self, operators: str) -> Sheet:
        self._drawn.append(operators)
        return self

    def rule(self, x0: float, y0: float, x1: float, y1: float) -> Sheet:
        return self.draw(f"0.5 w {x0} {y0} m {x1} {y1} l S")

    def link(self, x0: float, y0: float, x1: float, y1: float, target: str) -> Sheet:
        self._links.append((x0, y0, x1, y1, target))
        return self

    @property
    def content(self) -> bytes:
        return f"{self._matrix}\n{chr(10).join(self._drawn)}".encode("cp1252")

    def written(self) -> bytes:
        return write([self])

    def add_to(self, pdf: Pdf, tree: int, fonts: bytes) -> int:
        """Add the page to a PDF; its number comes back."""
        content = pdf.stream(zlib.compress(self.content), b"/Filter /FlateDecode")
        links = [
            pdf.add(
                b"<< /Type /Annot /Subtype /Link /Rect [%d %d %d %d] /A << /S /URI /URI (%s) >> >>"
                % (int(x0), int(y0), int(x1), int(y1), target.encode())
            )
            for x0, y0, x1, y1, target in self._links
        ]
        return pdf.add(
            b"<< /Type /Page /Parent %d 0 R /MediaBox [0 0 %d %d] /Rotate %d /Contents %d 0 R /Annots [%s] "
            b"/Resources << /Font << %s >> >> >>"
            % (tree, WIDTH, HEIGHT, self._rotate, content, b" ".join(b"%d 0 R" % link for link in links), fonts)
        )


def write(sheets: list[Sheet]) -> bytes:
    """Write sheets as the pages of a PDF."""
    pdf = Pdf()
    numbers = {
        name: pdf.add(b"<< /Type /Font /Subtype /Type1 /BaseFont /%s /Encoding /WinAnsiEncoding >>" % base)
        for name, base in FONTS.items()
    }
    fonts = b" ".join(b"/%s %d 0 R" % (name.encode(), number) for name, number in numbers.items())
    tree = pdf.add(b"")
    pages = [sheet.add_to(pdf, tree, fonts) for sheet in sheets]
    kids = b" ".join(b"%d 0 R" % page for page in pages)
    pdf.objects[tree - 1] = b"<< /Type /Pages /Count %d /Kids [%s] >>" % (len(pages), kids)
    return pdf.written(pdf.add(b"<< /Type /Catalog /Pages %d 0 R >>" % tree))
