"""Fair priorities for Huey: each task is checked when it is enqueued, and carries its priority in Huey's own numbers.

from fairlane.contrib.huey import Fairlane

Fairlane(huey, "postgresql://fairlane@db/fairlane", customer="customer")

Laws:
- A task is decided in `huey.enqueue`, which calls of tasks, schedules, groups, chords, pipelines and retries all use.
- What is enqueued is a copy: the caller's own task has no mark, so enqueueing it once more is one more check.
- The mark travels among the keyword arguments of the stored task, as Huey stores nothing else beside them; no function sees it.
- When a task is done, Huey drops what cannot be enqueued. So the next task of a pipeline is enqueued in any case.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, NamedTuple

try:
    from huey.api import Huey
except ImportError as error:
    raise ImportError("fairlane.contrib.huey needs Huey, which is not installed here: pip install huey") from error

from fairlane.contrib.publish_check import (
    HEADER,
    NEUTRAL,
    TIMEOUT_SECONDS,
    CustomerFunction,
    FairPublisher,
    Mark,
    PublishCheck,
    PublishedTask,
    WhenAway,
)
from fairlane.core.errors import BadValue, Mistake
from fairlane.core.policy import LEVELS_MAX

KEYWORD = "fairlane_mark"  # of a stored task, with its mark

logger = logging.getLogger("fairlane.contrib")


class RunningTask(NamedTuple):
    """The task that this thread runs: its mark, its priority in Huey's numbers, and whether its function has control."""

    mark: Mark | None
    number: float | None
    is_in_function: bool = False


PROGRAM = RunningTask(None, None, is_in_function=True)  # none: a program enqueues

_running: ContextVar[RunningTask] = ContextVar("fairlane_running_task", default=PROGRAM)


class Fairlane(FairPublisher):
    """Fair priorities for the tasks of a Huey; make it directly after the Huey, before its tasks are declared.

    The counters are in the store at the URL, which all publishers share. `customer` says whose a task is: the name of an
    argument, or a function of name, args, kwargs and an empty mapping. If the store is away, tasks are enqueued unchecked, at a
    neutral priority, or with `when_away="fail"` not at all.
    """

    def __init__(
        self,
        huey: Huey,
        url: str,
        customer: str | CustomerFunction,
        *,
        when_away: WhenAway = "publish",
        timeout: float | timedelta = TIMEOUT_SECONDS,
        key: str | None = None,
    ) -> None:
        if "enqueue" in vars(huey):  # ours
            raise Mistake(f"the Huey {huey.name!r} has a Fairlane already; make one for each Huey")
        if isinstance(customer, str) and customer.startswith(HEADER):
            raise BadValue("customer", customer, "the name of an argument or a function: tasks of Huey have no headers")
        super().__init__(PublishCheck(url, customer, when_away=when_away, timeout=timeout, key=key, peer="huey"))
        if not huey.immediate:
            _verify_storage(huey)
        self.huey = huey
        self._needs_names = isinstance(customer, str)
        self._enqueue, self._execute = huey.enqueue, huey.execute
        self._serialize, self._deserialize = huey.serialize_task, huey.deserialize_task
        huey.enqueue, huey.execute = self.enqueue, self.execute
        huey.serialize_task, huey.deserialize_task = self.serialize_task, self.deserialize_task
        huey.task_wrapper_class = _remembering(huey.task_wrapper_class)
        huey.pre_execute("fairlane")(lambda task: _running.set(_running.get()._replace(is_in_function=True)))
        huey.post_execute("fairlane")(lambda *task: _running.set(_running.get()._replace(is_in_function=False)))

    # -- what the Huey does now ----------------------------------------------------------------------------------------

    def enqueue(self, task: Any) -> Any:
        """Enqueue a task with its priority and its mark, or each task of a group."""
        is_composed = hasattr(task, "tasks")  # a group or a chord: Huey enqueues its tasks one by one
        if is_composed or self.huey.immediate or _mark_of(task) is not None:
            return self._enqueue(task)
        _verify_storage(self.huey)
        running = _running.get()
        task = copy.copy(task)
        try:
            self._decide(task, running)
        except Exception as error:
            if running.is_in_function:
                raise
            logger.error("task %s is enqueued without a check, at priority %d: %s", task.name, NEUTRAL, error)
            task.priority = _number(NEUTRAL)
        return self._enqueue(task)

    def execute(self, task: Any, *args: Any, **options: Any) -> Any:
        """Run a task; what it enqueues meanwhile may inherit its priority."""
        before = _running.set(RunningTask(_mark_of(task), task.priority))
        try:
            return self._execute(task, *args, **options)
        finally:
            _running.reset(before)

    def serialize_task(self, task: Any) -> Any:
        """Return a task as it is stored, with its mark."""
        mark = _mark_of(task)
        if mark is None:
            return self._serialize(task)
        stored = copy.copy(task)
        stored.kwargs = {name: value for name, value in task.kwargs.items() if value is not task} | {KEYWORD: mark._asdict()}
        return self._serialize(stored)

    def deserialize_task(self, data: Any) -> Any:
        """Return a stored task, its mark taken from its arguments."""
        task = self._deserialize(data)
        task.fairlane_mark = Mark.parse(task.kwargs.pop(KEYWORD, None))
        return task

    def _decide(self, task: Any, running: RunningTask) -> None:
        """Give a task its priority and its mark."""
        published = PublishedTask(task.name, task.args, task.kwargs, {}, _function(task) if self._needs_names else None)
        customer = self._check.customer_of(published, running.mark)
        if customer is None:
            return
        is_by_hand = task.priority is not None
        mark = self._check.mark(customer, running.mark, is_by_hand)
        if not is_by_hand:
            task.priority = running.number if mark.priority is None else _number(mark.priority)
        task.fairlane_mark = mark


def _mark_of(task: Any) -> Mark | None:
    mark: Mark | None = getattr(task, "fairlane_mark", None)
    return mark


def _number(priority: int) -> int:
    """Return Huey's number for one of our priorities: there the highest is first, and what has none is 0."""
    return LEVELS_MAX + 1 - priority


def _verify_storage(huey: Huey) -> None:
    """Raise Mistake unless the storage has priorities."""
    if not huey.storage.priority:
        name = type(huey.storage).__name__
        better = f"PriorityRedis{'Expire' if 'Expire' in name else ''}Huey" if "Redis" in name else "SqliteHuey"
        raise Mistake(
            f"the storage of the Huey {huey.name!r} is a {name}, which has no priorities: use one that has, as {better} does; "
            "what waits in the other one must be worked off there"
        )


def _function(task: Any) -> Callable[..., Any]:
    function: Callable[..., Any] | None = getattr(type(task), "fairlane_function", None)
    if function is None:
        raise Mistake(
            f"the task {task.name} was declared before Fairlane was made, so the names of its arguments are not known: make "
            "Fairlane directly after the Huey"
        )
    return function


def _remembering(wrapper: Any) -> Any:
    """Return a class of task wrappers whose tasks remember their function."""

    def create_task(self: Any, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        task_class = wrapper.create_task(self, function, *args, **options)
        task_class.fairlane_function = function
        return task_class

    return type(wrapper.__name__, (wrapper,), {"create_task": create_task})
