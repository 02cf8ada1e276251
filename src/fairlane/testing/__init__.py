"""What tests of your own code use: a queue in memory with virtual time, handlers run inline, documents to hand to them,
assertions, and fixtures of pytest.

>>> from fairlane.testing import MemoryQueue, run_all
>>> with MemoryQueue() as queue:
...     receipt = queue.submit("acme", {"pages": 3}, delay=3600)
...     run_all(queue, lambda document: document.payload["pages"])
...     queue.result(receipt.id)
Summary(done=1, failed=0, retried=0, released=0, lost=0, postponed=0)
3
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .assertions import assert_done, assert_failed, assert_not_submitted, assert_submitted
    from .inline_run import run_all, run_all_async
    from .memory_queue import MemoryAsyncQueue, MemoryQueue
    from .sample_document import SampleDocument as Document

__all__ = [
    "Document",
    "MemoryAsyncQueue",
    "MemoryQueue",
    "assert_done",
    "assert_failed",
    "assert_not_submitted",
    "assert_submitted",
    "run_all",
    "run_all_async",
]

_HOMES = {
    "assertions": ("assert_done", "assert_failed", "assert_not_submitted", "assert_submitted"),
    "inline_run": ("run_all", "run_all_async"),
    "memory_queue": ("MemoryAsyncQueue", "MemoryQueue"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Load a name at its first use: pytest imports this package in every run where it is installed."""
    if name == "Document":
        return import_module(".sample_document", __name__).SampleDocument
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOME_OF[name]}", __name__), name)
