"""What tests of every library share: stores of counters and what is in them, and a flood that is counted instead of timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from fairlane import Queue

TABLE = [1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 8, 8, 8, 8, *[9] * 9]  # of one customer's tasks in a row
FLOOD, LIGHT, EACH = 120, 5, 2
PATIENT = 60  # seconds for a check: a busy machine is not a store that is away


def new_store(folder: Path) -> str:
    return f"sqlite:///{folder}/counters.db"


def counter(store: str, customer: str) -> float:
    with Queue(store) as queue:
        return queue.look(customer).counter


def customers(store: str) -> list[str]:
    """The customers that were ever checked."""
    with Queue(store) as queue:
        return sorted(status.customer for status in queue.customers())


def flood(publish: Callable[[str], object]) -> int:
    """Publish a flood of one customer, then two tasks of each of five others; return how many there are."""
    for _ in range(FLOOD):
        publish("whale")
    for number in range(LIGHT * EACH):
        publish(f"light {number % LIGHT}")
    return FLOOD + LIGHT * EACH


def whales_before_the_last_light(began: Sequence[str]) -> int:
    """How many tasks of the flood began before the last task of the light customers."""
    last = max(number for number, customer in enumerate(began) if customer.startswith("light"))
    return sum(customer == "whale" for customer in began[:last])
