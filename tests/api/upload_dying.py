"""A server that dies, by kill -9, at a chosen step of an upload with a token; run by test_upload_tokens.py.

A step is a call of the store that changes something; it dies just before or just after it. However it died, the token makes
no second document, and a token that was not spent still makes its one.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from itertools import count
from pathlib import Path

import httpx

from fairlane import Queue
from fairlane.api import upload_tokens
from fairlane.api.app import make_app
from fairlane.api.extension import Extension
from fairlane.api.logging import Log
from fairlane.api.service import Options, Service
from tests.blobs.dying import Fuse
from tests.engine.conftest import url_of
from tests.servers import redis

VERBS = ("submit", "put_record")


def upload(queue: Queue, secret: str) -> int:
    """Send a document as a browser would; return the status of the response."""

    async def send() -> int:
        transport = httpx.ASGITransport(make_app(Service(queue, Options(), Log()), Extension()))
        headers = {"Authorization": f"Bearer {secret}", "Content-Type": "text/plain"}
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return (await client.post("/v1/uploads", content=b"text", headers=headers)).status_code

    return asyncio.run(send())


def die(url: str, blobs: str, secret: str, at: int) -> int | None:
    """Upload in a process that dies at that step; return the status if it came to its end before."""
    child = os.fork()
    if child == 0:
        queue, fuse = Queue(url, blobs=blobs), Fuse(at)
        for name in VERBS:
            setattr(queue.engine, name, fuse.around(getattr(queue.engine, name)))
        os._exit(upload(queue, secret) - 200)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return code + 200 if code >= 0 else None


def wrong_after(queue: Queue, id: str, secret: str, status: int | None) -> str | None:
    """Use the token once more after a death, and return what is wrong then."""
    is_spent = upload_tokens.find(queue.engine, id).document is not None
    made = len(list(queue.documents("acme")))
    if made and not is_spent:
        return "a document, and the token is not spent"
    if status == 202 and not made:
        return "accepted, and lost"
    again = upload(queue, secret)
    if again != (409 if is_spent else 202):
        return f"used again with {again}"
    total = len(list(queue.documents("acme")))
    return None if total == (made if is_spent else 1) else f"{total} documents"


def main(folder: Path, engine: str) -> None:
    """Die at every step, each time on a new queue."""
    wrong, seen = list[str](), set[bool]()
    for at in count(1):
        here = folder / str(at)
        here.mkdir()
        url, blobs = url_of(engine, here), str(here / "files")
        with Queue(url, blobs=blobs) as queue:
            secret, token = upload_tokens.create(queue.engine, "acme")
        status = die(url, blobs, secret, at)
        with Queue(url, blobs=blobs) as queue:
            seen.add(upload_tokens.find(queue.engine, token.id).document is None)
            problem = wrong_after(queue, token.id, secret, status)
        redis.drop_url(url)
        wrong += [f"step {at}: {problem}"] if problem else []
        if status is not None:
            break
    wrong += [] if len(seen) == 2 else ["a token was never seen both spent and not spent"]
    sys.stdout.write(json.dumps({"steps": at, "wrong": wrong}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
