"""Arrivals: new connections are opened at a limited rate, and whoever opens many does not keep others waiting."""

from __future__ import annotations

from collections import Counter

from fairlane.api.arrivals import ARRIVALS_MAX, BURST_SHARE, Arrivals

RATE = 200
BURST = RATE // BURST_SHARE


class Clock:
    """Time that is set by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def opened(arrivals: Arrivals[str]) -> list[str]:
    found = []
    while (arrival := arrivals.next()) is not None:
        found.append(arrival)
    return found


def test_so_many_are_opened_in_a_second_in_the_order_in_which_they_came() -> None:
    clock = Clock()
    arrivals: Arrivals[str] = Arrivals(RATE, lambda _: 0, clock)
    names = [f"a {number}" for number in range(100)]
    for name in names:
        assert arrivals.add("a", name) is None
    assert opened(arrivals) == names[:BURST]
    assert opened(arrivals) == []
    clock.now += 0.0575
    assert opened(arrivals) == names[BURST : BURST + 11]
    assert len(arrivals) == 100 - BURST - 11
    assert arrivals.clear() == names[BURST + 11 :]
    assert len(arrivals) == 0


def test_an_address_with_few_connections_goes_first() -> None:
    clock, open_of = Clock(), Counter({"crowd": 100})
    arrivals: Arrivals[str] = Arrivals(RATE, open_of.__getitem__, clock)
    for number in range(50):
        arrivals.add("crowd", f"crowd {number}")
        arrivals.add("hostile", f"hostile {number}")
    opened(arrivals)
    arrivals.add("new", "new 1")
    clock.now += 0.0075  # time for one
    assert opened(arrivals) == ["new 1"]


def test_of_too_many_the_oldest_of_the_address_with_most_is_turned_away() -> None:
    arrivals: Arrivals[str] = Arrivals(RATE, lambda _: 0, Clock())
    arrivals.add("other", "other 0")
    for number in range(ARRIVALS_MAX - 1):
        assert arrivals.add("hostile", f"hostile {number}") is None
    assert arrivals.add("other", "other 1") == "hostile 0"
    assert arrivals.add("hostile", "hostile again") == "hostile 1"
    assert len(arrivals) == ARRIVALS_MAX
