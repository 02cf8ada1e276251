"""A worker whose store goes away: a signal still ends it, and it reports every document once."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.proxy import FaultyProxy
from fairlane import Queue
from tests.servers import postgres

from .conftest import SECONDS_MAX, is_alive, process_tree, until
from .test_worker import Running, began, submit


@pytest.fixture
def server_url() -> str:
    return postgres.empty_queue(postgres.shared())


@pytest.fixture
def queue(server_url: str) -> Iterator[Queue]:
    with Queue(server_url) as queue:
        yield queue


@pytest.fixture
def proxy() -> Iterator[FaultyProxy]:
    with FaultyProxy(postgres.shared().port) as proxy:
        yield proxy


@pytest.fixture
def running(server_url: str, proxy: FaultyProxy) -> Iterator[Running]:
    """A worker behind the proxy, with short times for a store that does not answer."""
    url = server_url.replace(str(postgres.shared().port), str(proxy.port))
    running = Running(url, grace=0.1, lease=10, is_impatient=True)
    yield running
    running.process.kill()
    running.process.communicate()


@pytest.mark.parametrize("fault", ["freeze", "refuse"])
@pytest.mark.parametrize("kind", ["wait", "polite"])
def test_a_signal_ends_it_with_a_settlement_on_its_way(
    running: Running, queue: Queue, proxy: FaultyProxy, tmp_path: Path, fault: str, kind: str
) -> None:
    for name in ("finished", "unfinished"):
        (tmp_path / name).mkdir()
    finished, unfinished = submit(queue, tmp_path / "finished", kind) + submit(queue, tmp_path / "unfinished", kind)
    began(tmp_path / "finished", finished)
    began(tmp_path / "unfinished", unfinished)
    tree = process_tree(running.pid)
    getattr(proxy, fault)()
    (tmp_path / "finished" / "gate").touch()
    until((tmp_path / "finished" / f"ended-{finished}").exists, "the end of the handler")
    running.signal(signal.SIGTERM)
    output, _ = running.process.communicate(timeout=SECONDS_MAX)
    assert running.process.returncode == 0
    until(lambda: not any(map(is_alive, tree)), "the end of the whole process tree")
    summary = json.loads(output.splitlines()[-1])
    assert {name: count for name, count in summary.items() if count} == {"lost": 2}
    reported = Counter(line for line in output.splitlines() if line.startswith(("lost", "finished", "unfinished")))
    assert reported == {f"lost {finished}": 1, f"lost {unfinished}": 1}


@pytest.mark.parametrize("fault", ["freeze", "refuse"])
def test_a_signal_ends_one_that_has_nothing_to_do(
    running: Running, queue: Queue, proxy: FaultyProxy, tmp_path: Path, fault: str
) -> None:
    (tmp_path / "gate").touch()
    (id,) = submit(queue, tmp_path, "wait")
    assert running.process.stdout is not None
    assert running.process.stdout.readline() == f"finished {id}\n"  # the store's answer has arrived
    getattr(proxy, fault)()
    running.signal(signal.SIGTERM)
    assert running.ended() == {"done": 1}
