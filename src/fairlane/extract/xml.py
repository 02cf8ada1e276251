"""XML reader for untrusted files: a stream of events from expat, without a tree.

Laws:
- Nothing outside the document is opened, and parameter entities are not read. Entities that the document declares itself are
  expanded within limits (`xml_input`); a DOCTYPE inside an office document is refused.
- Depth, number of attributes and length of a single tag are limited; text comes in pieces, which the handler counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Protocol
from xml.parsers import expat

from .builder import BLOCK, ExtractionBuilder
from .failure import Unreadable
from .xml_input import ENTITY_MAX, PIECE, EntityCounter, as_utf8, foreign_encoding, pieces

Attributes = dict[str, str]
NAMES_MAX = 10_000


class XmlHandler(Protocol):
    """Receives events; names come without their namespace, only ids of relationships as `r:id`."""

    def start(self, name: str, attributes: Attributes) -> None: ...
    def end(self, name: str) -> None: ...
    def text(self, text: str) -> None: ...


class _LocalNames(dict[str, str]):
    """Cache of local names: `http://…/main}p` is `p`. Office namespaces differ between editions, local names do not.

    Only the ids of relationships keep a prefix: a slide of a list has an `id` and an `r:id`.
    """

    def __missing__(self, name: str) -> str:
        namespace, _, short = name.rpartition("}")
        if namespace.endswith("/relationships") and "officeDocument" in namespace:
            short = f"r:{short}"
        if len(self) < NAMES_MAX:
            self[name] = short
        return short


class _ExpatAdapter:
    """Passes events from expat to the handler, and enforces limits."""

    def __init__(
        self, builder: ExtractionBuilder, handler: XmlHandler, is_doctype_allowed: bool, encoding: str | None = None
    ) -> None:
        self._builder, self._handler = builder, handler
        self._depth = 0
        self._names = _LocalNames()
        self._nesting_max, self._attributes_max = builder.limits.nesting_max, builder.limits.attributes_max
        self._entities = EntityCounter(builder)
        self._silent_bytes = 0  # fed since the last event
        self._defaults_length = 0
        self._is_before_elements = is_doctype_allowed
        parser = expat.ParserCreate(encoding, namespace_separator="}")
        parser.buffer_text = True
        parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.EntityDeclHandler = self._entities.declare
        parser.AttlistDeclHandler = self._declare_attribute
        parser.ExternalEntityRefHandler = self._refuse_reference
        if not is_doctype_allowed:
            parser.StartDoctypeDeclHandler = self._refuse_doctype
        self._parser = parser

    def feed(self, block: bytes) -> None:
        """Parse a block; where entities may be declared, in small pieces, so that not much is parsed before it is refused."""
        for piece in pieces(block, PIECE) if self._is_before_elements else (block,):
            self._entities.count(piece)
            self._silent_bytes += len(piece)
            self._parser.Parse(piece, False)
            if self._silent_bytes > self._builder.limits.token_max:
                raise Unreadable("too_large", f"a tag or comment has more than {self._builder.limits.token_max:,} bytes")

    def end(self) -> None:
        self._parser.Parse(b"", True)

    def _start(self, name: str, attributes: Attributes) -> None:
        self._silent_bytes = 0
        self._is_before_elements = False
        self._depth += 1
        if self._depth > self._nesting_max:
            self._builder.meter.check_nesting(self._depth)
        names = self._names
        if attributes:
            if len(attributes) > self._attributes_max:
                raise Unreadable("too_large", f"an element has {len(attributes):,} attributes")
            attributes = {names[key]: value for key, value in attributes.items()}
        self._handler.start(names[name], attributes)

    def _end(self, name: str) -> None:
        self._silent_bytes = 0
        self._depth -= 1
        self._handler.end(self._names[name])

    def _text(self, text: str) -> None:
        self._silent_bytes = 0
        self._handler.text(text)

    def _declare_attribute(self, element: str, name: str, _: str, default: str | None, __: bool) -> None:
        self._defaults_length += len(default or "")
        if self._defaults_length > ENTITY_MAX:  # every such element would have them
            raise Unreadable("corrupt", f"attributes that every element would have, up to {name} of {element}, are too long")

    def _refuse_reference(self, *_: object) -> int:
        raise Unreadable("corrupt", "the XML refers to something outside, which is never opened")

    def _refuse_doctype(self, *_: object) -> None:
        raise Unreadable("corrupt", "a part of the document has a DOCTYPE, which office documents must not have")


def read_xml(
    builder: ExtractionBuilder, blocks: Iterable[bytes], handler: XmlHandler, is_doctype_allowed: bool = False
) -> None:
    """Parse a document and pass its events to a handler."""
    source = iter(blocks)
    try:
        adapter, source = _open(builder, source, handler, is_doctype_allowed)
        for block in source:
            adapter.feed(block)
        adapter.end()
    except (expat.ExpatError, ValueError, LookupError, OverflowError) as error:  # ValueError: an encoding that nobody reads
        raise Unreadable("corrupt", f"XML: {error}") from error


def file_blocks(builder: ExtractionBuilder) -> Iterator[bytes]:
    """Yield the file itself, in blocks."""
    with builder.path.open("rb") as file:
        while block := file.read(BLOCK):
            builder.meter.check_time()
            yield block


def _open(
    builder: ExtractionBuilder, source: Iterator[bytes], handler: XmlHandler, is_doctype_allowed: bool
) -> tuple[_ExpatAdapter, Iterator[bytes]]:
    """Return a parser, and the blocks that it can read."""
    first = next(source, b"")
    source = chain((first,), source)
    encoding = foreign_encoding(first)
    if encoding is None:
        return _ExpatAdapter(builder, handler, is_doctype_allowed), source
    if encoding != "utf-8":
        source = as_utf8(source, encoding)
    return _ExpatAdapter(builder, handler, is_doctype_allowed, "utf-8"), source


class Elements:
    """Handler for small parts: calls a function with every element, its attributes and its text, when it ends."""

    def __init__(self, builder: ExtractionBuilder, on_element: Callable[[str, Attributes, str], None]) -> None:
        self._builder, self._on_element = builder, on_element
        self._open: list[tuple[str, Attributes, list[str]]] = []
        self._length = 0

    def start(self, name: str, attributes: Attributes) -> None:
        self._open.append((name, attributes, []))

    def text(self, text: str) -> None:
        self._length += len(text)
        if self._length > self._builder.limits.token_max:
            raise Unreadable("too_large", "a part that should be small is not")
        self._open[-1][2].append(text)

    def end(self, name: str) -> None:
        opened, attributes, pieces = self._open.pop()
        self._on_element(opened, attributes, "".join(pieces))


class StartHandler:
    """Handler that only receives start tags."""

    def __init__(self, on_start: Callable[[str, Attributes], None]) -> None:
        self._on_start = on_start

    def start(self, name: str, attributes: Attributes) -> None:
        self._on_start(name, attributes)

    def end(self, name: str) -> None:
        pass

    def text(self, text: str) -> None:
        pass
