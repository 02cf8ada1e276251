"""What XML files feed to expat: bytes in an encoding that it knows, and references to entities within limits.

Laws:
- Whatever reaches expat contains ASCII as it is: references can be counted before they are expanded.
- What an entity grows to is known when it is declared: its own length, and that of every entity in it. Newer expats parse what
  they were fed later, so references that came before the declaration are counted then.
- All references of a file may grow to `GROWN_MAX` characters. That is less than what expat itself allows, so what is refused
  does not depend on its version.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Iterator

from .builder import ExtractionBuilder
from .encoding import IN_ASCII, codec_name, detect_bom
from .failure import Unreadable

ENTITY_MAX = 10_000  # characters that one entity may grow to
GROWN_MAX = 4_000_000
PIECE = 1_024  # bytes fed at once up to the first element: entities are declared there
REFERENCE_MAX = 200  # bytes
NAMES_MAX = 10_000  # of entities that are referred to before they are declared; above that each counts as the largest
PREDEFINED = {"amp": 1, "lt": 1, "gt": 1, "quot": 1, "apos": 1}
_DECLARED = re.compile(rb"""\s*<\?xml[^>]{0,100}encoding\s*=\s*["']([\w.:\-]{2,40})""")
_REFERENCE = re.compile(rb"&([^&;#\s]{1,%d});" % REFERENCE_MAX)


class EntityCounter:
    """The entities that a file declares, and what its references grow to."""

    def __init__(self, builder: ExtractionBuilder) -> None:
        self._grown_max = min(GROWN_MAX, builder.limits.text_max)
        self._sizes: dict[str, int] = {}
        self._undeclared: Counter[str] = Counter()  # references to what expat has not declared yet: it may be behind
        self._foreign = 0  # references that may be to any, as those with letters beyond ASCII: each counts as the largest
        self._largest = self._grown = 0
        self._rest = b""  # the beginning of a reference that is cut by the end of a block

    def declare(self, name: str, is_parameter_entity: bool, value: str | None, *_: object) -> None:
        """Measure an entity; one from outside has no value, and only a reference to it is refused."""
        if is_parameter_entity or value is None:
            return
        if len(name.encode()) > REFERENCE_MAX:
            raise Unreadable("corrupt", f"the name of an XML entity has more than {REFERENCE_MAX} bytes")
        size = len(value)
        for inner in (found.decode() for found in _REFERENCE.findall(value.encode())):
            if inner not in self._sizes and inner not in PREDEFINED:
                raise Unreadable("corrupt", f"the XML entity {name} refers to {inner}, which is not declared before it")
            size += self._sizes.get(inner, 1)
        if size > ENTITY_MAX:
            raise Unreadable("corrupt", f"the XML entity {name} grows to {size:,} characters; {ENTITY_MAX:,} are allowed")
        if name not in self._sizes:
            self._sizes[name] = size
            self._grown += size * self._undeclared.pop(name, 0)
            self._grown += self._foreign * max(0, size - self._largest)
            self._largest = max(self._largest, size)
            self._check()

    def count(self, block: bytes) -> None:
        """Count what the references of a block grow to, before it is parsed."""
        block = self._rest + block
        for name in _REFERENCE.findall(block):
            if name.isascii() and (size := self._sizes.get(name.decode())) is not None:
                self._grown += size
            elif name.isascii() and len(self._undeclared) < NAMES_MAX:
                self._undeclared[name.decode()] += 1
            else:
                self._foreign += 1
                self._grown += self._largest
        self._check()
        cut = block.rfind(b"&", -REFERENCE_MAX)
        self._rest = block[cut:] if cut >= 0 and b";" not in block[cut:] else b""

    def _check(self) -> None:
        if self._grown > self._grown_max:
            raise Unreadable("too_large", f"XML entities grow to more than {self._grown_max:,} characters")


def foreign_encoding(start: bytes) -> str | None:
    """Return the encoding of a file that expat cannot read as it is: of several bytes a letter, and not UTF-8."""
    if (mark := detect_bom(start)) is not None:
        return None if mark[0] == "utf-8" else mark[0]
    if start.startswith((b"<\0\0\0", b"\0\0\0<")):
        return "utf-32-le" if start[0] else "utf-32-be"
    if 0 in start[:2]:  # what expat takes for UTF-16
        return "utf-16-le" if start[0] else "utf-16-be"
    match = _DECLARED.match(start)
    name = codec_name(match.group(1).decode("ascii")) if match is not None else None
    if name is None or name == "utf-8":
        return None
    if name.startswith(("utf-16", "utf-32")):
        return "utf-8"  # it would not begin like this
    is_single_byte = len(bytes(range(256)).decode(name, "replace")) == 256 and not name.startswith(IN_ASCII)
    return None if is_single_byte else name


def as_utf8(blocks: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    """Yield the blocks in UTF-8, without a byte order mark."""
    decoder = codecs.getincrementaldecoder(encoding)()
    is_first = True
    for block in blocks:
        text = decoder.decode(block)
        if is_first and text:
            text, is_first = text.removeprefix("\ufeff"), False
        yield text.encode()
    yield decoder.decode(b"", final=True).encode()


def pieces(block: bytes, size: int) -> Iterator[bytes]:
    """Yield a block in pieces."""
    for start in range(0, len(block), size):
        yield block[start : start + size]
