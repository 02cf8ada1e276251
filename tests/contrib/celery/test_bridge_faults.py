"""Workers, feeders, the broker and the store are killed under the bridge: nothing is lost, and every document ends once.

`make chaos-celery` is the long form.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from chaos import celery as drill
from chaos.checker import fold_feed
from chaos.history import StoreSnapshot, walk_changes
from fairlane import Queue
from tests.api.running import until
from tests.servers import redis

from .running import KEEPS, Feeder, Project, Worker, open_broker

PUBLISH = """
import select
with open(sys.argv[1], "a") as accepted:
    number = 0
    while not select.select([sys.stdin], [], [], 0.005)[0]:
        number += 1
        try:
            id = work.delay("whale", str(number)).id
        except Exception as error:
            print(type(error).__name__, file=accepted, flush=True)
        else:
            print(id, file=accepted, flush=True)
"""


@pytest.mark.parametrize("broker", ["rabbitmq", "redis"])
def test_everything_ends_once_while_workers_feeders_and_the_broker_are_killed(broker: str, tmp_path: Path) -> None:
    options = drill.Options(broker, kills=3, broker_restarts=1, feeder_kills=1, documents=150, workers=2, seed=7)
    report = drill.run(options, tmp_path)
    assert report.wrong == []
    assert (report.figures["documents"], report.figures["begun"] >= 100) == (150, True)


def test_the_store_and_the_broker_killed_during_a_flood_lose_nothing(tmp_path: Path) -> None:
    store = redis.Server("valkey", *KEEPS)
    broker = open_broker("rabbitmq")
    project = Project(tmp_path, broker, store.url(), options={"timeout": 2, "lease": 5, "attempts": 20}, is_bridge=True)
    log = tmp_path / "accepted"
    log.touch()

    def accepted() -> set[str]:
        return {line for line in log.read_text().splitlines() if "-" in line}

    def refused() -> int:
        return sum("-" not in line for line in log.read_text().splitlines())

    with ExitStack() as stack:
        stack.callback(store.remove)
        publisher = stack.enter_context(project.script(PUBLISH, str(log)))
        stack.callback(publisher.kill)
        stack.enter_context(Worker(project, 1))
        stack.enter_context(Feeder(project))
        project.wait_for(20)
        store.kill()
        until(lambda: refused() >= 3, "the publisher gets errors")
        store.start()
        before = len(accepted())
        until(lambda: len(accepted()) >= before + 20, "tasks are accepted again")
        begun = len(project.records())
        project.wait_for(begun + 20)
        broker.server.kill()
        before = len(accepted())
        until(lambda: len(accepted()) >= before + 20, "tasks are accepted without a broker")
        broker.server.start()
        assert publisher.stdin is not None
        publisher.stdin.close()
        assert publisher.wait(40) == 0
        with Queue(project.store) as queue:
            until(lambda: queue.look("whale").waiting == queue.look("whale").running == 0, "everything ends")
            states = Counter(document.state for document in queue.documents())
            histories = fold_feed(StoreSnapshot(changes=list(walk_changes(queue.engine))))
        assert set(states) == {"done"}
        assert accepted() <= histories.keys()
        assert {id for id, history in histories.items() if history.endings != 1 or history.wrong} == set()


def test_a_purged_broker_queue_loses_nothing(tmp_path: Path) -> None:
    project = Project(tmp_path, open_broker("rabbitmq"), f"sqlite:///{tmp_path}/queue.db", is_bridge=True)
    with Queue(project.store) as queue, Feeder(project) as feeder:
        # A worker that takes nothing, as its connection has hung, say: its record is all that the feeder knows.
        with Worker(project, 1) as worker:
            worker.wait_until_ready()
            until(lambda: queue.workers(), "the worker's record")
        until(lambda: feeder.process.poll() is None, "the feeder")
        project.publish("for number in range(3): work.delay('acme', str(number))")
        until(lambda: any(document.state == "running" for document in queue.documents()), "one is handed over")
        project.broker.take(project.queue)
        with Worker(project, 1):
            project.wait_for(3)
            until(lambda: {document.state for document in queue.documents()} == {"done"}, "all end")
        assert {document.attempts for document in queue.documents()} == {1}  # what was recalled was not counted
        assert len(project.records()) == 3
        assert feeder.stop() == 0
        assert [worker.state for worker in queue.workers() if worker.slots == 0] == []


def test_a_worker_that_stops_gives_back_what_it_has_not_begun(tmp_path: Path) -> None:
    project = Project(
        tmp_path, open_broker("redis"), f"sqlite:///{tmp_path}/queue.db", settings={"task_acks_late": False},
        options={"accept": ["task_acks_late"]}, is_bridge=True,
    )  # fmt: skip
    go = tmp_path / "go"
    with Queue(project.store) as queue, Feeder(project), Worker(project, 1) as worker:
        project.publish(f"for _ in range(2): waits_for.delay('acme', '{go}')")
        project.wait_for(1)
        worker.process.terminate()  # warm: what runs may finish
        go.touch()
        worker.process.wait(60)
        states = Counter(document.state for document in queue.documents())
        assert states["done"] >= 1
        assert [each.name for each in queue.workers() if each.slots] == []
        with Worker(project, 1):
            until(lambda: {document.state for document in queue.documents()} == {"done"}, "the rest")
        assert {document.attempts for document in queue.documents()} == {1}


def test_a_cold_shutdown_gives_everything_back(tmp_path: Path) -> None:
    project = Project(tmp_path, open_broker("redis"), f"sqlite:///{tmp_path}/queue.db", is_bridge=True)
    go = tmp_path / "go"
    with Queue(project.store) as queue, Feeder(project), Worker(project, 1) as worker:
        (id,) = project.publish(f"print(waits_for.delay('acme', '{go}').id)").split()
        project.wait_for(1)
        worker.process.send_signal(3)  # SIGQUIT
        worker.process.wait(60)
        until(lambda: queue.document(id).state == "ready", "the document is back")
        go.touch()
        with Worker(project, 1):
            assert (queue.wait(id, timeout=60).state, queue.document(id).attempts) == ("done", 1)
