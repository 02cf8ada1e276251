"""A worker in a plain script: signals, kill -9, stopped processes, and handlers that hold the interpreter."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from fairlane import Queue
from fairlane.procs import reaper, syscalls

from .conftest import SECONDS_MAX, is_alive, lease_ms, process_tree, until

SCRIPT = Path(__file__).with_name("script.py")
Start = Callable[..., "Running"]


class Running:
    """A script that runs, and everything it forked."""

    def __init__(self, url: str, **options: Any) -> None:
        command = [sys.executable, str(SCRIPT), url, json.dumps({"slots": 2, "lease": 2, **options})]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.pid = self.process.pid

    def helpers(self) -> list[int]:
        """Its fork server and its heartbeat."""
        return until(lambda: (pids := reaper.children_of(self.pid)) and len(pids) == 2 and pids)  # type: ignore[no-any-return]

    def fork_server(self) -> int:
        """The helper that has children of its own."""
        return until(lambda: next((pid for pid in self.helpers() if reaper.children_of(pid)), 0))  # type: ignore[no-any-return]

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def ended(self) -> dict[str, int]:
        """Its summary, from the last line that it printed."""
        output, _ = self.process.communicate(timeout=SECONDS_MAX)
        assert self.process.returncode == 0
        summary: dict[str, int] = json.loads(output.splitlines()[-1])
        return {name: count for name, count in summary.items() if count}


@pytest.fixture
def start(url: str) -> Iterator[Start]:
    running: list[Running] = []

    def start(**options: Any) -> Running:
        running.append(Running(url, **options))
        return running[-1]

    yield start
    for script in running:
        tree = process_tree(script.pid) if script.process.poll() is None else set()
        script.process.kill()
        script.process.communicate()
        for pid in tree:
            until(lambda: not is_alive(pid), "the end of the whole process tree")  # noqa: B023 - called at once


def submit(queue: Queue, folder: Path, kind: str, count: int = 1, **payload: Any) -> list[str]:
    return [receipt.id for receipt in queue.submit_many("acme", [{"folder": str(folder), **payload}] * count, kind=kind)]


def began(folder: Path, *ids: str) -> None:
    until(lambda: all((folder / f"began-{id}").exists() for id in ids), "the start of the handlers")


def renewed(queue: Queue, *ids: str) -> None:
    """Until their leases were renewed: the heartbeat is up."""
    first = {id: lease_ms(queue, id) for id in ids}
    until(lambda: all(lease_ms(queue, id) > first[id] for id in ids), "a renewal")


# -- signals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["wait", "polite"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_what_runs_finish_and_gives_back_the_rest(
    start: Start, queue: Queue, tmp_path: Path, kind: str, number: int
) -> None:
    ids = submit(queue, tmp_path, kind, 5)
    worker = start()
    began(tmp_path, *ids[:2])
    worker.signal(number)
    assert worker.process.stdout is not None
    assert worker.process.stdout.readline() == "stopping\n"
    (tmp_path / "gate").touch()
    assert worker.ended() == {"done": 2}
    assert [queue.document(id).state for id in ids] == ["done"] * 2 + ["ready"] * 3
    assert all(queue.document(id).attempts == 0 for id in ids[2:])


def test_a_signal_to_the_whole_group_does_not_reach_the_handlers(start: Start, queue: Queue, tmp_path: Path) -> None:
    (id,) = submit(queue, tmp_path, "wait")
    worker = start()
    began(tmp_path, id)
    for pid in process_tree(worker.pid):
        os.kill(pid, signal.SIGTERM)
    (tmp_path / "gate").touch()
    assert worker.ended() == {"done": 1}


@pytest.mark.parametrize("kind", ["wait", "polite", "forks"])
def test_what_does_not_finish_within_the_grace_period_goes_back_without_its_attempt(
    start: Start, queue: Queue, tmp_path: Path, kind: str
) -> None:
    (id,) = submit(queue, tmp_path, kind)
    worker = start(grace=0.2)
    began(tmp_path, id)
    worker.signal(signal.SIGTERM)
    assert worker.ended() == {"released": 1}
    assert (queue.document(id).state, queue.document(id).attempts) == ("ready", 0)
    assert not (tmp_path / f"ended-{id}").exists()


@pytest.mark.parametrize("kind", ["wait", "polite"])
def test_a_second_signal_gives_everything_back_at_once(start: Start, queue: Queue, tmp_path: Path, kind: str) -> None:
    ids = submit(queue, tmp_path, kind, 2)
    worker = start(grace=1000)
    began(tmp_path, *ids)
    worker.signal(signal.SIGTERM)
    worker.signal(signal.SIGINT)
    assert worker.ended() == {"released": 2}
    assert [(queue.document(id).state, queue.document(id).attempts) for id in ids] == [("ready", 0)] * 2


def test_a_handler_that_does_not_let_itself_be_cancelled_holds_up_nothing(start: Start, queue: Queue, tmp_path: Path) -> None:
    (id,) = submit(queue, tmp_path, "stubborn")
    worker = start(grace=0)
    began(tmp_path, id)
    worker.signal(signal.SIGTERM)
    assert worker.ended() == {"released": 1}
    assert queue.document(id).state == "ready"


# -- leases ----------------------------------------------------------------------------------------------------------


def test_a_handler_that_runs_longer_than_its_lease_keeps_it(start: Start, queue: Queue, tmp_path: Path) -> None:
    ids = submit(queue, tmp_path, "wait") + submit(queue, tmp_path, "polite")
    start(lease=1)
    began(tmp_path, *ids)
    first = {id: lease_ms(queue, id) for id in ids}
    until(lambda: all(lease_ms(queue, id) > first[id] + 1500 for id in ids), "some renewals")
    assert queue.engine.reclaim(10) == 0
    (tmp_path / "gate").touch()
    until(lambda: all(queue.document(id).state == "done" for id in ids))
    assert [queue.document(id).attempts for id in ids] == [1, 1]


def test_a_handler_that_holds_the_interpreter_keeps_its_lease(start: Start, queue: Queue, tmp_path: Path) -> None:
    (id,) = submit(queue, tmp_path, "interpreter")
    worker = start(lease=1)
    began(tmp_path, id)
    until(lambda: queue.engine.reclaim(1) or queue.document(id).state == "done", "its end, or that of its lease")
    assert (tmp_path / f"ended-{id}").exists()
    assert queue.document(id).attempts == 1
    claimed, done = (change.at for change in queue.changes() if change.event in ("claimed", "done"))
    assert done - claimed > timedelta(seconds=1), "the handler was too quick to prove anything"
    worker.signal(signal.SIGTERM)
    assert worker.ended() == {"done": 1}


def test_a_handler_that_blocks_the_loop_for_ever_costs_the_worker_its_life(start: Start, queue: Queue, tmp_path: Path) -> None:
    (id,) = submit(queue, tmp_path, "hog")
    worker = start(lease=1, is_hog=True)
    assert worker.process.wait(SECONDS_MAX) == -signal.SIGKILL
    until(lambda: queue.engine.reclaim(1), "the end of the lease")
    assert queue.document(id).state == "failed"
    assert "lease ran out on attempt 1 of 1" in (queue.document(id).reason or "")


def test_a_stopped_worker_loses_its_documents_and_changes_nothing_afterwards(
    start: Start, queue: Queue, tmp_path: Path
) -> None:
    ids = submit(queue, tmp_path, "wait", 2)
    worker = start(lease=1)
    began(tmp_path, *ids)
    worker.helpers()
    worker.signal(signal.SIGSTOP)
    until(lambda: queue.engine.reclaim(10) and queue.look("acme").running == 0, "the end of the leases")
    others = queue.engine.claim("another", 2, 60_000)
    (tmp_path / "gate").touch()
    worker.signal(signal.SIGCONT)
    worker.signal(signal.SIGTERM)
    assert worker.ended() == {"lost": 2}
    assert {(claim.id, claim.token) for claim in others} == {(id, 2) for id in ids}
    assert all((queue.document(id).state, queue.document(id).worker) == ("running", "another") for id in ids)


def test_a_claim_that_was_long_on_its_way_is_renewed_even_if_the_worker_stops_at_once(
    start: Start, queue: Queue, tmp_path: Path
) -> None:
    """Else the heartbeat, which counts from the worker's last sign of life, would end its handler after its lease."""
    (id,) = submit(queue, tmp_path, "wait")
    worker = start(lease=2, is_late=True)
    until(lambda: syscalls.is_stopped(worker.pid), "its stop")
    claimed = next(change.at for change in queue.changes() if change.event == "claimed")
    until(
        lambda: queue.engine.reclaim(1) or lease_ms(queue, id) > claimed.timestamp() * 1000 + 2000,
        "a renewal, or the end of the lease",
    )
    assert queue.document(id).state == "running"


