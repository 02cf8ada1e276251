"""The app of a Celery project: plain, or fair with FAIR=yes. The difference is what the `if` holds."""

from __future__ import annotations

import os
import time

from celery import Celery

BROKER = os.environ.get("BROKER", "redis://localhost:6379/0")  # or amqp://localhost
app = Celery("tasks", broker=BROKER, backend="rpc://")

if os.environ.get("FAIR") == "yes":
    from fairlane.contrib.celery import Fairlane

    app.conf.update(worker_prefetch_multiplier=1, task_acks_late=True, task_default_queue="fair")
    if BROKER.startswith("redis"):
        app.conf.broker_transport_options = {"priority_steps": list(range(9))}
    else:
        app.conf.update(task_queue_max_priority=9, task_default_priority=9)
    Fairlane(app, os.environ.get("FAIRLANE_URL", "sqlite:///fairlane.db"), customer="customer")


@app.task
def extract(customer: str, page: int, published_at: float) -> float:
    """Stand in for work of a few milliseconds; return how long the task waited."""
    waited = time.time() - published_at
    sum(number * number for number in range(20_000))
    return waited
