"""A process that dies, by kill -9, at a chosen step of a re-encryption; run by test_rotation.py.

A step is a call of the system that the blob store makes, or a call of the store that changes something. It dies just before or
just after one. Then everything must be readable with both keys; and after another run with the new one alone.
"""

from __future__ import annotations

import json
import os
import sys
from itertools import count
from pathlib import Path

from fairlane import Queue, reencrypt
from fairlane.encryption import inner_engine, load_keyring, open_store
from fairlane.encryption.keyring import KEYS_VARIABLE, new_key
from fairlane.engine import Engine
from tests.blobs.dying import STEPS, Fuse
from tests.engine.conftest import url_of
from tests.privacy.everything import holding, stored
from tests.servers import redis

from .test_store import WORD, check_all, fill

VERBS = ("rewrite", "put_record")
for name in ("ROWS_MAX", "PAGE_SIZE"):
    setattr(reencrypt, name, 2)  # several steps of each kind


def die(url: str, blobs: str, at: int) -> bool:
    """Re-encrypt in a process that dies at that step; return whether it came to its end before."""
    child = os.fork()
    if child == 0:
        fuse = Fuse(at)

        def open_fused(url: str, create: bool = True, keyring: object = None) -> Engine:
            engine = open_store(url, create)
            inner = inner_engine(engine)
            for name in VERBS:
                setattr(inner, name, fuse.around(getattr(inner, name)))
            for name in STEPS:
                setattr(os, name, fuse.around(getattr(os, name)))
            return engine

        setattr(reencrypt, "open_store", open_fused)  # noqa: B010
        reencrypt.reencrypt(url, blobs)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 0


def wrong_after(url: str, blobs: str, folder: Path, ids: dict[str, str], old: str, new: str) -> list[str]:
    """Return what is wrong after a death, and after another run."""
    wrong = []
    with Queue(url, blobs=blobs) as queue:
        check_all(queue, ids)
    done = reencrypt.reencrypt(url, blobs)
    old_id = load_keyring(environment={KEYS_VARIABLE: old}).keys[0].id
    if done.left or done.struck not in ((), (old_id,)):
        wrong.append(f"{done}")
    os.environ[KEYS_VARIABLE] = new
    with Queue(url, blobs=blobs) as queue:  # refused if the old key were still in use
        check_all(queue, ids)
        if left := holding({WORD, f"enc1:{old_id}"}, stored(queue, folder)):
            wrong.append(f"left: {left[:5]}")
        heads = [path.read_bytes()[8:12].hex() for path in (folder / "blobs").rglob("*") if path.is_file()]
        if old_id in heads:
            wrong.append("a file has the old key")
    return wrong


def main(folder: Path, engine: str, stride: int) -> None:
    """Die at every step, each time on a new queue."""
    wrong = list[str]()
    for at in count(1, stride):
        here, old, new = folder / str(at), new_key(), new_key()
        here.mkdir()
        url, blobs = url_of(engine, here), str(here / "blobs")
        os.environ[KEYS_VARIABLE] = old
        with Queue(url, blobs=blobs) as queue:
            ids = fill(queue)
        os.environ[KEYS_VARIABLE] = f"{new},{old}"
        is_over = die(url, blobs, at)
        wrong += [f"step {at}: {problem}" for problem in wrong_after(url, blobs, here, ids, old, new)]
        redis.drop_url(url)
        if is_over:
            sys.stdout.write(json.dumps({"steps": at - stride, "wrong": wrong}))
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
