"""The arithmetic of the Lua scripts is that of core.policy to the last digit, up to every bound."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import gcd
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlane.core.policy import (
    COUNTER_FLOOR,
    INTERVAL_MAX_MS,
    TIME_MAX_MS,
    Policy,
    Standing,
    correct_counter,
    interval_ms_of,
    step_of,
)
from fairlane.engine import open_engine
from fairlane.engine.redis import scripts
from fairlane.engine.redis.codec import depths_of
from tests.servers import redis

RESETS = ("idle", "window", "gradual")
TRIAL = """
local policy = {interval = tonumber(ARGV[1]), reset = ARGV[2], depths = numbers_from(11)}
local customer = customer_of(new_customer('ada'))
customer.counter, customer.updated = tonumber(ARGV[3]), tonumber(ARGV[4]) or false
customer.reset_at, customer.resets = tonumber(ARGV[5]) or false, 7
local step = step_of(tonumber(ARGV[7]), tonumber(ARGV[8]))
check(policy, customer, tonumber(ARGV[6]), step)
local checked = {
  customer.counter, customer.updated, customer.reset_at, customer.resets, priority_of(policy, customer.counter),
}
correct(customer, tonumber(ARGV[9]), step, step_of(tonumber(ARGV[10]), tonumber(ARGV[8])))
return {checked, customer.counter, step, share_of(-tonumber(ARGV[3]), 1, policy.interval)}
"""


@pytest.fixture(scope="module", params=redis.PRODUCTS)
def trial(request: pytest.FixtureRequest) -> Callable[..., list[Any]]:
    """One check and one correction in Lua, through what every verb shares."""
    server, queue = redis.shared(request.param), redis.fresh_queue()
    open_engine(server.url(queue)).close()
    text = scripts.shared_text() + TRIAL
    client = server.client()
    sha = client.script_load(text)
    return lambda *arguments: client.evalsha(sha, 1, f"{{fairlane:{queue}}}:queue", *map(str, arguments))


def near(*bounds: int) -> st.SearchStrategy[int]:
    """Numbers at and beside the bounds, and anything between the outermost."""
    beside = [bound + by for bound in bounds for by in (-2, -1, 0, 1, 2)]
    inside = [number for number in beside if min(bounds) <= number <= max(bounds)]
    return st.one_of(st.sampled_from(inside), st.integers(min(bounds), max(bounds)))


intervals = near(1, 1000, 65_535, 65_536, 2**31, INTERVAL_MAX_MS)
counters = near(COUNTER_FLOOR, -(2**32), -20_000, 0)
costs, weights = near(1, 1000, 10_000_000), near(10, 1000, 100_000)
tables = st.sampled_from(((-2, -4, -6, -8, -10, -12, -14, -20), (), (0, -1, -2), (-(10**9),), (-0.001, -999_999_999.999)))


@settings(max_examples=400, deadline=None)
@given(
    interval_ms=intervals,
    reset=st.sampled_from(RESETS),
    counter=counters,
    updated_ms=near(0, 10**13, TIME_MAX_MS - 2 * INTERVAL_MAX_MS),
    gap_ms=st.one_of(near(-5, 0, 5), intervals, near(-(10**6), 2 * INTERVAL_MAX_MS)),
    since_ms=intervals,
    costs=st.tuples(costs, costs),
    weight=weights,
    resets=st.sampled_from((7, 8, -1)),
    thresholds=tables,
    is_new=st.sampled_from((False, False, False, False, True)),
)
def test_a_check_and_a_correction_are_those_of_the_policy(
    trial: Callable[..., list[Any]],
    interval_ms: int,
    reset: Any,
    counter: int,
    updated_ms: int,
    gap_ms: int,
    since_ms: int,
    costs: tuple[int, int],
    weight: int,
    resets: int,
    thresholds: tuple[float, ...],
    is_new: bool,
) -> None:
    policy = Policy(interval_ms / 1000, thresholds, reset)
    assert interval_ms_of(policy) == interval_ms
    now_ms, reset_ms = max(0, updated_ms + gap_ms), max(0, updated_ms - since_ms)
    standing = Standing(counter, None if is_new else updated_ms, None if is_new else reset_ms, 7)
    step = step_of(costs[0], weight)
    after = policy.check(standing, now_ms, step)
    expected = correct_counter(after, resets, step, step_of(costs[1], weight))
    times = ("", "") if is_new else (updated_ms, reset_ms)
    reply = trial(interval_ms, reset, counter, *times, now_ms, costs[0], weight, resets, costs[1], *depths_of(policy))
    assert reply[0] == [*after, policy.level(after.counter)]
    assert reply[1:3] == [expected.counter, step]


@settings(max_examples=300, deadline=None)
@given(
    interval_ms=st.one_of(intervals, near(2**31, INTERVAL_MAX_MS)),
    share=near(0, 2**16, 2**31, INTERVAL_MAX_MS),
    rest=st.sampled_from((0, 1, 2, -1, -2)),
    rounds=near(0, 300, 10**12),
)
def test_a_counter_recovers_in_proportion_exactly(
    trial: Callable[..., list[Any]], interval_ms: int, share: int, rest: int, rounds: int
) -> None:
    """Counters are chosen so that the exact quotient is whole, or next to a whole number: there rounding would show."""
    left_ms = share % interval_ms
    common = gcd(left_ms, interval_ms)
    first = rest * pow(left_ms // common, -1, interval_ms // common) % (interval_ms // common) if left_ms else 0
    counter = -min(10**12, first + rounds * (interval_ms // common) % 10**12)
    gap_ms = interval_ms - left_ms
    after = Policy(interval_ms / 1000, (), "gradual").check(Standing(counter, 1000, 1000, 7), 1000 + gap_ms, 1)
    reply = trial(interval_ms, "gradual", counter, 1000, 1000, 1000 + gap_ms, 1, 1000, 7, 1)
    assert reply[0][0] == after.counter
    assert reply[3] == -counter // interval_ms


@pytest.mark.parametrize("verb", scripts.verbs())
def test_every_script_begins_with_a_sentence_and_has_what_it_calls(verb: str) -> None:
    assert re.match(r"-- [A-Z][a-z ]+: .{20,}", scripts.read_file(verb)), "one English line"
    functions = set(re.findall(r"^local function (\w+)", scripts.shared_text(), flags=re.MULTILINE))
    text = re.sub(r"--.*", "", scripts.load_script(verb, False).text)
    for name in functions:
        called = re.search(rf"(?<!function )\b{name}\(", text)
        if called:
            defined = text.find(f"local function {name}(")
            assert 0 <= defined < called.start(), name


@pytest.mark.parametrize("name", scripts.SHARED)
def test_every_shared_file_begins_with_a_sentence_and_is_used(name: str) -> None:
    text = scripts.read_file(f"shared/{name}")
    assert re.match(r"-- [A-Z].{20,}", text), "one English line"
    every = scripts.shared_text() + "".join(map(scripts.read_file, scripts.verbs()))
    for function in re.findall(r"^local function (\w+)", text, flags=re.MULTILINE):
        assert len(re.findall(rf"\b{function}\b", re.sub(r"--.*", "", every))) > 1, f"{function} is not used"
