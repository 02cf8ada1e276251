"""What does a program use to submit documents and look after them? `Queue`, and `AsyncQueue` with the same verbs awaited."""

from .async_queue import AsyncQueue
from .blob_lifecycle import GRACE_SECONDS, Swept
from .files import Input
from .queue import AT_ONCE, KEEP, Keep, Look, Progress, Queue
from .validation import DEFAULT_KIND, PAGES, PARTIAL_BYTES_MAX, Cost, json_text, new_ids

__all__ = [
    "AT_ONCE",
    "DEFAULT_KIND",
    "GRACE_SECONDS",
    "KEEP",
    "PAGES",
    "PARTIAL_BYTES_MAX",
    "AsyncQueue",
    "Cost",
    "Input",
    "Keep",
    "Look",
    "Progress",
    "Queue",
    "Swept",
    "json_text",
    "new_ids",
]
