"""The queue as a program uses it: `Queue`, and `AsyncQueue` with the same verbs awaited."""

from fairlane.blobs.envelope import File
from fairlane.blobs.gc import GRACE_SECONDS, SweepResult

from .async_queue import AsyncQueue
from .audit import Actor, AuditEntry
from .explain import Explanation
from .files import Input
from .forget import Forgotten
from .models import (
    KEEP,
    Attempt,
    Change,
    Check,
    Document,
    Exported,
    HistoryEntry,
    Keep,
    Kind,
    Look,
    Progress,
    Receipt,
    RunningDocument,
    Step,
    UnservedKind,
    WorkerStatus,
)
from .queue import PAGE_SIZE, Queue
from .validation import DEFAULT_KIND, FILE_KIND, PAGES, PARTIAL_BYTES_MAX, Cost, json_text, new_ids

__all__ = [
    "DEFAULT_KIND",
    "FILE_KIND",
    "GRACE_SECONDS",
    "KEEP",
    "PAGES",
    "PAGE_SIZE",
    "PARTIAL_BYTES_MAX",
    "Actor",
    "AsyncQueue",
    "Attempt",
    "AuditEntry",
    "Change",
    "Check",
    "Cost",
    "Document",
    "Explanation",
    "Exported",
    "File",
    "Forgotten",
    "HistoryEntry",
    "Input",
    "Keep",
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
    "json_text",
    "new_ids",
]
