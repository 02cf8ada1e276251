"""What runs in Ray's own processes: a call as a stream of messages, and the actor that keeps the value of `setup`.

Laws:
- A stream is None when the call begins, then what the handler reports, at the end its answer.
- All handlers of a process, and `setup`, run on one thread of it, so that what belongs to a thread can be kept in the state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from queue import SimpleQueue
from typing import Any

from fairlane.core.errors import Mistake
from fairlane.procs.threads import DaemonThreads
from fairlane.worker.executor import DocumentCall

_states: list[Any] = []  # of this process: the value of setup, if it is an actor's


def actor_state() -> Any:
    """Return what `setup` returned in this actor; for handlers."""
    if not _states:
        raise Mistake("there is no state here: only handlers on actors have one, with RayExecutor(actors=…, setup=…)")
    return _states[0]


@cache
def _handler_thread() -> DaemonThreads:
    return DaemonThreads(1, "fairlane-handler")


def run_streaming(call: Callable[[], Any]) -> Iterator[Any]:
    """Run a call and yield its messages."""
    yield None
    messages: SimpleQueue[Any] = SimpleQueue()
    if isinstance(call, DocumentCall):
        call.report = messages.put
    future = _handler_thread().submit(call)
    future.add_done_callback(lambda _: messages.put(None))
    while (message := messages.get()) is not None:
        yield message
    yield future.result()


class HandlerActor:
    """A process that runs one call after the other and keeps its state."""

    def start(self, setup: Callable[[], Any] | None) -> None:
        """Make the state."""
        if setup is not None:
            _states[:] = [_handler_thread().submit(setup).result()]

    def run(self, call: Callable[[], Any]) -> Iterator[Any]:
        """Run a call and yield its messages."""
        yield from run_streaming(call)
