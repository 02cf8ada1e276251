"""Content lines of calendars and contacts (RFC 5545 and 6350, and what programs wrote before them).

Laws:
- Lines are put together as bytes: programs fold them in the middle of a letter.
- Pictures, sounds and attached files are passed over; their bytes are never kept.
"""

from __future__ import annotations

import io
import quopri
import re
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from .builder import BLOCK, ExtractionBuilder
from .encoding import SAMPLE, codec_name, decode, detect, read_text
from .failure import Unreadable

LINE_MAX = 1_000_000  # bytes of a line that is put together
# Possessive: of a parameter nothing is tried twice, so that a line of a million quotes takes little time and memory.
_LINE = re.compile(r'(?:[\w-]{1,100}\.)?([\w-]{1,100})((?:;(?:[^":;]++|"[^"]*+"){0,20}+){0,50}+):')
_PARAMETER = re.compile(r';([^=;:"]{1,100})(?:=((?:"[^"]*+"|[^;"]++){0,20}+))?')
_PARAMETER_VALUE = re.compile(r'"([^"]{0,1000})"|([^",]{1,1000})')
_BINARY = re.compile(rb"(?i)(?:[\w-]{1,100}\.)?(?:PHOTO|LOGO|SOUND|KEY|[\w-]{1,100};[^:]{0,300}(?:BASE64|ENCODING=B[;:]))")
_QUOTED = re.compile(rb"(?i)[^:]{0,1000}QUOTED-PRINTABLE[^:]{0,1000}:")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_SEPARATED = re.compile(r"(?<!\\);")


class ContentLine(NamedTuple):
    """One property: its name and the names of its parameters in capitals, its value as it is written."""

    name: str
    parameters: dict[str, list[str]]
    value: str

    @property
    def text(self) -> str:
        """The value, without escapes."""
        return unescape(self.value)

    @property
    def fields(self) -> list[str]:
        """The fields of a value that has several, such as an address."""
        return [unescape(field).strip() for field in _SEPARATED.split(self.value)]

    def parameter(self, name: str) -> str:
        """Return the first value of a parameter, or nothing."""
        return next(iter(self.parameters.get(name, ())), "")


def unescape(value: str) -> str:
    """Resolve the escapes of a text."""
    return _ESCAPED.sub(lambda match: "\n" if match[1] in "nN" else match[1], value) if "\\" in value else value


def content_lines(builder: ExtractionBuilder) -> Iterator[ContentLine]:
    """Yield the properties of the file, without those that are pictures, sounds or files."""
    with builder.path.open("rb") as file:
        encoding, skip, is_guess = detect(file.read(SAMPLE))
        if is_guess:
            builder.warn("encoding_guessed", encoding)
        file.seek(skip)
        if encoding.startswith(("utf-16", "utf-32")):
            yield from _parsed(builder, io.BytesIO(read_text(builder).encode()), "utf-8")
        else:
            yield from _parsed(builder, file, encoding)


def _parsed(builder: ExtractionBuilder, file: BinaryIO, encoding: str) -> Iterator[ContentLine]:
    for line in _unfolded(builder, file):
        if (parsed := _parse(builder, line, encoding)) is not None:
            yield parsed


def _unfolded(builder: ExtractionBuilder, file: BinaryIO) -> Iterator[bytes]:
    """Yield whole lines; of those that hold a picture or a file only the beginning."""
    line = bytearray()
    is_binary = is_quoted = is_continued = False
    while block := file.readline(BLOCK):
        builder.meter.check_time()
        content = block.rstrip(b"\r\n")
        is_soft = is_quoted and line.endswith(b"=")
        if is_soft:
            del line[-1:]
        elif not is_continued and block.startswith((b" ", b"\t")):
            content = content[1:]
        elif not is_continued:
            yield bytes(line)
            line.clear()
            is_binary, is_quoted = _BINARY.match(content) is not None, _QUOTED.match(content) is not None
        if not is_binary or not line:
            line += content
        if len(line) > LINE_MAX:
            raise Unreadable("too_large", f"a line has more than {LINE_MAX:,} bytes")
        is_continued = not block.endswith(b"\n")
    yield bytes(line)


def _parse(builder: ExtractionBuilder, line: bytes, encoding: str) -> ContentLine | None:
    if _BINARY.match(line) is not None:
        builder.warn("attachments_ignored", line[:20].decode("ascii", "replace"))
        return None
    text = line.decode(encoding, "replace")
    match = _LINE.match(text)
    if match is None:
        return None
    parameters: dict[str, list[str]] = {}
    for name, value in _PARAMETER.findall(match[2]):
        key, values = (name.strip().upper(), value) if value else ("TYPE", name.strip())  # a bare one is a type
        parameters.setdefault(key, []).extend(quoted or plain.strip() for quoted, plain in _PARAMETER_VALUE.findall(values))
    value = text[match.end() :]
    charset = next(iter(parameters.get("CHARSET", ())), "")
    is_quoted = "QUOTED-PRINTABLE" in {kind.upper() for kind in (*parameters.get("ENCODING", ()), *parameters.get("TYPE", ()))}
    if is_quoted or (charset and codec_name(charset) not in (None, encoding)):
        content = line.split(b":", match[0].count(":"))[-1]  # not by its length: damaged letters have another one
        value = decode(quopri.decodestring(content) if is_quoted else content, charset or None)
    if "\ufffd" in value:
        builder.warn("characters_replaced", match[1][:40])
    return ContentLine(match[1].upper(), parameters, value)
