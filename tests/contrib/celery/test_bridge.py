"""Tasks of a customer are documents, run by Celery's own workers, and end as Celery ends them."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fairlane import Document, Queue
from fairlane.contrib.celery.message import HandedOver
from tests.api.running import until

from .running import Project

RESULT = """
from celery.result import AsyncResult
def show(result):
    try:
        value = result.get(timeout=60)
    except Exception as error:
        value = f"{type(error).__name__}: {error}"
    print(json.dumps([result.id, value]))
"""


def run(project: Project, text: str) -> list[list[Any]]:
    """Run a program that shows results; return the ids of their tasks and what each gave."""
    return [json.loads(line) for line in project.publish(RESULT + text).splitlines()]


def ended(project: Project, id: str) -> Document:
    """Wait until a document has ended; Celery's result may be there a little earlier."""
    with Queue(project.store) as queue:
        return queue.wait(id, timeout=60)


def events(project: Project, id: str) -> list[str]:
    with Queue(project.store) as queue:
        return [entry.event for entry in queue.history(id)]


def of(project: Project, customer: str) -> list[Document]:
    """Return the documents of a customer, oldest first, when all have ended."""
    with Queue(project.store) as queue:
        until(lambda: {document.state for document in queue.documents(customer)} <= {"done", "failed", "cancelled"}, "all ends")
        return list(reversed(list(queue.documents(customer))))


def begun(project: Project, customer: str) -> list[dict[str, Any]]:
    return [line for line in project.records() if line["customer"] == customer]


def test_a_task_is_a_document_and_its_result_is_celerys(bridged: Project) -> None:
    ((id, value),) = run(bridged, 'show(work.delay("acme", label="x"))')
    document = ended(bridged, id)
    assert value == "x"
    assert (document.customer, document.kind, document.state) == ("acme", f"celery:{bridged.queue}", "done")
    assert (document.priority, document.attempts) == (1, 1)
    assert document.worker == f"{bridged.queue}@localhost"
    assert events(bridged, id) == ["submitted", "claimed", "taken_over", "done"]
    with Queue(bridged.store) as queue:
        assert queue.result(id) == "'x'"
        assert queue.payload(id)["task"] == "tests.contrib.celery.proj.work"


def test_a_failed_task_is_a_failed_document_with_its_traceback(bridged: Project) -> None:
    ((id, value),) = run(bridged, 'show(fails.delay("fails"))')
    document = ended(bridged, id)
    assert value == "ValueError: on purpose"
    assert (document.state, document.reason, document.attempts) == ("failed", "ValueError: on purpose", 1)
    with Queue(bridged.store) as queue:
        (attempt,) = queue.attempts(id)
    assert attempt.traceback is not None
    assert "raise ValueError" in attempt.traceback


@pytest.mark.parametrize(("task", "customer"), [("retried", "retries"), ("fails_at_first", "autoretries")])
def test_a_retry_is_the_same_document_and_no_check(bridged: Project, task: str, customer: str) -> None:
    ((id, value),) = run(bridged, f'show({task}.delay("{customer}"))')
    document = ended(bridged, id)
    assert (value, document.state, document.attempts, document.priority) == (None, "done", 1, 1)
    assert [line["retries"] for line in begun(bridged, customer)] == [0, 1, 2]
    assert events(bridged, id) == ["submitted", *["claimed", "taken_over", "postponed"] * 2, "claimed", "taken_over", "done"]
    with Queue(bridged.store) as queue:
        assert queue.look(customer).counter == 0
        until(lambda: queue.engine.record("celery retries", id) is None, "its retry is forgotten")


def test_a_countdown_is_a_delayed_document(bridged: Project) -> None:
    ((id, value),) = run(bridged, 'show(work.apply_async(("later",), {"label": "l"}, countdown=2))')
    assert value == "l"
    with Queue(bridged.store) as queue:
        document = queue.document(id)
    assert document.ready_at is not None
    assert document.ready_at > document.submitted_at


def test_what_a_task_publishes_is_made_from_its_document(bridged: Project) -> None:
    run(bridged, 'for _ in range(3): work.delay("family")\nshow(publishes.delay("family", ["family", "cousin"]))')
    until(lambda: sum(line["label"] == "child" for line in bridged.records() if "label" in line) == 3, "its three children")
    *_, parent, child, follower = of(bridged, "family")
    (cousin,) = of(bridged, "cousin")
    assert [document.priority for document in (parent, child, follower, cousin)] == [2, 2, 2, 1]
    with Queue(bridged.store) as queue:
        assert queue.look("family").counter == -3
        assert [queue.payload(each.id)["task"].rpartition(".")[2] for each in (child, follower)] == ["work", "follow"]


