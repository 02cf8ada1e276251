"""`run_all`: works a queue off in this process and thread, so that mocks and debuggers see the handlers.

Laws:
- Documents are claimed one by one in dispatch order and settled by the engine's own rules: retries, postponements, delays, and
  documents that handlers submit, with `made_from` too.
- When nothing can run now, time moves on to the next moment at which something can. Backoff has no randomness here.
- Whatever a handler raises costs its document an attempt, as in a worker; but KeyboardInterrupt and what ends a test (the
  outcomes of pytest) pass, and the document goes back.
- It ends, or says which document does not.
- Neither processes nor limits of time and memory are involved: a handler has what this process has.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fairlane.blobs.files import Files
from fairlane.core.document import ATTEMPTS_DEFAULT, Continued, Done, Failed, Outcome, Released, Retried
from fairlane.core.errors import BadValue, Mistake
from fairlane.core.retry import DELAY_MAX_MS, Backoff
from fairlane.engine.protocol import DocumentFilter
from fairlane.engine.walk import walk_documents
from fairlane.queue import DEFAULT_KIND
from fairlane.worker import Fail, Retry, Summary, Worker
from fairlane.worker.attempts import attempt_details
from fairlane.worker.claims import ActiveClaim
from fairlane.worker.document import ClaimedDocument, ProgressReport, outcome_of_error, outcome_of_value
from fairlane.worker.handlers import SECONDS_DEFAULT, Handlers, make_handler
from fairlane.worker.hooks import Hooks
from fairlane.worker.outbox import new_state
from fairlane.worker.output import format_traceback
from fairlane.worker.progress import ProgressStore
from fairlane.worker.store import with_part_results

from .memory_queue import MemoryQueue

Function = Callable[[Any], Any]
RUNNER = "run_all"  # the name of the worker
RUNS_MAX = 10_000
PAGE_SIZE = 1000


def run_all(
    queue: MemoryQueue,
    handlers: Worker | Mapping[str, Function] | Function,
    *,
    runs_max: int = RUNS_MAX,
    raise_errors: bool = False,
) -> Summary:
    """Run handlers until nothing is left that they could take, and return what became of the documents.

    `handlers` is your Worker, whatever queue it names; functions by their kind; or one function for the kind "default". With
    `raise_errors` the first exception of a handler other than Retry and Fail is raised here. More than `runs_max` calls are
    an error: something would go on for ever.
    """
    run = InlineRun(queue, handlers, runs_max, raise_errors)
    if run.has_async_handlers:
        _refuse_running_loop()
    with asyncio.Runner() as runner:
        while (active := run.next()) is not None:
            function, document = run.begin(active)
            with run.settling(active, document) as returned:
                value = function(document)
                returned.append(runner.run(value) if inspect.iscoroutine(value) else value)
    return run.summary()


async def run_all_async(
    queue: MemoryQueue,
    handlers: Worker | Mapping[str, Function] | Function,
    *,
    runs_max: int = RUNS_MAX,
    raise_errors: bool = False,
) -> Summary:
    """Do what `run_all` does on the caller's event loop; `def` handlers run on it too."""
    run = InlineRun(queue, handlers, runs_max, raise_errors)
    while (active := run.next()) is not None:
        function, document = run.begin(active)
        with run.settling(active, document) as returned:
            value = function(document)
            returned.append(await value if inspect.iscoroutine(value) else value)
    return run.summary()


