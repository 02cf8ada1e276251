"""Steps of tests with lanes: documents that become ready, and turns that are taken."""

from __future__ import annotations

from fairlane.core.dispatch import kind_set
from fairlane.core.lanes import Lane, Lanes, Turn
from fairlane.core.policy import STEP


def ready(lanes: Lanes, first: int, customers: str, priority: int = 9, kind: str = "pdf") -> None:
    """One document for each letter, numbered from `first`, ready in that order."""
    for number, customer in enumerate(customers, start=first):
        lanes.add(number, customer, kind, priority, ready_ms=number)


def take(lanes: Lanes, step: int = STEP, kinds: list[str] | None = None) -> Turn:
    turn = lanes.next(kind_set(kinds))
    assert turn is not None
    lanes.take(turn, step)
    return turn


def numbers(lanes: Lanes, count: int) -> list[int]:
    return [take(lanes).number for _ in range(count)]


def customers(lanes: Lanes, count: int, steps: dict[str, int] | None = None) -> str:
    """Whose documents the next dispatches take."""
    served = ""
    for _ in range(count):
        turn = lanes.next()
        assert turn is not None
        lanes.take(turn, (steps or {}).get(turn.lane.customer, STEP))
        served += turn.lane.customer
    return served


def clock(lanes: Lanes, priority: int = 9, kind: str = "pdf") -> int:
    return lanes.kind_clocks.get((priority, kind), 0)


def lane(lanes: Lanes, customer: str, priority: int = 9, kind: str = "pdf") -> Lane:
    return lanes.lanes[customer, kind, priority]
