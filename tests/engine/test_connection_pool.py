"""The connection pool: no caller waits beyond its deadline, lost connections go, and a server that returns is found."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from fairlane.engine.connection_pool import ConnectionPool, NotConnected, PoolClosed
from fairlane.engine.deadline import Deadline

SOON, LATE = 0.2, 30.0  # deadlines: one that passes in the test, and one that must not


class Wire:
    """A connection to nowhere."""

    def __init__(self) -> None:
        self.is_open = True

    def close(self) -> None:
        self.is_open = False


class Network:
    """Where a pool connects to; a test may make it fail or hang."""

    def __init__(self) -> None:
        self.tries = 0
        self.made: list[Wire] = []
        self.error: Exception | None = None
        self.works = threading.Event()
        self.works.set()

    def connect(self) -> Wire:
        self.tries += 1
        self.works.wait()
        if self.error is not None:
            raise self.error
        self.made.append(Wire())
        return self.made[-1]


@pytest.fixture
def network() -> Iterator[Network]:
    network = Network()
    yield network
    network.works.set()


@pytest.fixture
def pool(network: Network) -> ConnectionPool[Wire]:
    return pool_of(network)


def pool_of(network: Network, **options: tuple[type[Exception], ...]) -> ConnectionPool[Wire]:
    pool = ConnectionPool(network.connect, lambda wire: wire.is_open, Wire.close, connections_max=3, **options)
    pool.is_patient = True
    return pool


def wait_until(condition: Callable[[], object]) -> None:
    deadline = Deadline(LATE)
    while not condition():
        assert not deadline.is_over
        os.sched_yield()


def test_a_connection_is_used_again(network: Network, pool: ConnectionPool[Wire]) -> None:
    wire = pool.acquire(Deadline(LATE))
    pool.release(wire)
    assert pool.acquire(Deadline(LATE)) is wire
    assert network.tries == 1


def test_a_connection_that_died_while_it_was_idle_is_replaced(pool: ConnectionPool[Wire]) -> None:
    wire = pool.acquire(Deadline(LATE))
    pool.release(wire)
    wire.is_open = False
    other = pool.acquire(Deadline(LATE))
    assert other is not wire
    assert other.is_open


def test_a_lost_connection_takes_the_idle_ones_with_it_and_leaves_those_in_use(pool: ConnectionPool[Wire]) -> None:
    lost, idle, used = (pool.acquire(Deadline(LATE)) for _ in range(3))
    pool.release(idle)
    pool.discard(lost)
    assert (lost.is_open, idle.is_open, used.is_open) == (False, False, True)
    assert pool.acquire(Deadline(LATE)).is_open


def test_a_caller_does_not_wait_beyond_its_deadline_for_a_try_that_hangs(network: Network, pool: ConnectionPool[Wire]) -> None:
    network.works.clear()
    with pytest.raises(NotConnected):
        pool.acquire(Deadline(SOON))


def test_a_try_that_comes_late_serves_the_next_caller(network: Network, pool: ConnectionPool[Wire]) -> None:
    network.works.clear()
    with pytest.raises(NotConnected):
        pool.acquire(Deadline(0))
    network.works.set()
    assert pool.acquire(Deadline(LATE)).is_open
    assert network.tries == 1


def test_when_all_are_in_use_the_next_caller_waits_for_one(pool: ConnectionPool[Wire]) -> None:
    wires = [pool.acquire(Deadline(LATE)) for _ in range(3)]
    with pytest.raises(NotConnected, match="in use") as refused:
        pool.acquire(Deadline(SOON))
    assert refused.value.cause is None
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(pool.acquire, Deadline(LATE))
        pool.release(wires[1])
        assert waiting.result() is wires[1]


def test_a_caller_waits_for_a_server_that_has_just_gone_away(network: Network, pool: ConnectionPool[Wire]) -> None:
    network.error = OSError("refused")
    with ThreadPoolExecutor(4) as threads:
        waiting = [threads.submit(pool.acquire, Deadline(LATE)) for _ in range(3)]
        wait_until(lambda: network.tries >= 3)  # one after the other, for all of them together
        assert not any(call.done() for call in waiting)
        network.error = None
        assert all(call.result().is_open for call in waiting)


def test_once_a_server_is_known_to_be_away_a_call_makes_one_try(network: Network, pool: ConnectionPool[Wire]) -> None:
    network.error = OSError("refused")
    with pytest.raises(NotConnected, match="refused"):
        pool.acquire(Deadline(1))
    assert network.tries > 3  # it waited, and tried again and again
    for _ in range(3):
        before = network.tries
        with pytest.raises(NotConnected, match="refused"):
            pool.acquire(Deadline(1))
        assert network.tries == before + 1
    network.error = None
    assert pool.acquire(Deadline(LATE)).is_open


def test_a_server_that_answered_is_waited_for_again(network: Network, pool: ConnectionPool[Wire]) -> None:
    wire = pool.acquire(Deadline(LATE))
    network.error = OSError("refused")
    with pytest.raises(NotConnected):
        pool.acquire(Deadline(SOON))
    pool.release(wire)
    assert pool.acquire(Deadline(LATE)) is wire
    before = network.tries
    with pytest.raises(NotConnected):
        pool.acquire(Deadline(SOON))
    assert network.tries - before > 1


def test_what_another_try_does_not_mend_is_told_at_once(network: Network) -> None:
    pool = pool_of(network, refusals=(PermissionError,))
    network.error = PermissionError("wrong password")
    with pytest.raises(NotConnected, match="wrong password"):
        pool.acquire(Deadline(LATE))
    assert network.tries == 1


def test_before_a_queue_is_open_a_failed_try_is_final(network: Network, pool: ConnectionPool[Wire]) -> None:
    pool.is_patient = False
    network.error = OSError("refused")
    with pytest.raises(NotConnected, match="refused"):
        pool.acquire(Deadline(LATE))
    assert network.tries == 1


def test_a_system_without_threads_is_a_failure_to_connect(pool: ConnectionPool[Wire], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(NotConnected, match="can't start new thread"):
            pool.acquire(Deadline(SOON))
    assert pool.acquire(Deadline(LATE)).is_open


def test_a_closed_pool_closes_what_comes_back(pool: ConnectionPool[Wire]) -> None:
    idle, used = pool.acquire(Deadline(LATE)), pool.acquire(Deadline(LATE))
    pool.release(idle)
    pool.close()
    with pytest.raises(PoolClosed):
        pool.acquire(Deadline(LATE))
    assert (idle.is_open, used.is_open) == (False, True)
    pool.release(used)
    assert not used.is_open


def test_a_connection_that_is_made_after_the_pool_was_closed_is_closed(network: Network, pool: ConnectionPool[Wire]) -> None:
    network.works.clear()
    with pytest.raises(NotConnected):
        pool.acquire(Deadline(0))
    pool.close()
    network.works.set()
    wait_until(lambda: network.made and not network.made[0].is_open)


def test_a_forked_child_leaves_its_parents_connections_alone(pool: ConnectionPool[Wire]) -> None:
    idle, used = pool.acquire(Deadline(LATE)), pool.acquire(Deadline(LATE))
    pool.release(idle)
    child = os.fork()
    if child == 0:
        own = pool.acquire(Deadline(LATE))
        pool.release(used)
        pool.discard(own)
        os._exit(0 if own not in (idle, used) and idle.is_open and used.is_open and not own.is_open else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert pool.acquire(Deadline(LATE)) is idle
