"""Fair priorities for Celery: each task is checked when it is published, and carries its priority in the broker's own numbers.

from fairlane.contrib.celery import Fairlane

Fairlane(app, "postgresql://fairlane@db/fairlane", customer="customer")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

try:
    import celery as _celery  # noqa: F401
except ImportError as error:
    raise ImportError("fairlane.contrib.celery needs Celery, which is not installed here: pip install celery") from error

if TYPE_CHECKING:
    from .bridge import Bridge as Bridge
    from .publish import Fairlane as Fairlane


def __getattr__(name: str) -> Any:
    """Import it when it is used: every `celery` command on a machine with Fairlane imports this package."""
    if name == "Fairlane":
        from .publish import Fairlane

        return Fairlane
    if name == "Bridge":
        from .bridge import Bridge

        return Bridge
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
