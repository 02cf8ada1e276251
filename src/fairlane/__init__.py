"""Fairlane: a fair priority queue for document processing.

>>> from fairlane import Queue
>>> with Queue("memory://") as queue:
...     queue.submit("acme", {"path": "invoice.pdf"}).priority
1
"""

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

__version__ = "0.1.0"

__all__ = [
    "AsyncQueue",
    "Backoff",
    "BadValue",
    "BlobDamaged",
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
