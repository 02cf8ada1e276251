"""A Celery project for tests, as a user has one: the app, its settings, Fairlane, and tasks that write down that they began.

Its settings come from the environment, as it is imported by workers and publishers in processes of their own.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from typing import Any

from celery import Celery
from celery.exceptions import Ignore, Reject

from fairlane.contrib.celery import Bridge, Fairlane

BROKER, STORE = os.environ["TEST_BROKER"], os.environ["TEST_STORE"]
RECORD = os.environ["TEST_RECORD"]  # a file: a line for each task that began
SETTINGS = json.loads(os.environ.get("TEST_SETTINGS", "{}"))  # over those that priorities need

app = Celery("proj", broker=BROKER, backend=os.environ.get("TEST_BACKEND"))
app.conf.update(
    worker_prefetch_multiplier=1,
    task_acks_late=True,
    task_queue_max_priority=None if BROKER.startswith("redis") else 9,
    broker_transport_options={"priority_steps": list(range(9))} if BROKER.startswith("redis") else {"confirm_publish": True},
    task_default_queue=os.environ.get("TEST_QUEUE", "celery"),
    task_publish_retry=False,
    worker_send_task_events=False,
    broker_connection_retry_on_startup=True,
    worker_hijack_root_logger=False,
    result_expires=3600,
)
app.conf.update(SETTINGS)
if STORE:  # without one it is plain Celery
    (Bridge if os.environ.get("TEST_WAY") == "bridge" else Fairlane)(
        app,
        STORE,
        json.loads(os.environ.get("TEST_CUSTOMER", '"customer"')),
        **json.loads(os.environ.get("TEST_OPTIONS", "{}")),
    )


def record(task: Any, customer: str | None, **more: Any) -> None:
    """Write down that a task began; a line is one write, so that those of several processes do not mix."""
    request = task.request
    mark, number = (request.headers or {}).get("fairlane"), request.delivery_info.get("priority")
    line = {
        "id": request.id, "name": task.name.rpartition(".")[2], "customer": customer, "mark": mark, "number": number,
        "retries": request.retries, "at": time.monotonic(), **more,
    }  # fmt: skip
    file = os.open(RECORD, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, f"{json.dumps(line)}\n".encode())
    finally:
        os.close(file)


@app.task(bind=True)
def work(self: Any, customer: str | None = None, label: str = "", seconds: float = 0) -> str:
    """A task of a customer, which waits for something for so long."""
    record(self, customer, label=label)
    select.select([], [], [], seconds)
    return label


@app.task(bind=True)
def spin(self: Any, customer: str, milliseconds: float) -> None:
    """A task that takes so long, half of it computing."""
    record(self, customer)
    until = time.process_time() + milliseconds / 2000
    select.select([], [], [], milliseconds / 2000)
    while time.process_time() < until:
        pass


@app.task(bind=True)
def follow(self: Any, *results: Any, label: str = "") -> str:
    """A task that names no customer, as links of chains often do not."""
    record(self, None, label=label)
    return label


@app.task(bind=True)
def hand_over(self: Any, result: Any, customer: str, label: str = "") -> str:
    """A link of a chain that names a customer."""
    record(self, customer, label=label)
    return label


@app.task(bind=True, max_retries=3)
def retried(self: Any, customer: str, times: int = 2) -> None:
    record(self, customer)
    if self.request.retries < times:
        raise self.retry(countdown=0)


@app.task(bind=True, autoretry_for=(ZeroDivisionError,), retry_backoff=False, default_retry_delay=0, max_retries=3)
def fails_at_first(self: Any, customer: str) -> None:
    record(self, customer)
    if self.request.retries < 2:
        raise ZeroDivisionError


@app.task(bind=True)
def fails(self: Any, customer: str) -> None:
    record(self, customer)
    raise ValueError("on purpose")


@app.task(bind=True)
def publishes(self: Any, customer: str, others: list[str]) -> None:
    """A task that publishes others itself."""
    record(self, customer)
    for other in others:
        work.delay(other, label="child")
    follow.delay(label="child")


@app.task(bind=True)
def replaces(self: Any, customer: str) -> Any:
    record(self, customer)
    raise self.replace(work.s(customer, label="instead"))


@app.task(bind=True, acks_late=True, reject_on_worker_lost=True)
def dies_at_first(self: Any, customer: str, path: str) -> str:
    """A task whose process is killed the first time."""
    record(self, customer)
    if not os.path.exists(path):
        with open(path, "x"):
            os.kill(os.getpid(), signal.SIGKILL)
    return "survived"


@app.task(bind=True)
def dies(self: Any, customer: str) -> None:
    record(self, customer)
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(bind=True)
def waits_for(self: Any, customer: str, path: str) -> str:
    """A task that runs until there is such a file."""
    record(self, customer)
    while not os.path.exists(path):
        select.select([], [], [], 0.01)
    return "found"


@app.task(bind=True)
def gives_up(self: Any, customer: str, how: str) -> None:
    record(self, customer)
    raise {"ignore": Ignore, "reject": Reject}[how]("on purpose")


@app.task(bind=True, priority=4)
def urgent(self: Any, customer: str) -> None:
    """A task that its author gave a priority."""
    record(self, customer)
