"""XML reader for untrusted files: a stream of events from expat, without a tree.

Laws:
- No entity is ever declared or expanded and nothing outside the document is opened: a file that declares entities is refused,
  and so is any DOCTYPE inside an office document.
- Depth, number of attributes and length of a single tag are limited; text comes in pieces, which the handler counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol
from xml.parsers import expat

from .builder import ExtractionBuilder
from .failure import Unreadable

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

    def __init__(self, builder: ExtractionBuilder, handler: XmlHandler, is_doctype_allowed: bool) -> None:
        self._builder, self._handler = builder, handler
        self._depth = 0
        self._names = _LocalNames()
        self._nesting_max, self._attributes_max = builder.limits.nesting_max, builder.limits.attributes_max
        self.silent_bytes = 0  # fed since the last event
        parser = expat.ParserCreate(namespace_separator="}")
        parser.buffer_text = True
        parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.EntityDeclHandler = self._refuse_entity
        parser.ExternalEntityRefHandler = self._refuse_reference
        if not is_doctype_allowed:
            parser.StartDoctypeDeclHandler = self._refuse_doctype
        self.parser = parser

    def _start(self, name: str, attributes: Attributes) -> None:
        self.silent_bytes = 0
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
        self.silent_bytes = 0
        self._depth -= 1
        self._handler.end(self._names[name])

    def _text(self, text: str) -> None:
        self.silent_bytes = 0
        self._handler.text(text)

    def _refuse_entity(self, *_: object) -> None:
        raise Unreadable("corrupt", "the XML declares entities, which are never expanded here")

    def _refuse_reference(self, *_: object) -> int:
        raise Unreadable("corrupt", "the XML refers to something outside, which is never opened")

    def _refuse_doctype(self, *_: object) -> None:
        raise Unreadable("corrupt", "a part of the document has a DOCTYPE, which office documents must not have")


def read_xml(
    builder: ExtractionBuilder, blocks: Iterable[bytes], handler: XmlHandler, is_doctype_allowed: bool = False
) -> None:
    """Parse a document and pass its events to a handler."""
    adapter = _ExpatAdapter(builder, handler, is_doctype_allowed)
    try:
        for block in blocks:
            adapter.silent_bytes += len(block)
            adapter.parser.Parse(block, False)
            if adapter.silent_bytes > builder.limits.token_max:
                raise Unreadable("too_large", f"a tag or comment has more than {builder.limits.token_max:,} bytes")
        adapter.parser.Parse(b"", True)
    except (expat.ExpatError, ValueError, LookupError, OverflowError) as error:  # ValueError: an encoding that expat lacks
        raise Unreadable("corrupt", f"XML: {error}") from error


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
