"""Submitting inside the caller's own transaction: a document exists exactly if the caller's row does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from psycopg import IsolationLevel
from psycopg.rows import dict_row

from fairlane import Queue
from fairlane.core.document import Done, Submission
from fairlane.core.errors import BadValue, KeyConflict, StoreError, StoreUnfit
from fairlane.core.policy import Terms
from tests.servers import postgres

Connection = psycopg.Connection[tuple[object, ...]]


@pytest.fixture
def queue() -> Iterator[Queue]:
    with Queue(postgres.empty_queue(postgres.shared())) as queue:
        yield queue


@pytest.fixture
def own() -> Iterator[Connection]:
    """The caller's connection, with a table of its own."""
    with psycopg.connect(postgres.shared().url) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS public.orders (id text)")
        connection.execute("TRUNCATE public.orders")
        connection.commit()
        yield connection
        connection.rollback()


def submit_beside_a_row(queue: Queue, own: Connection) -> str:
    own.execute("INSERT INTO public.orders VALUES ('order')")
    return queue.within(own).submit("ada", {"order": 1}).id


def test_a_document_is_there_when_the_callers_transaction_commits_and_not_before(queue: Queue, own: Connection) -> None:
    id = submit_beside_a_row(queue, own)
    assert list(queue.documents()) == []
    assert queue.engine.claim("w", 5, 1000) == []
    assert queue.look("ada").waiting == 0
    own.commit()
    assert queue.document(id).state == "ready"
    assert [claim.id for claim in queue.engine.claim("w", 5, 1000)] == [id]


@pytest.mark.parametrize("level", [IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE])
@pytest.mark.parametrize("count", [1, 3])
def test_a_transaction_that_would_not_see_a_freeze_is_refused(
    queue: Queue, own: Connection, level: IsolationLevel, count: int
) -> None:
    own.isolation_level = level
    own.execute("INSERT INTO public.orders VALUES ('order')")  # from here on it sees everything as it is now
    queue.engine.configure(replace(queue.rules(), frozen="was moved"))
    with pytest.raises(StoreUnfit, match="READ COMMITTED"):
        queue.within(own).submit_many("ada", range(count))
    own.rollback()
    assert list(queue.documents()) == []


def test_a_document_is_never_there_when_the_callers_transaction_is_undone(queue: Queue, own: Connection) -> None:
    submit_beside_a_row(queue, own)
    own.rollback()
    assert list(queue.documents()) == []
    assert list(queue.changes()) == []
    assert queue.check("ada").counter == 0


def test_the_caller_sees_its_document_before_it_commits(queue: Queue, own: Connection) -> None:
    inside = queue.within(own)
    receipt = inside.submit("ada", {"n": 1}, delay=5)
    assert inside.document(receipt.id).state == "delayed"
    assert inside.payload(receipt.id) == {"n": 1}


@pytest.mark.parametrize("look", ["look", "customers", "changes", "explain", "wait"])
def test_what_arrived_is_counted_by_the_first_look(queue: Queue, own: Connection, look: str) -> None:
    receipts = queue.within(own).submit_many("ada", range(3), delay=0)
    own.commit()
    if look == "look":
        assert queue.look("ada").waiting == 3
    elif look == "customers":
        assert [customer.waiting for customer in queue.customers()] == [3]
    elif look == "changes":
        assert [change.event for change in queue.changes()] == ["submitted"] * 3
    elif look == "explain":
        assert queue.explain(receipts[2].id).facts["ahead"] == 2
    else:
        assert queue.engine.wait(0) is True
    assert [claim.id for claim in queue.engine.claim("w", 5, 1000)] == [receipt.id for receipt in receipts]


def test_it_holds_its_customers_and_nothing_else(queue: Queue, own: Connection) -> None:
    queue.submit("bob")
    queue.within(own).submit("ada")
    assert queue.submit("eve").counter == 0  # neither other senders ...
    (first, second) = queue.engine.claim("w", 5, 1000)  # ... nor workers wait
    assert queue.engine.settle([(first, Done()), (second, Done())]) == []
    counters: list[float] = []
    same = threading.Thread(target=lambda: counters.append(queue.submit("ada").counter))
    same.start()
    with psycopg.connect(postgres.shared().url, autocommit=True) as look:
        waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%submit_one%'"
        while look.execute(waits).fetchone() == (0,):
            pass  # another sender for the same customer waits for the counter
    own.commit()
    same.join()
    assert counters == [-1]


