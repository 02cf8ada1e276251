"""Fairlane: a fair priority queue for document processing.

>>> from fairlane import Queue
>>> with Queue("memory://") as queue:
...     queue.submit("acme", {"path": "invoice.pdf"}).priority
1
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .version import __version__ as __version__

if TYPE_CHECKING:
    from fairlane.core.errors import (
        BadValue,
        BlobDamaged,
        FairlaneError,
        KeyConflict,
        LimitReached,
        Mistake,
        QueueFull,
        QuotaFull,
        RetriesSpent,
        StoreBusy,
        StoreError,
        StoreFrozen,
        StoreFull,
        StoreUnfit,
        StoreUnreachable,
        TooManyDescendants,
        Unknown,
        WrongState,
    )
    from fairlane.core.policy import CustomerLimits, Policy, Rules, Terms
    from fairlane.core.retry import Backoff

    from .client import (
        AsyncClient,
        AsyncEvents,
        Batch,
        BatchReceipt,
        Client,
        Events,
        KeyInfo,
        Me,
        NewKey,
        NewUploadToken,
        UploadTokenInfo,
    )
    from .queue import (
        Actor,
        AsyncQueue,
        Attempt,
        AuditEntry,
        Change,
        Check,
        Document,
        Explanation,
        Exported,
        File,
        Forgotten,
        HistoryEntry,
        Input,
        Kind,
        Look,
        Progress,
        Queue,
        Receipt,
        RunningDocument,
        Step,
        SweepResult,
        UnservedKind,
        WorkerStatus,
    )
    from .worker import Fail, Retry, Split, Worker

__all__ = [
    "Actor",
    "AsyncClient",
    "AsyncEvents",
    "AsyncQueue",
    "Attempt",
    "AuditEntry",
    "Backoff",
    "BadValue",
    "Batch",
    "BatchReceipt",
    "BlobDamaged",
    "Change",
    "Check",
    "Client",
    "CustomerLimits",
    "Document",
    "Events",
    "Explanation",
    "Exported",
    "Fail",
    "FairlaneError",
    "File",
    "Forgotten",
    "HistoryEntry",
    "Input",
    "KeyConflict",
    "KeyInfo",
    "Kind",
    "LimitReached",
    "Look",
    "Me",
    "Mistake",
    "NewKey",
    "NewUploadToken",
    "Policy",
    "Progress",
    "Queue",
    "QueueFull",
    "QuotaFull",
    "Receipt",
    "RetriesSpent",
    "Retry",
    "Rules",
    "RunningDocument",
    "Split",
    "Step",
    "StoreBusy",
    "StoreError",
    "StoreFrozen",
    "StoreFull",
    "StoreUnfit",
    "StoreUnreachable",
    "SweepResult",
    "Terms",
    "TooManyDescendants",
    "Unknown",
    "UnservedKind",
    "UploadTokenInfo",
    "Worker",
    "WorkerStatus",
    "WrongState",
]

_HOMES = {
    "core.policy": ("CustomerLimits", "Policy", "Rules", "Terms"),
    "core.retry": ("Backoff",),
    "queue": (
        "Actor",
        "AsyncQueue",
        "Attempt",
        "AuditEntry",
        "Change",
        "Check",
        "Document",
        "Explanation",
        "Exported",
        "File",
        "Forgotten",
        "HistoryEntry",
        "Input",
        "Kind",
        "Look",
        "Progress",
        "Queue",
        "Receipt",
        "RunningDocument",
        "Step",
        "SweepResult",
        "UnservedKind",
        "WorkerStatus",
    ),
    "worker": ("Fail", "Retry", "Split", "Worker"),
    "client": (
        "AsyncClient",
        "AsyncEvents",
        "Batch",
        "BatchReceipt",
        "Client",
        "Events",
        "KeyInfo",
        "Me",
        "NewKey",
        "NewUploadToken",
        "UploadTokenInfo",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Load a public name at its first use: a queue needs no worker and no client, and the sandbox none of them."""
    if name not in __all__:
        raise AttributeError(f"module 'fairlane' has no attribute {name!r}")
    value = getattr(import_module(f".{_HOME_OF.get(name, 'core.errors')}", __name__), name)
    globals()[name] = value
    return value