def test_the_handlers_of_a_stopped_worker_are_ended_before_their_lease(start: Start, queue: Queue, tmp_path: Path) -> None:
    (id,) = submit(queue, tmp_path, "wait")
    worker = start(lease=2)
    began(tmp_path, id)
    (child,) = reaper.children_of(worker.fork_server())
    renewed(queue, id)
    worker.signal(signal.SIGSTOP)
    until(lambda: not is_alive(child), "the end of the handler")
    assert queue.engine.reclaim(10) == 0
    worker.signal(signal.SIGCONT)


def test_a_heartbeat_that_cannot_renew_makes_the_worker_stop_its_handlers_in_time(
    start: Start, queue: Queue, tmp_path: Path
) -> None:
    ids = submit(queue, tmp_path, "wait") + submit(queue, tmp_path, "polite")
    worker = start(lease=3)
    began(tmp_path, *ids)
    fork_server = worker.fork_server()
    (child,) = reaper.children_of(fork_server)
    (heartbeat,) = set(worker.helpers()) - {fork_server}
    renewed(queue, *ids)
    os.kill(heartbeat, signal.SIGSTOP)
    until(lambda: not is_alive(child), "the end of the handler")
    assert queue.engine.reclaim(10) == 0
    worker.signal(signal.SIGTERM)
    assert worker.ended() == {"lost": 2}
    assert not (tmp_path / f"ended-{ids[1]}").exists()


