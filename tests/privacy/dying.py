"""A process that dies, by kill -9, at a chosen step of forgetting a customer; run by test_forget_kills.py.

A step is a call of the system that the blob store makes, a call of the store that changes something, or the rewriting of the
file. It dies just before or just after one. Then the customer is forgotten again, and nothing of it may be left.
"""

from __future__ import annotations

import json
import os
import sys
from itertools import count
from pathlib import Path

from fairlane import Queue
from fairlane.queue import forget
from tests.blobs.dying import STEPS, Fuse
from tests.engine.conftest import url_of
from tests.servers import redis

from .everything import CUSTOMER, MARK, Derived, fill, fill_audit, fill_records, holding, stored

VERBS = ("forget", "put_record")
forget.PAGE_SIZE = 3  # several pages


def die(url: str, blobs: str, at: int) -> bool:
    """Forget in a process that dies at that step; return whether it came to its end before."""
    child = os.fork()
    if child == 0:
        queue, fuse = Queue(url, blobs=blobs), Fuse(at)
        for name in STEPS:
            setattr(os, name, fuse.around(getattr(os, name)))
        for name in VERBS:
            setattr(queue.engine, name, fuse.around(getattr(queue.engine, name)))
        queue.vacuum = fuse.around(queue.vacuum)  # type: ignore[method-assign]
        queue.forget(CUSTOMER)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 0


def wrong_after(queue: Queue, folder: Path, derived: set[str]) -> list[str]:
    """Return what is wrong after a death, and after the customer was forgotten again."""
    wrong = []
    for document in queue.documents(CUSTOMER):
        if document.key is not None:
            queue.file(document.id).close()  # a document has its bytes, as long as there is one
    queue.forget(CUSTOMER)
    if left := holding({MARK, *derived}, stored(queue, folder)):
        wrong.append(f"left: {left[:5]}")
    if forget.being_forgotten(queue.engine):
        wrong.append("it counts as interrupted")
    return wrong


def main(folder: Path, engine: str, stride: int) -> None:
    """Die at every step, each time on a new queue."""
    wrong = list[str]()
    for at in count(1, stride):
        here = folder / str(at)
        here.mkdir()
        url, blobs = url_of(engine, here), str(here / "blobs")
        with Queue(url, blobs=blobs) as queue:
            fill(queue, CUSTOMER)
            fill_records(queue, CUSTOMER)
            fill_audit(queue, CUSTOMER)
            derived = Derived(queue, CUSTOMER).words
        is_over = die(url, blobs, at)
        with Queue(url, blobs=blobs) as queue:
            wrong += [f"step {at}: {problem}" for problem in wrong_after(queue, here, derived)]
        redis.drop_url(url)
        if is_over:
            sys.stdout.write(json.dumps({"steps": at - stride, "wrong": wrong}))
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