def test_senders_that_meet_over_the_same_customers_do_not_block_each_other_for_ever(queue: Queue) -> None:
    """Customers are held in the order of their ids, whatever the order in a batch: no deadlock that had to be undone."""
    deadlocks = postgres.shared().log.count("deadlock detected")
    engine = queue.engine
    names = ["a", "b", "c", "d"]
    errors: list[BaseException] = []

    def send(thread: int) -> None:
        try:
            for n in range(25):
                order = names if (thread + n) % 2 else names[::-1]
                batch = [Submission(f"{thread}-{n}-{name}", name, "extract", "{}") for name in order]
                engine.submit(batch)
        except StoreError as error:
            errors.append(error)

    threads = [threading.Thread(target=send, args=(thread,)) for thread in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert postgres.shared().log.count("deadlock detected") == deadlocks
    assert [customer.counter for customer in engine.customers("", 9)] == [-149] * 4


def test_keys_hold_inside_a_transaction_and_a_refusal_leaves_it_usable(queue: Queue, own: Connection) -> None:
    first = queue.submit("ada", "body", key="k")
    inside = queue.within(own)
    assert inside.submit("ada", "body", key="k") == first._replace(repeated=True)
    with pytest.raises(KeyConflict):
        inside.submit("ada", "other", key="k")
    with pytest.raises(KeyConflict):
        inside.submit_many("ada", ["fresh", "other"], keys=["new", "k"])
    inside.submit("bob", "x")
    own.commit()
    assert [customer.customer for customer in queue.customers()] == ["ada", "bob"]
    assert queue.look("ada").waiting == 1


def test_settling_may_join_too(queue: Queue, own: Connection) -> None:
    receipt = queue.submit("ada")
    (claim,) = queue.engine.claim("w", 1, 60_000)
    assert queue.within(own).engine.settle([(claim, Done("1"))]) == []
    own.rollback()
    assert queue.document(receipt.id).state == "running"
    assert queue.within(own).engine.settle([(claim, Done("2"))]) == []
    own.commit()
    assert queue.result(receipt.id) == 2


def test_a_paused_customers_arrivals_do_not_compete(queue: Queue, own: Connection) -> None:
    queue.engine.tune("ada", Terms(paused=True), 0)
    queue.within(own).submit("ada")
    own.commit()
    assert queue.engine.claim("w", 5, 1000) == []
    queue.resume("ada")
    assert len(queue.engine.claim("w", 5, 1000)) == 1


def test_a_connection_of_any_form_may_be_joined(queue: Queue) -> None:
    with psycopg.connect(postgres.shared().url, row_factory=dict_row) as own:
        queue.within(own).submit("ada")
    with psycopg.connect(postgres.shared().url, autocommit=True) as other, other.transaction():
        queue.within(other).submit("ada")
    assert queue.look("ada").waiting == 2


def test_what_is_no_open_transaction_is_refused(queue: Queue) -> None:
    with pytest.raises(BadValue, match="an open psycopg connection"):
        queue.within("connection")
    with pytest.raises(BadValue, match="a queue at postgresql"), Queue("memory://") as other:
        other.within(None)
    with psycopg.connect(postgres.shared().url, autocommit=True) as own, pytest.raises(BadValue, match="is in autocommit"):
        queue.within(own).submit("ada")


def test_closing_the_joined_queue_leaves_both_open(queue: Queue, own: Connection) -> None:
    with queue.within(own) as inside:
        inside.submit("ada")
    own.commit()
    assert queue.look("ada").waiting == 1
    assert queue.engine.wait(0) is True


def test_a_purge_that_is_rolled_back_keeps_the_files(own: Connection, tmp_path: Path) -> None:
    with Queue(postgres.empty_queue(postgres.shared()), blobs=str(tmp_path / "blobs")) as queue:
        id = queue.submit("ada", content=b"kept").id
        queue.cancel(id)
        for verb in ("purge", "forget"):
            inside = queue.within(own)
            assert (inside.purge(0) if verb == "purge" else inside.forget("ada").documents) == 1
            own.rollback()
            with queue.file(id) as file:
                assert file.read() == b"kept"
        assert queue.within(own).purge(0) == 1
        own.commit()
        assert queue.sweep(grace=0).removed == 1
