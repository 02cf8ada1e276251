"""Workers, feeders and the broker are killed or stopped under the bridge: nothing is lost, and every document ends once.

On RabbitMQ, and with a store that is killed, see `test_outage.py`; `make chaos-celery` is the long form.
"""

from __future__ import annotations

from pathlib import Path

from chaos import celery as drill
from fairlane import Queue
from tests.api.running import until

from .running import Feeder, Project, Worker, open_broker


def test_everything_ends_once_while_workers_feeders_and_the_broker_are_killed(tmp_path: Path) -> None:
    options = drill.Options("redis", kills=3, broker_restarts=1, feeder_kills=1, documents=150, workers=2, seed=7)
    report = drill.run(options, tmp_path)
    assert report.wrong == []
    assert (report.figures["documents"], report.figures["begun"] >= 100) == (150, True)


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


def test_what_waits_in_a_worker_goes_back_when_it_loses_the_broker_and_when_it_stops(tmp_path: Path) -> None:
    project = Project(
        tmp_path, open_broker("redis"), f"sqlite:///{tmp_path}/queue.db", settings={"task_acks_late": False},
        options={"accept": ["task_acks_late"]}, is_bridge=True,
    )  # fmt: skip
    go = tmp_path / "go"
    with Queue(project.store) as queue, Feeder(project):
        with Worker(project, 1) as worker:
            # The feeder knows nothing of a task of nobody, so it hands the other one to a worker that has no slot for it.
            (id,) = project.publish(f"waits_for.delay(None, '{go}'); print(work.delay('acme').id)").split()
            received = f"[{id}] received"
            until(lambda: received in worker.log.read_text(), "the task waits in the worker")
            project.broker.server.kill()
            project.broker.server.start()
            until(lambda: worker.log.read_text().count(received) == 2, "it has gone back, and was handed over again")
            worker.process.terminate()  # warm: what runs may finish
            go.touch()
            worker.process.wait(60)
            assert [each.name for each in queue.workers() if each.slots] == []
        with Worker(project, 1):
            assert queue.wait(id, timeout=60).state == "done"
        assert queue.document(id).attempts == 1


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
