"""Connections that break, lost replies, servers that restart, load, fill up or are flushed: nothing doubles or hangs."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from redis import exceptions

from chaos.proxy import FaultyProxy
from fairlane import Queue, StoreError
from fairlane.core.document import Claim, Done, Failed, Outcome, Released, Retried, Submission
from fairlane.core.errors import StoreFrozen, StoreFull
from fairlane.core.policy import Rules, Terms
from fairlane.engine import Engine, open_engine
from fairlane.engine.protocol import DocumentFilter
from fairlane.engine.redis import codec, connection, scripts
from fairlane.engine.redis import engine as engine_module
from fairlane.engine.redis.connection import RedisPool
from fairlane.engine.redis.url import parse_url
from fairlane.engine.walk import walk_documents
from tests.servers import redis
from tests.servers.redis import Server, fresh_queue

DURABLE = ("--appendonly", "yes", "--appendfsync", "always")


@pytest.fixture(params=redis.PRODUCTS)
def server(request: pytest.FixtureRequest) -> Server:
    return redis.shared(request.param)


@pytest.fixture(params=redis.PRODUCTS)
def own(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A durable server that a test may stop and start."""
    server = Server(request.param, *DURABLE)
    yield server
    server.remove()


@pytest.fixture
def engine(server: Server) -> Iterator[Engine]:
    engine = open_engine(server.url())
    yield engine
    engine.close()


def documents(count: int, start: int = 0, **fields: Any) -> list[Submission]:
    return [Submission(f"d{start + n}", "ada", "extract", f'{{"n":{n}}}', **fields) for n in range(count)]


def test_scripts_that_a_server_forgot_are_given_again(server: Server, engine: Engine) -> None:
    with server.client() as client:
        for n in range(5):
            engine.submit(documents(2, 2 * n), now_ms=n)
            client.script_flush()
            (claim,) = engine.claim("w", 1, 1000, now_ms=n)
            client.script_flush()
            assert engine.settle([(claim, Done())], now_ms=n) == []
    assert engine.customer("ada", now_ms=9).done == 5


def test_a_server_that_was_flushed_is_an_error_and_a_new_queue_begins_when_it_is_opened_again() -> None:
    server = Server("redis")
    engine = open_engine(server.url("gone"))
    engine.submit(documents(3))
    with server.client() as client:
        client.flushall()
    for verb in (lambda: engine.submit(documents(1)), lambda: engine.claim("w", 1, 1000), lambda: engine.customers("", 10)):
        with pytest.raises(StoreError, match=r"the queue 'gone' at .* is not there any more: the server was flushed"):
            verb()
    with server.client() as client:
        assert client.dbsize() == 0  # nothing was begun by accident
    engine.close()
    engine = open_engine(server.url("gone"))
    assert engine.submit(documents(1))[0].number == 1
    engine.close()
    server.remove()


def test_time_is_the_servers_clock_in_milliseconds(engine: Engine) -> None:
    moments = []
    for _ in range(50):
        before_ms = time.time_ns() // 1_000_000
        checked_ms = engine.check("ada", 1000).checked_ms
        assert before_ms <= checked_ms <= time.time_ns() // 1_000_000  # the server runs on this machine
        moments.append(checked_ms % 1000)
    assert len(set(moments)) > 1


def test_a_closed_engine_says_so(server: Server) -> None:
    engine = open_engine(server.url())
    engine.close()
    with pytest.raises(StoreError, match="was closed; open it again"):
        engine.rules()


# -- restarts ----------------------------------------------------------------------------------------------------------


def test_an_engine_outlives_its_server(own: Server) -> None:
    with Queue(own.url()) as queue:
        ids = [queue.submit("ada", n, now=n).id for n in range(20)]
        (claim,) = queue.engine.claim("w", 1, 60_000)
        before = (queue.look("ada", now=30), [document.id for document in queue.documents()], list(queue.changes()))
        for _ in range(3):
            own.kill()
            own.start()
        assert (queue.look("ada", now=30), [document.id for document in queue.documents()], list(queue.changes())) == before
        assert {document.id for document in queue.documents()} == set(ids)
        assert queue.engine.settle([(claim, Done())]) == []


