"""Progress records: whose they are, and when they are forgotten."""

from __future__ import annotations

import json

from fairlane import Queue
from fairlane.worker.progress import ProgressStore


def test_a_stale_worker_never_overwrites_a_newer_report(queue: Queue) -> None:
    id = queue.submit("acme").id
    (old,) = queue.engine.claim("old", 1, 1000, now_ms=0)
    queue.engine.reclaim(1, now_ms=2000)
    stale, fresh = ProgressStore(queue.engine), ProgressStore(queue.engine)
    stale.record(old, 0.9, None)
    stale.write(stale.take_unwritten())
    assert queue.progress(id) is not None  # no worker has it now, and its token is still the newest
    (new,) = queue.engine.claim("new", 1, 1000)
    assert queue.progress(id) is None  # what the old one reported is not shown for the new attempt
    fresh.record(new, 0.1, "[1]")
    fresh.write(fresh.take_unwritten())
    stale.record(old, 1.0, "[2]")
    stale.write(stale.take_unwritten())
    stale.forget(old, is_done=True)
    stale.write(stale.take_unwritten())
    assert queue.progress(id) == (2, 0.1, [1])


def test_forgetting_a_customer_forgets_what_was_reported(queue: Queue) -> None:
    queue.submit("acme")
    (claim,) = queue.engine.claim("worker", 1, 1000)
    progress = ProgressStore(queue.engine)
    progress.record(claim, None, json.dumps({"name": "secret"}))
    progress.write(progress.take_unwritten())
    assert len(queue.engine.records("progress", "", 10)) == 1
    queue.forget("acme")
    assert queue.engine.records("progress", "", 10) == []
