"""Between a client and the server: transaction poolers, connections that break, notifications that are lost."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest

from fairlane.core.document import Done, Released, Submission
from fairlane.core.errors import StoreError
from fairlane.engine.postgres import PostgresEngine, listen
from tests.servers import postgres
from tests.servers.postgres import backends, open_postgres
from tests.servers.postgres_proxy import Cutter, Pooler

LISTENING = "LISTEN%tests_wake%"


def submission(id: str, customer: str = "ada", key: str | None = None) -> Submission:
    return Submission(id, customer, "extract", "{}", key=key, digest=key)


@pytest.fixture
def url() -> str:
    return postgres.empty_queue(postgres.shared())


@pytest.fixture(autouse=True)
def close_all() -> Iterator[None]:
    yield
    postgres.close_engines()


def wait_until(condition: Callable[[], object], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.005)


# -- a transaction pooler ------------------------------------------------------------------------------------------------


@pytest.fixture
def pooled(url: str) -> Iterator[tuple[Pooler, PostgresEngine]]:
    with Pooler(postgres.shared().port) as pooler:
        assert isinstance(pooler, Pooler)
        engine = open_postgres(pooler.url("tests"))
        yield pooler, engine
        engine.close()


def test_every_verb_works_through_a_transaction_pooler(pooled: tuple[Pooler, PostgresEngine]) -> None:
    pooler, engine = pooled
    for n in range(12):
        engine.submit([submission(f"{n}-{m}", f"customer-{m}") for m in range(4)])
        engine.submit([submission(f"{n}", key=f"k{n}")])
    assert engine.customer("ada").counter == -11
    ended = 0
    while claims := engine.claim("w", 7, 60_000):
        assert engine.extend(claims, 90_000) == []
        assert engine.settle([(claims[0], Released()), *((claim, Done("1")) for claim in claims[1:])]) == []
        ended += len(claims) - 1
        if len(claims) == 1:
            engine.cancel([claims[0].id])
    assert ended + engine.customer("ada").cancelled + sum(customer.cancelled for customer in engine.customers("c", 9)) == 60
    assert [change.number for change in engine.changes(None, 1000)] == list(range(1, engine.changes(None, 1000)[-1].number + 1))
    assert pooler.transactions > 40


def test_many_threads_through_a_pooler_leave_exact_counters(pooled: tuple[Pooler, PostgresEngine]) -> None:
    _, engine = pooled
    counters: list[float] = []

    def send(thread: int) -> None:
        counters.extend(engine.submit([submission(f"{thread}-{n}")])[0].counter for n in range(15))

    threads = [threading.Thread(target=send, args=(thread,)) for thread in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(counters, reverse=True) == [-n for n in range(30)]


def test_waiting_works_through_a_pooler_that_gives_no_hints(pooled: tuple[Pooler, PostgresEngine], url: str) -> None:
    _, engine = pooled
    woken: list[bool] = []
    waiting = threading.Thread(target=lambda: woken.append(engine.wait(30)))
    waiting.start()
    direct = open_postgres(url)
    direct.submit([submission("a")])
    waiting.join()
    direct.close()
    assert woken == [True]


# -- connections that break -----------------------------------------------------------------------------------------------


@pytest.fixture
def cut(url: str) -> Iterator[tuple[Cutter, PostgresEngine]]:
    with Cutter(postgres.shared().port) as cutter:
        assert isinstance(cutter, Cutter)
        engine = open_postgres(cutter.url("tests"))
        yield cutter, engine
        engine.close()


def cut_once(word: bytes, when: str) -> Callable[[bytes], str | None]:
    """Cut the first message that holds a word."""
    left = [when]
    return lambda message: left.pop() if left and word in message else None


@pytest.mark.parametrize(("when", "is_there"), [("before", False), ("after", True)])
def test_a_submission_whose_answer_was_lost_says_so_and_may_be_repeated_with_its_key(
    cut: tuple[Cutter, PostgresEngine], when: str, is_there: bool
) -> None:
    cutter, engine = cut
    cutter.cuts = cut_once(b"submit_one", when)
    with pytest.raises(StoreError, match=r"was lost in the middle of a call.*not known.*submit again with the same key"):
        engine.submit([submission("first", key="k")], now_ms=0)
    assert (engine.document("first") is not None) is is_there
    (receipt,) = engine.submit([submission("second", key="k")], now_ms=1)
    assert receipt.id == ("first" if is_there else "second")
    assert engine.customer("ada", now_ms=1).counter == 0
    assert engine.customer("ada", now_ms=1).waiting == 1


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_settlement_whose_answer_was_lost_is_never_made_twice(cut: tuple[Cutter, PostgresEngine], when: str) -> None:
    cutter, engine = cut
    engine.submit([submission("a")])
    (claim,) = engine.claim("w", 1, 60_000)
    cutter.cuts = cut_once(b"settle", when)
    with pytest.raises(StoreError, match="not known"):
        engine.settle([(claim, Done("1"))])
    assert engine.settle([(claim, Done("1"))]) == ([claim] if when == "after" else [])
    assert engine.customer("ada").done == 1
    assert [change.what for change in engine.changes(None, 9)] == ["submitted", "claimed", "done"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_look_whose_answer_was_lost_is_simply_made_again(cut: tuple[Cutter, PostgresEngine], when: str) -> None:
    cutter, engine = cut
    engine.submit([submission("a")])
    cutter.cuts = cut_once(b"snapshots", when)
    assert engine.document("a") is not None


# -- lost notifications ---------------------------------------------------------------------------------------------------


def test_wait_wakes_by_a_hint_long_before_it_would_look_again(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listen, "POLL_SECONDS", 60)
    engine, other = open_postgres(url), open_postgres(url)
    for sent in [submission("a"), Submission("b", "ada", "scan", "{}")]:
        woken: list[bool] = []
        waiting = threading.Thread(target=lambda woken=woken, sent=sent: woken.append(engine.wait(60, [sent.kind])))
        waiting.start()
        wait_until(lambda: backends(LISTENING))
        other.submit([sent])
        waiting.join(10)
        assert woken == [True], sent
    engine.close()
    other.close()


def test_all_who_wait_in_a_process_hear_one_hint(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listen, "POLL_SECONDS", 60)
    engine, other = open_postgres(url), open_postgres(url)
    woken: list[bool] = []
    threads = [threading.Thread(target=lambda: woken.append(engine.wait(60))) for _ in range(5)]
    for thread in threads:
        thread.start()
    wait_until(lambda: backends(LISTENING))
    other.submit([submission("a")])
    for thread in threads:
        thread.join(20)
    assert woken == [True] * 5


def test_a_lost_listener_costs_no_more_than_the_next_look(url: str) -> None:
    engine = open_postgres(url)
    woken: list[bool] = []
    waiting = threading.Thread(target=lambda: woken.append(engine.wait(30)))
    waiting.start()
    wait_until(lambda: backends(LISTENING))
    (pid,) = backends(LISTENING)
    with psycopg.connect(postgres.shared().url, autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
    open_postgres(url).submit([submission("a")])
    waiting.join()
    assert woken == [True]
    engine.close()


def count_notifications(connection: psycopg.Connection[tuple[object, ...]]) -> int:
    """Count what was sent so far: notifications come in the order of commits, so one of our own is the last."""
    connection.execute("NOTIFY tests_wake, 'last'")
    return sum(1 for _ in itertools.takewhile(lambda notify: notify.payload != "last", connection.notifies()))


def test_a_busy_queue_sends_no_hints(url: str) -> None:
    engine = open_postgres(url)
    with psycopg.connect(postgres.shared().url, autocommit=True) as connection:
        connection.execute("LISTEN tests_wake")
        engine.submit([submission("a")])
        engine.submit([submission("b")])
        engine.submit([submission("c", "bob"), submission("d", "eve")])
        assert count_notifications(connection) == 1
        engine.claim("w", 9, 1000)
        engine.submit([submission("e")])
        assert count_notifications(connection) == 1


def test_wait_wakes_when_a_delayed_document_is_due(url: str) -> None:
    engine = open_postgres(url)
    engine.submit([Submission("a", "ada", "extract", "{}", delay_ms=300)])
    assert engine.wait(60) is True
    assert len(engine.claim("w", 1, 1000)) == 1
