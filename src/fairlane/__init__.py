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
        StoreFrozen,
        StoreFull,
        StoreUnfit,
        Unknown,
        WrongState,
    )
    from fairlane.core.policy import Policy, Rules, Terms
    from fairlane.core.retry import Backoff

    from .client import AsyncClient, AsyncEvents, Batch, BatchReceipt, Client, Events, Me
    from .queue import (
        AsyncQueue,
        Change,
        Check,
        Document,
        Explanation,
        File,
        Input,
        Look,
        Progress,
        Queue,
        Receipt,
        SweepResult,
    )
    from .worker import Fail, Retry, Worker

__version__ = "0.1.0"

__all__ = [
    "AsyncClient",
    "AsyncEvents",
    "AsyncQueue",
    "Backoff",
    "BadValue",
    "Batch",
    "BatchReceipt",
    "BlobDamaged",
    "Change",
    "Check",
    "Client",
    "Document",
    "Events",
    "Explanation",
    "Fail",
    "FairlaneError",
    "File",
    "Input",
    "KeyConflict",
    "Look",
    "Me",
    "Mistake",
    "Policy",
    "Progress",
    "Queue",
    "Receipt",
    "Retry",
    "Rules",
    "StoreBusy",
    "StoreError",
    "StoreFrozen",
    "StoreFull",
    "StoreUnfit",
    "SweepResult",
    "Terms",
    "Unknown",
    "Worker",
    "WrongState",
]

_HOMES = {
    "core.policy": ("Policy", "Rules", "Terms"),
    "core.retry": ("Backoff",),
    "queue": (
        "AsyncQueue",
        "Change",
        "Check",
        "Document",
        "Explanation",
        "File",
        "Input",
        "Look",
        "Progress",
        "Queue",
        "Receipt",
        "SweepResult",
    ),
    "worker": ("Fail", "Retry", "Worker"),
    "client": ("AsyncClient", "AsyncEvents", "Batch", "BatchReceipt", "Client", "Events", "Me"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Load a public name at its first use: a queue needs no worker and no client, and the sandbox none of them."""
    if name not in __all__:
        raise AttributeError(f"module 'fairlane' has no attribute {name!r}")
    value = getattr(import_module(f".{_HOME_OF.get(name, 'core.errors')}", __name__), name)
    globals()[name] = value
    return value
