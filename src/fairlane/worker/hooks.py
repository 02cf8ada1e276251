"""Events of a worker and the hooks that receive them: the one source of logs, metrics and traces.

Laws:
- Everything worth reporting is an event, and every event passes through `Hooks.emit`.
- A hook that fails is logged and does no harm. Hooks run on the worker's loop: they must be quick.
- An event without hooks and without a log reader costs next to nothing.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

from fairlane.core.errors import BadValue

EVENTS: dict[str, tuple[int, str]] = {
    # name: log level and log message
    "started": (logging.INFO, "{worker} started"),
    "claimed": (logging.DEBUG, "{worker} claimed {number} documents"),
    "began": (logging.DEBUG, "document {id} of {customer}: attempt {attempt} began"),
    "reported": (logging.DEBUG, "document {id} of {customer}: {value}"),
    "finished": (logging.DEBUG, "document {id} of {customer}: {outcome} after {seconds:.3f} s"),
    "unfinished": (logging.WARNING, "document {id} of {customer}: {outcome} on attempt {attempt}: {reason}"),
    "printed": (logging.INFO, "document {id} of {customer} printed, at the end: {value}"),
    "lost": (logging.WARNING, "document {id} of {customer}: {reason}"),
    "child_ended": (logging.INFO, "child {number} ended: {reason}"),
    "store_failed": (logging.WARNING, "the store failed, will try again: {reason}"),
    "untraced": (logging.WARNING, "nothing is traced: {reason}"),
    "stopping": (logging.INFO, "{worker} stops: {reason}"),
    "stopped": (logging.INFO, "{worker} stopped: {value}"),
}

_log = logging.getLogger("fairlane.worker")


class WorkerEvent(NamedTuple):
    """Something that happened; only the fields that belong to it are set."""

    name: str
    worker: str
    id: str | None = None  # of the document
    customer: str | None = None
    kind: str | None = None
    priority: int | None = None
    attempt: int | None = None
    token: int | None = None  # of the claim: (id, token) names an attempt
    outcome: str | None = None  # done, failed, retried, released
    reason: str | None = None
    seconds: float | None = None  # that the handler ran
    number: int | None = None  # of a child, or how many documents
    value: Any = None


Hook = Callable[[WorkerEvent], object]


class Hooks:
    """The hooks of a worker, by the event they receive."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._hooks: dict[str, list[Hook]] = defaultdict(list)

    def add(self, name: str, hook: Hook) -> None:
        """Call a hook at every event of that name; "*" is every event."""
        if name != "*" and name not in EVENTS:
            raise BadValue("event", name, f"one of {', '.join(EVENTS)}, or *")
        for event in EVENTS if name == "*" else [name]:
            self._hooks[event].append(hook)

    def remove(self, hook: Hook) -> None:
        """Call a hook no more."""
        kept = {name: [other for other in hooks if other is not hook] for name, hooks in self._hooks.items()}
        self._hooks = defaultdict(list, kept)

    def emit(self, name: str, **facts: Any) -> None:
        """Log an event and call its hooks."""
        hooks, (level, message) = self._hooks.get(name), EVENTS[name]
        if hooks is None and not _log.isEnabledFor(level):
            return
        event = WorkerEvent(name, self._worker, **facts)
        if _log.isEnabledFor(level):
            _log.log(level, message.format_map(event._asdict()), extra={"fairlane": event._asdict()})
        for hook in hooks or ():
            try:
                hook(event)
            except Exception:  # noqa: BLE001 - a hook is the user's code
                _log.exception("the hook %r failed at %r", hook, name)
