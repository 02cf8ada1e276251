"""A process that dies, by kill -9, at a chosen write of a step of sampling; run by test_start_samples_kills.py.

It dies just before or just after the write. Whatever it had written then, documents are explained as before, another worker
goes on with the next step, and no start is learned twice.
"""

from __future__ import annotations

import json
import os
import sys
from itertools import count
from pathlib import Path
from random import Random

from fairlane import Queue
from fairlane.core.document import Done, Submission
from fairlane.queue.start_samples import ESTIMATES, SAMPLES, StartSampler, decode_samples, read_calibration
from tests.blobs.dying import Fuse
from tests.engine.conftest import url_of

NOW = 10**12
STEP_MS = 10**6  # by then a step is due, whatever the last one said
LEASE_MS = 10**12


def prepare(queue: Queue) -> int:
    """Sample documents, start all that are sampled, and return how many forecasts there are to learn from."""
    engine = queue.engine
    for step in range(4):
        now_ms = NOW + step * STEP_MS
        StartSampler(engine, Random(step)).step(now_ms)
        engine.submit([Submission(f"{step}-{each}", f"c{each}", "document", "null") for each in range(20)], now_ms=now_ms + 1)
        claims = engine.claim("worker", 3, LEASE_MS, now_ms=now_ms + 2)
        engine.settle([(claim, Done()) for claim in claims], now_ms=now_ms + 3)
    engine.claim("worker", 60, LEASE_MS, now_ms=NOW + 3 * STEP_MS + 4)
    record = engine.record(ESTIMATES, SAMPLES)
    samples = decode_samples(None if record is None else record.value)
    assert samples is not None
    running = {row.id for row in queue.documents(state="running")}
    return sum(len(sample.questions) for sample in samples.samples if sample.id in running)


def die(url: str, at: int) -> bool:
    """Do a step in a process that dies at that write; return whether it came to its end before."""
    child = os.fork()
    if child == 0:
        queue = Queue(url)
        queue.engine.put_record = Fuse(at).around(queue.engine.put_record)  # type: ignore[method-assign]
        StartSampler(queue.engine, Random(7)).step(NOW + 4 * STEP_MS)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 0


def scores_of(queue: Queue) -> int:
    return sum(len(group.scores) for group in read_calibration(queue.engine).groups)


def wrong_after(queue: Queue, before: int, to_learn: int, is_over: bool) -> str | None:
    """Return what is wrong after a death."""
    (waiting, *_) = (row.id for row in queue.documents(state="ready"))
    if queue.explain(waiting, now=(NOW + 4 * STEP_MS) / 1000).facts["expected_in"] is None:
        return "no estimate"
    for step in range(5, 7):
        StartSampler(queue.engine, Random(step)).step(NOW + step * STEP_MS)
    learned = scores_of(queue) - before
    if learned > to_learn or (is_over and learned != to_learn):
        return f"learned {learned} of {to_learn}"
    record = queue.engine.record(ESTIMATES, SAMPLES)
    samples = decode_samples(None if record is None else record.value)
    return None if samples is not None and samples.at_ms == NOW + 6 * STEP_MS else "nobody went on"


def main(folder: Path) -> None:
    """Die at every write of a step, each time in a new queue."""
    wrong, steps, learned = list[str](), 0, set[bool]()
    for at in count(1):
        here = folder / str(at)
        here.mkdir()
        url = url_of("sqlite", here)
        with Queue(url) as queue:
            to_learn, before = prepare(queue), scores_of(queue)
            assert to_learn
        is_over = die(url, at)
        with Queue(url) as queue:
            problem = wrong_after(queue, before, to_learn, is_over)
            learned.add(scores_of(queue) > before)
        steps, wrong = steps + 1, wrong + ([f"write {at}: {problem}"] if problem else [])
        if is_over:
            break
    unseen = [f"nothing seen that {'learned' if each else 'did not learn'}" for each in (True, False) if each not in learned]
    sys.stdout.write(json.dumps({"steps": steps, "wrong": wrong + unseen}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
