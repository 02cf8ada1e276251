"""`RayExecutor`: runs the calls of a worker on a Ray cluster, as tasks or on actors.

Laws:
- A call is run by Ray once: retries belong to the queue, which counts them.
- A call that is cancelled is ended with its process, as a child process is; an actor is replaced then.
- A call whose process or node died is lost, which costs an attempt. One that an idle actor had died before goes to another.
- What every document would meet (`setup` raises, the handler's module is missing there, Ray is gone) stops the worker.
- No cluster is started unless `init` says so.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from functools import partial
from queue import SimpleQueue
from typing import Any, Self, TypeVar

import ray
from ray.exceptions import OutOfMemoryError, RayActorError, RayError, RaySystemError, RayTaskError, WorkerCrashedError

from fairlane.core.errors import BadValue, Mistake
from fairlane.procs.threads import DaemonThreads
from fairlane.worker.document import ProgressReport
from fairlane.worker.executor import CallLost, DocumentCall, ExecutorUnfit

from .remote import HandlerActor, run_streaming

T = TypeVar("T")
SLOTS_MAX = 256
CLOSE_SECONDS = 10.0
AMOUNT = "a number, 0 or more"


class _RayFuture(Future[Any]):
    """A future whose `cancel` also stops a call that runs; it is done when Ray has really ended the call."""

    def __init__(self, stops: DaemonThreads) -> None:
        super().__init__()
        self._stops = stops  # Ray answers over the network, and whoever cancels does not wait
        self._lock = threading.Lock()
        self._stop: Callable[[], object] | None = None
        self.is_stopped = False

    def cancel(self) -> bool:
        if self.done():
            return self.cancelled()
        self.is_stopped = True
        self._stops.submit(self.stop)
        return super().cancel()

    def stop_with(self, stop: Callable[[], object] | None) -> None:
        """Set how the call is stopped from now on; None when it has ended, so that the next one on its actor is left alone."""
        with self._lock:
            self._stop = stop
        if stop is not None and self.is_stopped:
            self.stop()

    def stop(self) -> None:
        """End the call if it has not ended."""
        with self._lock:
            stop, self._stop = self._stop, None
            if stop is not None:
                with contextlib.suppress(Exception):  # Ray is gone, and the call with it
                    stop()


class RayExecutor:
    """Runs calls on a Ray cluster, `tasks` or `actors` at once; for `Worker(executor=…)`."""

    def __init__(
        self,
        *,
        tasks: int | None = None,
        actors: int | None = None,
        num_cpus: float | None = None,
        num_gpus: float | None = None,
        resources: Mapping[str, float] | None = None,
        setup: Callable[[], Any] | None = None,
        init: Mapping[str, Any] | None = None,
    ) -> None:
        self.slots = _validate_slots(tasks, actors)
        if setup is not None and (actors is None or not callable(setup)):
            raise BadValue("setup", setup, "a function without arguments, for actors: RayExecutor(actors=2, setup=load_model)")
        options = _validate_options(num_cpus, num_gpus, resources)
        self._is_ours = _connect(init)
        self._new_slot: Callable[[], _TaskSlot | _ActorSlot]
        if actors is None:
            self._new_slot = partial(_TaskSlot, _remote({**options, "max_retries": 0}, run_streaming))
        else:
            actor_class = _remote({**options, "max_restarts": 0, "max_task_retries": 0}, HandlerActor)
            self._new_slot = partial(_ActorSlot, actor_class, setup)
        self._calls: SimpleQueue[tuple[_RayFuture, Callable[[], Any]] | None] = SimpleQueue()
        self._futures: set[_RayFuture] = set()  # that are not done
        self._stops = DaemonThreads(1, "fairlane-ray-stop")
        self._slots: list[tuple[threading.Thread, _TaskSlot | _ActorSlot]] = []
        self._lock = threading.Lock()
        self._is_closed = False
        atexit.register(self.shutdown)  # before Ray leaves the cluster: a thread that calls it then would end the process

    def submit(self, call: Callable[[], T], /) -> Future[T]:
        """Run a call on the cluster."""
        future = _RayFuture(self._stops)
        with self._lock:
            if self._is_closed:
                raise Mistake("this RayExecutor was shut down; make another one")
            self._futures.add(future)
            self._calls.put((future, call))
            if len(self._slots) < self.slots:
                slot = self._new_slot()
                thread = threading.Thread(target=self._serve, args=(slot,), name="fairlane-ray", daemon=True)
                self._slots.append((thread, slot))
                thread.start()
        future.add_done_callback(self._futures.discard)
        return future

    def shutdown(self) -> None:
        """Take no more calls, end those that run and the actors, and leave the cluster if it was joined here."""
        with self._lock:
            self._is_closed = True
        for future in list(self._futures):
            future.cancel()
        self._calls.put(None)
        deadline = time.monotonic() + CLOSE_SECONDS
        for thread, slot in self._slots:
            while thread.is_alive() and time.monotonic() < deadline:
                slot.close()  # an actor may wait for the cluster
                thread.join(0.1)
        self._stops.close(1.0)
        atexit.unregister(self.shutdown)
        if self._is_ours:
            ray.shutdown()
            self._is_ours = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def _serve(self, slot: _TaskSlot | _ActorSlot) -> None:
        """Run one call after the other. An actor takes a call when it is ready: where one waits for a GPU, others go on."""
        failure = slot.prepare()
        while (received := self._calls.get()) is not None:
            future, call = received
            if failure is not None:
                _end(future, None, failure)
            elif not _run(slot, future, call):
                self._calls.put(received)
            del received, future, call
            failure = slot.prepare() if not self._is_closed else None
        slot.close()
        self._calls.put(None)  # the next thread ends too


class _TaskSlot:
    """Runs a call as a Ray task."""

    may_repeat = False  # a call that was never begun

    def __init__(self, task: Any) -> None:
        self._task = task

    def prepare(self) -> Exception | None:
        """Make ready for a call; returns why that failed."""
        return None

    def begin(self, future: _RayFuture, call: Callable[[], Any]) -> Any:
        """Start a call; returns the stream of its messages when it has begun."""
        stream = self._task.remote(call)
        future.stop_with(partial(ray.cancel, stream, force=True))
        ray.get(next(stream))
        return stream

    def close(self) -> None:
        """Leave nothing behind."""


class _ActorSlot:
    """Runs calls on an actor, which is replaced when it died."""

    def __init__(self, actor_class: Any, setup: Callable[[], Any] | None) -> None:
        self._class = actor_class
        self._setup = setup
        self._actor: Any = None
        self.may_repeat = False  # the actor has begun a call before: if it does not begin another one, it died meanwhile

    def prepare(self) -> Exception | None:
        """Have an actor with its state; returns why that failed."""
        if self._actor is not None:
            return None
        try:
            actor = self._actor = self._class.remote()
            ray.get(actor.start.remote(self._setup))
        except Exception as error:  # noqa: BLE001 - it goes to whoever waits for a call
            self.close()
            return _describe(error)
        return None

    def begin(self, future: _RayFuture, call: Callable[[], Any]) -> Any:
        """Start a call; returns the stream of its messages when it has begun."""
        actor = self._actor
        stream = actor.run.remote(call)
        future.stop_with(partial(ray.kill, actor))
        ray.get(next(stream))
        self.may_repeat = True
        return stream

    def close(self) -> None:
        """End the actor."""
        actor, self._actor, self.may_repeat = self._actor, None, False
        if actor is not None:
            with contextlib.suppress(Exception):  # Ray is gone, and the actor with it
                ray.kill(actor)


def _run(slot: _TaskSlot | _ActorSlot, future: _RayFuture, call: Callable[[], Any]) -> bool:
    """Run a call and give its future what became of it; False if another actor has to run it, as this one had died before."""
    answer: Any = None
    failure: Exception | None = None
    can_repeat = False
    if future.cancelled():
        return True
    try:
        answer = _follow(slot, future, call)
    except RayActorError as error:
        can_repeat = slot.may_repeat and not future.running() and not future.is_stopped
        failure = _describe(error)
    except Exception as error:  # noqa: BLE001 - the executor's thread must go on
        failure = _describe(error)
    if failure is not None:
        future.stop()  # nothing of it may go on
    future.stop_with(None)
    if failure is not None or future.is_stopped:
        slot.close()
    if can_repeat:
        return False
    _end(future, answer, failure)
    return True


def _end(future: _RayFuture, answer: Any, failure: Exception | None) -> None:
    """Give a future what became of its call."""
    if future.cancelled() or not (future.running() or future.set_running_or_notify_cancel()):
        return
    if failure is None:
        future.set_result(answer)
    else:
        future.set_exception(failure)


def _follow(slot: _TaskSlot | _ActorSlot, future: _RayFuture, call: Callable[[], Any]) -> Any:
    """Run a call, pass its reports on, and return its answer."""
    stream, message = slot.begin(future, call), None
    if not future.set_running_or_notify_cancel():
        raise CancelledError
    for reference in stream:
        message = ray.get(reference)
        if isinstance(message, ProgressReport) and isinstance(call, DocumentCall):
            call.report(message)
    return message


def _describe(error: Exception) -> Exception:
    """Return what the worker needs to know of an error: this call was lost, or no call can be run."""
    failure: Exception
    if isinstance(error, RaySystemError | RayTaskError) or not isinstance(error, RayError):
        lines = str(error).strip().splitlines() or [type(error).__name__]
        failure = ExecutorUnfit(f"Ray cannot run its handlers: {lines[-1]}")
    elif isinstance(error, OutOfMemoryError):
        failure = CallLost("its process on the Ray cluster was ended, as the memory of that machine ran out")
    elif isinstance(error, RayActorError | WorkerCrashedError):
        failure = CallLost("its process on the Ray cluster died")
    else:
        failure = CallLost(f"Ray ended it: {type(error).__name__}")
    failure.__cause__ = error
    return failure


def _validate_slots(tasks: int | None, actors: int | None) -> int:
    if (tasks is None) == (actors is None):
        raise BadValue("tasks and actors", (tasks, actors), "one of both, as in RayExecutor(tasks=8) or RayExecutor(actors=2)")
    name, slots = ("tasks", tasks) if actors is None else ("actors", actors)
    if type(slots) is not int or not 1 <= slots <= SLOTS_MAX:
        raise BadValue(name, slots, f"a whole number from 1 to {SLOTS_MAX}")
    return slots


def _validate_options(num_cpus: float | None, num_gpus: float | None, resources: Mapping[str, float] | None) -> dict[str, Any]:
    """Return the options of a Ray task or actor; those that were left out are Ray's own."""
    options: dict[str, Any] = {"num_cpus": num_cpus, "num_gpus": num_gpus}
    for name, amount in options.items():
        if amount is not None and not _is_amount(amount):
            raise BadValue(name, amount, AMOUNT)
    if resources is not None:
        if not isinstance(resources, Mapping) or not all(isinstance(name, str) for name in resources):
            raise BadValue("resources", resources, 'numbers by the name of a Ray resource, as in {"tpu": 1}')
        for name, amount in resources.items():
            if not _is_amount(amount):
                raise BadValue(f"resources[{name!r}]", amount, AMOUNT)
        options["resources"] = dict(resources)
    return {name: value for name, value in options.items() if value is not None}


