"""New priorities for documents that wait: by the table of now, or by another check after a reset; in steps of a bounded size.

Laws:
- One step reads a bounded number of customers and changes a bounded number of documents, a transaction for each customer.
- A walk ends with the documents that were there when it began, and at most one step later: it ends however fast others come.
- A step by the table may be repeated. A step of checks may not: whoever does not know whether it was made resets again.
"""

from __future__ import annotations

from typing import NamedTuple

from fairlane.core.errors import BadValue
from fairlane.engine.protocol import Engine
from fairlane.engine.walk import ALL, first_number

DOCUMENTS_MAX = 500  # of one customer in one transaction
CUSTOMERS_MAX = 200  # that one step reads


class BacklogStep(NamedTuple):
    """One step through waiting documents; the cursor is opaque."""

    changed: int  # so many got another priority
    next: str | None  # the cursor of the next step; None: this was the last


class _Cursor(NamedTuple):
    """Where a step begins: after a document of a customer, or, without a document, with the customers after it."""

    end: int  # documents with this number or a higher one came after the walk began
    after: int = 0
    customer: str = ""

    def __str__(self) -> str:
        return f"{self.end}:{self.after}:{self.customer}"


def backlog_start(engine: Engine) -> str:
    """Return the cursor of the first step."""
    return str(_Cursor(first_number(engine, ALL)))


def recheck_step(engine: Engine, customer: str, cursor: str) -> BacklogStep:
    """Check a customer's next waiting documents again, as if they came now."""
    return _customer_step(engine, customer, _parse(cursor), recheck=True)


def table_step(engine: Engine, customer: str | None, cursor: str) -> BacklogStep:
    """Read the priorities of the next waiting documents, of one customer or of all, again from the table."""
    at = _parse(cursor)
    if customer is not None:
        return _customer_step(engine, customer, at, recheck=False)
    if at.after:
        step = _customer_step(engine, at.customer, at, recheck=False)
        return step._replace(next=step.next or str(_Cursor(at.end, 0, at.customer)))
    changed = documents = 0
    page = engine.customers(at.customer, CUSTOMERS_MAX)
    for row in page:
        if not row.waiting:
            continue
        step = _customer_step(engine, row.id, _Cursor(at.end), recheck=False)
        changed, documents = changed + step.changed, documents + row.waiting
        if step.next is not None or documents >= DOCUMENTS_MAX:
            return BacklogStep(changed, step.next or str(_Cursor(at.end, 0, row.id)))
    return BacklogStep(changed, str(_Cursor(at.end, 0, page[-1].id)) if len(page) == CUSTOMERS_MAX else None)


def _customer_step(engine: Engine, customer: str, at: _Cursor, *, recheck: bool) -> BacklogStep:
    step = engine.reprioritize(customer, at.after, DOCUMENTS_MAX, recheck=recheck)
    is_last = step.next is None or step.next + 1 >= at.end
    return BacklogStep(step.changed, None if is_last else str(_Cursor(at.end, step.next or 0, customer)))


def _parse(cursor: str) -> _Cursor:
    end, _, rest = cursor.partition(":")
    after, _, customer = rest.partition(":")
    if not all(number.isascii() and number.isdigit() and len(number) < 17 for number in (end, after)):
        raise BadValue("cursor", cursor, "what a step gave as next")
    return _Cursor(int(end), int(after), customer)
