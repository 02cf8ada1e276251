"""Joining the transactions of other programs: each kind of connection, what they promise, and what is refused."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
from django.db import connection as default_connection
from django.db import connections, transaction
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from fairlane import AsyncQueue, Queue
from fairlane.core.document import Claim, Failed, Outcome, Released
from fairlane.core.errors import BadValue, KeyConflict, StoreError, StoreFrozen, StoreUnfit
from fairlane.encryption.keyring import new_key
from tests.servers import postgres

from .callers import CALLERS, Caller, psycopg_caller, set_up_django, sqlalchemy_url

NOW = 1_700_000_000.0
AnyQueue = Queue | AsyncQueue


@pytest.fixture
def url() -> str:
    return postgres.empty_queue(postgres.shared())


@pytest.fixture
def queue(url: str) -> Iterator[Queue]:
    """The queue outside of all transactions."""
    with Queue(url) as queue:
        yield queue


@pytest.fixture(params=CALLERS)
def caller(request: pytest.FixtureRequest) -> Iterator[Caller]:
    with psycopg.connect(postgres.shared().url, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS public.orders (id text)")
        connection.execute("TRUNCATE public.orders")
    with CALLERS[request.param]() as caller:
        yield caller


@pytest.fixture
def joining(url: str, caller: Caller) -> Iterator[AnyQueue]:
    """The queue that joins the caller's transaction."""
    if caller.runner is None:
        with Queue(url) as queue:
            yield queue
    else:
        queue_of_loop = AsyncQueue(url)
        yield queue_of_loop
        caller.runner.run(queue_of_loop.close())


def orders() -> list[str]:
    with psycopg.connect(postgres.shared().url) as connection:
        return [id for (id,) in connection.execute("SELECT id FROM public.orders ORDER BY id")]


def test_document_and_row_are_there_when_the_caller_commits_and_neither_when_it_rolls_back(
    queue: Queue, joining: AnyQueue, caller: Caller
) -> None:
    caller.execute("INSERT INTO public.orders VALUES ('undone')")
    caller.call(joining, "submit", "ada", {"order": "undone"})
    caller.rollback()
    assert (list(queue.documents()), orders()) == ([], [])
    caller.begin()  # the connection is as usable as before
    caller.execute("INSERT INTO public.orders VALUES ('kept')")
    receipt = caller.call(joining, "submit", "ada", {"order": "kept"}, key="kept")
    assert caller.call(joining, "submit", "ada", {"order": "kept"}, key="kept").repeated
    assert caller.call(joining, "payload", receipt.id) == {"order": "kept"}
    assert (list(queue.documents()), orders(), queue.engine.claim("w", 5, 1000)) == ([], [], [])
    caller.commit()
    assert ([document.id for document in queue.documents()], orders()) == ([receipt.id], ["kept"])
    assert [claim.id for claim in queue.engine.claim("w", 5, 1000)] == [receipt.id]
    assert receipt.counter == 0  # what was undone cost no check


def test_the_first_statement_of_a_transaction_may_be_the_queues(queue: Queue, joining: AnyQueue, caller: Caller) -> None:
    """A framework that begins with the first statement must know of ours, or its commit would do nothing."""
    caller.call(joining, "submit_many", "ada", ["a", "b"], keys=["a", "b"])
    caller.commit()
    assert queue.look("ada").waiting == 2
    caller.begin()
    caller.call(joining, "submit_many", "ada", ["c", "d"], cost=2, no_better_than=3)
    caller.rollback()
    assert queue.look("ada").waiting == 2


def test_a_refusal_leaves_the_transaction_usable(queue: Queue, joining: AnyQueue, caller: Caller) -> None:
    first = queue.submit("ada", "body", key="k")
    caller.execute("INSERT INTO public.orders VALUES ('order')")
    with pytest.raises(KeyConflict, match=first.id):
        caller.call(joining, "submit", "ada", "other", key="k")
    caller.call(joining, "submit", "bob", "x")
    caller.commit()
    assert ([look.customer for look in queue.customers()], orders()) == (["ada", "bob"], ["order"])


def test_an_error_of_the_server_is_ours_whichever_way_it_comes(queue: Queue, joining: AnyQueue, caller: Caller) -> None:
    caller.execute("SET LOCAL lock_timeout = '10ms'")
    caller.execute("SET TRANSACTION READ ONLY")
    with pytest.raises(StoreUnfit, match="can only be read"):
        caller.call(joining, "submit", "ada")
    caller.rollback()
    queue.engine.configure(replace(queue.rules(), frozen="moved away"))
    caller.begin()
    with pytest.raises(StoreFrozen, match="moved away"):
        caller.call(joining, "submit", "ada")
    caller.rollback()


