"""Servers that are away, silent or half-open: every call ends at its deadline, says what is known, and works again at once."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from chaos.proxy import FaultyProxy
from fairlane.core.document import Done, Submission
from fairlane.core.errors import BadValue, StoreError, StoreUnreachable
from fairlane.engine import Engine, open_engine
from fairlane.engine.deadline import CALL_SECONDS, SILENCE_SECONDS
from fairlane.engine.postgres import url as postgres_url
from fairlane.engine.redis import url as redis_url
from tests.servers import postgres, redis

SERVERS = ("postgres", "redis", "valkey")
TIMEOUT = 0.5  # of a call
ENDS_SECONDS = 15.0  # a call that takes so long hangs


class Link:
    """A server behind a faulty network, and the URLs of one queue through it and beside it."""

    def __init__(self, name: str) -> None:
        if name == "postgres":
            self.direct = postgres.empty_queue(postgres.shared())
            self.proxy = FaultyProxy(postgres.shared().port)
            self._address = f"postgresql://fairlane@127.0.0.1:{self.proxy.port}/postgres?schema=tests"
        else:
            queue = redis.fresh_queue()
            self.direct = redis.shared(name).url(queue)
            self.proxy = FaultyProxy(redis.shared(name).socket)
            self._address = f"{name}://127.0.0.1:{self.proxy.port}/0?queue={queue}"
        self._engines: list[Engine] = []

    def open(self, timeout: float = TIMEOUT) -> Engine:
        engine = open_engine(f"{self._address}&timeout={timeout}")
        self._engines.append(engine)
        return engine

    def close(self) -> None:
        for engine in self._engines:
            engine.close()
        self.proxy.close()
        redis.drop_url(self.direct)


@pytest.fixture(params=SERVERS)
def link(request: pytest.FixtureRequest) -> Iterator[Link]:
    link = Link(request.param)
    yield link
    link.close()


def submission(id: str, key: str | None = None) -> Submission:
    return Submission(id, "ada", "extract", "{}", key=key, digest=key)


def ends(call: Callable[[], object]) -> BaseException | None:
    """Return what a call raises; fail if it does not end."""
    raised: list[BaseException | None] = []

    def run() -> None:
        try:
            call()
            raised.append(None)
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)  # one that hangs does not hold up the other tests
    thread.start()
    thread.join(ENDS_SECONDS)
    assert raised, "the call does not end"
    return raised[0]


def test_a_call_to_a_server_that_is_away_ends_at_its_deadline_and_says_that_nothing_was_changed(link: Link) -> None:
    engine = link.open()
    engine.submit([submission("a")])
    link.proxy.refuse()
    for call in (lambda: engine.submit([submission("b")]), lambda: engine.document("a"), lambda: engine.wait(0.1)):
        error = ends(call)
        assert isinstance(error, StoreUnreachable)
        assert "cannot be reached" in str(error)
        assert "nothing was changed" in str(error)


def test_a_read_that_is_not_answered_ends_at_its_deadline(link: Link) -> None:
    engine = link.open()
    assert engine.document("a") is None
    link.proxy.freeze()
    assert isinstance(ends(lambda: engine.document("a")), StoreUnreachable)
    link.proxy.restore()
    assert engine.document("a") is None


def test_a_write_that_is_not_answered_ends_at_its_deadline_and_says_that_its_outcome_is_not_known(link: Link) -> None:
    engine = link.open()
    engine.check("ada", 1000)  # there is a connection now
    link.proxy.freeze()
    error = ends(lambda: engine.check("ada", 1000))
    assert isinstance(error, StoreError)
    assert not isinstance(error, StoreUnreachable)
    assert "not known" in str(error)
    link.proxy.restore()
    assert engine.customer("ada").counter in (0, -1)  # it happened once, or not at all


def test_a_write_that_finds_no_connection_in_a_silent_network_changes_nothing(link: Link) -> None:
    engine = link.open()
    engine.check("ada", 1000)
    link.proxy.freeze()
    link.proxy.cut()  # now every connection has to be made anew
    assert isinstance(ends(lambda: engine.check("ada", 1000)), StoreUnreachable)
    link.proxy.restore()
    assert engine.customer("ada").counter == 0


def test_a_submission_into_silence_is_there_once_when_it_is_sent_again_with_its_key(link: Link) -> None:
    engine = link.open()
    engine.submit([submission("first")])
    link.proxy.freeze()
    assert isinstance(ends(lambda: engine.submit([submission("second", "k")])), StoreError)
    link.proxy.restore()
    (receipt,) = engine.submit([submission("third", "k")])
    assert receipt.id in ("second", "third")
    assert engine.customer("ada").waiting == 2


def test_a_settlement_into_silence_ends_its_document_once(link: Link) -> None:
    engine = link.open()
    engine.submit([submission("a")])
    (claim,) = engine.claim("w", 1, 60_000)
    link.proxy.freeze()
    assert isinstance(ends(lambda: engine.settle([(claim, Done("1"))])), StoreError)
    link.proxy.restore()
    engine.settle([(claim, Done("1"))])
    assert engine.customer("ada").done == 1


def test_the_first_call_after_an_outage_succeeds_however_often_calls_failed_before(link: Link) -> None:
    engine = link.open(timeout=1)
    engine.submit([submission("a")])
    for outage in range(2):  # a network that comes and goes does not make it slower
        link.proxy.refuse()
        for _ in range(5):
            with pytest.raises(StoreUnreachable):
                engine.submit([submission("b")])
        link.proxy.restore()
        engine.submit([submission(f"c{outage}")])


def test_calls_wait_for_a_server_that_comes_back(link: Link) -> None:
    engine = link.open(timeout=ENDS_SECONDS)
    engine.submit([submission("a")])
    link.proxy.refuse()
    with ThreadPoolExecutor(5) as threads:
        calls = [threads.submit(engine.submit, [submission(f"b{n}")]) for n in range(5)]
        assert not any(call.done() for call in calls)
        link.proxy.restore()
        for call in calls:
            call.result(ENDS_SECONDS)
    assert engine.customer("ada").waiting == 6


def test_one_lost_connection_closes_the_idle_ones_so_the_next_write_is_not_lost_too(link: Link) -> None:
    engine = link.open(timeout=3)
    link.proxy.delay(0.05)  # so that all four calls are under way at the same time
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(engine.document, "abcd")) == [None] * 4
    link.proxy.restore()
    link.proxy.forget()
    assert "not known" in str(ends(lambda: engine.check("ada", 1000)))
    assert ends(lambda: engine.check("ada", 1000)) is None


def sockets_to(port: int) -> Iterator[socket.socket]:
    """Yield this process's connections to a port."""
    for handle in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(handle))) as connection:
            if connection.family == socket.AF_INET and connection.getpeername()[1] == port:
                yield connection


