"""Which settings would have served better, what would they have cost whom, and is the difference real?

Laws:
- A search is judged by one half of the trace's parts, and its result by the other half, which the search never saw: so the
  best of many tries is not taken for better only because it was lucky.
- A difference is called real only if it is larger than what the parts differ among themselves (95 %, Student's t on the
  logarithms of the ratios, part by part). With too few parts nothing is called real.
- Open turns are never advised away: they are the promise that nothing waits for ever.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, NamedTuple, get_args

from fairlane.core.errors import BadValue
from fairlane.core.policy import Policy, Reset, Rules

from .contenders import Contender
from .measures import CLASSES, SECOND_US, Spread, members, spread
from .replay import replay
from .workload import Workload

PARTS_MAX, PARTS_MIN = 24, 6
PART_DOCUMENTS = 100  # of the class that is looked at, in each part at least: below that a 99th percentile means little
BUDGET_MAX = 100_000
LEAST_WAIT = 0.001  # a millisecond: ratios of less mean nothing
STUDENT = {2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228, 11: 2.201}

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


class Objective(NamedTuple):
    """What should become smaller: a figure of the waits of a class."""

    group: str
    figure: str

    @classmethod
    def named(cls, told: str) -> Objective:
        group, _, figure = told.partition("-")
        if group not in CLASSES or figure not in Spread._fields:
            wanted = f"a class ({', '.join(CLASSES)}) and a figure ({', '.join(Spread._fields)}), as in light-p99"
            raise BadValue("--objective", told, wanted)
        return cls(group, figure)

    def __str__(self) -> str:
        return f"{self.group}-{self.figure}"


@dataclass(frozen=True, slots=True)
class Effect:
    """What a change does to one figure, on the parts that the search never saw."""

    objective: Objective
    before: float | None
    after: float | None
    ratio: float | None  # after / before, the geometric mean over the parts
    low: float | None  # the ratio lies between these two, with 95 % certainty
    high: float | None
    parts: int

    @property
    def real(self) -> bool:
        """Whether it is more than the noise between parts."""
        return self.low is not None and self.high is not None and not self.low <= 1 <= self.high


@dataclass(frozen=True, slots=True)
class Advice:
    """What to change, and what that does to whom."""

    objective: Objective
    before: Rules
    best: Rules  # the best that was found, whether or not the difference is real
    effects: tuple[Effect, ...]
    replays: int

    @property
    def effect(self) -> Effect:
        return next(one for one in self.effects if one.objective == self.objective)

    @property
    def worth_it(self) -> bool:
        """Whether the objective really becomes smaller."""
        return self.effect.real and self.effect.ratio is not None and self.effect.ratio < 1

    def changes(self) -> dict[str, tuple[Any, Any]]:
        """The settings that differ: before and after."""
        before, after = _settings(self.before), _settings(self.best)
        return {name: (before[name], after[name]) for name in before if before[name] != after[name]}


def _settings(rules: Rules) -> dict[str, Any]:
    policy = rules.policy
    return {
        "reset": policy.reset,
        "reset_interval": policy.reset_interval,
        "thresholds": policy.thresholds,
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
    """Try at most `budget` settings, a replay each, and two more for the verdict; `progress` is told of each setting."""
    if not 1 <= budget <= BUDGET_MAX:
        raise BadValue("--budget", budget, f"a whole number of replays from 1 to {BUDGET_MAX:,}")
    trial = _Trial(workload, start, workers, objective, progress)
    best = _search(trial, start.rules, budget, Random(seed))
    judged = {*(Objective(group, figure) for group in CLASSES for figure in ("mean", "p99")), objective}
    ordered = sorted(judged, key=lambda one: (CLASSES.index(one.group), one.figure))
    return Advice(objective, start.rules, best, trial.effects(start.rules, best, ordered), len(trial.scores))


def _search(trial: _Trial, start: Rules, budget: int, random: Random) -> Rules:
    """Improve one setting after the other; when none helps any more, begin again somewhere else."""
    best = here = start
    while len(trial.scores) < budget:
        before = here
        trial.score(here)  # before its neighbours, so that the last of the budget is not spent twice
        for others in VARIATIONS:
            for one in others(here):
                if len(trial.scores) >= budget and one not in trial.scores:
                    break
                here = min(here, one, key=trial.score)
        best = min(best, here, key=trial.score)
        if here == before:
            here = _anywhere(start, random)
            if len(trial.scores) >= len(INTERVALS) * len(TABLES) * len(SHARES) * 3:
                break
    return best


VARIATIONS: tuple[Callable[[Rules], Iterator[Rules]], ...] = (
    # the same rules with every value of one setting
    lambda here: (replace(here, policy=replace(here.policy, reset=one)) for one in get_args(Reset)),
    lambda here: (replace(here, policy=replace(here.policy, reset_interval=one)) for one in INTERVALS),
    lambda here: (replace(here, policy=replace(here.policy, thresholds=one)) for one in TABLES),
    lambda here: (replace(here, open_turn_every=one) for one in SHARES),
)


def _anywhere(start: Rules, random: Random) -> Rules:
    policy = Policy(random.choice(INTERVALS), random.choice(TABLES), random.choice(get_args(Reset)))
    return replace(start, policy=policy, open_turn_every=random.choice(SHARES))


class _Trial:
    """Replays a workload under rules and keeps the figures of its parts."""

    def __init__(
        self, workload: Workload, start: Contender, workers: int, objective: Objective, progress: Callable[[int], None]
    ) -> None:
        self.workload = workload
        self.start = start
        self.workers = workers
        self.objective = objective
        self.progress = progress
        self.inside = {name: list(flags) for name, flags in members(workload).items()}
        self.parts = _parts(self.inside[objective.group])
        self.scores: dict[Rules, float] = {}

    def score(self, rules: Rules) -> float:
        """The objective on the parts that the search may see; the lower the better."""
        if rules not in self.scores:
            waits = self._waits(rules)
            figure = self._figure(waits, self.objective, lambda part: part % 2 == 0)
            self.scores[rules] = math.inf if figure is None else figure
            self.progress(1)
        return self.scores[rules]

    def effects(self, before: Rules, after: Rules, objectives: Sequence[Objective]) -> tuple[Effect, ...]:
        """Figures before and after, on the parts that the search never saw."""
        first, second = self._waits(before), self._waits(after)
        return tuple(self._effect(first, second, objective) for objective in objectives)

    def _effect(self, first: list[float], second: list[float], objective: Objective) -> Effect:
        logs = []
        for unseen in range(1, max(self.parts) + 1, 2):
            before, after = (self._figure(waits, objective, unseen.__eq__) for waits in (first, second))
            if before is not None and after is not None:
                logs.append(math.log(max(after, LEAST_WAIT) / max(before, LEAST_WAIT)))
        before, after = (self._figure(waits, objective, lambda part: part % 2 == 1) for waits in (first, second))
        return Effect(objective, before, after, *_between(logs), len(logs))

    def _waits(self, rules: Rules) -> list[float]:
        told = replay(self.workload, replace(self.start, rules=rules), self.workers)
        return [wait / SECOND_US for wait in told.wait_us()]

    def _figure(self, waits: list[float], objective: Objective, wanted: Callable[[int], bool]) -> float | None:
        chosen = {part for part in set(self.parts) if wanted(part)}
        inside = self.inside[objective.group]
        of_class = (wait for wait, belongs, part in zip(waits, inside, self.parts, strict=True) if belongs and part in chosen)
        figure: float | None = getattr(spread(of_class), objective.figure)
        return figure


def _parts(inside: list[bool]) -> list[int]:
    """Which part of the trace each document is in: parts follow each other and hold as many of the class each."""
    total = sum(inside)
    count = max(2, min(PARTS_MAX, total // PART_DOCUMENTS))
    parts, seen = [], 0
    for belongs in inside:
        parts.append(min(count - 1, seen * count // max(1, total)))
        seen += belongs
    return parts


def _between(logs: list[float]) -> tuple[float | None, float | None, float | None]:
    """The mean ratio and the two between which it lies; without bounds if there are too few parts to tell."""
    if not logs:
        return None, None, None
    mean = sum(logs) / len(logs)
    if len(logs) < PARTS_MIN // 2:
        return math.exp(mean), None, None
    variance = sum((one - mean) ** 2 for one in logs) / (len(logs) - 1)
    margin = STUDENT[len(logs) - 1] * math.sqrt(variance / len(logs))
    return math.exp(mean), math.exp(mean - margin), math.exp(mean + margin)