def every_verb(queue: AnyQueue, caller: Caller, waiting: str, failed: str) -> list[Any]:
    """Call the verbs whose statements differ, and return what they return that does not depend on the clock."""

    def call(verb: str, *args: Any, **options: Any) -> Any:
        return caller.call(queue, verb, *args, **options)

    return [
        call("submit_many", "ada", ["m"] * 3, cost=2, delay=5, made_from=waiting, now=NOW)[2].priority,
        call("check", "bob", cost=2, now=NOW),
        call("look", "ada", now=NOW),
        call("customers", now=NOW),
        call("document", waiting),
        call("documents", "ada", "ready", kind="extract", since=0, until=2**31),
        call("documents", reason="of no use"),
        call("documents", state="failed"),
        call("explain", waiting, now=NOW).facts["priority"],
        call("changes")[0],
        call("history", failed)[0].event,
        call("tune", "ada", weight=2, thresholds=[-1, -2, -3, -4, -5, -6, -7, -8], waiting_max=50),
        call("limit_kind", "extract", running_max=2, rate=5),
        call("kinds"),
        call("pause", "ada"),
        call("prioritize", waiting, 7),
        call("bulk", "prioritize", customer="ada", state="ready", priority=8).changed,
        call("apply_table", "ada"),
        call("configure", reset_interval=60, bytes_max=10**12).version,
        call("reset", "ada", with_backlog=True),
        call("retry", failed),
        call("cancel", waiting),
        call("purge", 0),
        call("workers"),
        call("unserved_kinds"),
        call("forget", "ada").documents,
    ]


def test_every_verb_returns_the_same_on_every_kind_of_connection(queue: Queue, joining: AnyQueue, caller: Caller) -> None:
    waiting, failed = (queue.submit("ada", {"n": n}, kind="extract", now=NOW).id for n in range(2))
    claims = {claim.id: claim for claim in queue.engine.claim("w", 2, 1000, now_ms=int(NOW * 1000))}
    outcomes: list[tuple[Claim, Outcome]] = [(claims[failed], Failed("it is of no use")), (claims[waiting], Released())]
    assert queue.engine.settle(outcomes, now_ms=int(NOW * 1000) + 5) == []
    with psycopg_caller() as plain:
        expected = every_verb(queue, plain, waiting, failed)
        plain.rollback()
    assert every_verb(joining, caller, waiting, failed) == expected
    caller.rollback()
    assert [document.state for document in queue.documents()] == ["failed", "ready"]


def test_a_worker_that_waits_gets_the_document_after_the_commit(queue: Queue, joining: AnyQueue, caller: Caller) -> None:
    found: list[bool] = []
    waiter = threading.Thread(target=lambda: found.append(queue.engine.wait(60)))
    waiter.start()
    caller.call(joining, "submit", "ada")
    assert found == []
    caller.commit()
    waiter.join(60)
    assert found == [True]


# -- refusals -------------------------------------------------------------------------------------------------------------


def test_an_async_connection_is_refused_where_nothing_is_awaited(queue: Queue, caller: Caller) -> None:
    if caller.runner is not None:
        with pytest.raises(BadValue, match=r"AsyncQueue\.within"):
            queue.within(caller.transaction)
    caller.rollback()


def test_autocommit_is_refused_with_what_to_write_instead(queue: Queue) -> None:
    set_up_django()
    with pytest.raises(BadValue, match=r"one that is open; begin it with: with transaction\.atomic"):
        queue.within(default_connection).submit("ada")
    engine = create_engine(sqlalchemy_url("psycopg"), isolation_level="AUTOCOMMIT")
    with Session(engine) as session, pytest.raises(BadValue, match="isolation level is AUTOCOMMIT"):
        queue.within(session).submit("ada")
    engine.dispose()
    connections.close_all()
    assert list(queue.documents()) == []


