"""Made-up days: the same for the same seed, and each shows its trouble."""

from __future__ import annotations

from functools import cache

import pytest

from fairlane.cli.simulate import GENERATOR_NAMES, POLICY_NAMES
from fairlane.core.errors import BadValue
from fairlane.core.policy import Policy, Rules
from fairlane.sim.contenders import CONTENDERS, MEANINGS, Contender
from fairlane.sim.generators import GENERATORS, SEED_MAX, generate
from fairlane.sim.measures import Measures, measure
from fairlane.sim.replay import replay

from .shared import rows_of


@cache
def measured(generator: str, policy: str) -> Measures:
    return measure(replay(generate(generator, 1), CONTENDERS[policy], 4))


def light(generator: str, policy: str, figure: str = "p99") -> float:
    value: float = getattr(measured(generator, policy).waits["light"], figure)
    return value


@pytest.mark.parametrize("name", GENERATORS)
def test_the_same_seed_gives_the_same_and_another_gives_another(name: str) -> None:
    one, again, other = generate(name, 7), generate(name, 7), generate(name, 8)
    assert rows_of(one) == rows_of(again)
    assert rows_of(one) != rows_of(other)
    assert one.name == name


@pytest.mark.parametrize("name", GENERATORS)
def test_four_workers_are_busy_but_not_swamped(name: str) -> None:
    least, most = (0.6, 0.95) if name == "day" else (0.75, 0.95)
    for seed in range(1, 4):
        load = generate(name, seed).load(4)
        assert load is not None
        assert least < load < most


def test_a_flood_drowns_everybody_under_first_come_first_served_and_only_the_whale_under_the_texts() -> None:
    assert light("flood", "fifo") > 2 * 3600
    assert light("flood", "texts") < 60
    assert (measured("flood", "fifo").waits["heavy"].p99 or 0) > 2 * 3600
    assert measured("flood", "fifo").jain < 0.1 < 0.9 < measured("flood", "texts").jain


def test_metronomes_sink_under_the_bare_texts_and_not_where_the_counter_slides() -> None:
    assert light("metronome", "texts-strict") > 2 * 3600
    for policy in ("texts", "sliding"):
        assert light("metronome", policy) < 180
    assert light("metronome", "sliding", "mean") < light("metronome", "texts", "mean")
    strictly = replay(generate("metronome", 1), Contender("sliding-strict", Rules(Policy(reset="sliding"), "strict")), 4)
    assert (measure(strictly).waits["light"].p99 or 0) < 180


def test_two_whales_share_only_where_customers_take_turns() -> None:
    assert measured("two-whales", "texts-strict").service_gap > 10 * measured("two-whales", "texts").service_gap
    assert measured("two-whales", "fair-queueing").service_gap < measured("two-whales", "texts").service_gap
    assert light("two-whales", "texts") < 60


def test_newcomers_are_served_before_those_that_send_all_the_time() -> None:
    assert light("newcomers", "texts") < light("newcomers", "fifo") / 2
    assert (measured("newcomers", "texts").waits["heavy"].p99 or 0) > (measured("newcomers", "fifo").waits["heavy"].p99 or 0)


def test_a_day_is_better_for_small_customers_with_priorities_than_with_turns_alone() -> None:
    assert light("day", "texts") < light("day", "round-robin") / 10
    assert light("day", "fifo") > 2 * 3600


def test_unknown_generators_and_seeds_are_refused() -> None:
    with pytest.raises(BadValue, match="generator is 'storm'; it must be one of flood, metronome"):
        generate("storm", 1)
    for seed in (-1, SEED_MAX + 1):
        with pytest.raises(BadValue, match="--seed is"):
            generate("flood", seed)


def test_the_names_on_the_command_line_are_all_there_are() -> None:
    assert GENERATOR_NAMES.split(", ") == list(GENERATORS)
    assert POLICY_NAMES.split(", ") == list(CONTENDERS) == list(MEANINGS)
