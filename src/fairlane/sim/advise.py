"""Search for better settings: tries many on a recorded workload and tests whether the best one really helps.

Laws:
- The search sees one half of the trace's parts; its result is judged on the other half. So the best of many tries does not
  count as better only because it was lucky.
- A difference is called real only if it is larger than the noise between the parts (95 %, Student's t on the logarithms of
  the ratios, part by part). With too few parts nothing is called real.
- Open turns are never switched off: they are the promise that no document waits for ever.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, NamedTuple, get_args

from fairlane.core.errors import BadValue
from fairlane.core.policy import Policy, Reset, Rules, Turns

from .contenders import Contender
from .measures import CLASSES, SECOND_US, Spread, members, spread
from .replay import replay
from .workload import Workload

PARTS_MAX, PARTS_MIN = 24, 6
PART_DOCUMENTS_MIN = 100  # documents of the class in each part: with fewer, a 99th percentile means little
BUDGET_MAX = 100_000
WAIT_SECONDS_MIN = 0.001  # ratios of shorter waits mean nothing
STUDENT_T = {2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228, 11: 2.201}

INTERVALS = (300.0, 600.0, 900.0, 1500.0, 3000.0, 6000.0, 14_400.0, 43_200.0)
TABLES = (
    (-1, -2, -3, -4, -5, -6, -7, -10),
    Policy().thresholds,
    (-4, -8, -12, -16, -20, -24, -28, -40),
    (-8, -16, -24, -32, -40, -48, -56, -80),
    (-2, -4, -8, -16, -32, -64, -128, -256),
    (-2, -6, -18, -54, -162, -486, -1458, -4374),
)
SHARES = (4, 8, 16, 32, 64, 128)
SETTINGS = len(get_args(Reset)) * len(INTERVALS) * len(TABLES) * len(get_args(Turns)) * len(SHARES)  # that a search may try


class Objective(NamedTuple):
    """The figure to minimise: a statistic of the waits of a class of documents."""

    group: str
    figure: str

    @classmethod
    def parse(cls, text: str) -> Objective:
        group, _, figure = text.partition("-")
        if group not in CLASSES or figure not in Spread._fields:
            expected = f"a class ({', '.join(CLASSES)}) and a figure ({', '.join(Spread._fields)}), as in light-p99"
            raise BadValue("--objective", text, expected)
        return cls(group, figure)

    def __str__(self) -> str:
        return f"{self.group}-{self.figure}"


@dataclass(frozen=True, slots=True)
class Effect:
    """What a change of settings does to one figure, on the parts that the search did not see."""

    objective: Objective
    before: float | None
    after: float | None
    ratio: float | None  # after / before, the geometric mean over the parts
    low: float | None  # low and high are the 95 % confidence interval of the ratio
    high: float | None
    parts: int

    @property
    def pooled_ratio(self) -> float | None:
        """After / before of all parts together: the mean over the parts hides what happens in a few bad ones."""
        if self.before is None or self.after is None:
            return None
        return max(self.after, WAIT_SECONDS_MIN) / max(self.before, WAIT_SECONDS_MIN)

    @property
    def real(self) -> bool:
        """Whether the change is more than noise."""
        return self.low is not None and self.high is not None and not self.low <= 1 <= self.high


@dataclass(frozen=True, slots=True)
class Advice:
    """The best settings found, and their effect on every class of documents."""

    objective: Objective
    before: Rules
    best: Rules  # whether or not the difference is real
    effects: tuple[Effect, ...]
    replays: int

    @property
    def effect(self) -> Effect:
        return next(effect for effect in self.effects if effect.objective == self.objective)

    @property
    def worth_it(self) -> bool:
        """Whether the objective became smaller by more than noise, and not larger in all parts together."""
        ratio, pooled = self.effect.ratio, self.effect.pooled_ratio
        return self.effect.real and ratio is not None and ratio < 1 and pooled is not None and pooled <= 1

    def changes(self) -> dict[str, tuple[Any, Any]]:
        """Return the settings that differ, with their values before and after."""
        before, after = _settings(self.before), _settings(self.best)
        return {name: (before[name], after[name]) for name in before if before[name] != after[name]}


def _settings(rules: Rules) -> dict[str, Any]:
    policy = rules.policy
    return {
        "reset": policy.reset,
        "reset_interval": policy.reset_interval,
        "thresholds": policy.thresholds,
        "turns": rules.turns,
        "open_turn_every": rules.open_turn_every,
    }


def advise(
    workload: Workload,
    start: Contender,
    workers: int,
    objective: Objective,
    budget: int,
    seed: int = 0,
    progress: Callable[[int], None] = lambda _: None,
) -> Advice:
    """Replay at most `budget` settings, and two more for the effects; call `progress(1)` after each setting."""
    if not 1 <= budget <= BUDGET_MAX:
        raise BadValue("--budget", budget, f"a whole number of replays from 1 to {BUDGET_MAX:,}")
    evaluator = Evaluator(workload, start, workers, objective, progress)
    best = _search(evaluator, start.rules, budget, Random(seed))
    objectives = {*(Objective(group, figure) for group in CLASSES for figure in ("mean", "p99")), objective}
    ordered = sorted(objectives, key=lambda objective: (CLASSES.index(objective.group), objective.figure))
    return Advice(objective, start.rules, best, evaluator.effects(start.rules, best, ordered), len(evaluator.scores))


def _search(evaluator: Evaluator, start: Rules, budget: int, random: Random) -> Rules:
    """Hill climbing: improve one setting after the other; at a local optimum restart from random settings."""
    best = current = start
    while len(evaluator.scores) < budget:
        before = current
        evaluator.score(current)  # before its neighbours, so that the last replay of the budget is not spent twice
        for variations in VARIATIONS:
            for candidate in variations(current):
                if len(evaluator.scores) >= budget and candidate not in evaluator.scores:
                    break
                current = min(current, candidate, key=evaluator.score)
        best = min(best, current, key=evaluator.score)
        if current == before:
            current = _random_rules(start, random)
            if len(evaluator.scores) >= SETTINGS:
                break
    return best


VARIATIONS: tuple[Callable[[Rules], Iterator[Rules]], ...] = (
    # each yields the same rules with every value of one setting
    lambda rules: (replace(rules, policy=replace(rules.policy, reset=reset)) for reset in get_args(Reset)),
    lambda rules: (replace(rules, policy=replace(rules.policy, reset_interval=interval)) for interval in INTERVALS),
    lambda rules: (replace(rules, policy=replace(rules.policy, thresholds=table)) for table in TABLES),
    lambda rules: (replace(rules, turns=turns) for turns in get_args(Turns)),
    lambda rules: (replace(rules, open_turn_every=share) for share in SHARES),
)


def _random_rules(start: Rules, random: Random) -> Rules:
    policy = Policy(random.choice(INTERVALS), random.choice(TABLES), random.choice(get_args(Reset)))
    return replace(start, policy=policy, turns=random.choice(get_args(Turns)), open_turn_every=random.choice(SHARES))


class Evaluator:
    """Replays a workload under different rules and computes figures from its parts."""

    def __init__(
        self, workload: Workload, start: Contender, workers: int, objective: Objective, progress: Callable[[int], None]
    ) -> None:
        self.workload = workload
        self.start = start
        self.workers = workers
        self.objective = objective
        self.progress = progress
        self.members = {name: list(flags) for name, flags in members(workload).items()}
        self.parts = split_trace(self.members[objective.group])
        self.scores: dict[Rules, float] = {}

    def score(self, rules: Rules) -> float:
        """Return the objective on the parts that the search may see; lower is better."""
        if rules not in self.scores:
            waits = self._waits(rules)
            figure = self._figure(waits, self.objective, lambda part: part % 2 == 0)
            self.scores[rules] = math.inf if figure is None else figure
            self.progress(1)
        return self.scores[rules]

    def effects(self, before: Rules, after: Rules, objectives: Sequence[Objective]) -> tuple[Effect, ...]:
        """Compute the figures before and after, on the parts that the search did not see."""
        waits_before, waits_after = self._waits(before), self._waits(after)
        return tuple(self._effect(waits_before, waits_after, objective) for objective in objectives)

    def _effect(self, waits_before: list[float], waits_after: list[float], objective: Objective) -> Effect:
        both, logs = (waits_before, waits_after), []
        for unseen in range(1, max(self.parts) + 1, 2):
            before, after = (self._figure(waits, objective, unseen.__eq__) for waits in both)
            if before is not None and after is not None:
                logs.append(math.log(max(after, WAIT_SECONDS_MIN) / max(before, WAIT_SECONDS_MIN)))
        before, after = (self._figure(waits, objective, lambda part: part % 2 == 1) for waits in both)
        return Effect(objective, before, after, *confidence_interval(logs), len(logs))

    def _waits(self, rules: Rules) -> list[float]:
        result = replay(self.workload, replace(self.start, rules=rules), self.workers)
        return [wait / SECOND_US for wait in result.wait_us()]

    def _figure(self, waits: list[float], objective: Objective, is_included: Callable[[int], bool]) -> float | None:
        included = {part for part in set(self.parts) if is_included(part)}
        flags = self.members[objective.group]
        of_class = (
            wait for wait, is_member, part in zip(waits, flags, self.parts, strict=True) if is_member and part in included
        )
        figure: float | None = getattr(spread(of_class), objective.figure)
        return figure


def split_trace(members: list[bool]) -> list[int]:
    """Assign each document to a part: parts are consecutive, with equally many documents of the class in each."""
    total = sum(members)
    count = max(2, min(PARTS_MAX, total // PART_DOCUMENTS_MIN))
    parts, seen = [], 0
    for is_member in members:
        parts.append(min(count - 1, seen * count // max(1, total)))
        seen += is_member
    return parts


def confidence_interval(logs: list[float]) -> tuple[float | None, float | None, float | None]:
    """Return the geometric mean of ratios and its 95 % interval, from their logarithms; no interval for too few parts."""
    if not logs:
        return None, None, None
    mean = sum(logs) / len(logs)
    if len(logs) < PARTS_MIN // 2:
        return math.exp(mean), None, None
    variance = sum((log - mean) ** 2 for log in logs) / (len(logs) - 1)
    margin = STUDENT_T[len(logs) - 1] * math.sqrt(variance / len(logs))
    return math.exp(mean), math.exp(mean - margin), math.exp(mean + margin)