def test_canvas_works(bridged: Project) -> None:
    shown = run(
        bridged,
        """
from celery import chain, chord, group
show(chain(work.s("canvas", label="a"), hand_over.s("canvas", label="b"))())
show(group(work.s("canvas", label=name) for name in "cd")())
show(chord((work.s("canvas", label=name) for name in "ef"), follow.s(label="g"))())
show(replaces.delay("canvas"))
""".replace("show(group", "show_group(group").replace(
            "from celery import", "def show_group(r): print(json.dumps([None, r.get(timeout=60)]))\nfrom celery import", 1
        ),
    )
    assert [value for _, value in shown] == ["b", ["c", "d"], "g", "instead"]
    documents = of(bridged, "canvas")
    assert {document.state for document in documents} == {"done"}
    with Queue(bridged.store) as queue:
        assert queue.look("canvas").counter == -5  # of eight published by the program, and six were not by a task


def test_a_message_that_is_delivered_twice_takes_effect_once(bridged: Project) -> None:
    with Queue(bridged.store) as queue:
        queue.pause("twice")
        (id,) = json.loads(bridged.publish('print(json.dumps([work.delay("twice").id]))'))
        queue.tune("twice", paused=False)
        document = queue.wait(id, timeout=60)
        token = queue.engine.document(id).token  # type: ignore[union-attr]
    assert (document.state, token) == ("done", 2)
    claim = HandedOver(id, 1, "twice", 1)._asdict()
    for header in (claim, claim | {"token": 2}, claim | {"id": "unknown"}):  # late deliveries, and one of an erased document
        bridged.publish(
            "import sys; headers = json.loads(sys.argv[1])\n"
            "with app.producer_pool.acquire() as producer:\n"
            "    message = app.amqp.as_task_v2(headers['id'], work.name, ('twice',), {})\n"
            "    producer.publish(message.body, exchange='', routing_key=app.conf.task_default_queue, serializer='json',\n"
            "                     headers={**message.headers, 'fairlane': headers})",
            json.dumps(header),
        )
    run(bridged, 'show(work.delay("after"))')  # they were before it in the queue
    assert len(begun(bridged, "twice")) == 1
    assert ended(bridged, id) == document


def test_a_process_that_is_killed_ends_the_task_as_celery_does(bridged: Project) -> None:
    ((id, value),) = run(bridged, 'show(dies.delay("dies"))')
    assert value.startswith("WorkerLostError")
    document = ended(bridged, id)
    assert document.state == "failed"
    assert (document.reason or "").startswith("WorkerLostError")


def test_with_reject_on_worker_lost_it_runs_again(bridged: Project, tmp_path: Path) -> None:
    ((id, value),) = run(bridged, f'show(dies_at_first.delay("survivor", "{tmp_path}/died"))')
    document = ended(bridged, id)
    assert (value, document.state, document.attempts) == ("survived", "done", 2)


def test_a_hard_time_limit_fails_the_document(bridged: Project, tmp_path: Path) -> None:
    ((id, value),) = run(bridged, f'show(waits_for.apply_async(("slow", "{tmp_path}/never"), time_limit=1))')
    document = ended(bridged, id)
    assert value.startswith("TimeLimitExceeded")
    assert document.state == "failed"
    assert "ime" in (document.reason or "")


@pytest.mark.parametrize(("how", "state"), [("ignore", "done"), ("reject", "failed")])
def test_a_task_may_end_without_a_result(bridged: Project, how: str, state: str) -> None:
    (id,) = json.loads(bridged.publish(f'print(json.dumps([gives_up.delay("{how}", "{how}").id]))'))
    assert ended(bridged, id).state == state
    assert len(begun(bridged, how)) == 1


def test_what_expires_before_it_begins_fails(bridged: Project) -> None:
    ((id, value),) = run(
        bridged,
        """
from datetime import datetime, timedelta, timezone
show(work.apply_async(("late",), expires=datetime.now(timezone.utc) - timedelta(seconds=5)))
""",
    )
    assert value == "TaskRevokedError: expired"
    document = ended(bridged, id)
    assert document.state == "failed"
    assert (document.reason or "").startswith("it expired before a worker began it")
    assert begun(bridged, "late") == []


def test_a_document_that_is_cancelled_is_a_revoked_task(bridged: Project) -> None:
    with Queue(bridged.store) as queue:
        queue.pause("cancelled")
        (id,) = json.loads(bridged.publish('print(json.dumps([work.delay("cancelled").id]))'))
        assert queue.cancel(id)
    assert run(bridged, f'show(AsyncResult("{id}", app=app))') == [[id, "TaskRevokedError: cancelled"]]


def test_a_revoked_task_is_a_cancelled_document(bridged: Project) -> None:
    with Queue(bridged.store) as queue:
        queue.pause("revoked")
        ((id, value),) = run(bridged, 'result = work.delay("revoked")\nresult.revoke()\nshow(result)')
        assert value.startswith("TaskRevokedError")
        assert queue.document(id).state == "cancelled"


