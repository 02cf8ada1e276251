"""The heartbeat: what it renews, what it does about a silent worker, and that nothing is claimed without it."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fairlane import Queue, Worker
from fairlane.procs.ipc import FrameDecoder, encode_frame
from fairlane.worker import Summary
from fairlane.worker.heartbeat import Heartbeat

from .conftest import SECONDS_MAX, Bench, lease_ms, until

LEASE_MS = 3000


class Silent:
    """A worker, as a heartbeat sees it."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def is_stopped(self) -> bool:
        return False

    def end_handlers(self) -> None:
        self.calls.append("end_handlers")

    def end(self) -> None:
        self.calls.append("end")


class Connected:
    """The worker's end of the socket to a heartbeat on a thread."""

    def __init__(self, connection: socket.socket) -> None:
        self.worker = Silent()
        self._connection = connection
        self._decoder = FrameDecoder()
        self._messages: list[list[Any]] = []
        connection.settimeout(SECONDS_MAX)

    def beat(self, deadline: float | None, added: list[list[Any]], dropped: list[int]) -> None:
        self._connection.sendall(encode_frame(["beat", deadline, added, dropped]))

    def next(self, word: str) -> list[Any]:
        """Wait for a message of that word; returns its values."""
        while True:
            while self._messages:
                first, *values = self._messages.pop(0)
                if first == word:
                    return values
            self._messages += self._decoder.feed(self._connection.recv(65_536))


@contextmanager
def connected(queue: Queue) -> Iterator[Connected]:
    ours, theirs = socket.socketpair()
    made = Connected(ours)
    heartbeat = Heartbeat(queue.engine, theirs, LEASE_MS, made.worker)
    thread = threading.Thread(target=heartbeat.run)
    thread.start()
    with theirs:
        with ours:
            yield made
        thread.join(SECONDS_MAX)
        assert not thread.is_alive(), "it did not end with its worker"


def test_it_renews_what_it_knows_and_names_what_is_lost() -> None:
    with Queue("memory://") as queue, connected(queue) as worker:
        worker.next("ready")
        kept, cancelled, dropped = (queue.submit("acme").id for _ in range(3))
        claims = {claim.id: claim for claim in queue.engine.claim("worker", 3, LEASE_MS)}
        first = {id: lease_ms(queue, id) for id in claims}
        worker.beat(None, [[1, claims[kept]], [2, claims[cancelled]], [3, claims[dropped]]], [])
        queue.cancel(cancelled)
        worker.beat(None, [], [3])
        _, last_serial, lost = worker.next("renewed")
        assert (last_serial, lost) == (3, [2])
        assert lease_ms(queue, kept) > first[kept]
        assert lease_ms(queue, dropped) == first[dropped]


@pytest.mark.parametrize("has_deadline", [False, True])
def test_handlers_of_a_silent_worker_are_ended_and_a_hung_worker_itself(has_deadline: bool) -> None:
    with Queue("memory://") as queue, connected(queue) as worker:
        worker.beat(0.0 if has_deadline else None, [], [])
        until(lambda: worker.worker.calls, "a reaction")
        assert worker.worker.calls[0] == ("end" if has_deadline else "end_handlers")


def test_nothing_is_claimed_before_it_is_up(queue: Queue, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that starts only when a gate opens; a worker whose heartbeat is a thread does all its work meanwhile."""
    gate, slow = tmp_path / "gate", tmp_path / "slow-python"
    slow.write_text(f'#!/bin/sh\nwhile [ ! -e "{gate}" ]; do sleep 0.01; done\nexec "{sys.executable}" "$@"\n')
    slow.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(slow))
    queue.submit("acme", kind="default")
    bench = Bench(url)
    worker = bench.worker(lease=30)
    worker.handler("default")(lambda document: None)
    stop: Callable[[], Summary] = bench.start(worker)
    until(lambda: bench.emitted("started"))
    with Queue("memory://") as other:
        other.submit("acme", kind="default")
        quick = Worker(other)
        quick.handler("default")(lambda document: None)
        assert quick.run(until_empty=True) == Summary(done=1)
    assert bench.emitted("claimed") == []
    gate.touch()
    until(lambda: bench.emitted("finished"))
    assert stop() == Summary(done=1)
