"""The heartbeat process."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fairlane import Queue, Worker
from fairlane.worker import Summary

from .conftest import Bench, until


def test_nothing_is_claimed_before_the_keeper_is_up(
    queue: Queue, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A keeper that starts only when a gate opens; a worker whose keeper is a thread does all its work meanwhile."""
    gate, slow = tmp_path / "gate", tmp_path / "slow-python"
    slow.write_text(f'#!/bin/sh\nwhile [ ! -e "{gate}" ]; do sleep 0.01; done\nexec "{sys.executable}" "$@"\n')
    slow.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(slow))
    queue.submit("acme", kind="extract")
    bench = Bench(url)
    worker = bench.worker(lease=30)
    worker.handler("extract")(lambda document: None)
    stop = bench.start(worker)
    until(lambda: bench.emitted("started"))
    with Queue("memory://") as other:
        other.submit("acme", kind="extract")
        quick = Worker(other)
        quick.handler("extract")(lambda document: None)
        assert quick.run(until_empty=True) == Summary(done=1)
    assert bench.emitted("claimed") == []
    gate.touch()
    until(lambda: bench.emitted("finished"))
    assert stop() == Summary(done=1)
