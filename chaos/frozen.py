"""Chaos for a stopped worker: after its lease, nothing that it does changes anything.

A worker claims a document and is stopped (SIGSTOP) with the order to settle already on its way. Its lease runs out, another
worker takes the document and ends it. Then the first one goes on (SIGCONT): it extends and settles, and both must be
refused without any change. `python -m chaos.frozen --engine postgres --times 100`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import click

from fairlane import Queue
from fairlane.core.document import Done, Failed, Outcome, Released, Retried
from fairlane.engine.protocol import ATTEMPTS
from fairlane.engine.walk import walk_documents

from .servers import SERVERS

HERE = Path(__file__).parent.parent
LEASE_MS = 60
OUTCOMES: dict[str, Outcome] = {
    "done": Done('"frozen"', cost=7000), "failed": Failed("frozen", details='"frozen"'), "released": Released(),
    "retried": Retried(0, "frozen"), "postponed": Retried(50, "frozen", counted=False, details='"frozen"'),
}  # fmt: skip


def worker(url: str) -> None:
    """Claim a document for each line of standard input, and settle it as the next line says."""
    with Queue(url) as queue:
        for _ in sys.stdin:
            (claim,) = queue.engine.claim("frozen", 1, LEASE_MS)
            print(claim.id, flush=True)
            outcome = OUTCOMES[sys.stdin.readline().strip()]
            lost = queue.engine.extend([claim], 60_000) + queue.engine.settle([(claim, outcome)])
            print(len(lost), flush=True)


def everything(queue: Queue) -> tuple[object, ...]:
    """Return the whole visible state."""
    engine = queue.engine
    documents = list(walk_documents(engine))
    return (
        documents,
        [engine.body(document.id) for document in documents],
        engine.customers("", 10, now_ms=0),
        engine.changes(None, 10**6),
        engine.records(ATTEMPTS, "", 10**6),
    )


def run(url: str, times: int) -> list[str]:
    """Stop and continue a worker that often; returns what was wrong."""
    wrong: list[str] = []
    command = [sys.executable, "-m", "chaos.frozen", "--worker", url]
    with (
        Queue(url) as queue,
        subprocess.Popen(command, cwd=HERE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child,
    ):
        try:
            for number in range(times):
                wrong += _once(queue, child, number)
        finally:
            with suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGCONT)
            child.kill()
    return wrong


def _once(queue: Queue, child: subprocess.Popen[str], number: int) -> list[str]:
    assert child.stdin is not None
    assert child.stdout is not None
    id = queue.submit("acme", number).id
    child.stdin.write("claim\n")
    child.stdin.flush()
    claimed = child.stdout.readline().strip()
    os.kill(child.pid, signal.SIGSTOP)
    child.stdin.write(list(OUTCOMES)[number % len(OUTCOMES)] + "\n")
    child.stdin.flush()
    while not queue.engine.reclaim(10):
        time.sleep(0.005)
    if number % 3:  # another worker ends it, or it is running there, or it waits
        (claim,) = queue.engine.claim("other", 1, 600_000)
        if number % 3 == 1:
            queue.engine.settle([(claim, Done('"other"'))])
    before = everything(queue)
    os.kill(child.pid, signal.SIGCONT)
    lost = child.stdout.readline().strip()
    wrong = [] if claimed == id else [f"round {number}: {claimed} was claimed instead of {id}"]
    if lost != "2":
        wrong.append(f"round {number}: {lost} of 2 calls were refused")
    if everything(queue) != before:
        wrong.append(f"round {number}: a refused call changed something")
    queue.cancel(id)
    return wrong


@click.command()
@click.option("--engine", type=click.Choice(["sqlite", *SERVERS]), default="sqlite", show_default=True)
@click.option("--url", help="A queue that is there already; it must be empty.")
@click.option("--times", default=100, show_default=True)
def main(engine: str, url: str | None, times: int) -> None:
    """Stop a worker past its lease, let it go on, and check that nothing changes."""
    with tempfile.TemporaryDirectory(prefix="fairlane-chaos-") as folder:
        server = None if url or engine == "sqlite" else SERVERS[engine]()
        try:
            wrong = run(url or (server.url if server else f"sqlite:///{folder}/queue.db"), times)
        finally:
            if server is not None:
                server.close()
    for problem in wrong:
        print(f"WRONG: {problem}")
    print(f"Frozen and thawed {times} times on {engine}. " + ("Nothing is wrong." if not wrong else f"{len(wrong)} wrong."))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(sys.argv[2])
    else:
        main()
