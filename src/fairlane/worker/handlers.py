"""Which kinds can this worker handle, and how? What was said with `@worker.handler`, checked."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from fairlane.core.document import ATTEMPTS_DEFAULT, validate_text
from fairlane.core.errors import BadValue, Mistake
from fairlane.core.policy import to_milliseconds

ATTEMPTS_MAX = 1000
SECONDS_DEFAULT = 300.0
SECONDS_MAX_MS = 7 * 24 * 3600 * 1000


class Handler(NamedTuple):
    """A function for one kind of documents."""

    kind: str
    function: Callable[..., Any]
    attempts: int = ATTEMPTS_DEFAULT
    seconds: float = SECONDS_DEFAULT

    @property
    def is_async(self) -> bool:
        """Whether it runs on the worker's own loop."""
        return inspect.iscoroutinefunction(self.function)


def checked(kind: str, function: Callable[..., Any], attempts: int, seconds: float) -> Handler:
    """A handler whose values are right."""
    validate_text("kind", kind, 100)
    if type(attempts) is not int or not 1 <= attempts <= ATTEMPTS_MAX:
        raise BadValue("attempts", attempts, f"a whole number from 1 to {ATTEMPTS_MAX:,}")
    to_milliseconds("seconds", seconds, 1, SECONDS_MAX_MS)
    if not callable(function):
        raise BadValue("handler", function, "a function that takes a document")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise BadValue("handler", function, "a function that returns its result; this one yields")
    return Handler(kind, function, attempts, float(seconds))


class Handlers:
    """All of them by kind."""

    def __init__(self) -> None:
        self._by_kind: dict[str, Handler] = {}

    def __getitem__(self, kind: str) -> Handler:
        return self._by_kind[kind]

    def add(self, handler: Handler) -> None:
        """One more kind."""
        if handler.kind in self._by_kind:
            raise BadValue("kind", handler.kind, "one that has no handler yet; a worker has one handler for each kind")
        self._by_kind[handler.kind] = handler

    def refuse_none(self) -> None:
        """A worker without handlers would wait for ever."""
        if not self._by_kind:
            raise Mistake('this worker has no handlers; write one with @worker.handler("extract") before worker.run()')

    def attempts(self) -> dict[str, int]:
        """The kinds, and how many attempts each has."""
        return {kind: handler.attempts for kind, handler in self._by_kind.items()}

    def functions(self) -> dict[str, Callable[..., Any]]:
        """Those that run in children."""
        return {kind: handler.function for kind, handler in self._by_kind.items() if not handler.is_async}

    def loop_seconds(self) -> float | None:
        """The shortest time that a handler on the loop may take; None if there is none."""
        return min((one.seconds for one in self._by_kind.values() if one.is_async), default=None)
