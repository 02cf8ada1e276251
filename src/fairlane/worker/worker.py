"""What does a program use to work documents off? `Worker`: handlers, and `run()`.

Laws:
- Values are checked before anything is started.
- The template is forked before the store, a thread or a loop is opened.
- `run()` leaves nothing behind: no process, no thread, no signal handler.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, TypeVar, overload

from fairlane.blobs.files import Files
from fairlane.core.document import ATTEMPTS_DEFAULT, validate_text
from fairlane.core.errors import BadValue, Mistake
from fairlane.core.policy import to_milliseconds
from fairlane.core.retry import Backoff
from fairlane.engine import Engine, open_engine
from fairlane.procs import reaper
from fairlane.queue import Queue
from fairlane.queue.files import QueueFiles, open_files_of
from fairlane.settings import DEFAULT_URL
from fairlane.tracing import open_spans

from . import child, fork_server, heartbeat
from .blob_gc import Sweeping
from .child_pool import Children
from .coroutines import Coroutines
from .handlers import SECONDS_DEFAULT, Handlers, checked
from .heartbeat_client import Keeping
from .hooks import Hook, Hooks
from .progress import Reports
from .run_loop import Means, Shift, Summary
from .store import Store

F = TypeVar("F", bound=Callable[..., Any])
H = TypeVar("H", bound=Hook)
SLOTS_MAX = 256
LEASE_MS_LEAST, LEASE_MS_MOST = 1000, 24 * 3600 * 1000
MEMORY_LEAST = 16 * 1024 * 1024
HELPER_SECONDS = 15.0  # that a helper process may take to end


class Worker:
    """Takes documents from a queue and gives them to handlers."""

    def __init__(
        self,
        queue: str | Queue = DEFAULT_URL,
        *,
        slots: int = 4,
        lease: float = 30,
        grace: float = 30,
        memory: int = 1024**3,
        backoff: Backoff | None = None,
        name: str | None = None,
        blobs: str | None = None,
    ) -> None:
        if not isinstance(queue, str | Queue):
            raise BadValue("queue", queue, "the URL of a queue, or a Queue")
        if queue == "memory://":
            raise BadValue("queue", queue, "a Queue when it lives in memory, as nobody else could submit: Worker(queue)")
        if type(memory) is not int or memory < MEMORY_LEAST:
            raise BadValue("memory", memory, f"a whole number of bytes, at least {MEMORY_LEAST:,}")
        if not isinstance(backoff, Backoff | None):
            raise BadValue("backoff", backoff, "a Backoff")
        if blobs is not None and isinstance(queue, Queue):
            raise BadValue("blobs", blobs, "left out when a Queue is given, which says itself where its files are")
        self._queue = queue
        self._blobs = blobs
        self._slots = _checked_slots(slots)
        self._lease_ms = to_milliseconds("lease", lease, LEASE_MS_LEAST, LEASE_MS_MOST)
        self._grace = to_milliseconds("grace", grace, 0, LEASE_MS_MOST) / 1000
        self._memory = memory
        self._backoff = backoff or Backoff()
        self.name = validate_text("name", f"{platform.node()[:100] or 'worker'}-{os.getpid()}" if name is None else name)
        self._handlers = Handlers()
        self._hooks = Hooks(self.name)
        self._running = threading.Lock()
        self._stops = 0  # asked for, and not answered by a run yet
        self._stopping: Callable[[], None] | None = None

    def handler(self, kind: str, *, attempts: int = ATTEMPTS_DEFAULT, seconds: float = SECONDS_DEFAULT) -> Callable[[F], F]:
        """Name the function for a kind: `def` runs in a child process, `async def` on the worker's loop."""

        def add(function: F) -> F:
            self._handlers.add(checked(kind, function, attempts, seconds))
            return function

        return add

    @overload
    def on(self, event: str, hook: None = None) -> Callable[[H], H]: ...

    @overload
    def on(self, event: str, hook: H) -> H: ...

    def on(self, event: str, hook: H | None = None) -> Callable[[H], H] | H:
        """Call a hook at every event of that name, or at all of them ("*"); also a decorator."""
        if hook is None:
            return lambda hooked: self.on(event, hooked)
        self._hooks.add(event, hook)
        return hook

    def stop(self) -> None:
        """Stop as SIGTERM does, from any thread; called again it gives everything back at once."""
        self._stops += 1
        if self._stopping is not None:
            self._stopping()

    def run(self, *, until_empty: bool = False, slots: int | None = None) -> Summary:
        """Work until stopped by a signal or `stop()`; with `until_empty` also when nothing is left to do."""
        self._handlers.refuse_none()
        if slots is not None:
            self._slots = _checked_slots(slots)
        if _has_loop():
            raise Mistake("worker.run() has a loop of its own; call it in a thread: await asyncio.to_thread(worker.run)")
        if not self._running.acquire(blocking=False):
            raise Mistake("this worker already runs; make another Worker to run two")
        try:
            return self._run(until_empty)
        finally:
            self._stops, self._stopping = 0, None
            self._running.release()

    def _run(self, until_empty: bool) -> Summary:
        url = self._queue.url if isinstance(self._queue, Queue) else self._queue
        with ExitStack() as kept:
            control: socket.socket | None = None
            template_pid: int | None = None
            if url != "memory://":
                open_engine(url).close()  # a bad URL is told here, by the one who gave it
            files = self._files()
            if functions := self._handlers.functions():
                template_pid, control = fork_server.start(child.Means(functions, self._backoff, self._memory, files))
                kept.callback(reaper.wait_or_kill, template_pid, HELPER_SECONDS)
                kept.callback(control.close)
            engine, line = self._store_and_keeper(url, template_pid, kept)
            kept.callback(line.close)
            self._trace(engine, kept)
            store = Store(engine, self.name, self._lease_ms, self._handlers.attempts())
            filing = self._queue.files if isinstance(self._queue, Queue) else QueueFiles(engine, url, self._blobs)
            shift = Shift(
                Means(
                    store, Reports(engine), Sweeping(filing), self._handlers, self._hooks, self._backoff, self._slots,
                    self._lease_ms, self._grace, until_empty,
                )
            )  # fmt: skip
            loop = asyncio.new_event_loop()
            kept.callback(loop.close)
            with self._answering(loop, shift):
                return loop.run_until_complete(self._work(shift, control, line, files))

    def _trace(self, engine: Engine, kept: ExitStack) -> None:
        """Tell spans if somebody wants them; after the forks, as it has threads."""
        spans = open_spans(os.environ, lambda reason: self._hooks.tell("untraced", reason=reason))
        if spans is not None:
            from .tracing import Traced

            traced = Traced(spans, engine)
            kept.callback(traced.close)
            self._hooks.add("*", traced)
            kept.callback(self._hooks.remove, traced)

    def _files(self) -> Callable[[], Files]:
        """The way to the files of documents, for this process and for forks of it."""
        if isinstance(self._queue, str):
            return partial(open_files_of, self._queue, self._blobs)
        filing = self._queue.files
        if self._queue.url != "memory://":
            return partial(open_files_of, self._queue.url, filing.location)
        if filing.location is None:
            return filing.open  # raises and says what is missing
        files = filing.open()
        return lambda: files

    def _store_and_keeper(self, url: str, template_pid: int | None, kept: ExitStack) -> tuple[Engine, socket.socket]:
        if isinstance(self._queue, Queue) and url == "memory://":
            thread, line = heartbeat.start_thread(self._queue.engine, self._lease_ms)
            kept.callback(thread.join)
            return self._queue.engine, line
        process, line = heartbeat.start_process(url, self._lease_ms, template_pid)
        kept.callback(process.wait)
        kept.callback(process.kill)  # it holds nothing by then, and a transaction that is cut off leaves no trace
        engine = open_engine(url)
        kept.callback(engine.close)
        return engine, line

    async def _work(
        self, shift: Shift, control: socket.socket | None, line: socket.socket, files: Callable[[], Files]
    ) -> Summary:
        loop = asyncio.get_running_loop()
        children = Children(loop, control, self._slots, shift)
        coroutines = Coroutines(loop, self._backoff, files, shift)
        keeping = Keeping(loop, line, shift)
        if self._stops:
            loop.call_soon(shift.stop, "stop() was called")
        try:
            return await shift.run(children, coroutines, keeping)
        finally:
            children.close()
            keeping.close()
            await _cancelled(coroutines.tasks())

    @contextmanager
    def _answering(self, loop: asyncio.AbstractEventLoop, shift: Shift) -> Iterator[None]:
        """Signals and `stop()` reach the shift; signals only where Python allows it, on the main thread."""

        def stop(reason: str) -> None:
            with contextlib.suppress(RuntimeError):  # it has just stopped by itself
                loop.call_soon_threadsafe(shift.stop, reason)

        self._stopping = lambda: stop("stop() was called")
        numbers = (signal.SIGTERM, signal.SIGINT) if threading.current_thread() is threading.main_thread() else ()
        before = {number: signal.getsignal(number) for number in numbers}
        for number in numbers:
            loop.add_signal_handler(number, stop, f"it got {number.name}")
        try:
            yield
        finally:
            for number, handler in before.items():
                loop.remove_signal_handler(number)
                signal.signal(number, handler)


def _checked_slots(slots: int) -> int:
    if type(slots) is not int or not 1 <= slots <= SLOTS_MAX:
        raise BadValue("slots", slots, f"a whole number from 1 to {SLOTS_MAX}")
    return slots


def _has_loop() -> bool:
    """Whether a loop runs on this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _cancelled(tasks: list[asyncio.Task[Any]]) -> None:
    """Handlers that did not stop in time get one more chance; then the loop goes without them."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=1)
