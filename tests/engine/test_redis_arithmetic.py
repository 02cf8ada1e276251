"""The arithmetic of the Lua scripts is that of the core to the last digit, up to every bound."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlane.core.dispatch import Bucket, is_kind_blocked
from fairlane.core.document import Done, Submission
from fairlane.core.policy import (
    COUNTER_FLOOR,
    INTERVAL_MAX_MS,
    PARTS,
    TIME_MAX_MS,
    KindLimit,
    Policy,
    Rules,
    Standing,
    Terms,
    interval_ms_of,
    step_of,
)
from fairlane.engine import open_engine
from fairlane.engine.redis import scripts
from fairlane.engine.redis.codec import depths_of, kind_limit_arguments
from tests.servers import redis

CHECK = """
local trial = cjson.decode(ARGV[1])
local policy = {interval = trial.interval, reset = trial.reset, depths = trial.depths}
local customer = customer_of(new_customer('ada'))
customer.counter, customer.updated, customer.resets = trial.counter, trial.updated or false, 7
customer.parts = #trial.parts > 0 and trial.parts
local step = step_of(trial.costs[1], trial.weight)
check(policy, customer, trial.now, step)
local checked = {customer.counter, customer.updated, customer.resets, {unpack(customer.parts or {})}}
local priority = priority_of(policy, customer.counter)
correct(policy, customer, trial.checked, trial.resets, step_of(trial.costs[2], trial.weight) - step)
return {checked, priority, {customer.counter, customer.updated, customer.resets, customer.parts or {}}}
"""
BUCKET = """
local trial = cjson.decode(ARGV[1])
local kind, starts = kind_of('scan'), {}
kind.running_max, kind.rate, kind.burst = tonumber(trial.limit[1]) or false, tonumber(trial.limit[2]) or false, trial.limit[3]
for at, now in ipairs(trial.times) do
  if limit_reached(kind, now) then
    starts[at] = {limit_reached(kind, now), next_start(kind)}
  else
    take_start(kind, now)
    starts[at] = {kind.tokens, kind.tokens_at, next_start(kind)}
  end
