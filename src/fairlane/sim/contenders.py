"""Which policies can be tried beside each other? Names, files, and what each means in the terms of production.

Every contender is a set of production rules: first come first served is one priority without turns, round-robin is one
priority with turns, fair queueing is round-robin in which a turn costs what it takes.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from fairlane.core.errors import BadValue, Mistake
from fairlane.core.policy import Policy, Rules, Terms

ONE_LEVEL = Policy(thresholds=())


@dataclass(frozen=True, slots=True)
class Contender:
    """Rules under a name, with what some customers have of their own."""

    name: str
    rules: Rules = field(default_factory=Rules)
    terms: Mapping[str, Terms] = field(default_factory=dict)
    charges_service: bool = False  # a turn costs the service time instead of the document's cost

    def changed(
        self,
        reset_interval: float | None = None,
        thresholds: tuple[float, ...] | None = None,
        weights: Mapping[str, float] | None = None,
    ) -> Contender:
        """The same with another interval, table (where there is one) or weights."""
        policy = self.rules.policy
        if reset_interval is not None:
            policy = replace(policy, reset_interval=reset_interval)
        if thresholds is not None and policy.thresholds:
            policy = replace(policy, thresholds=thresholds)
        terms = dict(self.terms)
        for customer, weight in (weights or {}).items():
            terms[customer] = replace(terms.get(customer, Terms()), weight=weight)
        return replace(self, rules=replace(self.rules, policy=policy), terms=terms)


NAMED = {
    one.name: one
    for one in (
        Contender("fifo", Rules(ONE_LEVEL, "strict")),
        Contender("texts-strict", Rules(dispatch="strict")),
        Contender("texts"),
        Contender("window", Rules(Policy(reset="window"))),
        Contender("gradual", Rules(Policy(reset="gradual"))),
        Contender("round-robin", Rules(ONE_LEVEL, open_turn_every=0)),
        Contender("fair-queueing", Rules(ONE_LEVEL, open_turn_every=0), charges_service=True),
    )
}
MEANINGS = {
    "fifo": "first come, first served",
    "texts-strict": "the texts' rule: priority number, then submission number",
    "texts": "the texts' rule with turns and open turns: Fairlane's default",
    "window": "as texts, the counter starts afresh every interval",
    "gradual": "as texts, the counter recovers bit by bit",
    "round-robin": "no priorities: customers take turns, a document each",
    "fair-queueing": "no priorities: customers take turns, the same service time each",
}


def contender(told: str) -> Contender:
    """A name, or a file in TOML."""
    if told in NAMED:
        return NAMED[told]
    path = Path(told)
    if not path.is_file():
        raise BadValue("--policy", told, f"one of {', '.join(NAMED)}, or a policy file")
    return _from_file(path)


def _from_file(path: Path) -> Contender:
    """reset, reset_interval, thresholds, dispatch, open_turn_every; and [customers.NAME] with terms."""
    try:
        told = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, RecursionError, tomllib.TOMLDecodeError) as error:
        raise Mistake(f"{path} cannot be read as a policy: {error}") from error
    try:
        customers = told.pop("customers", {})
        if not isinstance(customers, dict):
            raise BadValue("customers", customers, "tables, as in [customers.acme]")
        terms = {name: Terms(**_known(own, Terms, f"customers.{name}")) for name, own in customers.items()}
        of_policy = {name: told.pop(name) for name in list(told) if name in _names(Policy)}
        of_rules = _known(told, Rules, "the file", ("policy", "version"), _names(Policy))
        name = path.name if path.stem in NAMED else path.stem
        return Contender(name, Rules(Policy(**_tupled(of_policy)), **of_rules), terms)
    except Mistake as error:
        raise Mistake(f"{path}: {error}") from error


def _names(kind: Any) -> list[str]:
    return [one.name for one in fields(kind) if one.init]


def _known(told: Any, kind: Any, where: str, hidden: tuple[str, ...] = (), more: list[str] | None = None) -> dict[str, Any]:
    if not isinstance(told, dict):
        raise BadValue(where, told, "a table")
    names = [name for name in _names(kind) if name not in hidden]
    if unknown := [name for name in told if name not in names]:
        raise BadValue(f"a name in {where}", unknown[0], "one of " + ", ".join([*(more or []), *names]))
    return _tupled(told)


def _tupled(told: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in told.items()}
