"""A streaming reader of multipart forms: part by part, each as far as it is read.

Laws:
- What was not read yet has not been received from the connection, but for the piece at hand.
- A form that ends before its end was cut off; it is never taken for a shorter form.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from .problems import Problem

HEADER_BYTES_MAX = 8 * 1024  # of one part


class Part:
    """One part of a form, as a file that is read once."""

    def __init__(self, name: str, filename: str | None, pieces: Iterator[bytes]) -> None:
        self.name = name
        self.filename = filename  # None: it is a field of text
        self._pieces = pieces
        self.size = 0  # of what was read so far

    def read(self, _: int = -1) -> bytes:
        """Return the next piece, however long it is; empty at the end."""
        piece = next(self._pieces, b"")
        self.size += len(piece)
        return piece

    def text(self, bytes_max: int) -> str:
        """Read the whole part as text; refused if it is longer, or not in UTF-8."""
        content = bytearray()
        while piece := self.read():
            content += piece
            if len(content) > bytes_max:
                raise Problem("too-large", f"the field {self.name[:60]!r} is longer than {bytes_max:,} bytes", close=True)
        try:
            return content.decode()
        except UnicodeDecodeError:
            raise Problem("bad-value", f"the field {self.name[:60]!r} must be text in UTF-8") from None


class Form:
    """A form; `read` returns the next piece of the body, and nothing at its end."""

    def __init__(self, content_type: str, read: Callable[[], bytes]) -> None:
        boundary = parse_options_header(content_type)[1].get(b"boundary")
        if not boundary:
            raise Problem("bad-request", "Content-Type names no boundary, as in multipart/form-data; boundary=x", close=True)
        self._read = read
        self._parsed: deque[bytes | Part | None] = deque()  # in the order of the body: a part, its pieces, None at its end
        self._header_name = self._header_value = b""
        self._headers: dict[bytes, bytes] = {}
        self._header_bytes = 0
        self._is_complete = False
        try:
            self._parser = MultipartParser(
                boundary,
                {
                    "on_part_begin": self._on_part_begin,
                    "on_header_field": self._on_header_name,
                    "on_header_value": self._on_header_value,
                    "on_header_end": self._on_header_end,
                    "on_headers_finished": self._on_headers_finished,
                    "on_part_data": self._on_part_data,
                    "on_part_end": lambda: self._parsed.append(None),
                    "on_end": self._on_end,
                },
            )
        except FormParserError:
            raise Problem("bad-request", "malformed multipart boundary in Content-Type", close=True) from None

    def parts(self) -> Iterator[Part]:
        """Iterate over the parts; what is unread of one is skipped when the next is read."""
        while (part := self._next()) is not None:
            assert isinstance(part, Part)
            yield part
            while part.read():
                pass

    def _next(self) -> bytes | Part | None:
        """Return what comes next: a part, a piece of it, or None at its end and at the end of the form."""
        while not self._parsed:
            piece = self._read()
            if not piece:
                if self._is_complete:
                    return None
                raise Problem("bad-request", "malformed form: it ends before its closing boundary", close=True)
            try:
                self._parser.write(piece)
            except FormParserError:
                raise Problem("bad-request", "malformed form: a part does not follow its boundary", close=True) from None
        return self._parsed.popleft()

    def _pieces(self) -> Iterator[bytes]:
        while isinstance(piece := self._next(), bytes):
            yield piece

    # -- callbacks of the parser ---------------------------------------------------------------------------------------

    def _on_part_begin(self) -> None:
        self._headers, self._header_bytes = {}, 0

    def _on_header_name(self, data: bytes, start: int, end: int) -> None:
        self._count_header_bytes(end - start)
        self._header_name += data[start:end]

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._count_header_bytes(end - start)
        self._header_value += data[start:end]

    def _count_header_bytes(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > HEADER_BYTES_MAX:
            raise Problem("bad-request", f"the headers of a part are longer than {HEADER_BYTES_MAX:,} bytes", close=True)

    def _on_header_end(self) -> None:
        self._headers[self._header_name.lower()] = self._header_value
        self._header_name = self._header_value = b""

    def _on_headers_finished(self) -> None:
        options = parse_options_header(self._headers.get(b"content-disposition"))[1]
        name, filename = options.get(b"name"), options.get(b"filename")
        if name is None:
            raise Problem("bad-request", 'a part of the form has no name, as in form-data; name="file"', close=True)
        decoded = None if filename is None else filename.decode(errors="replace")
        self._parsed.append(Part(name.decode(errors="replace"), decoded, self._pieces()))

    def _on_part_data(self, data: bytes, start: int, end: int) -> None:
        if start < end:  # an empty piece would be taken for the end
            self._parsed.append(data[start:end])

    def _on_end(self) -> None:
        self._is_complete = True
