"""Resources of a worker, such as GPUs: what handlers need of them, and which kinds can start with what is free.

Laws:
- A claim holds what its handler needs from the moment it is claimed, so nothing is claimed that could not start.
- A request asks for so few documents that they can start whatever their kinds are.
- No kind is shut out: one that was left out of LEFT_OUT_MAX documents, as others keep taking what it needs, has room made for
  it: what shares a resource with it is not claimed until it can start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fairlane.core.document import validate_text
from fairlane.core.errors import BadValue

AMOUNT_MAX = 1_000_000
LEFT_OUT_MAX = 16

Amounts = Mapping[str, int]  # by the name of a resource


class ClaimRequest(NamedTuple):
    """What a worker asks the store for: up to so many documents of these kinds, each with its maximum attempts."""

    limit: int
    kinds: Mapping[str, int]


def validate_amounts(name: str, amounts: Amounts | None) -> Amounts:
    """Return amounts of resources by name; raises BadValue."""
    if amounts is None:
        return {}
    if not isinstance(amounts, Mapping):
        raise BadValue(name, amounts, 'whole numbers by the name of a resource, as in {"gpu": 1}')
    for resource, amount in amounts.items():
        validate_text(f"{name}: the name of a resource", resource, 100)
        if type(amount) is not int or not 1 <= amount <= AMOUNT_MAX:
            raise BadValue(f"{name}[{resource!r}]", amount, f"a whole number from 1 to {AMOUNT_MAX:,}")
    return dict(amounts)


def refuse_more(kind: str, needs: Amounts, totals: Amounts) -> None:
    """Refuse a handler that needs more than the worker has: its documents would never start."""
    for resource, amount in needs.items():
        if amount > totals.get(resource, 0):
            has = f"{totals[resource]:,}" if resource in totals else "none"
            raise BadValue(
                f"needs of handler {kind!r}", dict(needs),
                f"at most what the worker has, which is {has} of {resource!r}; give Worker(resources={{{resource!r}: …}}) more",
            )  # fmt: skip


class Resources:
    """What a worker has, and what each kind needs of it."""

    def __init__(self, totals: Amounts, attempts: Mapping[str, int], needs: Mapping[str, Amounts]) -> None:
        self._totals = totals
        self._attempts = attempts
        self._needs = {kind: amounts for kind, amounts in needs.items() if amounts}
        self._left_out: Counter[str] = Counter()  # documents that were claimed while a kind could not start

    @property
    def are_used(self) -> bool:
        """Whether any kind needs some."""
        return bool(self._needs)

    def at_once(self, kind: str, slots: int) -> int:
        """Return how many documents of a kind can run at once."""
        needs = self._needs.get(kind, {})
        return min([slots, *(self._totals[resource] // amount for resource, amount in needs.items())])

    def request(self, room: int, unfinished: Iterable[str]) -> ClaimRequest:
        """Return what may be claimed beside unfinished documents of these kinds, if there is room for so many more."""
        if not self._needs or room <= 0:
            return ClaimRequest(max(0, room), self._attempts)
        free = Counter(self._totals)
        for kind in unfinished:
            free.subtract(self._needs.get(kind, {}))
        startable = self._startable(free)
        most: Counter[str] = Counter()  # that one document of these kinds needs
        for kind in startable:
            most |= Counter(self._needs.get(kind, {}))
        limit = min([room, *(free[resource] // amount for resource, amount in most.items())]) if startable else 0
        return ClaimRequest(limit, {kind: self._attempts[kind] for kind in startable})

    def _startable(self, free: Amounts) -> list[str]:
        """Return the kinds that can start, less those that would keep out one that was left out for too long."""
        kinds = [
            kind
            for kind in self._attempts
            if all(free[resource] >= amount for resource, amount in self._needs.get(kind, {}).items())
        ]
        kept_out = [kind for kind, count in self._left_out.most_common() if count >= LEFT_OUT_MAX and kind not in kinds]
        reserved = self._needs[kept_out[0]].keys() if kept_out else set[str]()
        return [kind for kind in kinds if not self._needs.get(kind, {}).keys() & reserved]

    def claimed(self, request: ClaimRequest, documents: int) -> None:
        """Note that so many documents were claimed upon a request."""
        for kind in self._needs:
            self._left_out[kind] = 0 if kind in request.kinds else self._left_out[kind] + documents
