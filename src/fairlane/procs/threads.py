"""Threads for calls that may hang: neither closing them nor the end of the program waits for a call that does not return.

The standard library's executor joins its threads when the interpreter exits, so that one call to a server that is away would
keep the whole program alive. These threads are daemons.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class _Call(NamedTuple):
    future: Future[Any]
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class DaemonThreads(Executor):
    """Runs calls on up to `count` threads, in the order in which they come."""

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._is_closed = False

    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        with self._lock:
            if self._is_closed:
                raise RuntimeError(f"the threads {self._name} are closed")
            self._calls.put(_Call(future, function, args, kwargs))
            if not self._idle.acquire(blocking=False) and len(self._threads) < self._count:
                thread = threading.Thread(target=self._run, name=f"{self._name}-{len(self._threads)}", daemon=True)
                self._threads.append(thread)
                thread.start()
        return future

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            if call.future.set_running_or_notify_cancel():
                try:
                    value = call.function(*call.args, **call.kwargs)
                except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to the caller
                    call.future.set_exception(error)
                else:
                    call.future.set_result(value)
                    del value
            del call
            self._idle.release()
        self._calls.put(None)  # the next thread ends too

    def close(self, seconds: float = 0.0) -> bool:
        """Take no more calls, wait so long for those there are, then drop what has not begun; False if one still runs."""
        with self._lock:
            self._is_closed = True
        self._calls.put(None)  # after every call
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        with contextlib.suppress(Empty):
            while True:
                if (call := self._calls.get_nowait()) is not None and call.future.cancel():
                    call.future.set_running_or_notify_cancel()
        self._calls.put(None)
        return not any(thread.is_alive() for thread in self._threads)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Close them as the standard library's executors are closed; the calls that have begun may go on."""
        self.close()
