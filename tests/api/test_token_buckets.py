"""Token buckets: so many a second, with a burst; and no number of others empties or fills somebody's bucket."""

from __future__ import annotations

from fairlane import Queue
from fairlane.api import auth
from fairlane.api.auth import CACHE_MAX, Keyring
from fairlane.api.token_buckets import BUCKETS_MAX, TokenBuckets


class Clock:
    """Time that is set by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_and_then_so_many_a_second() -> None:
    clock = Clock()
    buckets = TokenBuckets(10, 5, clock)
    assert [buckets.take("a") for _ in range(7)] == [True] * 5 + [False] * 2
    assert buckets.take("b")
    clock.now += 0.25
    assert [buckets.take("a") for _ in range(4)] == [True] * 2 + [False] * 2
    assert not buckets.has("a")
    buckets.give_back("a")
    assert [buckets.has("a"), buckets.take("a"), buckets.take("a")] == [True, True, False]
    clock.now += 3600
    buckets.give_back("a")
    assert [buckets.take("a") for _ in range(7)] == [True] * 5 + [False] * 2


def test_many_others_neither_refill_a_bucket_nor_grow_without_end() -> None:
    clock = Clock()
    buckets = TokenBuckets(1, 3, clock)
    for number in range(BUCKETS_MAX - 1):  # each of them full again after a second
        buckets.take(f"other {number}")
    clock.now += 1
    assert [buckets.take("hostile") for _ in range(4)] == [True] * 3 + [False]
    for number in range(BUCKETS_MAX):
        buckets.take(f"new {number}")
        if number % 1000 == 0:
            clock.now += 0.01
            assert not buckets.take("hostile")
    assert len(buckets) <= BUCKETS_MAX


def test_ids_that_strangers_make_up_do_not_push_keys_out_of_the_cache() -> None:
    with Queue("memory://") as queue:
        secret, key = auth.create(queue.engine, customer="acme")
        keyring = Keyring(queue.engine)
        keyring.load(key.id)
        for number in range(CACHE_MAX + 10):
            keyring.load(f"{number:016x}")
        assert keyring.key(key.id) is not None
        assert keyring.caller(secret) is not None
