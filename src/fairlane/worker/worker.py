"""The worker as a program uses it: `Worker`, its handlers and hooks, and `run()`.

Laws:
- Values are validated before anything is started.
- The fork server is forked before the store, a thread or a loop is opened.
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
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar, overload

from fairlane.blobs.files import Files
from fairlane.core.document import ATTEMPTS_DEFAULT, validate_text
from fairlane.core.errors import BadValue, Mistake
from fairlane.core.policy import to_milliseconds
from fairlane.core.retry import Backoff
from fairlane.encryption import EncryptionKeyring, load_keyring, open_store
from fairlane.engine import Engine
from fairlane.procs import fork_server, reaper
from fairlane.queue import DEFAULT_KIND, Queue
from fairlane.queue.files import QueueFiles, open_files_of
from fairlane.settings import DEFAULT_URL
from fairlane.tracing import open_spans

from . import child, heartbeat
from .async_output import attributed_output
from .blob_gc import BlobCollector
from .context import RunContext
from .executor import Executor, RunExecutor, StoredFiles, slots_of
from .handlers import SECONDS_DEFAULT, Handlers, make_handler
from .hooks import Hook, Hooks
from .outbox import Summary
from .progress import ProgressStore
from .registration import Registration
from .resources import Amounts, Resources, refuse_more, validate_amounts
from .run_loop import RunLoop
from .store import WorkerStore

F = TypeVar("F", bound=Callable[..., Any])
H = TypeVar("H", bound=Hook)
SLOTS_DEFAULT, SLOTS_MAX = 4, 256
LEASE_MS_LEAST, LEASE_MS_MOST = 1000, 24 * 3600 * 1000
MEMORY_LEAST = 16 * 1024 * 1024
STOP_CALLED = "stop() was called"
HELPER_SECONDS = 15.0  # that the fork server may take to end


class Worker:
    """Takes documents from a queue and gives them to handlers."""

    def __init__(
        self,
        queue: str | Queue = DEFAULT_URL,
        *,
        slots: int | None = None,
        lease: float | timedelta = 30,
        grace: float | timedelta = 30,
        memory: int = 1024**3,
        backoff: Backoff | None = None,
        name: str | None = None,
        blobs: str | None = None,
        resources: Mapping[str, int] | None = None,
        executor: Executor | None = None,
    ) -> None:
        if not isinstance(queue, str | Queue):
            raise BadValue("queue", queue, "the URL of a queue, or a Queue")
        if queue == "memory://":
            raise BadValue("queue", queue, "a Queue object if it is in memory, which only this process can use: Worker(queue)")
        if type(memory) is not int or memory < MEMORY_LEAST:
            raise BadValue("memory", memory, f"a whole number of bytes, at least {MEMORY_LEAST:,}")
        if not isinstance(backoff, Backoff | None):
            raise BadValue("backoff", backoff, "a Backoff")
        if blobs is not None and isinstance(queue, Queue):
            raise BadValue("blobs", blobs, "left out when queue is a Queue, which has its own files")
        self._queue = queue
        self._blobs = blobs
        self._executor = executor
        self._slots = _validate_slots(slots_of(executor, slots, SLOTS_DEFAULT))
        self._lease_ms = to_milliseconds("lease", lease, LEASE_MS_LEAST, LEASE_MS_MOST)
        self._grace = to_milliseconds("grace", grace, 0, LEASE_MS_MOST) / 1000
        self._memory = memory
        self._resources = validate_amounts("resources", resources)
        self.backoff = backoff or Backoff()
        self.name = validate_text("name", f"{platform.node()[:100] or 'worker'}-{os.getpid()}" if name is None else name)
        self.handlers = Handlers()
        self.hooks = Hooks(self.name)
        self._running = threading.Lock()
        self._stops = 0  # requested, of the run to come or that under way
        self._stop_run: Callable[[], None] | None = None

    def handler(
        self,
        kind: str = DEFAULT_KIND,
        *,
        attempts: int = ATTEMPTS_DEFAULT,
        timeout: float | timedelta = SECONDS_DEFAULT,
        needs: Amounts | None = None,
    ) -> Callable[[F], F]:
        """Register the function for a kind, by default that of `submit(payload)`: `def` runs in a child process or
        in the executor, `async def` on the worker's loop. While it runs it has what it `needs` of the worker's resources."""
        if callable(kind):
            raise BadValue("kind", kind, 'a text; write @worker.handler() or @worker.handler("invoice"), with parentheses')

        def add(function: F) -> F:
            handler = make_handler(kind, function, attempts, timeout, needs)
            refuse_more(kind, handler.needs, self._resources)
            self.handlers.add(handler)
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
        self.hooks.add(event, hook)
        return hook

    @property
    def slots(self) -> int:
        """How many documents it runs at once."""
        return self._slots

    def stop(self) -> None:
        """Stop as SIGTERM does, from any thread; called again, give everything back at once."""
        self._stops += 1
        if self._stop_run is not None:
            self._stop_run()

    def run(self, *, until_empty: bool = False, slots: int | None = None) -> Summary:
        """Work until stopped by a signal or `stop()`; with `until_empty` also when nothing is left to do."""
        self.handlers.require_any()
        if slots is not None:
            self._slots = _validate_slots(slots_of(self._executor, slots, SLOTS_DEFAULT))
        if _has_loop():
            raise Mistake("worker.run() has a loop of its own; call it in a thread: await asyncio.to_thread(worker.run)")
        if not self._running.acquire(blocking=False):
            raise Mistake("this worker already runs; make another Worker to run two")
        try:
            return self._run(until_empty)
        finally:
            self._stops, self._stop_run = 0, None
            self._running.release()

    def _run(self, until_empty: bool) -> Summary:
        url, keyring = (self._queue, load_keyring()) if isinstance(self._queue, str) else (self._queue.url, self._queue.keyring)
        with ExitStack() as stack:
            fork_server_pid: int | None = None
            control: socket.socket | None = None
            if url != "memory://":
                open_store(url, keyring=keyring).close()  # so that what is wrong is reported here, to the caller
            files = self._files(keyring)
            functions = {} if self._executor is not None else self.handlers.functions()
            if functions:
                config = child.ChildConfig(functions, self.backoff, self._memory, files)
                fork_server_pid, control = fork_server.start(partial(child.run, config))
                stack.callback(reaper.wait_or_kill, fork_server_pid, HELPER_SECONDS)
                stack.callback(control.close)
            engine, connection = self._open_store_and_heartbeat(url, keyring, fork_server_pid, stack)
            stack.callback(connection.close)
            self._trace(engine, stack)
            if self.handlers.async_seconds_min() is not None:
                stack.enter_context(attributed_output())
            attempts = self.handlers.attempts()
            resources = Resources(self._resources, attempts, self.handlers.needs())
            store = WorkerStore(engine, self.name, self._lease_ms, attempts)
            queue_files = self._queue.files if isinstance(self._queue, Queue) else QueueFiles(engine, url, self._blobs, keyring)
            kind_slots = {kind: resources.at_once(kind, self._slots) for kind in attempts}
            registration = Registration(engine, self.name, kind_slots, self._slots)
            context = RunContext(
                store, ProgressStore(engine), registration, BlobCollector(queue_files), files, self.handlers, self.hooks,
                self.backoff, control, connection, self._slots, resources, self._lease_ms, self._grace, until_empty,
                self._run_executor(files, queue_files),
            )  # fmt: skip
            loop = asyncio.new_event_loop()
            stack.callback(loop.close)
            return loop.run_until_complete(self._run_loop(context))

    def _run_executor(self, files: Callable[[], Files], queue_files: QueueFiles) -> RunExecutor | None:
        if self._executor is None:
            return None
        stored_files = StoredFiles(None) if queue_files.location is None else StoredFiles.of(queue_files.open())
        return RunExecutor(self._executor, files, stored_files, self.backoff)

    def _trace(self, engine: Engine, stack: ExitStack) -> None:
        """Send spans if that is configured; after the forks, as it has threads."""
        spans = open_spans(os.environ, lambda reason: self.hooks.emit("untraced", reason=reason))
        if spans is not None:
            from .tracing import TracingHook

            hook = TracingHook(spans, engine)
            stack.callback(hook.close)
            self.hooks.add("*", hook)
            stack.callback(self.hooks.remove, hook)

    def _files(self, keyring: EncryptionKeyring) -> Callable[[], Files]:
        """Return the way to the files of documents, for this process and for forks of it."""
        if isinstance(self._queue, str):
            return partial(open_files_of, self._queue, self._blobs, keyring)
        queue_files = self._queue.files
        if self._queue.url != "memory://":
            return partial(open_files_of, self._queue.url, queue_files.location, keyring)
        if queue_files.location is None:
            return queue_files.open  # raises and says what is missing
        files = queue_files.open()
        return lambda: files

    def _open_store_and_heartbeat(
        self, url: str, keyring: EncryptionKeyring, fork_server_pid: int | None, stack: ExitStack
    ) -> tuple[Engine, socket.socket]:
        if isinstance(self._queue, Queue) and url == "memory://":
            thread, connection = heartbeat.start_thread(self._queue.engine, self._lease_ms)
            stack.callback(thread.join)
            return self._queue.engine, connection
        process, connection = heartbeat.start_process(url, self._lease_ms, fork_server_pid)
        stack.callback(process.wait)
        stack.callback(process.kill)  # it has no claims by then, and a transaction that is cut off leaves no trace
        engine = open_store(url, keyring=keyring)
        stack.callback(engine.close)
        return engine, connection

    async def _run_loop(self, context: RunContext) -> Summary:
        run_loop = RunLoop(context)
        with self._stop_on_request(asyncio.get_running_loop(), run_loop):
            if self._stops:
                asyncio.get_running_loop().call_soon(run_loop.stop, STOP_CALLED)
            try:
                return await run_loop.run()
            finally:
                await run_loop.close()

    @contextmanager
    def _stop_on_request(self, loop: asyncio.AbstractEventLoop, run_loop: RunLoop) -> Iterator[None]:
        """Have `stop()` and signals stop the run; signals only where Python allows it, on the main thread."""

        def stop(reason: str) -> None:
            with contextlib.suppress(RuntimeError):  # it has just stopped by itself
                loop.call_soon_threadsafe(run_loop.stop, reason)

        self._stop_run = lambda: stop(STOP_CALLED)
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


def _validate_slots(slots: int) -> int:
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
