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

from .log_records import RECORD_FIELDS

EVENTS: dict[str, tuple[int, str]] = {
    # name: log level and log message; all go to the logger fairlane.worker, but `printed` to fairlane.handler
    "started": (logging.INFO, "{worker} started"),
    "claimed": (logging.DEBUG, "{worker} claimed {number} documents"),
    "began": (logging.DEBUG, "document {id} of {customer}: attempt {attempt} began"),
    "reported": (logging.DEBUG, "document {id} of {customer}: {value}"),
    "finished": (logging.DEBUG, "document {id} of {customer}: {outcome} after {seconds:.3f} s"),
    "unfinished": (logging.WARNING, "document {id} of {customer}: {outcome} on attempt {attempt}: {reason}"),
    "printed": (logging.INFO, "document {id} of {customer}: {value}"),
    "dropped": (logging.WARNING, "document {id} of {customer}: {number} lines of output were dropped: too many"),
    "raised": (logging.ERROR, "document {id} of {customer}: attempt {attempt} raised {reason}\n{traceback}"),
    "lost": (logging.WARNING, "document {id} of {customer}: {reason}"),
    "child_ended": (logging.INFO, "child {number} ended: {reason}"),
    "store_failed": (logging.WARNING, "the store failed, will try again: {reason}"),
    "unserved": (logging.WARNING, "{reason}"),
    "untraced": (logging.WARNING, "nothing is traced: {reason}"),
    "draining": (logging.INFO, "{worker} claims no more: {reason}"),
    "undrained": (logging.INFO, "{worker} claims again: {reason}"),
    "stopping": (logging.INFO, "{worker} stops: {reason}"),
    "stopped": (logging.INFO, "{worker} stopped: {value}"),
}

_log = logging.getLogger("fairlane.worker")
_handler_log = logging.getLogger("fairlane.handler")


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
    outcome: str | None = None  # done, failed, retried, postponed, released
    reason: str | None = None
    seconds: float | None = None  # that the handler ran
    number: int | None = None  # of a child, or how many documents
    value: Any = None
    traceback: str | None = None


Hook = Callable[[WorkerEvent], object]


class Hooks:
    """The hooks of a worker, by the event they receive."""

    def __init__(self, worker: str) -> None:
        self.worker = worker  # its name
        self._hooks: dict[str, list[Hook]] = defaultdict(list)
        self._own: set[str] = set()  # events for which a hook was added by name

    def add(self, name: str, hook: Hook) -> None:
        """Call a hook at every event of that name; "*" is every event."""
        if name != "*" and name not in EVENTS:
            raise BadValue("event", name, f"one of {', '.join(EVENTS)}, or *")
        if name != "*":
            self._own.add(name)
        for event in EVENTS if name == "*" else [name]:
            self._hooks[event].append(hook)

    def remove(self, hook: Hook) -> None:
        """Call a hook no more."""
        kept = {name: [other for other in hooks if other is not hook] for name, hooks in self._hooks.items()}
        self._hooks = defaultdict(list, kept)

    def has_own(self, name: str) -> bool:
        """Whether a hook was added for the events of that name, not for all: such a one shows them to people."""
        return name in self._own

    def emit(self, name: str, **facts: Any) -> None:
        """Log an event and call its hooks."""
        hooks, (level, message) = self._hooks.get(name), EVENTS[name]
        log = _handler_log if name == "printed" else _log
        if hooks is None and not log.isEnabledFor(level):
            return
        event = WorkerEvent(name, self.worker, **facts)
        if log.isEnabledFor(level):
            extra: dict[str, Any] = {"fairlane": event._asdict()}
            if event.id is not None:
                extra |= dict(zip(RECORD_FIELDS, (event.id, event.customer, event.attempt), strict=True))
            log.log(level, "%s", message.format_map(event._asdict()), extra=extra)
        for hook in hooks or ():
            try:
                hook(event)
            except Exception:  # noqa: BLE001 - a hook is the user's code
                _log.exception("the hook %r failed at %r", hook, name)
