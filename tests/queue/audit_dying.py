"""A process that dies, by kill -9, at a chosen step of a change that an operator makes; run by test_audit_kills.py.

A step is a call of the store that changes something; it dies just before or just after it. Whatever was changed then has an
entry in the audit log, begun or done; an entry that says it was done is true.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from fairlane import Queue
from fairlane.api import auth, upload_tokens
from fairlane.console.sessions import GROUP as SESSIONS
from fairlane.console.sessions import SessionStore
from fairlane.core.document import Failed
from fairlane.queue.audit import Actor, AuditFilter, walk_audit
from fairlane.queue.audited_queue import AuditedQueue
from tests.blobs.dying import Fuse
from tests.engine.conftest import url_of
from tests.servers import redis

VERBS = ("cancel", "configure", "put_record", "reset", "retry", "tune", "purge", "forget")
ADA = Actor("key", "0123456789abcdef", "ada", "admin")


class Prepared:
    """A queue with a document that runs, one that failed, and a key."""

    def __init__(self, queue: Queue) -> None:
        self.running, self.failed = (queue.submit("acme", number).id for number in range(2))
        claims = queue.engine.claim("w", 2, 600_000)
        queue.engine.settle([(claim, Failed("no")) for claim in claims if claim.id == self.failed])
        self.key = auth.create(queue.engine, customer="acme")[1].id


Act = Callable[[AuditedQueue, Prepared], object]
Look = Callable[[Queue, Prepared], Any]
ACTS: dict[str, tuple[Act, Look]] = {
    "customer.pause": (lambda queue, _: queue.pause("acme"), lambda queue, _: queue.terms("acme").paused),
    "customer.reset": (lambda queue, _: queue.reset("acme"), lambda queue, _: queue.look("acme").counter),
    "policy.set": (lambda queue, _: queue.configure(reset="sliding"), lambda queue, _: queue.rules().policy.reset),
    "document.cancel": (
        lambda queue, known: queue.cancel(known.running),
        lambda queue, known: queue.document(known.running).state,
    ),
    "document.retry": (lambda queue, known: queue.retry(known.failed), lambda queue, known: queue.document(known.failed).state),
    "documents.retry": (
        lambda queue, _: queue.bulk("retry", customer="acme"),
        lambda queue, known: queue.document(known.failed).state,
    ),
    "queue.purge": (lambda queue, _: queue.purge(0), lambda queue, _: len(list(queue.documents()))),
    "key.create": (
        lambda queue, _: auth.create(queue.engine, role="viewer", actor=queue.actor),
        lambda queue, _: len(list(auth.list_keys(queue.engine))),
    ),
    "key.rotate": (
        lambda queue, known: auth.rotate(queue.engine, known.key, actor=queue.actor),
        lambda queue, known: auth.find(queue.engine, known.key).replaced_by is None,
    ),
    "key.revoke": (
        lambda queue, known: auth.revoke(queue.engine, known.key, actor=queue.actor),
        lambda queue, known: auth.find(queue.engine, known.key).revoked_ms is None,
    ),
    "upload-token.create": (
        lambda queue, _: upload_tokens.create(queue.engine, "acme", actor=queue.actor),
        lambda queue, _: len(queue.engine.records(upload_tokens.GROUP, "", 10)),
    ),
    "session.begin": (
        lambda queue, known: SessionStore(queue.engine).begin(known.key, queue.actor),
        lambda queue, _: len(queue.engine.records(SESSIONS, "", 10)),
    ),
    "customer.forget": (lambda queue, _: queue.forget("acme"), lambda queue, _: len(list(queue.customers()))),
}


def die(url: str, known: Prepared, act: Act, at: int) -> bool:
    """Make a change in a process that dies at that step; return whether it came to its end before."""
    child = os.fork()
    if child == 0:
        queue, fuse = AuditedQueue(Queue(url), ADA), Fuse(at)
        for name in VERBS:
            setattr(queue.engine, name, fuse.around(getattr(queue.engine, name)))
        act(queue, known)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 0


def wrong_after(queue: Queue, action: str, is_changed: bool, is_over: bool) -> str | None:
    """Return what is wrong after a death."""
    found = [entry.outcome for entry in walk_audit(queue.engine, AuditFilter(what=action)) if entry.who == ADA]
    if is_changed and len(found) != 1:
        return f"changed with {len(found)} entries"
    if not is_changed and "done" in found:
        return "said to be done, and was not"
    return f"over with {found}" if is_over and found != ["done"] else None


def main(folder: Path, engine: str) -> None:
    """Die at every step of every change, each time on a new queue."""
    wrong, steps, seen = list[str](), 0, set[tuple[str, bool]]()
    for action, (act, look) in ACTS.items():
        for at in count(1):
            here = folder / f"{action} {at}"
            here.mkdir()
            url = url_of(engine, here)
            with Queue(url) as queue:
                known = Prepared(queue)
                before = look(queue, known)
            is_over = die(url, known, act, at)
            with Queue(url) as queue:
                is_changed = look(queue, known) != before
                problem = wrong_after(queue, action, is_changed, is_over)
            redis.drop_url(url)
            steps, seen = steps + 1, seen | {(action, is_changed)}
            wrong += [f"{action}, step {at}: {problem}"] if problem else []
            if is_over:
                break
    unseen = [f"{action} was never seen {'made' if made else 'not made'}" for action in ACTS for made in (True, False)
              if (action, made) not in seen]  # fmt: skip
    sys.stdout.write(json.dumps({"steps": steps, "wrong": wrong + unseen}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