async def _refused_async(url: str) -> None:
    queue = AsyncQueue(url)
    bare = await asyncpg.connect(postgres.shared().url)
    with pytest.raises(BadValue, match=r"async with connection\.transaction"):
        await queue.within(bare).submit("ada")
    await bare.close()
    async with await psycopg.AsyncConnection.connect(postgres.shared().url, autocommit=True) as own:
        with pytest.raises(BadValue, match=r"is in autocommit: use connection\.transaction"):
            await queue.within(own).submit("ada")
        async with own.transaction():
            await queue.within(own).submit("ada")
    for driver in ("psycopg", "asyncpg"):
        engine = create_async_engine(sqlalchemy_url(driver), isolation_level="AUTOCOMMIT")
        async with AsyncSession(engine) as session:
            with pytest.raises(BadValue, match="isolation level is AUTOCOMMIT"):
                await queue.within(session).submit("ada")
        await engine.dispose()
    set_up_django()
    with pytest.raises(BadValue, match=r"Queue\.within in sync_to_async"):
        queue.within(default_connection)
    await queue.close()


def test_autocommit_of_an_async_connection_is_refused(queue: Queue, url: str) -> None:
    asyncio.run(_refused_async(url))
    assert len(list(queue.documents())) == 1


def test_what_has_no_transaction_is_refused_by_its_name(queue: Queue) -> None:
    engine = create_engine(sqlalchemy_url("psycopg"))
    for wrong in (engine, Session, "connection", None):
        with pytest.raises(BadValue, match="a connection or session of SQLAlchemy"):
            queue.within(wrong)
    with Queue("memory://") as other, Session(engine) as session, pytest.raises(BadValue, match="a queue at postgresql://"):
        other.within(session)


def test_another_kind_of_database_is_refused(queue: Queue) -> None:
    file = create_engine("sqlite://")
    with Session(file) as session, pytest.raises(BadValue, match=r"postgresql\+psycopg://; this one is at sqlite"):
        queue.within(session).submit("ada")
    file.dispose()
    set_up_django()
    with transaction.atomic(using="file"), pytest.raises(BadValue, match="Django's database 'file' is sqlite"):
        queue.within(connections["file"]).submit("ada")
    connections.close_all()


def test_another_database_of_the_same_server_is_refused_although_it_has_a_queue(queue: Queue) -> None:
    server = postgres.shared()
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS twin")
        connection.execute("CREATE DATABASE twin")
    twin = server.url.removesuffix("postgres") + "twin"
    with Queue(f"{twin}?schema=tests"), psycopg.connect(twin) as own:
        with pytest.raises(
            BadValue, match=r"of the queue, 127\.0\.0\.1:\d+/postgres, schema tests; this one is on 'twin' at 127"
        ):
            queue.within(own).submit("ada")
        assert own.execute("SELECT count(*) FROM tests.documents").fetchone() == (0,)


def test_a_server_that_started_again_is_the_same_database() -> None:
    with postgres.Server(postgres.find_programs()) as server, Queue(f"{server.url}?schema=tests") as queue:
        for _ in range(2):
            with psycopg.connect(server.url) as own:
                queue.within(own).submit("ada")
            server.stop("fast")
            server.start()
        assert queue.look("ada").waiting == 2


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_a_stricter_isolation_level_is_refused(queue: Queue, driver: str) -> None:
    engine = create_engine(sqlalchemy_url(driver), isolation_level="SERIALIZABLE")
    with Session(engine) as session, pytest.raises(StoreUnfit, match="READ COMMITTED"):
        queue.within(session).submit("ada")
    engine.dispose()
    assert list(queue.documents()) == []


LASTING = ["psycopg", "SQLAlchemy session, psycopg", "SQLAlchemy session, psycopg2", "SQLAlchemy async session, psycopg"]