def _is_amount(amount: object) -> bool:
    return isinstance(amount, int | float) and not isinstance(amount, bool) and 0 <= amount < float("inf")


def _remote(options: dict[str, Any], target: Any) -> Any:
    """Make a Ray task or actor of a function or class."""
    try:
        return ray.remote(**options)(target)
    except (TypeError, ValueError) as error:
        raise Mistake(f"Ray refuses these options of RayExecutor: {error}") from error


def _connect(init: Mapping[str, Any] | None) -> bool:
    """Join the cluster, unless this program or the Ray process that imports it has; returns whether it was joined here."""
    if init is not None and not isinstance(init, Mapping):
        raise BadValue("init", init, 'arguments of ray.init() by name, as in {"address": "auto"}')
    if ray.is_initialized():
        return False
    options = {"address": "auto"} if init is None else dict(init)
    addresses = [options.get("address"), os.environ.get("RAY_ADDRESS")]
    if any(str(address).startswith("ray://") for address in addresses):
        raise Mistake(
            "a Ray Client address (ray://) cannot run documents; run the worker on a machine of the cluster "
            '(ray start --address=HOST:6379), with the address "auto"'
        )
    try:
        ray.init(**options)
    except (ConnectionError, RuntimeError, TypeError, ValueError) as error:
        raise Mistake(
            f"Ray could not be joined ({error}); run the worker on a machine of the cluster (ray start --address=HOST:6379), "
            "set RAY_ADDRESS, or give RayExecutor(init=…) what ray.init() needs"
        ) from error
    return True
