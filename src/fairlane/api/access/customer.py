"""The caller's own counter, and the rules that hold for it."""

from __future__ import annotations

from typing import NamedTuple

from fairlane.api.auth import Caller
from fairlane.api.problems import bad_value
from fairlane.core.policy import Policy, Rules, Terms
from fairlane.queue import Check, Look, Queue


class EffectiveRules(NamedTuple):
    """Everybody's rules, and a customer's own where it has some."""

    rules: Rules
    policy: Policy
    terms: Terms | None  # None: the caller is an operator


def refuse_cost(queue: Queue, caller: Caller, cost: float) -> None:
    """Refuse a cost below 1, unless an operator allowed it to the caller's customer: who pays does not set the price."""
    if caller.customer is None or cost >= 1:
        return
    cost_min = queue.terms(caller.customer).cost_min
    if cost < cost_min:
        expected = f"at least {cost_min:g} with this key, or left out; an operator can allow this customer less, with cost_min"
        raise bad_value("cost", cost, expected)


class OwnAccess:
    """Reads and checks of the caller's own customer."""

    def __init__(self, queue: Queue, caller: Caller) -> None:
        self._queue = queue
        self._caller = caller

    def look(self) -> Look | None:
        """Where the caller's customer stands; None for an operator. Moves nothing."""
        return None if self._caller.customer is None else self._queue.look(self._caller.customer)

    def check(self, customer: str | None, cost: float) -> Check:
        """Make one check without a document."""
        refuse_cost(self._queue, self._caller, cost)
        return self._queue.check(self._caller.customer_for(customer), cost=cost)

    def rules(self) -> EffectiveRules:
        """Read the rules that hold for the caller."""
        rules = self._queue.rules()
        if self._caller.customer is None:
            return EffectiveRules(rules, rules.policy, None)
        terms = self._queue.terms(self._caller.customer)
        return EffectiveRules(rules, terms.policy(rules.policy), terms)