def test_a_cancelled_document_is_stopped_at_the_next_renewal(start: Start, queue: Queue, tmp_path: Path) -> None:
    ids = submit(queue, tmp_path, "wait") + submit(queue, tmp_path, "polite")
    worker = start(lease=1)
    began(tmp_path, *ids)
    (child,) = reaper.children_of(worker.fork_server())
    for id in ids:
        queue.cancel(id)
    until(lambda: not is_alive(child), "the end of the handler")
    worker.signal(signal.SIGTERM)
    assert worker.ended() == {"lost": 2}
    assert [queue.document(id).state for id in ids] == ["cancelled"] * 2


# -- kill -9 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["wait", "forks"])
def test_after_kill_9_nothing_is_left_and_another_worker_takes_over(
    start: Start, queue: Queue, tmp_path: Path, kind: str
) -> None:
    ids = submit(queue, tmp_path, kind)
    worker = start(lease=1)
    began(tmp_path, *ids)
    size = 8 if kind == "forks" else 4  # worker, fork_server, heartbeat, child; program, fork, daemon
    tree = until(lambda: len(pids := process_tree(worker.pid)) >= size - 1 and pids)
    worker.signal(signal.SIGKILL)
    until(lambda: not any(map(is_alive, tree)), "the end of the whole process tree")
    if kind == "wait":
        (tmp_path / "gate").touch()
        start(lease=1)
        until(lambda: queue.document(ids[0]).state == "done")
        assert queue.result(ids[0]) == 2


@pytest.mark.parametrize("which", ["fork_server", "heartbeat"])
def test_a_worker_without_a_helper_gives_back_what_it_has_and_says_so(
    start: Start, queue: Queue, tmp_path: Path, which: str
) -> None:
    ids = submit(queue, tmp_path, "wait")
    worker = start(grace=1000)
    began(tmp_path, *ids)
    fork_server = worker.fork_server()
    (heartbeat,) = set(worker.helpers()) - {fork_server}
    tree = process_tree(worker.pid)
    os.kill(fork_server if which == "fork_server" else heartbeat, signal.SIGKILL)
    assert worker.process.wait(SECONDS_MAX) == 1
    assert (queue.document(ids[0]).state, queue.document(ids[0]).attempts) == ("ready", 0)
    until(lambda: not any(map(is_alive, tree)), "the end of the whole process tree")


def test_nothing_is_left_open_when_it_ends(queue: Queue, url: str, tmp_path: Path) -> None:
    script = tmp_path / "plain.py"
    script.write_text(
        f"from fairlane import Worker\nworker = Worker({url!r})\n"
        "@worker.handler('default')\ndef extract(document):\n    return 1\nworker.run(until_empty=True)\n"
    )
    queue.submit("acme")
    command = [sys.executable, "-W", "default", str(script)]
    completed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS_MAX)
    assert (completed.stderr, queue.look("acme").done) == ("", 1)
