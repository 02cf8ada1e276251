"""The queue as a program uses it: `Queue`, and `AsyncQueue` with the same verbs awaited."""

from fairlane.blobs.gc import GRACE_SECONDS, SweepResult

from .async_queue import AsyncQueue
from .files import Input
from .queue import KEEP, PAGE_SIZE, Keep, Look, Progress, Queue
from .validation import DEFAULT_KIND, PAGES, PARTIAL_BYTES_MAX, Cost, json_text, new_ids

__all__ = [
    "DEFAULT_KIND",
    "GRACE_SECONDS",
    "KEEP",
    "PAGES",
    "PAGE_SIZE",
    "PARTIAL_BYTES_MAX",
    "AsyncQueue",
    "Cost",
    "Input",
    "Keep",
    "Look",
    "Progress",
    "Queue",
    "SweepResult",
    "json_text",
    "new_ids",
]
