"""Contenders: the policies that a simulation compares, by name or from a TOML file.

Every contender is a set of production rules: first come, first served is one priority without turns, round-robin is one
priority with turns paid with documents, fair queueing is round-robin with turns paid with time.
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
    """Rules with a name, and the terms of some customers."""

    name: str
    rules: Rules = field(default_factory=Rules)
    terms: Mapping[str, Terms] = field(default_factory=dict)

    def with_changes(
        self,
        reset_interval: float | None = None,
        thresholds: tuple[float, ...] | None = None,
        weights: Mapping[str, float] | None = None,
    ) -> Contender:
        """Return a copy with another reset interval, table (if it has one) or weights."""
        policy = self.rules.policy
        if reset_interval is not None:
            policy = replace(policy, reset_interval=reset_interval)
        if thresholds is not None and policy.thresholds:
            policy = replace(policy, thresholds=thresholds)
        terms = dict(self.terms)
        for customer, weight in (weights or {}).items():
            terms[customer] = replace(terms.get(customer, Terms()), weight=weight)
        return replace(self, rules=replace(self.rules, policy=policy), terms=terms)


CONTENDERS = {
    contender.name: contender
    for contender in (
        Contender("fifo", Rules(ONE_LEVEL, "strict")),
        Contender("texts-strict", Rules(dispatch="strict")),
        Contender("texts"),
        Contender("texts-documents", Rules(turns="documents")),
        Contender("sliding", Rules(Policy(reset="sliding"))),
        Contender("sliding-documents", Rules(Policy(reset="sliding"), turns="documents")),
        Contender("round-robin", Rules(ONE_LEVEL, turns="documents", open_turn_every=0)),
        Contender("fair-queueing", Rules(ONE_LEVEL, open_turn_every=0)),
    )
}
MEANINGS = {
    "fifo": "first come, first served",
    "texts-strict": "the texts' rule: priority number, then submission number",
    "texts": "the texts' rule with turns by time and open turns: Fairlane's default",
    "texts-documents": "as texts, but turns are paid with documents instead of time",
    "sliding": "as texts, but the counter is what was sent within the last interval: the one to recommend",
    "sliding-documents": "as sliding, but turns are paid with documents instead of time",
    "round-robin": "no priorities: customers take turns, a document each",
    "fair-queueing": "no priorities: customers take turns, the same service time each",
}


def load_contender(name: str) -> Contender:
    """Return the contender with this name, or load it from a TOML file."""
    if name in CONTENDERS:
        return CONTENDERS[name]
    path = Path(name)
    if not path.is_file():
        raise BadValue("--policy", name, f"one of {', '.join(CONTENDERS)}, or a policy file")
    return _from_file(path)


def _from_file(path: Path) -> Contender:
    """Load reset, reset_interval, thresholds, dispatch, turns, open_turn_every, and the terms in [customers.NAME]."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, RecursionError, tomllib.TOMLDecodeError) as error:
        raise Mistake(f"{path} cannot be read as a policy: {error}") from error
    try:
        customers = content.pop("customers", {})
        if not isinstance(customers, dict):
            raise BadValue("customers", customers, "tables, as in [customers.acme]")
        terms = {name: Terms(**_arguments(table, Terms, f"customers.{name}")) for name, table in customers.items()}
        policy_values = {name: content.pop(name) for name in list(content) if name in _field_names(Policy)}
        rules_values = _arguments(content, Rules, "the file", ("policy", "version"), _field_names(Policy))
        name = path.name if path.stem in CONTENDERS else path.stem
        return Contender(name, Rules(Policy(**_with_thresholds(policy_values)), **rules_values), terms)
    except Mistake as error:
        raise Mistake(f"{path}: {error}") from error


def _field_names(cls: Any) -> list[str]:
    return [field.name for field in fields(cls) if field.init]


def _arguments(
    table: Any, cls: Any, location: str, hidden: tuple[str, ...] = (), also_valid: list[str] | None = None
) -> dict[str, Any]:
    """Return a TOML table as keyword arguments of a class; raise BadValue for a name that is not a field."""
    if not isinstance(table, dict):
        raise BadValue(location, table, "a table")
    names = [name for name in _field_names(cls) if name not in hidden]
    if unknown := [name for name in table if name not in names]:
        raise BadValue(f"a name in {location}", unknown[0], "one of " + ", ".join([*(also_valid or []), *names]))
    return _with_thresholds(table)


def _with_thresholds(table: dict[str, Any]) -> dict[str, Any]:
    """Return the table with its thresholds as a tuple; TOML has only lists."""
    if "thresholds" not in table:
        return table
    if not isinstance(table["thresholds"], list):
        raise BadValue("thresholds", table["thresholds"], "a list of numbers, as in [-2, -4, -6]")
    return table | {"thresholds": tuple(table["thresholds"])}
