"""The registry of workers: who is there, what runs where, who is gone, and who shall claim no more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane import Queue, Unknown
from fairlane.core.document import Done
from fairlane.queue.workers import GONE_MS, REMOVE_MS, WORKERS, WorkerRecord, decode_record, remove_gone
from fairlane.transfer import move


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    with Queue(f"sqlite:///{tmp_path}/queue.db") as queue:
        yield queue


def register(queue: Queue, instance: str, name: str = "host-1", **fields: object) -> None:
    """Write a record as a worker does."""
    engine = queue.engine
    now_ms = engine.now()
    record = WorkerRecord(
        name, "host", 1, "0.1.0", engine.schema, ("ocr",), 4, now_ms - 60_000, now_ms, "working", {}, drain=False
    )
    engine.put_record(WORKERS, instance, record._replace(**fields).encode())  # type: ignore[arg-type]


def test_workers_of_the_same_name_are_two_and_each_has_its_own_documents(queue: Queue) -> None:
    first, second = (queue.submit("ada", n, kind="ocr").id for n in range(2))
    queue.engine.claim("host-1", 2, 60_000, {"ocr": 3})
    now_ms = queue.engine.now()
    register(queue, "a", running={first: now_ms - 5000}, started_ms=now_ms - 2000)
    register(queue, "b", running={second: now_ms}, started_ms=now_ms - 1000)
    workers = queue.workers()
    assert [worker.instance for worker in workers] == ["a", "b"]
    assert [[document.id for document in worker.documents] for worker in workers] == [[first], [second]]
    running_for = workers[0].documents[0].running_for
    assert running_for is not None
    assert running_for.total_seconds() >= 5


def test_a_document_that_began_after_the_last_report_is_shown_too(queue: Queue) -> None:
    register(queue, "a")
    queue.submit("ada", 1, kind="ocr")
    (claim,) = queue.engine.claim("host-1", 1, 60_000, {"ocr": 3})
    (worker,) = queue.workers()
    assert [(document.id, document.running_for) for document in worker.documents] == [(claim.id, None)]


@pytest.mark.parametrize(
    ("age_ms", "state"),
    [(0, "working"), (GONE_MS - 5000, "working"), (GONE_MS + 1, "gone"), (-GONE_MS - 5000, "gone")],
    ids=["now", "in time", "silent", "from the future"],
)
def test_a_worker_that_stops_reporting_is_gone_by_the_clock_of_the_store(queue: Queue, age_ms: int, state: str) -> None:
    register(queue, "a", seen_ms=queue.engine.now() - age_ms)
    assert [worker.state for worker in queue.workers()] == [state]


def test_workers_that_are_gone_for_long_are_removed_and_no_others(queue: Queue) -> None:
    now_ms = queue.engine.now()
    register(queue, "long", seen_ms=now_ms - REMOVE_MS - 1)
    register(queue, "recently", seen_ms=now_ms - GONE_MS - 1)
    register(queue, "here")
    remove_gone(queue.engine)
    assert [record.key for record in queue.engine.records(WORKERS, "", 10)] == ["here", "recently"]


def test_drain_is_for_a_name_or_for_one_instance(queue: Queue) -> None:
    for instance in ("a", "b"):
        register(queue, instance)
    register(queue, "c", "host-2")
    assert queue.drain_worker("b") == ["b"]
    assert [worker.state for worker in queue.workers()] == ["working", "draining", "working"]
    assert queue.drain_worker("host-1") == ["a", "b"]
    assert [worker.state for worker in queue.workers()] == ["draining", "draining", "working"]
    assert queue.undrain_worker("host-1") == ["a", "b"]
    assert [worker.state for worker in queue.workers()] == ["working"] * 3


def test_a_worker_is_drained_when_it_says_so_and_the_wish_still_holds(queue: Queue) -> None:
    register(queue, "a", drain=True, state="drained")
    assert queue.workers()[0].state == "drained"
    queue.undrain_worker("a")
    assert queue.workers()[0].state == "draining"  # until it has seen the new wish


def test_draining_an_unknown_worker_or_one_that_is_gone_is_refused(queue: Queue) -> None:
    register(queue, "a", seen_ms=queue.engine.now() - GONE_MS - 1)
    with pytest.raises(Unknown, match="there is no worker 'b'"):
        queue.drain_worker("b")
    with pytest.raises(Unknown, match="worker 'a' is gone"):
        queue.drain_worker("a")


def test_a_worker_that_knows_an_older_schema_is_outdated(queue: Queue) -> None:
    register(queue, "a", schema=queue.engine.schema - 1)
    register(queue, "b")
    assert [worker.is_outdated for worker in queue.workers()] == [True, False]


def test_kinds_that_do_not_fit_into_a_record_are_left_out(queue: Queue) -> None:
    register(queue, "a", kinds=tuple(f"{number:0100}" for number in range(1000)))
    assert queue.workers()[0].kinds is None


def test_members_that_a_newer_version_added_are_ignored(queue: Queue) -> None:
    register(queue, "a")
    record = queue.engine.record(WORKERS, "a")
    assert record is not None
    assert decode_record(record.value[:-1] + ', "moon_phase": 3}') == decode_record(record.value)


def test_a_moved_queue_does_not_take_its_workers_along(queue: Queue, tmp_path: Path) -> None:
    register(queue, "a")
    queue.submit("ada", 1)
    move(queue.url, target := f"sqlite:///{tmp_path}/target.db")
    with Queue(target) as moved:
        assert moved.workers() == []
        assert moved.look("ada").waiting == 1


# -- kinds that no worker takes ----------------------------------------------------------------------------------------


def take_some(queue: Queue) -> None:
    """Let the registered worker host-1 take documents of its kind, so that there is a pace."""
    queue.submit_many("ada", range(5), kind="ocr")
    later_ms = queue.engine.now() + 10  # they have waited
    claims = queue.engine.claim("host-1", 5, 60_000, {"ocr": 3}, now_ms=later_ms)
    queue.engine.settle([(claim, Done()) for claim in claims], now_ms=later_ms)


def test_explain_says_that_no_worker_takes_the_kind(queue: Queue) -> None:
    register(queue, "a")
    take_some(queue)
    explanation = queue.explain(queue.submit("bob", 1, kind="fax").id)
    assert explanation.sentence.endswith(
        "Nothing is ahead of it; no worker takes documents of kind 'fax', so when it starts cannot be said."
    )
    assert (explanation.facts["service"], explanation.facts["expected_in"]) == ("unserved", None)
    served = queue.explain(queue.submit("bob", 1, kind="ocr").id)
    assert "it will probably start" in served.sentence
    assert served.facts["service"] == "served"


def test_explain_says_that_all_workers_of_the_kind_are_being_drained(queue: Queue) -> None:
    register(queue, "a")
    take_some(queue)
    id = queue.submit("bob", 1, kind="ocr").id
    queue.drain_worker("a")
    assert "; all workers that take documents of kind 'ocr' are being drained, so when" in queue.explain(id).sentence
    register(queue, "b")
    assert "it will probably start" in queue.explain(id).sentence


def test_a_worker_that_is_gone_takes_nothing(queue: Queue) -> None:
    register(queue, "a", seen_ms=queue.engine.now() - GONE_MS - 1)
    take_some(queue)
    assert queue.explain(queue.submit("bob", 1, kind="ocr").id).facts["service"] == "unserved"


def test_a_program_that_claims_without_a_record_may_take_any_kind(queue: Queue) -> None:
    id = queue.submit("bob", 1, kind="fax").id
    queue.submit("ada", 1, kind="ocr")
    queue.engine.claim("my own loop", 1, 60_000, {"ocr": 3}, now_ms=queue.engine.now() + 10)  # it has waited
    assert "it will probably start" in queue.explain(id).sentence
    assert queue.unserved_kinds() == []


def test_kinds_that_wait_in_vain_are_listed_with_their_oldest_wait(queue: Queue) -> None:
    register(queue, "a", kinds=("ocr", "scan"))
    for kind in ("fax", "ocr"):
        queue.submit("bob", 1, kind=kind)
    assert [(kind.kind, kind.is_draining) for kind in queue.unserved_kinds()] == [("fax", False)]
    queue.drain_worker("a")
    assert [(kind.kind, kind.is_draining) for kind in queue.unserved_kinds()] == [("fax", False), ("ocr", True)]
    assert queue.unserved_kinds()[0].oldest_wait.total_seconds() >= 0