end
return starts
"""

Trial = Callable[..., list[Any]]


@pytest.fixture(scope="module", params=redis.PRODUCTS)
def trial(request: pytest.FixtureRequest) -> Trial:
    """Run a script behind what every verb shares."""
    server, queue = redis.shared(request.param), redis.fresh_queue()
    open_engine(server.url(queue)).close()
    client = server.client()
    shas = {text: client.script_load(scripts.assemble(text)) for text in (CHECK, BUCKET)}
    return lambda text, **values: client.evalsha(shas[text], 1, f"{{fairlane:{queue}}}:queue", json.dumps(values))


def near(*bounds: int) -> st.SearchStrategy[int]:
    """Numbers at and beside the bounds, and anything between the outermost."""
    beside = [bound + by for bound in bounds for by in (-2, -1, 0, 1, 2)]
    inside = [number for number in beside if min(bounds) <= number <= max(bounds)]
    return st.one_of(st.sampled_from(inside), st.integers(min(bounds), max(bounds)))


intervals = near(1, 16, 1000, 65_535, 65_536, 2**31, INTERVAL_MAX_MS)
counters = near(COUNTER_FLOOR, -(2**32), -20_000, 0)
costs, weights = near(1, 1000, 10_000_000), near(10, 1000, 100_000)
tables = st.sampled_from(((-2, -4, -6, -8, -10, -12, -14, -20), (), (0, -1, -2), (-(10**9),), (-0.001, -999_999_999.999)))
amounts = near(0, 1, 1000, 10**12)


def rows(standing: Standing) -> list[Any]:
    """A counter as scripts return it."""
    return [*standing[:3], [value for part in standing.parts for value in part]]


@settings(max_examples=500, deadline=None)
@given(
    interval_ms=intervals,
    reset=st.sampled_from(("idle", "sliding")),
    counter=counters,
    updated_ms=near(0, 10**13, TIME_MAX_MS - 2 * INTERVAL_MAX_MS),
    gap_ms=st.one_of(near(-5, 0, 5), intervals, near(-(10**6), 2 * INTERVAL_MAX_MS)),
    back=st.lists(st.tuples(st.integers(0, PARTS + 2), amounts), max_size=PARTS, unique_by=lambda part: part[0]),
    checked_back=st.integers(0, PARTS + 2),
    costs=st.tuples(costs, costs),
    weight=weights,
    resets=st.sampled_from((7, 7, 8, -1)),
    thresholds=tables,
    is_new=st.sampled_from((False, False, False, False, True)),
)
def test_a_check_and_a_correction_are_those_of_the_policy(
    trial: Trial,
    interval_ms: int,
    reset: Any,
    counter: int,
    updated_ms: int,
    gap_ms: int,
    back: list[tuple[int, int]],
    checked_back: int,
    costs: tuple[int, int],
    weight: int,
    resets: int,
    thresholds: tuple[float, ...],
    is_new: bool,
) -> None:
    policy = Policy(interval_ms / 1000, thresholds, reset)
    assert interval_ms_of(policy) == interval_ms
    now_ms, length = max(0, updated_ms + gap_ms), max(1, interval_ms // PARTS)
    parts = () if is_new else tuple((max(0, policy.part(updated_ms) - length * by), sent) for by, sent in back)
    parts = tuple(dict(parts).items())
    standing = Standing(counter, None if is_new else updated_ms, 7, parts)
    step, checked_ms = step_of(costs[0], weight), max(0, now_ms - length * checked_back)
    after = policy.check(standing, now_ms, step)
    corrected = policy.correct(after, checked_ms, resets, step_of(costs[1], weight) - step)
    reply = trial(
        CHECK, interval=interval_ms, reset=reset, depths=depths_of(policy), counter=counter,
        updated=False if is_new else updated_ms, parts=[value for part in parts for value in part], now=now_ms, costs=costs,
        weight=weight, resets=resets, checked=checked_ms,
    )  # fmt: skip
    assert reply == [rows(after), policy.level(after.counter), rows(corrected)]


@settings(max_examples=300, deadline=None)
@given(
    running=st.none() | near(1, 1_000_000),
    rate=st.none() | near(1, 1000, 10**9),
    burst=near(1000, 1500, 10**9),
    first_ms=near(0, 10**13, TIME_MAX_MS - 10**14),
    gaps=st.lists(st.one_of(near(-5, 0, 5), near(0, 10**6, 10**13)), min_size=1, max_size=9),
)
def test_a_bucket_fills_as_in_the_core(
    trial: Trial, running: int | None, rate: int | None, burst: int, first_ms: int, gaps: list[int]
) -> None:
    limit = KindLimit(running, None if rate is None else rate / 1000, burst / 1000)
    times = [max(0, first_ms + sum(gaps[:count])) for count in range(len(gaps) + 1)]
    bucket, expected = Bucket(), list[list[Any]]()
    for now_ms in times:
        if is_kind_blocked(limit, 0, bucket, now_ms):
            expected.append(["kind rate", bucket.next_start_ms(limit)])
        else:
            bucket = bucket.take(limit, now_ms)
            expected.append([*bucket, bucket.next_start_ms(limit)])
    assert trial(BUCKET, limit=kind_limit_arguments(limit), times=times) == expected


@pytest.fixture(scope="module", params=redis.PRODUCTS)
def product(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@settings(max_examples=60, deadline=None)
@given(
    attempts=st.lists(
        st.tuples(st.sampled_from(("ada", "bob")), st.one_of(near(0, 1, 7, 8, 63, 64), near(0, 10**6, 10**12))),
        min_size=1,
        max_size=12,
    ),
    weight=weights,
    turns=st.sampled_from(("time", "time", "documents")),
    cost=costs,
)
def test_turns_cost_the_same_however_long_attempts_take(
    product: str, attempts: list[tuple[str, int]], weight: int, turns: Any, cost: int
) -> None:
    """What attempts usually take, prices and tags, with attempts of a millisecond and of thirty years."""
    url, now_ms = redis.shared(product).url(), 1000
    engines = open_engine(url), open_engine("memory://")
    for engine in engines:
        engine.configure(Rules(Policy(thresholds=()), open_turn_every=3, turns=turns), now_ms=0)
        engine.tune("bob", Terms(weight=weight / 1000), 0, now_ms=0)
        for customer in ("ada", "bob"):
            batch = [Submission(f"{customer}-{number}", customer, customer, "1", cost) for number in range(20)]
            engine.submit(batch, now_ms=0)
    for kind, taken_ms in attempts:
        replies = []
        for engine in engines:
            claims = engine.claim("w", 1, 10**13, {kind: 3}, now_ms=now_ms) + engine.claim("w", 1, 10**13, now_ms=now_ms)
            engine.settle([(claim, Done()) for claim in claims], now_ms=now_ms + taken_ms)
            packed = [engine.pack(json.dumps([part, None]), 100) for part in ("queue", "kinds", "customers", "lanes")]
            replies.append((claims, packed))
        assert replies[0] == replies[1]
        now_ms += taken_ms
    engines[0].close()
    redis.drop_url(url)


@pytest.mark.parametrize("verb", scripts.verbs())
def test_every_script_begins_with_a_sentence_and_has_what_it_calls(verb: str) -> None:
    assert re.match(r"-- [A-Z][a-z ]+: .{20,}", scripts.read_file(verb)), "one English line"
    functions = set(re.findall(r"^local function (\w+)", scripts.assemble(""), flags=re.MULTILINE))
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
    every = scripts.assemble("") + "".join(map(scripts.read_file, scripts.verbs()))
    for function in re.findall(r"^local function (\w+)", text, flags=re.MULTILINE):
        assert len(re.findall(rf"\b{function}\b", re.sub(r"--.*", "", every))) > 1, f"{function} is not used"