def test_the_kernel_gives_up_a_connection_whose_network_is_dead(link: Link) -> None:
    engine = link.open()
    ends_at = time.monotonic() + ENDS_SECONDS
    while len(list(sockets_to(link.proxy.port))) < 2 and time.monotonic() < ends_at:
        engine.wait(0.3)  # opens a connection that listens, too; a busy machine may need more than one wait
    options = [
        (each.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT), each.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
        for each in sockets_to(link.proxy.port)
    ]
    assert len(options) >= 2
    assert set(options) == {(SILENCE_SECONDS * 1000, 1)}


def test_a_wait_outlives_an_outage(link: Link) -> None:
    engine, other = link.open(timeout=ENDS_SECONDS), open_engine(link.direct)
    assert engine.wait(0.3) is False
    link.proxy.refuse()
    with ThreadPoolExecutor(1) as threads:
        woken = threads.submit(engine.wait, 60)
        link.proxy.restore()
        other.submit([submission("a")])
        assert woken.result(ENDS_SECONDS) is True
    other.close()


def test_an_engine_is_not_opened_through_a_silent_network(link: Link) -> None:
    link.proxy.freeze()
    began = time.monotonic()
    with pytest.raises(StoreUnreachable):
        link.open()
    assert time.monotonic() - began < ENDS_SECONDS
    link.proxy.restore()


@pytest.mark.parametrize("parse", [postgres_url.parse_url, redis_url.parse_url])
def test_the_url_says_how_long_a_call_may_take(parse: Callable[[str], postgres_url.PostgresUrl | redis_url.RedisUrl]) -> None:
    scheme = "postgresql" if parse is postgres_url.parse_url else "redis"
    assert parse(f"{scheme}://host/0").timeout == CALL_SECONDS == 30
    assert parse(f"{scheme}://host/0?timeout=2.5").timeout == 2.5
    for value in ("0", "-1", "soon", "nan", "inf", "3601", ""):
        with pytest.raises(BadValue, match="timeout in the url"):
            parse(f"{scheme}://host/0?timeout={value}")