@pytest.mark.parametrize("caller", LASTING, indirect=True)
def test_a_connection_that_is_lost_takes_its_documents_along_and_says_so(
    queue: Queue, joining: AnyQueue, caller: Caller
) -> None:
    caller.call(joining, "submit", "ada")
    with psycopg.connect(postgres.shared().url, autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction'")
    with pytest.raises(StoreError, match="so nothing of it takes effect; begin it again"):
        caller.call(joining, "submit", "ada")
    assert list(queue.documents()) == []


# -- event loops ----------------------------------------------------------------------------------------------------------


async def _at_once(url: str, count: int) -> int:
    """Submit twice in each of many transactions at once, all for one customer, whose row only one of them can hold."""
    queue, engine = AsyncQueue(url, threads=2), create_async_engine(sqlalchemy_url("asyncpg"), pool_size=count)

    async def order(number: int) -> None:
        async with AsyncSession(engine) as session, session.begin():
            inside = queue.within(session)
            await inside.submit("ada", number)
            await inside.submit("ada", number)

    await asyncio.gather(*map(order, range(count)))
    waiting = (await queue.look("ada")).waiting
    await queue.close()
    await engine.dispose()
    return waiting


def test_transactions_that_wait_for_each_other_do_not_take_each_others_threads(url: str) -> None:
    assert asyncio.run(asyncio.wait_for(_at_once(url, 8), 15)) == 16


async def _several_at_once_in_one(url: str) -> None:
    queue, engine = AsyncQueue(url), create_async_engine(sqlalchemy_url("asyncpg"))
    async with AsyncSession(engine) as session, session.begin():
        inside = queue.within(session)
        receipts = await asyncio.gather(*(inside.submit("ada", n) for n in range(5)))
    assert sorted(receipt.counter for receipt in receipts) == [-4, -3, -2, -1, 0]
    await queue.close()
    await engine.dispose()


def test_verbs_of_one_transaction_that_come_at_once_take_their_turn(url: str) -> None:
    asyncio.run(_several_at_once_in_one(url))


def waiting_for_locks() -> int:
    with psycopg.connect(postgres.shared().url) as connection:
        ((count,),) = connection.execute("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'").fetchall()
    return int(count)


async def _cancelled(url: str, blocker: psycopg.Connection[Any]) -> None:
    queue = AsyncQueue(url)
    connection = await asyncpg.connect(postgres.shared().url)
    began = connection.transaction()
    await began.start()
    submitting = asyncio.create_task(queue.within(connection).submit("ada"))
    while not await asyncio.to_thread(waiting_for_locks):
        pass
    submitting.cancel()
    await asyncio.to_thread(waiting_for_locks)
    assert not submitting.done()  # the statement still waits for the row of ada
    submitting.cancel()  # however often
    blocker.rollback()
    with pytest.raises(asyncio.CancelledError):
        await submitting
    await began.rollback()  # would fail if a statement were still running
    await connection.close()
    await queue.close()


def test_a_call_that_is_cancelled_returns_when_the_connection_is_free_again(url: str, queue: Queue) -> None:
    with psycopg.connect(postgres.shared().url) as blocker:
        queue.submit("ada")
        queue.within(blocker).check("ada")  # holds the row of ada
        asyncio.run(_cancelled(url, blocker))
    assert queue.look("ada").waiting == 1


async def _encrypted(url: str, key_file: Path) -> None:
    async with AsyncQueue(url, encryption_key_file=str(key_file)) as queue:
        connection = await asyncpg.connect(postgres.shared().url)
        async with connection.transaction():
            receipt = await queue.within(connection).submit("ada", {"order": "secret"}, key="k")
        await connection.close()
        assert await queue.payload(receipt.id) == {"order": "secret"}
        assert "secret" not in queue.queue.engine.inner.body(receipt.id).payload  # type: ignore[attr-defined]


def test_an_encrypted_queue_joins_too(url: str, tmp_path: Path) -> None:
    key_file = tmp_path / "keys"
    key_file.write_text(new_key())
    key_file.chmod(0o600)
    asyncio.run(_encrypted(url, key_file))


async def _plain_ones(url: str) -> None:
    engine = create_engine(sqlalchemy_url("psycopg"))
    async with AsyncQueue(url) as queue:
        with psycopg.connect(postgres.shared().url) as connection, Session(engine) as session:
            await queue.within(connection).submit("ada")
            connection.commit()
            await queue.within(session).submit("ada")
            session.commit()
            await queue.within(session).submit("ada")
            session.rollback()
    engine.dispose()


def test_a_plain_connection_may_be_joined_on_an_event_loop_too(url: str, queue: Queue) -> None:
    asyncio.run(_plain_ones(url))
    assert queue.look("ada").waiting == 2


async def _synchronously(url: str) -> None:
    queue, engine = Queue(url), create_async_engine(sqlalchemy_url("asyncpg"))
    async with AsyncSession(engine) as session, session.begin():
        await session.execute(text("SELECT 1"))
        await session.run_sync(lambda inner: queue.within(inner).submit("ada"))
    queue.close()
    await engine.dispose()


def test_the_plain_session_inside_an_async_one_may_be_joined_too(url: str, queue: Queue) -> None:
    asyncio.run(_synchronously(url))
    assert queue.look("ada").waiting == 1
