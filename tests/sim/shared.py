"""What the tests of the simulator have in common: workloads by hand, and random ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from random import Random

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from fairlane.core.policy import STEP, Terms
from fairlane.sim.workload import Arrival, Workload

START_MS = 1_700_000_000_000
CUSTOMERS = ("ada", "bob", "żółw", "dan", "eve")

thorough = settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
brief = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))

gaps_ms = st.sampled_from((0, 0, 0, 0, 1, 1000, 1000, 2000, 7000, 40_000, 1_500_000, 1_500_001))
services_ms = st.sampled_from((0, 1, 1000, 1000, 2000, 3000, 5000, 20_000, 600_000))
costs = st.sampled_from((STEP, STEP, STEP, 1, 2500, 20_000))


@st.composite
def workloads(draw: st.DrawFn, most: int = 60, customers: Sequence[str] = CUSTOMERS) -> Workload:
    """Few customers, many ties of times; now and then a customer hands in many documents at once."""
    rows = draw(
        st.lists(
            st.tuples(gaps_ms, st.sampled_from(customers), services_ms, costs, st.sampled_from((1, 1, 1, 1, 2, 25))),
            min_size=1,
            max_size=most,
        )
    )
    arrivals, at_ms = [], START_MS
    for gap_ms, customer, service_ms, cost, times in rows:
        at_ms += gap_ms
        arrivals += [Arrival(at_ms, customer, service_ms * 1000, cost)] * times
    return Workload.of("random", arrivals)


some_terms = st.dictionaries(
    st.sampled_from(CUSTOMERS),
    st.builds(
        Terms,
        weight=st.sampled_from((1, 2, 0.5, 0.333, 100)),
        cap=st.sampled_from((None, None, 1, 2)),
        reset_interval=st.sampled_from((None, 10)),
        thresholds=st.sampled_from((None, (), (-1, -2.5))),
        reset=st.sampled_from((None, "idle", "sliding")),
    ),
)


def by_hand(*rows: tuple[float, str, float]) -> Workload:
    """A workload of (seconds, customer, service in seconds)."""
    return Workload.of("by hand", (Arrival(round(at * 1000), who, round(service * 10**6)) for at, who, service in rows))


def exponential(random: Random, count: int, mean: float) -> list[float]:
    """Exponential values in random order, one from each of `count` equally likely ranges: their own spread is exact."""
    values = [-mean * math.log(1 - (place + random.random()) / count) for place in range(count)]
    random.shuffle(values)
    return values


def alike(seed: int, count: int, customers: int, load: float, workers: int = 2) -> Iterator[Arrival]:
    """Customers that all do the same at random: no setting can be better for one of them."""
    random = Random(seed)
    at = 0.0
    for _ in range(count):
        at += random.expovariate(workers * load / 10)
        service_us = round(random.expovariate(1 / 10) * 10**6)
        yield Arrival(round(at * 1000), f"customer-{random.randrange(customers)}", service_us)


def rows_of(workload: Workload) -> list[tuple[int, str, int, int]]:
    """(milliseconds, customer, service in microseconds, cost) of every document."""
    named = (workload.customers[one] for one in workload.customer)
    return list(zip(workload.checked_ms, named, workload.service_us, workload.cost, strict=True))


def csv_of(rows: Iterable[tuple[object, ...]], header: str = "submitted_at,customer,service_s") -> str:
    """A file as people write it."""
    return "\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n"