def test_a_call_waits_for_a_server_that_comes_back(own: Server) -> None:
    with Queue(own.url()) as queue, ThreadPoolExecutor(3) as threads:
        queue.submit("ada", 0)
        own.kill()
        calls = [threads.submit(queue.submit, "ada", n) for n in (1, 2)]
        calls.append(threads.submit(queue.look, "ada"))  # type: ignore[arg-type]
        while any(call.done() for call in calls):  # they must all be waiting
            pytest.fail("a call did not wait")
        own.start()
        assert sorted(call.result(20).counter for call in calls[:2]) == [-2, -1]


def test_a_server_that_is_loading_is_waited_for(own: Server) -> None:
    with Queue(own.url()) as queue, ThreadPoolExecutor(1) as threads:
        with own.client() as client:
            client.config_set("appendfsync", "no")
        for n in range(700):
            queue.submit("ada", n)
        own.kill()
        own.start("--key-load-delay", "200", "--loading-process-events-interval-bytes", "1024", waits=False)
        look = threads.submit(queue.look, "ada")
        while not is_loading(own):
            assert not look.done(), "it was answered before the server was loading"
        assert look.result(60).waiting == 700


def is_loading(server: Server) -> bool:
    try:
        with server.client() as client:
            return bool(client.info("persistence")["loading"])
    except exceptions.ConnectionError:  # it has not begun to listen
        return False


# -- replies that get lost ----------------------------------------------------------------------------------------------


@pytest.fixture
def lossy(server: Server) -> Iterator[tuple[Engine, FaultyProxy]]:
    """An engine behind a proxy that can lose a reply."""
    proxy = FaultyProxy(server.socket)
    engine = open_engine(f"redis://127.0.0.1:{proxy.port}?queue={fresh_queue()}")
    for verb in scripts.verbs():  # so that the lost reply is the verb's, not SCRIPT LOAD's
        with server.client() as client:
            client.script_load(scripts.load_script(verb, True).text)
    yield engine, proxy
    engine.close()
    proxy.close()


@pytest.mark.parametrize("key", [None, "k"])
def test_a_submission_whose_answer_was_lost_is_there_once(lossy: tuple[Engine, FaultyProxy], key: str | None) -> None:
    engine, proxy = lossy
    engine.submit([Submission("first", "ada", "extract", "{}")], now_ms=0)
    proxy.swallow()
    (receipt,) = engine.submit([Submission("again", "ada", "extract", "{}", key=key, digest=key)], now_ms=5)
    assert proxy.swallowed == 1
    assert (receipt.id, receipt.number, receipt.counter) == ("again", 2, -1)
    assert engine.customer("ada", now_ms=5).waiting == 2
    proxy.swallow()
    batch = [Submission(f"b{n}", f"c{n % 2}", "extract", "{}", delay_ms=n % 3) for n in range(9)]
    receipts = engine.submit(batch, now_ms=6)
    assert [receipt.id for receipt in receipts] == [submission.id for submission in batch]
    assert [receipt.number for receipt in receipts] == list(range(3, 12))
    assert len(list(walk_documents(engine))) == 11
    assert [change.number for change in engine.changes(None, 100)] == list(range(1, 12))


OUTCOMES: list[Outcome] = [
    Done("1"),
    Done(),
    Failed("corrupt"),
    Retried(0, "busy"),
    Retried(500, "busy"),
    Released(),
    Done(cost=7000),
]


