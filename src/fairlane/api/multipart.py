"""How is a form with many files read without holding it? Part by part, each as far as somebody asks.

Laws:
- What was not asked for yet has not been read from the connection, but for the piece that is in hand.
- A form that ends before its end was cut off; that is never taken for a shorter form.
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
        """The next piece, however long it is; empty at the end."""
        piece = next(self._pieces, b"")
        self.size += len(piece)
        return piece

    def text(self, bytes_max: int) -> str:
        """The whole part as text; refused if it is longer, or not in UTF-8."""
        told = bytearray()
        while piece := self.read():
            told += piece
            if len(told) > bytes_max:
                raise Problem("too-large", f"the field {self.name[:60]!r} is longer than {bytes_max:,} bytes", close=True)
        try:
            return told.decode()
        except UnicodeDecodeError:
            raise Problem("bad-value", f"the field {self.name[:60]!r} must be text in UTF-8") from None


class Form:
    """A form, read from something that gives the next piece of the body, and nothing at its end."""

    def __init__(self, content_type: str, read: Callable[[], bytes]) -> None:
        boundary = parse_options_header(content_type)[1].get(b"boundary")
        if not boundary:
            raise Problem("bad-request", "Content-Type names no boundary, as in multipart/form-data; boundary=x", close=True)
        self._read = read
        self._found: deque[bytes | Part | None] = deque()  # in the order of the body: a part, its pieces, None at its end
        self._field = self._value = b""
        self._headers: dict[bytes, bytes] = {}
        self._header_bytes = 0
        self._is_whole = False
        try:
            self._parser = MultipartParser(
                boundary,
                {
                    "on_part_begin": self._part_began,
                    "on_header_field": self._header_field,
                    "on_header_value": self._header_value,
                    "on_header_end": self._header_ended,
                    "on_headers_finished": self._headers_ended,
                    "on_part_data": self._piece,
                    "on_part_end": lambda: self._found.append(None),
                    "on_end": self._ended,
                },
            )
        except FormParserError:
            raise Problem("bad-request", "the boundary in Content-Type is not one", close=True) from None

    def parts(self) -> Iterator[Part]:
        """The parts, one after the other; what is left of one is passed over when the next is asked for."""
        while (found := self._next()) is not None:
            assert isinstance(found, Part)
            yield found
            while found.read():
                pass

    def _next(self) -> bytes | Part | None:
        """What comes next: a part, a piece of it or its end; None also at the end of the form."""
        while not self._found:
            piece = self._read()
            if not piece:
                if self._is_whole:
                    return None
                raise Problem("bad-request", "the form cannot be read: it ends in the middle", close=True)
            try:
                self._parser.write(piece)
            except FormParserError:
                raise Problem(
                    "bad-request", "the form cannot be read: its parts are not parted as they should", close=True
                ) from None
        return self._found.popleft()

    def _pieces(self) -> Iterator[bytes]:
        while isinstance(found := self._next(), bytes):
            yield found

    # -- what the parser tells -----------------------------------------------------------------------------------------

    def _part_began(self) -> None:
        self._headers, self._header_bytes = {}, 0

    def _header_field(self, piece: bytes, start: int, end: int) -> None:
        self._grow(end - start)
        self._field += piece[start:end]

    def _header_value(self, piece: bytes, start: int, end: int) -> None:
        self._grow(end - start)
        self._value += piece[start:end]

    def _grow(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > HEADER_BYTES_MAX:
            raise Problem("bad-request", f"the headers of a part are longer than {HEADER_BYTES_MAX:,} bytes", close=True)

    def _header_ended(self) -> None:
        self._headers[self._field.lower()] = self._value
        self._field = self._value = b""

    def _headers_ended(self) -> None:
        options = parse_options_header(self._headers.get(b"content-disposition"))[1]
        name, filename = options.get(b"name"), options.get(b"filename")
        if name is None:
            raise Problem("bad-request", 'a part of the form has no name, as in form-data; name="file"', close=True)
        told = None if filename is None else filename.decode(errors="replace")
        self._found.append(Part(name.decode(errors="replace"), told, self._pieces()))

    def _piece(self, piece: bytes, start: int, end: int) -> None:
        if start < end:  # an empty piece would pass for the end
            self._found.append(piece[start:end])

    def _ended(self) -> None:
        self._is_whole = True
