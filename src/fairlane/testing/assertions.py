"""Assertions about a queue; one that fails says what is there instead.

They take any `Queue`, not only one in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

from fairlane.core.errors import BadValue, Unknown
from fairlane.queue import Document, Queue

SHOWN_MAX = 10
PAYLOAD_LENGTH_MAX = 120


class Anything(Enum):
    """The default of what is not compared, where None has a meaning of its own."""

    ANYTHING = "anything"


ANYTHING: Final = Anything.ANYTHING


def assert_submitted(
    queue: Queue,
    customer: str | None = None,
    payload: Any = ANYTHING,
    *,
    kind: str | None = None,
    name: str | None = None,
    key: str | None = None,
    priority: int | None = None,
    count: int | None = None,
) -> list[Document]:
    """Assert that at least one document, or exactly `count`, was submitted for which everything holds that is given.

    Of a payload that is a dict only the keys are compared that are given. `name` is the file's. Returns them, oldest first.
    """
    if count is not None and (type(count) is not int or count < 0):
        raise BadValue("count", count, "a whole number from 0, or None for at least one")
    found = _matches(queue, customer, payload, kind, name, key, priority)
    if len(found) == count or (count is None and found):
        return found
    wanted = _describe(customer=customer, payload=payload, kind=kind, name=name, key=key, priority=priority)
    expected = "at least 1 document" if count is None else f"{count} document{'s' * (count != 1)}"
    raise AssertionError(f"expected {expected} with {wanted}, found {len(found)}; {_listing(queue)}")


def assert_not_submitted(
    queue: Queue,
    customer: str | None = None,
    payload: Any = ANYTHING,
    *,
    kind: str | None = None,
    name: str | None = None,
    key: str | None = None,
    priority: int | None = None,
) -> None:
    """Assert that no document was submitted for which everything holds that is given."""
    assert_submitted(queue, customer, payload, kind=kind, name=name, key=key, priority=priority, count=0)


def assert_done(queue: Queue, id: str, result: Any = ANYTHING) -> Any:
    """Assert that a document is done, and of a result that is a dict the keys that are given; return its result."""
    document = queue.document(id)
    if document.state != "done":
        raise AssertionError(f"document {id} is {document.state}, not done{_why(queue, document)}")
    found = queue.result(id)
    if not _holds(result, found):
        raise AssertionError(f"document {id} has the result {found!r}, expected {result!r}")
    return found


def assert_failed(queue: Queue, id: str, reason: str = "") -> str:
    """Assert that a document failed, and that its reason holds a text; return the reason."""
    document = queue.document(id)
    if document.state != "failed":
        raise AssertionError(f"document {id} is {document.state}, not failed{_why(queue, document)}")
    found = document.reason or ""
    if reason not in found:
        raise AssertionError(f"document {id} failed with {found!r}, which does not hold {reason!r}")
    return found


def _matches(
    queue: Queue, customer: str | None, payload: Any, kind: str | None, name: str | None, key: str | None, priority: int | None
) -> list[Document]:
    found = [
        document
        for document in queue.documents(customer, kind=kind)
        if (key is None or document.key == key)
        and (priority is None or document.priority == priority)
        and (name is None or _file_name(queue, document.id) == name)
        and (payload is ANYTHING or _holds(payload, queue.payload(document.id)))
    ]
    return found[::-1]


def _file_name(queue: Queue, id: str) -> str | None:
    try:
        return queue.input(id).name
    except Unknown:
        return None


def _holds(expected: Any, found: Any) -> bool:
    """Return whether a value is what is expected; of dicts, in lists too, only the expected keys are compared."""
    if expected is ANYTHING:
        return True
    if isinstance(expected, Mapping):
        return isinstance(found, dict) and all(key in found and _holds(value, found[key]) for key, value in expected.items())
    if isinstance(expected, list | tuple):
        return (
            isinstance(found, list)
            and len(found) == len(expected)
            and all(_holds(*pair) for pair in zip(expected, found, strict=True))
        )
    return bool(expected == found)


def _describe(**wanted: Any) -> str:
    named = [f"{name}={value!r}" for name, value in wanted.items() if value is not None and value is not ANYTHING]
    if wanted["payload"] is None:
        named.append("payload=None")
    return ", ".join(named) or "any values"


def _listing(queue: Queue) -> str:
    documents = list(queue.documents())[::-1]
    if not documents:
        return "nothing was submitted at all"
    lines = []
    for document in documents[:SHOWN_MAX]:
        payload = repr(queue.payload(document.id))
        shown = payload if len(payload) <= PAYLOAD_LENGTH_MAX else payload[:PAYLOAD_LENGTH_MAX] + "…"
        name = _file_name(queue, document.id)
        file, key = f" file {name!r}" if name else "", f" key {document.key!r}" if document.key else ""
        lines.append(
            f"  {document.customer} {document.kind!r} priority {document.priority} {document.state}{key}{file} {shown}"
        )
    more = f"\n  and {len(documents) - SHOWN_MAX:,} more" if len(documents) > SHOWN_MAX else ""
    return "submitted were:\n" + "\n".join(lines) + more


def _why(queue: Queue, document: Document) -> str:
    """Return why a document is not where it should be: its reason, the last traceback, or what it waits for."""
    text = f": {document.reason}" if document.reason else ""
    tracebacks = [attempt.traceback for attempt in queue.attempts(document.id) if attempt.traceback]
    if tracebacks:
        return f"{text}\n{tracebacks[-1]}"
    return text or ("" if document.is_ended else f"; {queue.explain(document.id).sentence}")