@pytest.mark.parametrize("outcome", OUTCOMES, ids=repr)
@pytest.mark.parametrize("attempts", [1, 3])
def test_a_settlement_whose_reply_was_lost_is_not_reported_as_lost_and_happens_once(
    lossy: tuple[Engine, FaultyProxy], outcome: Outcome, attempts: int
) -> None:
    engine, proxy = lossy
    engine.submit(documents(2), now_ms=0)
    stale, claim = engine.claim("w", 2, 1000, {"extract": attempts}, now_ms=0)
    engine.settle([(stale, Released())], now_ms=1)
    proxy.swallow()
    assert engine.settle([(claim, outcome), (stale, Done()), (claim, Done())], now_ms=2) == [stale, claim]
    assert proxy.swallowed == 1
    lines = [line for line in engine.changes(None, 100) if line.document == claim.id and line.what != "corrected"]
    assert [line.what for line in lines][:2] == ["submitted", "claimed"]
    assert len(lines) == 3


def test_a_repeated_settlement_is_recognised_after_others_went_on_and_another_call_is_not(server: Server) -> None:
    """Between the lost reply and the repetition another worker may have claimed the document."""
    url = server.url()
    engine, run = open_engine(url), RedisPool(parse_url(url)).run
    engine.submit(documents(1), now_ms=0)
    (claim,) = engine.claim("w", 1, 1000, now_ms=0)
    mine = codec.settle_arguments([(claim, Retried(0, "same words"))], 1)
    assert run("settle", mine, "same") == []
    (other,) = engine.claim("x", 1, 1000, now_ms=2)
    assert run("settle", [mine[0], 1, *mine[2:]], "same") == []
    stale = codec.settle_arguments([(claim, Retried(0, "same words"))], 3)  # another call, not the same one again
    assert run("settle", [stale[0], 1, *stale[2:]], "same") == [1]
    assert engine.settle([(other, Done())], now_ms=4) == []
    assert [change.what for change in engine.changes(None, 10)] == ["submitted", "claimed", "retried", "claimed", "done"]


def test_what_may_be_repeated_is_repeated(lossy: tuple[Engine, FaultyProxy]) -> None:
    engine, proxy = lossy
    engine.submit(documents(4), now_ms=0)
    claims = engine.claim("w", 2, 1000, now_ms=0)
    repeatable: list[tuple[Callable[[], object], object]] = [
        (lambda: engine.extend(claims, 5000, now_ms=1), []),
        (lambda: engine.reclaim(10, now_ms=5001), 0),
        (lambda: engine.rules().version, 1),
        (lambda: engine.customer("ada", now_ms=0).waiting, 4),
        (lambda: len(list(walk_documents(engine))), 4),
        (lambda: engine.purge(0, 100, now_ms=0).documents, []),
        (lambda: engine.forget("nobody", 10), []),
    ]
    for verb, expected in repeatable:
        engine.rules()  # the connection is up again
        proxy.swallow()
        assert verb() == expected
    assert proxy.swallowed == len(repeatable)
    assert len(list(walk_documents(engine, DocumentFilter(state="ready")))) == 4


def test_what_may_not_be_repeated_says_that_the_outcome_is_not_known(lossy: tuple[Engine, FaultyProxy]) -> None:
    engine, proxy = lossy
    engine.submit(documents(4), now_ms=0)
    failed = engine.claim("w", 1, 1000, now_ms=0)
    engine.settle([(failed[0], Failed("f"))], now_ms=0)
    once: list[Callable[[], object]] = [
        lambda: engine.check("ada", 1000, now_ms=1),
        lambda: engine.claim("w", 1, 1000, now_ms=1),
        lambda: engine.take_over([("d1", 1)], "other", 1000, now_ms=1),
        lambda: engine.cancel(["d3"], now_ms=1),
        lambda: engine.retry(failed[0].id, now_ms=1),
        lambda: engine.configure(Rules(), now_ms=1),
        lambda: engine.tune("ada", Terms(weight=2), 0, now_ms=1),
        lambda: engine.reset("ada", now_ms=1),
        lambda: engine.put_record("g", "k", "1"),
    ]
    for verb in once:
        engine.rules()  # the connection is up again
        proxy.swallow()
        with pytest.raises(StoreError, match="whether it took effect is not known"):
            verb()
    assert engine.customer("ada").running == 1  # the claim did take effect, once
    taken = engine.document("d1")
    assert taken is not None
    assert (taken.token, taken.worker) == (2, "other")
    state = engine.document("d3")
    assert state is not None
    assert state.state == "cancelled"


