"""Fairlane: a fair priority queue for document processing.

>>> from fairlane import Queue
>>> with Queue("memory://") as queue:
...     queue.submit("acme", {"path": "invoice.pdf"}).priority
1
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairlane.core.errors import (
        BadValue,
        BlobDamaged,
        FairlaneError,
        KeyConflict,
        Mistake,
        StoreBusy,
        StoreError,
        StoreFull,
        StoreUnfit,
        Unknown,
        WrongState,
    )
    from fairlane.core.policy import Policy, Rules, Terms
    from fairlane.core.retry import Backoff

    from .client import AsyncClient, Client
    from .queue import AsyncQueue, Input, Queue
    from .worker import Fail, Retry, Worker

__version__ = "0.1.0"

__all__ = [
    "AsyncClient",
    "AsyncQueue",
    "Backoff",
    "BadValue",
    "BlobDamaged",
    "Client",
    "Fail",
    "FairlaneError",
    "Input",
    "KeyConflict",
    "Mistake",
    "Policy",
    "Queue",
    "Retry",
    "Rules",
    "StoreBusy",
    "StoreError",
    "StoreFull",
    "StoreUnfit",
    "Terms",
    "Unknown",
    "Worker",
    "WrongState",
]

_HOMES = {
    "core.policy": ("Policy", "Rules", "Terms"),
    "core.retry": ("Backoff",),
    "queue": ("AsyncQueue", "Input", "Queue"),
    "worker": ("Fail", "Retry", "Worker"),
    "client": ("AsyncClient", "Client"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """What is asked for, loaded when it is: a client needs no queue, a queue no HTTP, and the sandbox none of them."""
    if name not in __all__:
        raise AttributeError(f"module 'fairlane' has no attribute {name!r}")
    value = getattr(import_module(f".{_HOME_OF.get(name, 'core.errors')}", __name__), name)
    globals()[name] = value
    return value
