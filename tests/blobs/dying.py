"""A process that dies, by kill -9, at a chosen step of a submission, a purge, a forget or a sweep; run by test_kills.py.

A step is a call of the system that the blob store makes, or a commit of the queue; it dies just before or just after it.
"""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairlane import Input, KeyConflict, Queue

STEPS = ("open", "write", "fsync", "close", "rename", "mkdir", "unlink", "rmdir")
VERBS = ("submit", "purge", "forget", "put_record")
LARGE = b"0123456789abcdef" * 40_000  # several pieces


def submit(queue: Queue) -> None:
    queue.submit("acme", {"n": 1}, content=io.BytesIO(LARGE), name="new", key="new")


def repeat(queue: Queue) -> None:
    queue.submit("acme", content=b"old", key="old")


def conflict(queue: Queue) -> None:
    try:
        queue.submit("acme", content=b"another", key="old")
    except KeyConflict:
        return


def submit_many(queue: Queue) -> None:
    queue.submit_files("acme", [Input(content=b"%d" % n, key=f"many-{n}") for n in range(3)])


def purge(queue: Queue) -> None:
    queue.purge(0)


def forget(queue: Queue) -> None:
    queue.forget("acme")


def sweep(queue: Queue) -> None:
    queue.sweep(grace=0)


ACTS: dict[str, Callable[[Queue], None]] = {
    act.__name__: act for act in (submit, repeat, conflict, submit_many, purge, forget, sweep)
}


class Fuse:
    """Counts steps, and ends the process at one of them."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.count = 0

    def step(self) -> None:
        self.count += 1
        if self.count == self.at:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, verb: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*args: Any, **kwargs: Any) -> Any:
            self.step()
            value = verb(*args, **kwargs)
            self.step()
            return value

        return stepped


def die(url: str, act: str, at: int) -> int | None:
    """Do it in a process that dies at that step; returns how many steps there were if it came to its end, else None."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        queue, fuse = Queue(url), Fuse(at)
        for name in STEPS:
            setattr(os, name, fuse.around(getattr(os, name)))
        for name in VERBS:
            setattr(queue.engine, name, fuse.around(getattr(queue.engine, name)))
        ACTS[act](queue)
        fuse.at = -1
        os.write(writing, b"%d" % fuse.count)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        count = pipe.read()
    _, status = os.waitpid(child, 0)
    assert count or os.WTERMSIG(status) == signal.SIGKILL, f"{act} failed at step {at}"
    return int(count) if count else None


def wrong_after(url: str, act: str, before: dict[str, bytes]) -> list[str]:
    """What is not as it must be after a death: documents without bytes, acknowledged ones lost, bytes that nobody owns."""
    wrong = []
    with Queue(url) as queue:
        known = [document.id for document in queue.documents()]
        for id in known:
            with queue.file(id) as file:
                expected = before.get(id)
                if expected is not None and file.read() != expected:
                    wrong.append(f"{id} has other bytes")
        if act not in ("purge", "forget"):
            wrong += [f"{id} is lost" for id in before if id not in known]
        queue.sweep(grace=0)
        files = queue.files.open()
        if sorted(file.document for file in files.list_files()) != sorted(known):
            wrong.append("there are bytes that nobody owns")
        if list(files.blobs.list_folder("unfinished")):
            wrong.append("there is something half-written")
        ACTS["submit"](queue)
        ACTS["submit"](queue)  # and it works again
    return wrong


def main(folder: Path, act: str) -> None:
    """Die at every step of an act, each time on a new queue."""
    at, stride, wrong = 1, 4 if act == "submit_many" else 1, list[str]()
    while True:
        url = f"sqlite:///{folder}/{at}/queue.db"
        (folder / str(at)).mkdir()
        with Queue(url) as queue:
            before = {queue.submit("acme", content=b"old", key="old").id: b"old"} if at % 2 or act != "submit" else {}
            if act in ("purge", "forget", "sweep"):
                queue.files.open().put_input("acme", "01234567-0000-7000-8000-000000000000", b"orphan")
                before[queue.submit("acme", content=LARGE).id] = LARGE
            if act == "purge":
                queue.cancel(queue.submit("acme", content=b"ended").id)
                queue.cancel(queue.submit("other", content=b"ended too").id)
        steps = die(url, act, at)
        wrong += [f"{act}, step {at}: {problem}" for problem in wrong_after(url, act, before)]
        if steps is not None:
            break
        at += stride
    sys.stdout.write(json.dumps({"steps": at - stride, "wrong": wrong}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
