"""Changes of the rules for everybody and of one customer's terms: what is not named stays, also if others change it at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fairlane.core.document import validate_text
from fairlane.core.errors import StoreFrozen
from fairlane.core.policy import CustomerLimits, Policy, Rules, Terms, plain_seconds
from fairlane.engine import Engine
from fairlane.engine.codec import is_reset_gone
from fairlane.engine.limits import change_limits

from .models import KEEP


def change_terms(engine: Engine, customer: str, options: Mapping[str, Any]) -> Terms:
    """Change a customer's terms; an option that is KEEP stays."""
    validate_text("customer", customer)
    changes, limits = _split(options)
    while True:  # again if another program tuned the customer at the same time
        known = engine.customer(customer)
        terms = replace(known.terms, **changes, limits=change_limits(known.terms.limits, limits))
        if terms == known.terms or engine.tune(customer, terms, known.terms_version) is not None:
            return terms


def change_rules(engine: Engine, options: Mapping[str, Any]) -> Rules:
    """Change the rules for everybody; an option that is KEEP stays. Rules whose reset is gone need another one first."""
    changes, limits = _split(options)
    while True:  # again if another program changed them at the same time
        known = engine.rules()
        values = {name: getattr(known.policy, name) for name in ("reset_interval", "thresholds", "reset")}
        policy = Policy(**{name: changes.get(name, value) for name, value in values.items()})
        others = {name: value for name, value in changes.items() if name not in values}
        if (changes or limits) and is_reset_gone(known):
            if "reset" not in changes:
                raise StoreFrozen(known.frozen or "")
            others["frozen"] = None
        changed = replace(known, policy=policy, limits=change_limits(known.limits, limits), **others)
        if changed == known:
            return known
        stored = engine.configure(changed)
        if stored is not None:
            return stored


def _split(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options that are to be changed, limits apart."""
    named = {name: plain_seconds(value) for name, value in options.items() if value is not KEEP}
    limits = {name: named.pop(name) for name in CustomerLimits._fields if name in named}
    return named, limits
