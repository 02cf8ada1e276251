"""Does a worker that was frozen past its lease change anything when it thaws? It is stopped by a signal, like a paused machine.

`python -m chaos.frozen --engine redis`: a worker claims and is frozen; its lease runs out, somebody else takes the document
and ends it; the worker thaws and settles. Its settlement must be refused, and nothing may have changed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import click

from fairlane import Queue
from fairlane.core.document import Done
from fairlane.engine import Engine

from .processes import HERE
from .servers import SERVERS

LEASE_MS = 20
WORKER = """
import sys
from fairlane import Queue
from fairlane.core.document import Done, Failed, Released, Retry
outcomes = [Done('"stale"'), Failed("stale"), Retry(0, "stale"), Released()]
with Queue(sys.argv[1]) as queue:
    for turn in range(int(sys.argv[2])):
        (claim,) = queue.engine.claim("frozen", 1, int(sys.argv[3]))
        print(claim.id, flush=True)
        sys.stdin.readline()  # it is frozen here, and goes on when it is thawed
        lost = queue.engine.extend([claim], 1000) + queue.engine.settle([(claim, outcomes[turn % 4])])
        print(len(lost), flush=True)
        sys.stdin.readline()
"""


def run(url: str, times: int) -> list[str]:
    """What is wrong; nothing, if every thawed worker was refused and changed nothing."""
    wrong: list[str] = []
    with Queue(url) as queue:
        queue.submit("ada", 0)
        command = [sys.executable, "-c", WORKER, url, str(times), str(LEASE_MS)]
        worker = subprocess.Popen(command, cwd=HERE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert worker.stdin is not None
        assert worker.stdout is not None
        try:
            for turn in range(times):
                id = worker.stdout.readline().strip()
                os.kill(worker.pid, signal.SIGSTOP)
                _take_over(queue.engine, id)
                before = (queue.document(id), queue.result(id), queue.look("ada", now=0), queue.changes(limit=100_000))
                print(file=worker.stdin, flush=True)
                os.kill(worker.pid, signal.SIGCONT)
                if worker.stdout.readline().strip() != "2":
                    wrong.append(f"turn {turn}: the thawed worker was not refused twice")
                if (queue.document(id), queue.result(id), queue.look("ada", now=0), queue.changes(limit=100_000)) != before:
                    wrong.append(f"turn {turn}: the thawed worker changed something")
                queue.submit("ada", turn)
                print(file=worker.stdin, flush=True)
        finally:
            worker.kill()
            worker.communicate()
    return wrong


def _take_over(engine: Engine, id: str) -> None:
    while not engine.reclaim(10):
        time.sleep(LEASE_MS / 4000)
    (claim,) = engine.claim("other", 1, 60_000)
    assert claim.id == id
    assert engine.settle([(claim, Done('"other"'))]) == []


@click.command()
@click.option("--engine", type=click.Choice(sorted(SERVERS)), default="redis", show_default=True)
@click.option("--times", default=100, show_default=True)
def main(engine: str, times: int) -> None:
    """Freeze a worker past its lease, and thaw it."""
    server = SERVERS[engine]()
    try:
        wrong = run(server.url("frozen"), times)
    finally:
        server.remove()
    for one in wrong:
        print(f"WRONG: {one}")
    print(
        f"{engine}: frozen and thawed {times} times. "
        + ("Nothing is wrong." if not wrong else f"{len(wrong)} things are wrong.")
    )
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