def test_a_running_task_is_terminated_from_both_sides(bridged: Project, tmp_path: Path) -> None:
    ids = json.loads(bridged.publish(f'print(json.dumps([waits_for.delay("ended", "{tmp_path}/never").id for _ in range(2)]))'))
    until(lambda: len(begun(bridged, "ended")) == 2, "both run")
    bridged.publish(f'app.control.revoke("{ids[0]}", terminate=True)')
    with Queue(bridged.store) as queue:
        assert queue.cancel(ids[1])
    shown = run(bridged, "".join(f'show(AsyncResult("{id}", app=app))\n' for id in ids))
    assert [value for _, value in shown] == ["TaskRevokedError: terminated"] * 2 or {value for _, value in shown} <= {
        "TaskRevokedError: terminated", "TaskRevokedError: cancelled",
    }  # fmt: skip
    assert [ended(bridged, id).state for id in ids] == ["cancelled"] * 2
    go = tmp_path / "go"
    bridged.publish(f'for _ in range(2): waits_for.delay("both", "{go}")')
    until(lambda: len(begun(bridged, "both")) == 2, "both processes are free again")
    go.touch()


def test_a_lease_is_renewed_while_the_task_runs(bridged: Project, tmp_path: Path) -> None:
    go = tmp_path / "go"
    (id,) = json.loads(bridged.publish(f'print(json.dumps([waits_for.delay("long", "{go}").id]))'))
    until(lambda: begun(bridged, "long"), "it runs")
    with Queue(bridged.store) as queue:
        first = queue.engine.document(id)
        assert first is not None
        assert first.lease_ms is not None
        until(lambda: queue.engine.document(id).lease_ms > first.lease_ms, "its lease is renewed")  # type: ignore[union-attr,operator]
        go.touch()
        assert queue.wait(id, timeout=60).state == "done"
    assert len(begun(bridged, "long")) == 1


def test_a_task_that_the_worker_does_not_know_fails(bridged: Project) -> None:
    ((id, value),) = run(bridged, 'show(app.send_task("other.project", kwargs={"customer": "unknown"}))')
    assert value.startswith("NotRegistered")
    document = ended(bridged, id)
    assert (document.state, document.reason) == ("failed", f"worker {bridged.queue}@localhost knows no task other.project")


def test_nobodys_tasks_go_to_the_broker(bridged: Project) -> None:
    ((id, value),) = run(bridged, 'show(work.delay(None, label="mine"))')
    assert value == "mine"
    with Queue(bridged.store) as queue:
        assert queue.engine.document(id) is None


def test_operators_see_the_worker_and_the_feeder(bridged: Project) -> None:
    with Queue(bridged.store) as queue:
        feeder, worker = sorted(queue.workers(), key=lambda worker: worker.slots)
        assert (worker.name, worker.slots, worker.kinds) == (f"{bridged.queue}@localhost", 2, (f"celery:{bridged.queue}",))
        assert (feeder.name.partition("@")[0], feeder.slots) == ("feeder", 0)
        assert queue.unserved_kinds() == []
    done = bridged.celery("fairlane", "check")
    assert done.stdout == "Workers take from the broker what they can run, and the store answers.\n", done


def test_a_worker_that_is_drained_takes_nothing_until_it_is_undrained(bridged: Project) -> None:
    name = f"{bridged.queue}@localhost"

    def state(queue: Queue) -> str:
        return next(worker.state for worker in queue.workers() if worker.name == name)

    with Queue(bridged.store) as queue:
        queue.drain_worker(name)
        until(lambda: state(queue) == "drained", "it has drained")
        (id,) = json.loads(bridged.publish('print(json.dumps([work.delay("drained").id]))'))
        queue.undrain_worker(name)
        assert queue.wait(id, timeout=60).state == "done"
        assert state(queue) == "working"


def test_a_cap_and_a_pause_hold(bridged: Project, tmp_path: Path) -> None:
    with Queue(bridged.store) as queue:
        queue.tune("capped", cap=1)
        bridged.publish(f'for _ in range(2): waits_for.delay("capped", "{tmp_path}/go")')
        until(lambda: begun(bridged, "capped"), "the first begins")
        run(bridged, 'show(work.delay("another"))')  # the other slot is free
        assert (queue.look("capped").running, queue.look("capped").waiting, len(begun(bridged, "capped"))) == (1, 1, 1)
        (tmp_path / "go").touch()
        until(partial(_has_run, bridged, "capped", 2), "the second runs")


def _has_run(project: Project, customer: str, count: int) -> bool:
    return len(begun(project, customer)) == count


def test_a_body_that_the_worker_may_not_unpack_fails(bridged: Project) -> None:
    (id,) = json.loads(bridged.publish('print(json.dumps([work.apply_async(("pickled",), serializer="pickle").id]))'))
    document = ended(bridged, id)
    assert document.state == "failed"
    assert (document.reason or "").startswith("ContentDisallowed: Refusing to deserialize")
    assert begun(bridged, "pickled") == []