class InlineRun:
    """One run: what is claimed next, and what becomes of it."""

    def __init__(
        self, queue: MemoryQueue, handlers: Worker | Mapping[str, Function] | Function, runs_max: int, raise_errors: bool
    ) -> None:
        if not isinstance(queue, MemoryQueue):
            raise BadValue(
                "queue", queue, "a MemoryQueue, whose time can be moved; with another queue use worker.run(until_empty=True)"
            )
        if type(runs_max) is not int or runs_max < 1:
            raise BadValue("runs_max", runs_max, "a whole number from 1")
        self._queue, self._engine = queue, queue.engine
        self._handlers, self._hooks, self._backoff = _parts_of(handlers)
        self._attempts = self._handlers.attempts()
        self._runs_max, self._raise_errors = runs_max, raise_errors
        self._runs: Counter[str] = Counter()  # by document
        self._ended: Counter[str] = Counter()  # by what became of it
        self._last_reasons: dict[str, str] = {}  # by document that came back
        self._progress = ProgressStore(queue.engine)

    @property
    def has_async_handlers(self) -> bool:
        return self._handlers.async_seconds_min() is not None

    def summary(self) -> Summary:
        """Return what became of the documents so far."""
        return Summary(**self._ended)

    # -- claiming

    def next(self) -> ActiveClaim | None:
        """Claim the next document, if need be after time has moved on; None when nothing is left."""
        while True:
            self._engine.reclaim(PAGE_SIZE)
            if claims := self._engine.claim(RUNNER, 1, DELAY_MAX_MS, self._attempts):
                claim = with_part_results(self._engine, claims[0])
                active = ActiveClaim(self._runs.total() + 1, claim, 0, 0)
                self._refuse_endless(active)
                self._runs[active.claim.id] += 1
                self._hooks.emit("claimed", number=1)
                return active
            due_ms = self._next_due_ms()
            if due_ms is None:
                return None
            self._queue.advance((due_ms - self._engine.now()) / 1000)

    def _next_due_ms(self) -> int | None:
        """Return when the next document of these kinds may start that cannot now; None: none will by waiting."""
        due = [document.ready_ms for document in self._delayed() if not document.parts_left]
        for limited in self._engine.kinds("", PAGE_SIZE):
            is_waiting = any(walk_documents(self._engine, DocumentFilter(kind=limited.kind, state="ready")))
            if limited.kind in self._attempts and is_waiting:
                due.append(limited.next_start_ms)
        return min((at_ms for at_ms in due if at_ms > self._engine.now()), default=None)

    def _delayed(self) -> Iterator[Any]:
        paused: dict[str, bool] = {}
        for document in walk_documents(self._engine, DocumentFilter(state="delayed")):
            if document.customer not in paused:
                paused[document.customer] = self._engine.customer(document.customer).terms.paused
            if document.kind in self._attempts and not paused[document.customer]:
                yield document

    def _refuse_endless(self, active: ActiveClaim) -> None:
        """Give the document back and raise if so many handlers ran that this seems to have no end."""
        if self._runs.total() < self._runs_max:
            return
        self._engine.settle([(active.claim, Released())])
        (id, count), kind = self._runs.most_common(1)[0], active.claim.kind
        if count > 1:
            who = f"document {id} alone came back {count:,} times, the last time with: {self._last_reasons.get(id, 'nothing')}"
        else:
            who = f"each of another document, so one seems to submit the next; now comes {active.claim.id}, of kind {kind!r}"
        raise Mistake(f"handlers ran {self._runs_max:,} times and there is still work: {who}. If that is meant, raise runs_max")

    # -- running

    def begin(self, active: ActiveClaim) -> tuple[Function, ClaimedDocument]:
        """Return the handler of a document, and the document as it sees it."""
        claim = active.claim

        def report(report: ProgressReport) -> None:
            self._progress.record(claim, *report)
            self._progress.write(self._progress.take_unwritten())
            self._hooks.emit("reported", value=report.progress, **active.facts())

        self._hooks.emit("began", **active.facts())
        return self._handlers[claim.kind].function, ClaimedDocument(claim, report, self._open_files)

    def _open_files(self) -> Files:
        return self._queue.files.open()

    @contextmanager
    def settling(self, active: ActiveClaim, document: ClaimedDocument) -> Iterator[list[Any]]:
        """Settle a document with what its handler returned, which the caller appends to the list, or raised."""
        returned: list[Any] = []
        began_ms = self._engine.now()
        try:
            yield returned
        except (Exception, SystemExit) as error:
            active.seconds = (self._engine.now() - began_ms) / 1000
            outcome = outcome_of_error(document, error, self._backoff, dice=0.0)
            is_meant = isinstance(error, Retry | Fail)
            self._settle(active, document, outcome, None if is_meant else format_traceback(error))
            if self._raise_errors and not is_meant:
                raise
        except BaseException:  # the test is ended, not the handler
            self._engine.settle([(active.claim, Released())])
            raise
        else:
            active.seconds = (self._engine.now() - began_ms) / 1000
            self._settle(active, document, outcome_of_value(document, returned[0]), None)

    def _settle(self, active: ActiveClaim, document: ClaimedDocument, outcome: Outcome, traceback: str | None) -> None:
        document.flush_report()
        facts = active.facts()
        if traceback is not None and isinstance(outcome, Retried | Failed):
            self._hooks.emit("raised", reason=outcome.reason, traceback=traceback, **facts)
            details = attempt_details(active, RUNNER, outcome.reason, traceback, self._engine.now())
            outcome = outcome._replace(details=details)
        active.outcome = outcome
        self._progress.forget(active.claim, isinstance(outcome, Done | Continued))
        self._progress.write(self._progress.take_unwritten())
        if self._engine.settle([(active.claim, outcome)]):
            self._ended["lost"] += 1
            self._hooks.emit(
                "lost", reason="its handler ended after the document was cancelled, or taken by another worker", **facts
            )
            return
        state, reason = new_state(active)
        self._ended[state] += 1
        self._last_reasons[active.claim.id] = reason or state
        name = "unfinished" if state in ("failed", "retried") else "finished"
        self._hooks.emit(name, outcome=state, reason=reason, seconds=active.seconds, **facts)


def _parts_of(handlers: Worker | Mapping[str, Function] | Function) -> tuple[Handlers, Hooks, Backoff]:
    """Return the handlers, the hooks and the backoff of a worker, or those of bare functions."""
    if isinstance(handlers, Worker):
        handlers.handlers.require_any()
        return handlers.handlers, handlers.hooks, handlers.backoff
    if callable(handlers):
        handlers = {DEFAULT_KIND: handlers}
    if not isinstance(handlers, Mapping) or not handlers:
        raise BadValue("handlers", handlers, 'a Worker, a function, or functions by kind, as in {"invoice": process}')
    made = Handlers()
    for kind, function in handlers.items():
        made.add(make_handler(kind, function, ATTEMPTS_DEFAULT, SECONDS_DEFAULT))
    return made, Hooks(RUNNER), Backoff()


def _refuse_running_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise Mistake("run_all cannot run `async def` handlers inside an event loop; write await run_all_async(queue, handlers)")
