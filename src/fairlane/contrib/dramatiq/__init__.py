"""Fair priorities for Dramatiq: each message is checked when it is enqueued, and carries its priority to RabbitMQ or Redis.

from fairlane.contrib.dramatiq import Fairlane

Fairlane(broker, "postgresql://fairlane@db/fairlane", customer="customer")
"""

from __future__ import annotations

try:
    import dramatiq as _dramatiq  # noqa: F401
except ImportError as error:
    raise ImportError("fairlane.contrib.dramatiq needs Dramatiq, which is not installed here: pip install dramatiq") from error

from .publish import Fairlane

__all__ = ["Fairlane"]
