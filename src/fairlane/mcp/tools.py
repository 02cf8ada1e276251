"""Tools for support: why a document waits, where a customer stands, what the queue does, what happened to a document.

Laws:
- They read, but for the few in `CHANGES`, which are offered only where that was allowed.
- Neither payloads nor results nor files are shown: an assistant needs none of them to explain a wait.
- Through a server the permissions of its key hold, and what the key may not do is an error that says so.
- A person's mistake is an error in one sentence, never a traceback.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from heapq import nlargest
from itertools import islice
from typing import Any, Literal, ParamSpec

from mcp.server.mcpserver.exceptions import ToolError

from fairlane.client import Client
from fairlane.core.errors import BadValue, FairlaneError, Mistake
from fairlane.queue import Attempt, Document, Explanation, HistoryEntry, Look, Queue, WorkerStatus

P = ParamSpec("P")
Facts = dict[str, Any]
DocumentState = Literal["delayed", "ready", "running", "done", "failed", "cancelled"]
DOCUMENTS_MAX = 200
CUSTOMERS_MAX = 10_000  # that are looked at to find those with the longest backlog
CUSTOMERS_SHOWN = 20
HISTORY_SHOWN = 100
TEXT_LENGTH_MAX = 1000  # of a reason
TRACEBACK_LENGTH_MAX = 3000


def reported(tool: Callable[P, Facts]) -> Callable[P, Facts]:
    """Turn what is wrong into the sentence that the assistant gets."""

    @functools.wraps(tool)
    def call(*args: P.args, **kwargs: P.kwargs) -> Facts:
        try:
            return tool(*args, **kwargs)
        except FairlaneError as error:
            raise ToolError(str(error)) from None

    return call


class SupportTools:
    """The tools, on a queue in a store or behind a server."""

    def __init__(self, queue: Queue | Client) -> None:
        self._queue = queue

    @reported
    def explain_document(self, document_id: str) -> Facts:
        """Explain why a document waits: its priority, how its customer's counter led to it, about how many documents are ahead,
        and a range of times within which it will probably start. For one that has ended it says how. Use it to answer
        "why is my document still waiting?"."""
        explanation = self._queue.explain(document_id)
        return {**_explanation(explanation), "document": _document(self._queue.document(document_id))}

    @reported
    def customer_standing(self, customer: str) -> Facts:
        """Say where a customer stands: its counter, the priority that its next document would get, when the counter goes back
        to zero, what waits, runs, is done and failed, and limits and pauses of its own."""
        return {**_explanation(self._queue.explain_customer(customer)), "standing": _look(self._queue.look(customer))}

    @reported
    def queue_status(self) -> Facts:
        """Say what the queue does now: the customers with the longest backlog, the workers and what runs on them, and kinds of
        documents that wait although no worker takes them."""
        looks = list(islice(self._queue.customers(), CUSTOMERS_MAX + 1))
        busy = [look for look in looks[:CUSTOMERS_MAX] if look.waiting or look.running]
        return {
            "customers": min(len(looks), CUSTOMERS_MAX),
            "more_customers": len(looks) > CUSTOMERS_MAX,
            "waiting": sum(look.waiting for look in busy),
            "running": sum(look.running for look in busy),
            "longest_backlogs": [_look(look) for look in nlargest(CUSTOMERS_SHOWN, busy, key=lambda look: look.waiting)],
            "workers": [_worker(worker) for worker in self._queue.workers()],
            "unserved_kinds": [_plain(kind._asdict()) for kind in self._queue.unserved_kinds()],
        }

    @reported
    def search_documents(
        self,
        customer: str | None = None,
        state: DocumentState | None = None,
        kind: str | None = None,
        reason: str | None = None,
        since_hours: float | None = None,
        limit: int = 20,
    ) -> Facts:
        """Find documents, newest first: of a customer, in a state, of a kind, that failed with a reason that contains a text,
        or that were submitted within the last hours. Everything that is given must hold."""
        if not 1 <= limit <= DOCUMENTS_MAX:
            raise BadValue("limit", limit, f"a whole number from 1 to {DOCUMENTS_MAX}")
        if since_hours is not None and not 0 < since_hours <= 24 * 366:
            raise BadValue("since_hours", since_hours, "a number of hours above 0, a year's at most")
        since = None if since_hours is None else datetime.now(UTC) - timedelta(hours=since_hours)
        found = list(islice(self._queue.documents(customer, state, kind=kind, reason=reason, since=since), limit + 1))
        return {"documents": [_document(document) for document in found[:limit]], "more": len(found) > limit}

    @reported
    def document_history(self, document_id: str) -> Facts:
        """Tell the life of a document: what happened to it and when, and why attempts failed, with their tracebacks."""
        document, history = self._queue.document(document_id), self._queue.history(document_id)
        try:
            attempts = self._queue.attempts(document_id)
        except Mistake:  # a customer's key: tracebacks are for staff, the rest is for the customer too
            attempts = []
        return {
            "document": _document(document),
            "history": [_entry(entry) for entry in history[-HISTORY_SHOWN:]],
            "earlier_entries": max(0, len(history) - HISTORY_SHOWN),
            "failed_attempts": [_attempt(attempt) for attempt in attempts],
        }

    @reported
    def pause_customer(self, customer: str) -> Facts:
        """Pause a customer: it may go on submitting, and nothing of it is served until it is resumed. What runs is finished."""
        self._queue.pause(customer)
        return {"standing": _look(self._queue.look(customer))}

    @reported
    def resume_customer(self, customer: str) -> Facts:
        """Serve a paused customer again."""
        self._queue.resume(customer)
        return {"standing": _look(self._queue.look(customer))}

    @reported
    def prioritize_document(self, document_id: str, priority: int) -> Facts:
        """Set the priority of a waiting document by hand, 1 (served first) to 9 (served last). Its customer's counter stays."""
        self._queue.prioritize(document_id, priority)
        return {"document": _document(self._queue.document(document_id))}


READS = ("explain_document", "customer_standing", "queue_status", "search_documents", "document_history")
CHANGES = ("pause_customer", "resume_customer", "prioritize_document")


def _explanation(explanation: Explanation) -> Facts:
    return {"explanation": explanation.sentence, "facts": _plain(explanation.facts)}


def _document(document: Document) -> Facts:
    facts: Facts = _plain(document._asdict())
    facts.pop("progress")  # partial results are the customer's
    progress = document.progress
    return facts | {"reason": _cut(document.reason), "progress": None if progress is None else _plain(progress.progress)}


def _look(look: Look) -> Facts:
    facts: Facts = _plain(look._asdict())
    return facts


def _worker(worker: WorkerStatus) -> Facts:
    facts: Facts = _plain(worker._asdict())
    return facts


def _entry(entry: HistoryEntry) -> Facts:
    facts = {name: value for name, value in entry._asdict().items() if value is not None}
    plain: Facts = _plain(facts)
    return plain | ({"reason": _cut(entry.reason)} if entry.reason else {})


def _attempt(attempt: Attempt) -> Facts:
    """Return an attempt without what its handler printed, which may quote the document."""
    facts: Facts = _plain(attempt._asdict())
    facts.pop("output")
    return facts | {
        "reason": _cut(attempt.reason),
        "traceback": attempt.traceback and attempt.traceback[-TRACEBACK_LENGTH_MAX:],
    }


def _cut(text: str | None) -> str | None:
    return text if text is None or len(text) <= TEXT_LENGTH_MAX else text[:TEXT_LENGTH_MAX] + "…"


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: moments as texts, durations as seconds."""
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return _plain(value._asdict())
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    return value
