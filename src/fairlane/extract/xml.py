"""How is XML from a stranger read?

As a stream of events from expat: nothing is built up. Laws:
- No entity is ever declared or expanded, nothing outside the document is ever opened: a file that declares entities is
  refused, and inside office documents any DOCTYPE is.
- Depth, attributes and the length of a single tag are limited; characters come in pieces and are the caller's to count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol
from xml.parsers import expat

from .draft import Draft
from .failure import Unreadable

Attributes = dict[str, str]
NAMES_MAX = 10_000


class Handler(Protocol):
    """Whoever listens: element names come without their namespace, attributes with the last part of it in front."""

    def start(self, name: str, attributes: Attributes) -> None: ...
    def end(self, name: str) -> None: ...
    def text(self, text: str) -> None: ...


class _Names(dict[str, str]):
    """`http://…/main}p` is `p`: office namespaces differ between editions, local names do not. Found once for each name."""

    def __missing__(self, name: str) -> str:
        short = name.rpartition("}")[2]
        if len(self) < NAMES_MAX:
            self[name] = short
        return short


class _Reader:
    """Stands between expat and the handler, and counts."""

    def __init__(self, draft: Draft, handler: Handler, is_doctype_allowed: bool) -> None:
        self._draft, self._handler = draft, handler
        self._depth = 0
        self._names = _Names()
        self._nesting_max, self._attributes_max = draft.limits.nesting_max, draft.limits.attributes_max
        self.silent = 0  # bytes fed since expat last told something
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
        self.silent = 0
        self._depth += 1
        if self._depth > self._nesting_max:
            self._draft.meter.nesting(self._depth)
        names = self._names
        if attributes:
            if len(attributes) > self._attributes_max:
                raise Unreadable("too_large", f"an element has {len(attributes):,} attributes")
            attributes = {names[key]: value for key, value in attributes.items()}
        self._handler.start(names[name], attributes)

    def _end(self, name: str) -> None:
        self.silent = 0
        self._depth -= 1
        self._handler.end(self._names[name])

    def _text(self, text: str) -> None:
        self.silent = 0
        self._handler.text(text)

    def _refuse_entity(self, *_: object) -> None:
        raise Unreadable("corrupt", "the XML declares entities, which are never expanded here")

    def _refuse_reference(self, *_: object) -> int:
        raise Unreadable("corrupt", "the XML refers to something outside, which is never opened")

    def _refuse_doctype(self, *_: object) -> None:
        raise Unreadable("corrupt", "a part of the document has a DOCTYPE, which office documents must not have")


def read_xml(draft: Draft, blocks: Iterable[bytes], handler: Handler, is_doctype_allowed: bool = False) -> None:
    """Feed a document to a handler."""
    reader = _Reader(draft, handler, is_doctype_allowed)
    try:
        for block in blocks:
            reader.silent += len(block)
            reader.parser.Parse(block, False)
            if reader.silent > draft.limits.token_max:
                raise Unreadable("too_large", f"a tag or comment has more than {draft.limits.token_max:,} bytes")
        reader.parser.Parse(b"", True)
    except (expat.ExpatError, ValueError, LookupError, OverflowError) as error:  # ValueError: an encoding expat cannot use
        raise Unreadable("corrupt", f"XML: {error}") from error


class Elements:
    """A handler for small parts: calls one function with every element, its attributes and its text so far."""

    def __init__(self, draft: Draft, seen: Callable[[str, Attributes, str], None]) -> None:
        self._draft, self._seen = draft, seen
        self._open: list[tuple[str, Attributes, list[str]]] = []
        self._length = 0

    def start(self, name: str, attributes: Attributes) -> None:
        self._open.append((name, attributes, []))

    def text(self, text: str) -> None:
        self._length += len(text)
        if self._length > self._draft.limits.token_max:
            raise Unreadable("too_large", "a part that should be small is not")
        self._open[-1][2].append(text)

    def end(self, name: str) -> None:
        opened, attributes, pieces = self._open.pop()
        self._seen(opened, attributes, "".join(pieces))
