"""Shares of the calls of webhooks: whoever answers quickly finds room, whatever the others do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fairlane.api.webhook_shares import CUSTOMER_MAX, CUSTOMER_MIN, PAUSE_MAX_SECONDS, QUICK_SECONDS, CallShares

CALLS = 128


def open_all(shares: CallShares, customer: str, now: float = 0.0) -> int:
    """Open every call that a customer may open; returns how many."""
    count = shares.room(customer, now)
    shares.open(customer, count)
    return count


def end(shares: CallShares, customer: str, is_accepted: bool, began: float, now: float) -> None:
    shares.judge(customer, is_accepted, began, now)
    shares.close(customer)


def test_customers_that_are_not_proven_have_one_call_each_and_half_together() -> None:
    shares = CallShares(CALLS)
    shares.introduce("acme", True)
    opened = 0
    for number in range(1000):
        shares.introduce(f"new {number}", False)
        opened += open_all(shares, f"new {number}")
    assert opened == CALLS // 2
    assert shares.room("new 0", 0) == 0
    assert shares.room("acme", 0) == CUSTOMER_MAX


def test_many_that_were_quick_and_turn_slow_together_take_less_and_less_each() -> None:
    shares = CallShares(CALLS)
    for number in range(24):
        shares.introduce(f"quick {number}", True)
    opened = [open_all(shares, f"quick {number}") for number in range(24)]
    assert opened[0] == CUSTOMER_MAX
    assert opened == sorted(opened, reverse=True)
    assert opened[-1] == CUSTOMER_MIN
    shares.introduce("acme", True)
    assert shares.room("acme", 0) == CUSTOMER_MIN


def test_open_calls_of_one_that_is_no_longer_proven_count_against_the_half() -> None:
    shares = CallShares(16)
    shares.introduce("a", True)
    for number in range(8):
        shares.introduce(f"new {number}", False)
    assert open_all(shares, "a") == CUSTOMER_MIN
    end(shares, "a", False, 0, 20)
    assert sum(open_all(shares, f"new {number}", 20) for number in range(8)) == 7  # and one of a is still open
    end(shares, "a", True, 20, 20)
    assert sum(open_all(shares, f"new {number}", 20) for number in range(8)) == 1


def test_slow_answers_are_accepted_and_lose_the_reserved_half() -> None:
    shares = CallShares(16)
    shares.introduce("slow", True)
    shares.open("slow", 1)
    end(shares, "slow", True, 0, QUICK_SECONDS + 1)
    for number in range(8):
        shares.introduce(f"new {number}", False)
        open_all(shares, f"new {number}")
    assert shares.room("slow", 10) == 0
    end(shares, "new 0", True, 0, 1)
    assert shares.room("slow", 10) == 1


def test_pauses_grow_with_failures_in_a_row_and_end_with_an_acceptance() -> None:
    shares = CallShares(CALLS)
    shares.introduce("acme", True)
    pauses, now = [], 100.0
    for _ in range(9):
        shares.open("acme", 1)
        end(shares, "acme", False, now, now)
        pause = 0.0
        while not shares.room("acme", now + pause):
            pause += 1.0
        pauses.append(pause)
        now += pause + 1.0
    assert pauses == [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, PAUSE_MAX_SECONDS, PAUSE_MAX_SECONDS, PAUSE_MAX_SECONDS]
    shares.open("acme", 1)
    end(shares, "acme", True, now, now)
    assert shares.room("acme", now) == CUSTOMER_MAX


def test_calls_that_were_open_together_fail_as_one() -> None:
    shares = CallShares(CALLS)
    shares.introduce("acme", True)
    assert open_all(shares, "acme") == CUSTOMER_MAX
    for moment in range(CUSTOMER_MAX):
        end(shares, "acme", False, 0.5, 10.0 + moment)
    assert shares.room("acme", 20.0) == CUSTOMER_MIN


def test_only_idle_and_proven_customers_are_forgotten() -> None:
    shares = CallShares(CALLS)
    shares.introduce("failing", False)
    shares.introduce("open", True)
    shares.introduce("idle", True)
    shares.open("open", 1)
    for customer in ("failing", "open", "idle", "never seen"):
        shares.forget(customer)
    assert [shares.is_known(customer) for customer in ("failing", "open", "idle")] == [True, True, False]


Step = st.tuples(st.integers(0, 9), st.sampled_from(["open", "accept", "accept slowly", "fail"]))


@given(st.integers(1, 40), st.lists(Step, max_size=200))
def test_open_calls_stay_within_their_bounds(calls_max: int, steps: list[tuple[int, str]]) -> None:
    shares, open_calls, now = CallShares(calls_max), dict.fromkeys(range(10), 0), 0.0
    for number in open_calls:
        shares.introduce(str(number), number < 5)
    for number, action in steps:
        now += 100.0  # past every pause
        customer = str(number)
        if action == "open":
            opened = open_all(shares, customer, now)
            open_calls[number] += opened
            assert open_calls[number] <= CUSTOMER_MAX
            assert sum(open_calls.values()) <= calls_max
        elif open_calls[number]:
            began = now - (50.0 if action == "accept slowly" else 0.0)
            end(shares, customer, action != "fail", began, now)
            open_calls[number] -= 1
        assert shares.is_full == (sum(open_calls.values()) >= calls_max)
    for number in open_calls:
        shares.close(str(number), open_calls[number])
    assert all(shares.room(str(number), now + 1000) >= 1 for number in open_calls)