# -- a server that is full ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("product", redis.PRODUCTS)
def test_a_full_server_refuses_all_of_a_submission_and_still_lets_work_end(product: str) -> None:
    server = Server(product)
    engine = open_engine(server.url())
    engine.submit(documents(50), now_ms=0)
    claims = engine.claim("w", 30, 1000, now_ms=0)
    with server.client() as client:
        client.config_set("maxmemory", "1mb")
        before = (engine.customers("", 10, now_ms=1), list(walk_documents(engine)), engine.changes(None, 1000))
        for verb in (lambda: engine.submit(documents(5, 50), now_ms=1), lambda: engine.claim("w", 2, 1000, now_ms=1)):
            with pytest.raises(StoreFull, match=r"has no memory left .* raise its maxmemory, or purge; nothing was changed"):
                verb()
        assert (
            engine.customers("", 10, now_ms=1),
            list(walk_documents(engine)),
            engine.changes(None, 1000),
        ) == before
        assert engine.extend(claims, 2000, now_ms=1) == []
        assert engine.settle([(claim, Done()) for claim in claims[:19]], now_ms=2) == []
        (taken,) = engine.take_over([(claims[19].id, claims[19].token)], "other", 1000, now_ms=2)
        assert taken is not None
        assert engine.settle([(taken, Done())], now_ms=2) == []
        assert engine.reclaim(100, now_ms=10_000) == 10
        while any(engine.purge(0, 10, now_ms=10_000)):
            pass
        client.config_set("maxmemory", "0")
    assert engine.submit(documents(1, 99), now_ms=10_001)[0].number == 51
    engine.close()
    server.remove()


# -- waiting -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiters do not poll, so that only signals wake them."""
    monkeypatch.setattr(engine_module, "POLL_SECONDS", 60.0)


def waiter(server: Server, name: str, engine: Engine, threads: ThreadPoolExecutor, kinds: list[str] | None = None) -> Any:
    """Start a thread that waits, and return when it has subscribed."""
    waiting = threads.submit(engine.wait, 30, kinds)
    channel = f"{{fairlane:{name}}}:signal"
    with server.client() as client:
        while client.pubsub_numsub(channel)[0][1] == 0:
            os.sched_yield()
    return waiting


def test_whoever_waits_is_woken_by_what_becomes_ready(server: Server, patient: None) -> None:
    name = fresh_queue()
    with Queue(server.url(name)) as local, Queue(server.url(name)) as remote, ThreadPoolExecutor(1) as threads:
        news: list[Callable[[], object]] = [
            lambda: remote.submit("ada"),
            lambda: remote.submit("ada", delay=0.05),
            lambda: remote.resume("ada"),
            lambda: remote.engine.settle([(claims[0], Released())]),
            lambda: remote.engine.reclaim(10, now_ms=10**14),
            lambda: remote.engine.settle([(claim, Done()) for claim in claims]),
        ]
        claims: list[Claim] = []
        for turn, make_ready in enumerate(news):
            if turn == 2:
                remote.pause("ada")
                remote.submit("ada")
            waiting = waiter(server, name, local.engine, threads)
            make_ready()
            assert waiting.result(10) is True, turn
            claims = remote.engine.claim("w", 100, 60_000)
            assert claims
            if turn == 4:  # at its cap, with one more waiting: an ending is news
                remote.tune("ada", cap=1)
                remote.submit("ada")


def test_a_kind_that_no_waiter_takes_wakes_no_waiter(server: Server, patient: None) -> None:
    name = fresh_queue()
    with Queue(server.url(name)) as local, Queue(server.url(name)) as remote, ThreadPoolExecutor(1) as threads:
        waiting = waiter(server, name, local.engine, threads, ["scan"])
        remote.submit("ada", kind="fax")
        assert not waiting.done()
        remote.submit("ada", kind="scan")
        assert waiting.result(10) is True


