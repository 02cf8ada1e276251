"""One customer floods, twenty others send two tasks each: theirs start sooner than with plain Celery.

Nobody is told who floods.
"""

from __future__ import annotations

from pathlib import Path

from tests.servers import redis

from .flood import CELERYS_OWN, EACH, LIGHT, light_waits, percentile
from .running import Project, RabbitMQ, RedisBroker

FLOOD, SECONDS = 300, 0.04  # of one customer, twelve seconds of work; `make bench-celery` has 2,000 tasks


def test_light_customers_start_at_least_twenty_times_sooner(broker: RabbitMQ | RedisBroker, tmp_path: Path) -> None:
    waits = light_waits(
        {
            "plain": Project(tmp_path, broker, "", settings=CELERYS_OWN),
            "fair": Project(tmp_path, broker, redis.shared("redis").url()),
            "bridge": Project(tmp_path, broker, redis.shared("redis").url(), is_bridge=True),
        },
        flood=FLOOD,
        seconds=SECONDS,
    )
    assert {name: len(found) for name, found in waits.items()} == dict.fromkeys(("plain", "fair", "bridge"), LIGHT * EACH)
    for measure in ("seconds", "tasks"):
        plain, fair, bridge = (
            percentile([getattr(wait, measure) for wait in waits[name]], 99) for name in ("plain", "fair", "bridge")
        )
        assert plain >= 20 * max(fair, bridge), (broker.name, measure, plain, fair, bridge)
