"""The brokers' numbers for our priorities: here 1 is served first and 9 last, and each broker counts in its own direction."""

from __future__ import annotations

from typing import Any, NamedTuple

from fairlane.core.errors import Mistake
from fairlane.core.policy import LEVELS_MAX


class Broker(NamedTuple):
    """A kind of broker, and which of its numbers is served first."""

    name: str
    first: int
    step: int  # from one of our priorities to the next

    def number(self, priority: int) -> int:
        """Return the broker's number for one of our priorities."""
        return self.first + self.step * (priority - 1)


RABBITMQ = Broker("RabbitMQ", LEVELS_MAX, -1)
REDIS = Broker("Redis", 0, 1)
BROKERS = {"amqp": RABBITMQ, "redis": REDIS}  # by the type of Celery's transport


def broker_of(connection: Any) -> Broker:
    """Return the broker at the other end of a connection of Celery's; raise Mistake if it has no priorities that we know."""
    driver_type = connection.transport.driver_type
    if driver_type not in BROKERS:
        raise Mistake(
            f"the broker of this Celery app is of the type {driver_type!r}, and Fairlane knows the priorities of RabbitMQ and "
            "Redis only"
        )
    return BROKERS[driver_type]