def test_waiting_asks_the_server_next_to_nothing(server: Server) -> None:
    with Queue(server.url()) as queue, server.client() as client:
        client.config_resetstat()
        assert queue.engine.wait(0.5) is False
        assert client.info("commandstats")["cmdstat_evalsha"]["calls"] <= 3


def test_a_signal_that_is_lost_only_delays(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "POLL_SECONDS", 0.2)
    name = fresh_queue()
    with Queue(server.url(name)) as local, Queue(server.url(name)) as remote, ThreadPoolExecutor(1) as threads:
        waiting = waiter(server, name, local.engine, threads)
        with server.client() as client:
            client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        remote.submit("ada")
        assert waiting.result(10) is True


def test_whoever_waits_outlives_the_server(own: Server) -> None:
    name = fresh_queue()
    with Queue(own.url(name)) as local, Queue(own.url(name)) as remote, ThreadPoolExecutor(1) as threads:
        waiting = waiter(own, name, local.engine, threads)
        own.kill()
        own.start()
        remote.submit("ada")
        assert waiting.result(20) is True


def test_a_wait_ends_on_time(engine: Engine) -> None:
    engine.submit(documents(1, delay_ms=60_000))
    began = time.monotonic()
    assert engine.wait(0.2) is False
    assert 0.15 <= time.monotonic() - began < 5


# -- processes and threads ---------------------------------------------------------------------------------------------


def test_a_forked_child_has_connections_of_its_own(server: Server) -> None:
    with Queue(server.url()) as queue:
        queue.submit("ada", "parent")
        child = os.fork()
        if child == 0:
            try:
                for n in range(50):
                    queue.submit("ada", n)
                os._exit(0)
            except BaseException:  # noqa: BLE001 - whatever it is, the child must not run the rest of the tests
                os._exit(1)
        for n in range(50):
            queue.submit("ada", n)
        assert os.waitpid(child, 0)[1] == 0
        assert queue.look("ada").counter == -100


def test_many_threads_share_an_engine_and_leave_no_connection_behind(server: Server) -> None:
    with Queue(server.url()) as queue:
        threads = [threading.Thread(target=lambda: [queue.submit("ada") for _ in range(20)]) for _ in range(100)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert queue.look("ada").counter == -1999
        with server.client() as client:  # connections above the limit are closed, which the server notices a moment later
            while sum(entry["name"] == "fairlane" for entry in client.client_list()) > connection.CONNECTIONS_MAX:
                os.sched_yield()


def test_a_submission_that_was_received_before_the_queue_was_frozen_is_answered(server: Server) -> None:
    url = server.url()
    engine, run = open_engine(url), RedisPool(parse_url(url)).run
    sent = codec.submit_arguments(documents(3), 0)
    first = run("submit", sent, "same")
    assert engine.configure(Rules(frozen="is being moved")) is not None
    assert run("submit", [sent[0], 1, *sent[2:]], "same") == first
    with pytest.raises(StoreFrozen, match="this queue is being moved"):
        engine.submit(documents(1, start=7))
    fresh = codec.submit_arguments(documents(1, start=8), 0)
    with pytest.raises(StoreFrozen, match="this queue is being moved"):
        run("submit", [fresh[0], 1, *fresh[2:]], "same")
    assert len(list(walk_documents(engine))) == 3


def test_a_purge_that_was_sent_before_the_queue_was_frozen_is_not_said_to_have_changed_nothing(
    server: Server, lossy: tuple[Engine, FaultyProxy]
) -> None:
    engine, proxy = lossy
    engine.submit(documents(1), now_ms=0)
    proxy.swallow(lambda: engine.configure(Rules(frozen="is being moved")))
    with pytest.raises(StoreError, match="whether it took effect is not known"):
        engine.purge(0, 10, now_ms=1)
