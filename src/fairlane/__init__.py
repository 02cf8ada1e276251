"""Fairlane: a fair priority queue for document processing.

>>> from fairlane import Queue
>>> with Queue("memory://") as queue:
...     queue.submit("acme", {"path": "invoice.pdf"}).priority
1
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .core.errors import (
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
from .core.policy import Policy, Rules, Terms
from .core.retry import Backoff
from .queue import AsyncQueue, Input, Queue
from .worker import Fail, Retry, Worker

if TYPE_CHECKING:
    from .client import AsyncClient, Client

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


def __getattr__(name: str) -> Any:
    """The client, loaded when it is asked for: whoever has the queue itself needs no HTTP."""
    if name in ("AsyncClient", "Client"):
        from . import client

        return getattr(client, name)
    raise AttributeError(f"module 'fairlane' has no attribute {name!r}")
