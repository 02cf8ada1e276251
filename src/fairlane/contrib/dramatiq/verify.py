"""Verification of Dramatiq's settings: each that would defeat priorities becomes a sentence that names it and says what to set.

Laws:
- The broker must have a number for each of the nine priorities.
- A worker must not hold messages that could be overtaken: it takes from the broker only what its threads run.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from dramatiq import Broker, Middleware

from fairlane.core.errors import BadValue, Mistake
from fairlane.core.policy import LEVELS_MAX

BROKERS = {"RabbitmqBroker": "RabbitMQ", "RedisBroker": "Redis"}
PREFETCH = "dramatiq_queue_prefetch"

logger = logging.getLogger("fairlane.contrib")


def number_of(priority: int) -> int:
    """Return the broker's number for one of our priorities: there 9 is served first."""
    return LEVELS_MAX + 1 - priority


def broker_name(broker: Broker) -> str | None:
    """Return which server is behind a broker; None if its priorities are not known."""
    for base in type(broker).__mro__:
        if base.__module__.startswith("dramatiq.brokers.") and base.__name__ in BROKERS:
            return BROKERS[base.__name__]
    return None


def validate_accept(accept: Sequence[str]) -> frozenset[str]:
    """Return the names of settings that the user takes responsibility for."""
    if isinstance(accept, str) or not set(accept) <= {PREFETCH}:
        raise BadValue("accept", accept, f"a tuple of names among {PREFETCH}")
    return frozenset(accept)


def verify_broker(broker: Broker) -> None:
    """Raise Mistake unless the broker has our nine priorities."""
    name = broker_name(broker)
    if name is None:
        raise Mistake(
            f"the broker is a {type(broker).__name__}, and Fairlane knows how to order messages with RabbitmqBroker and "
            "RedisBroker only"
        )
    if name == "RabbitMQ":
        maximum = getattr(broker, "max_priority", None)
        if not isinstance(maximum, int) or maximum < LEVELS_MAX:
            raise Mistake(
                f"max_priority of the RabbitmqBroker is {maximum}, and RabbitMQ serves nine priorities only with 9 or more: "
                "RabbitmqBroker(…, max_priority=9). RabbitMQ cannot change a queue that it has: delete that and its delayed "
                "one when they are empty, or use another name"
            )


class VerifyWorker(Middleware):
    """Ends a worker that would take more messages from the broker than its threads run."""

    def __init__(self, accepted: frozenset[str]) -> None:
        self._accepted = accepted

    def before_worker_boot(self, broker: Any, worker: Any) -> None:
        threads, prefetch = worker.worker_threads, worker.queue_prefetch
        if prefetch > threads and PREFETCH not in self._accepted:
            logger.critical(
                "Fairlane: this worker would not serve messages in the order of their priorities: it has %d threads and takes "
                "%d messages of a queue from the broker, and no later one can overtake those. Set the environment variable "
                "%s=%d where the worker starts. To use it as it is all the same: Fairlane(…, accept=(%r,))",
                threads, prefetch, PREFETCH, threads, PREFETCH,
            )  # fmt: skip
            raise SystemExit(1)
