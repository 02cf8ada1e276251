"""The app of a Celery project under the bridge: Fairlane holds the tasks and feeds Celery's workers."""

from __future__ import annotations

import os
import time

from celery import Celery

from fairlane.contrib.celery import Bridge

BROKER = os.environ.get("BROKER", "redis://localhost:6379/0")  # or amqp://localhost
app = Celery("tasks", broker=BROKER, backend="rpc://")
app.conf.update(worker_prefetch_multiplier=1, task_acks_late=True, task_default_queue="bridge")
Bridge(app, os.environ.get("FAIRLANE_URL", "sqlite:///fairlane.db"), customer="customer")


@app.task
def extract(customer: str, page: int, published_at: float) -> float:
    """Stand in for work of a few milliseconds; return how long the task waited."""
    waited = time.time() - published_at
    sum(number * number for number in range(20_000))
    return waited
