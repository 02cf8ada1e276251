"""Advice: finds what helps, calls nothing real that is noise, and keeps to its budget."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.core.errors import BadValue, Mistake
from fairlane.core.policy import Policy, Rules, Terms
from fairlane.sim.advise import (
    BUDGET_MAX,
    PARTS_MAX,
    SETTINGS,
    Advice,
    Effect,
    Evaluator,
    Objective,
    advise,
    confidence_interval,
    split_trace,
)
from fairlane.sim.contenders import CONTENDERS, Contender
from fairlane.sim.workload import Arrival, Workload

from .shared import alike, brief, by_hand, workloads

TEXTS = CONTENDERS["texts"]


def steady_beside_batches(seed: int, hours: int = 24) -> Iterator[Arrival]:
    """Thirty customers send a document every 1,200 s and so never reset; another one drops a batch every two hours."""
    random = Random(seed)
    for number in range(30):
        phase_ms = random.randrange(1_200_000)
        for tick in range(hours * 3):
            yield Arrival(phase_ms + tick * 1_200_000, f"steady-{number}", round(random.expovariate(1 / 8) * 10**6))
    for batch in range(hours // 2):
        for _ in range(250):
            yield Arrival(batch * 7_200_000, "batches", round(random.expovariate(1 / 12) * 10**6))


def advice_on(arrivals: Iterator[Arrival], start: Contender, objective: str, budget: int, seed: int = 0) -> Advice:
    return advise(Workload.of("some", arrivals), start, 1, Objective.parse(objective), budget, seed)


def test_where_another_reset_rule_clearly_helps_it_is_found() -> None:
    advice = advice_on(steady_beside_batches(1), CONTENDERS["texts-strict"], "light-mean", 12)
    assert advice.worth_it
    assert advice.changes()["reset"] == ("idle", "sliding")
    effect = advice.effect
    assert effect.parts == PARTS_MAX // 2 - 2
    assert effect.real
    assert effect.ratio is not None
    assert effect.ratio < 0.5
    assert effect.low is not None
    assert effect.high is not None
    assert effect.low <= effect.ratio <= effect.high < 1
    heavy = next(effect for effect in advice.effects if str(effect.objective) == "heavy-mean")
    assert (heavy.ratio or 0) > 1


def test_where_all_customers_are_alike_luck_is_not_taken_for_better() -> None:
    called_better = 0
    for seed in range(10):
        workload = Workload.of("alike", alike(seed, 1500, 12, 0.85))
        called_better += advise(workload, TEXTS, 2, Objective("all", "mean"), 6, seed).worth_it
    assert called_better <= 1


def test_the_budget_is_kept() -> None:
    workload = Workload.of("alike", alike(1, 8, 3, 1.5))
    for budget, seed in product((1, 2, 3, *range(18, 40)), range(4)):
        steps: list[int] = []
        advice = advise(workload, TEXTS, 2, Objective("all", "p99"), budget, seed, steps.append)
        assert advice.replays == sum(steps) == budget


def blocks(odd_service: int) -> Workload:
    """Four parts far apart; what stands in the second and the fourth is advice."""
    services = (5, odd_service, 7, odd_service)
    rows = ((10**6 * part, "a", service) for part, service in enumerate(services) for _ in range(100))
    return by_hand(*rows)


def test_the_search_sees_one_half_and_the_verdict_the_other() -> None:
    evaluators = [Evaluator(blocks(service), TEXTS, 1, Objective("all", "mean"), lambda _: None) for service in (1, 50)]
    one, other = (evaluator.score(Rules()) for evaluator in evaluators)
    assert one == other == pytest.approx(6 * 99 / 2)
    seen = [evaluator.effects(Rules(), Rules(), [Objective("all", "mean")])[0].before for evaluator in evaluators]
    assert seen == [pytest.approx(99 / 2), pytest.approx(50 * 99 / 2)]


@pytest.mark.parametrize(
    ("ratio", "low", "high", "real", "worth_it"),
    [
        (0.9, 0.8, 0.99, True, True),
        (0.9, 0.8, 1.1, False, False),
        (0.9, 0.8, 1.0, False, False),
        (1.2, 1.1, 1.3, True, False),
        (0.5, None, None, False, False),
    ],
)
def test_only_a_change_that_is_real_and_downward_is_worth_it(
    ratio: float, low: float | None, high: float | None, real: bool, worth_it: bool
) -> None:
    effect = Effect(Objective("all", "mean"), 1, 1, ratio, low, high, 9)
    assert effect.real == real
    assert Advice(Objective("all", "mean"), Rules(), Rules(), (effect,), 1).worth_it == worth_it


def test_what_is_better_in_most_parts_and_worse_in_all_together_is_not_advised() -> None:
    """Three parts in four become half as long, one of the long ones ten times as long."""
    before, after = 10.0, 31.0
    effect = Effect(Objective("all", "mean"), before, after, 0.9, 0.8, 0.95, 9)
    assert effect.pooled_ratio == pytest.approx(3.1)
    assert effect.real
    assert not Advice(Objective("all", "mean"), Rules(), Rules(), (effect,), 1).worth_it
    shorter = Effect(Objective("all", "mean"), after, before, 0.9, 0.8, 0.95, 9)
    assert Advice(Objective("all", "mean"), Rules(), Rules(), (shorter,), 1).worth_it
    assert Effect(Objective("all", "mean"), None, None, None, None, None, 0).pooled_ratio is None
    assert Effect(Objective("all", "mean"), 0.0, 0.0, 1.0, None, None, 1).pooled_ratio == 1


def test_a_budget_beyond_all_settings_ends() -> None:
    advice = advise(by_hand((0, "a", 1), (0, "b", 1)), TEXTS, 1, Objective("all", "mean"), BUDGET_MAX)
    assert advice.replays == SETTINGS == 2 * 8 * 6 * 2 * 6
    assert not advice.worth_it


def test_the_same_seed_gives_the_same_advice() -> None:
    workload = Workload.of("alike", alike(4, 300, 4, 0.9))
    one, again = (advise(workload, TEXTS, 2, Objective("light", "p99"), 40, 7) for _ in range(2))
    assert one == again


@pytest.mark.parametrize("text", ["", "light", "light-", "light-p98", "lights-p99", "p99-light", "all-mean-x", "all p99"])
def test_an_unknown_objective_is_refused(text: str) -> None:
    with pytest.raises(BadValue, match=r"--objective is .* must be a class \(all, light, quiet, heavy\) and a figure"):
        Objective.parse(text)


def test_objectives_are_a_class_and_a_figure() -> None:
    assert Objective.parse("heavy-max") == ("heavy", "max")
    assert str(Objective.parse("quiet-p50")) == "quiet-p50"


@pytest.mark.parametrize("budget", [0, -1, BUDGET_MAX + 1])
def test_a_budget_that_is_none_is_refused(budget: int) -> None:
    with pytest.raises(BadValue, match="--budget is"):
        advice_on(alike(1, 10, 2, 0.5), TEXTS, "all-mean", budget)


@brief
@given(workloads(most=8), st.sampled_from(("all-mean", "light-p99", "quiet-max", "heavy-p50")), st.integers(1, 12))
def test_of_too_few_documents_nothing_is_called_real(workload: Workload, objective: str, budget: int) -> None:
    advice = advise(workload, TEXTS, 1, Objective.parse(objective), budget)
    assert not advice.worth_it
    assert not any(effect.real for effect in advice.effects)
    assert advice.effect.parts <= 1


def test_a_class_without_documents_has_no_figures() -> None:
    advice = advise(by_hand((0, "a", 1), (1, "b", 1)), TEXTS, 1, Objective("heavy", "p99"), 5)
    assert (advice.effect.before, advice.effect.ratio, advice.effect.parts, advice.worth_it) == (None, None, 0, False)


def test_the_effects_are_on_every_class_and_the_objective_is_among_them() -> None:
    advice = advice_on(alike(2, 60, 3, 0.9), TEXTS, "quiet-p50", 3)
    names = [f"{group}-{figure}" for group in ("all", "light", "quiet", "heavy") for figure in ("mean", "p99")]
    assert [str(effect.objective) for effect in advice.effects] == sorted(
        [*names, "quiet-p50"], key=lambda name: ("alqh".index(name[0]), name.split("-")[1])
    )


def test_open_turns_are_never_advised_away_and_a_dispatch_is_kept() -> None:
    start = Contender("mine", Rules(Policy(700), "strict", 5), {"customer-1": Terms(weight=2)})
    advice = advice_on(alike(3, 300, 4, 1.1), start, "all-max", 60)
    assert advice.best.open_turn_every > 0
    assert (advice.before, advice.best.dispatch) == (start.rules, "strict")


def test_a_start_that_pauses_somebody_is_refused() -> None:
    with pytest.raises(Mistake, match="pauses 'a'"):
        advise(by_hand((0, "a", 1)), Contender("mine", terms={"a": Terms(paused=True)}), 1, Objective("all", "mean"), 5)


def test_changes_are_only_the_settings_that_differ() -> None:
    before, after = Rules(), Rules(Policy(600, reset="sliding"), open_turn_every=8, turns="documents")
    advice = Advice(Objective("all", "mean"), before, after, (), 0)
    assert advice.changes() == {
        "reset": ("idle", "sliding"),
        "reset_interval": (1500.0, 600),
        "turns": ("time", "documents"),
        "open_turn_every": (16, 8),
    }
    other = Rules(Policy(thresholds=(-1,)))
    assert Advice(Objective("all", "mean"), before, other, (), 0).changes() == {"thresholds": (Policy().thresholds, (-1,))}


def test_parts_follow_each_other_and_hold_as_many_of_the_class_each() -> None:
    members = [number % 3 == 0 for number in range(3000)]
    parts = split_trace(members)
    assert parts == sorted(parts)
    counts = [sum(is_member for is_member, part in zip(members, parts, strict=True) if part == number) for number in range(10)]
    assert counts == [100] * 10
    assert max(split_trace([True] * 100_000)) == PARTS_MAX - 1
    assert set(split_trace([True] * 5)) == {0, 1}
    assert split_trace([False, False]) == [0, 0]


def test_a_mean_is_between_what_student_says() -> None:
    assert confidence_interval([]) == (None, None, None)
    assert confidence_interval([0.0, 0.0]) == (1.0, None, None)
    assert confidence_interval([0.0, 0.0, 0.0]) == (1.0, 1.0, 1.0)
    ratio, low, high = confidence_interval([-0.1, 0.0, 0.1])
    assert ratio == pytest.approx(1)
    assert low == pytest.approx(0.78, abs=0.005)  # 4.303 times 0.1 / the root of 3 is 0.248
    assert high == pytest.approx(1.282, abs=0.005)
    ratio, low, high = confidence_interval([0.1, 0.2] * 6)
    assert low == pytest.approx(1.1243, abs=0.0005)  # 2.201 times 0.05222 / the root of 12 is 0.0332
    assert high == pytest.approx(1.2011, abs=0.0005)
