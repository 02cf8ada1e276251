"""The handlers of a worker by document kind, the validation of `@worker.handler`, and one run of a `def` handler."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from fairlane.core.document import ATTEMPTS_DEFAULT, Outcome, validate_text
from fairlane.core.errors import BadValue, Mistake
from fairlane.core.policy import plain_seconds, to_milliseconds
from fairlane.core.retry import Backoff

from .claims import ActiveClaim
from .document import ClaimedDocument, Fail, Retry, outcome_of_error, outcome_of_value
from .output import format_traceback
from .resources import Amounts, validate_amounts

ATTEMPTS_MAX = 1000
SECONDS_DEFAULT = 300.0
SECONDS_MAX_MS = 7 * 24 * 3600 * 1000


class Handler(NamedTuple):
    """The function for one kind of documents."""

    kind: str
    function: Callable[..., Any]
    attempts: int = ATTEMPTS_DEFAULT
    seconds: float = SECONDS_DEFAULT
    needs: Amounts = MappingProxyType({})

    @property
    def is_async(self) -> bool:
        """Whether it runs on the worker's own loop."""
        return inspect.iscoroutinefunction(self.function)


def make_handler(
    kind: str, function: Callable[..., Any], attempts: int, timeout: float | timedelta, needs: Amounts | None = None
) -> Handler:
    """Make a handler of valid values; raises BadValue otherwise."""
    validate_text("kind", kind, 100)
    if type(attempts) is not int or not 1 <= attempts <= ATTEMPTS_MAX:
        raise BadValue("attempts", attempts, f"a whole number from 1 to {ATTEMPTS_MAX:,}")
    to_milliseconds("timeout", timeout, 1, SECONDS_MAX_MS)
    if not callable(function):
        raise BadValue("handler", function, "a function that takes a document")
    validate_signature(function)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise BadValue("handler", function, "a function that returns its result; this one yields")
    return Handler(kind, function, attempts, float(plain_seconds(timeout)), validate_amounts("needs", needs))


def validate_signature(function: Callable[..., Any]) -> None:
    """Refuse a function that cannot be called with one document; raises BadValue."""
    try:
        signature = inspect.signature(function, follow_wrapped=False)  # a decorator may add arguments of its own
    except (TypeError, ValueError):  # some built-in functions do not say what they take
        return
    try:
        signature.bind(object())
    except TypeError as error:
        name = getattr(function, "__name__", repr(function))
        raise BadValue("handler", f"{name}{signature}", f"a function that can be called with one document ({error})") from None


def run_handler(
    function: Callable[[ClaimedDocument], Any], document: ClaimedDocument, backoff: Backoff
) -> tuple[Outcome, str | None]:
    """Run a `def` handler; returns an outcome whatever it does, short of ending the process, and a traceback."""
    traceback = None
    try:
        outcome = outcome_of_value(document, function(document))
    except BaseException as error:  # noqa: BLE001 - sys.exit() too costs one attempt and nothing else
        if not isinstance(error, Retry | Fail):
            traceback = format_traceback(error)
        outcome = outcome_of_error(document, error, backoff, random.random())
    document.flush_report()
    return outcome, traceback


class Handlers:
    """All handlers of a worker, one for each kind."""

    def __init__(self) -> None:
        self._by_kind: dict[str, Handler] = {}

    def __len__(self) -> int:
        return len(self._by_kind)

    def __getitem__(self, kind: str) -> Handler:
        return self._by_kind[kind]

    def add(self, handler: Handler) -> None:
        if handler.kind in self._by_kind:
            raise BadValue("kind", handler.kind, "one that has no handler yet; a worker has one handler for each kind")
        self._by_kind[handler.kind] = handler

    def require_any(self) -> None:
        """Refuse a worker without handlers: it would wait for ever."""
        if not self._by_kind:
            raise Mistake("this worker has no handlers; write one with @worker.handler() before worker.run()")

    def attempts(self) -> dict[str, int]:
        """Return how many attempts each kind has."""
        return {kind: handler.attempts for kind, handler in self._by_kind.items()}

    def needs(self) -> dict[str, Amounts]:
        """Return what each kind needs of the worker's resources."""
        return {kind: handler.needs for kind, handler in self._by_kind.items()}

    def functions(self) -> dict[str, Callable[..., Any]]:
        """Return the functions that run in child processes."""
        return {kind: handler.function for kind, handler in self._by_kind.items() if not handler.is_async}

    def async_seconds_min(self) -> float | None:
        """Return the shortest time limit of an `async def` handler; None if there is no such handler."""
        return min((handler.seconds for handler in self._by_kind.values() if handler.is_async), default=None)


class HandlerEvents(Protocol):
    """Receiver of what running handlers report."""

    def began(self, active: ActiveClaim) -> None:
        """A handler has its document."""

    def reported(self, active: ActiveClaim, progress: float | str | None, partial: str | None) -> None:
        """A handler reported progress or a partial result."""

    def printed(self, active: ActiveClaim, line: str) -> None:
        """A handler printed a line."""

    def logged(self, active: ActiveClaim, fields: Mapping[str, Any]) -> None:
        """A handler in a child made a record of `logging`."""

    def dropped(self, active: ActiveClaim, lines: int) -> None:
        """So many lines of a handler's output were dropped."""

    def finished(self, active: ActiveClaim, outcome: Outcome, seconds: float, traceback: str | None) -> None:
        """A handler returned or raised."""

    def died(self, active: ActiveClaim, reason: str, traceback: str | None = None) -> None:
        """A handler was stopped, or its process died."""

    def slot_freed(self) -> None:
        """A handler has ended whose document had been given up before."""
