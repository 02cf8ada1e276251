"""Everything that one run of a worker works with."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import NamedTuple

from fairlane.blobs.files import Files
from fairlane.core.retry import Backoff

from .blob_gc import BlobCollector
from .executor import RunExecutor
from .handlers import Handlers
from .hooks import Hooks
from .progress import ProgressStore
from .registration import Registration
from .resources import Resources
from .store import WorkerStore


class RunContext(NamedTuple):
    """The parts and settings of one run; made by the worker and closed by the worker, the sockets by the run."""

    store: WorkerStore
    progress: ProgressStore
    registration: Registration
    blobs: BlobCollector
    files: Callable[[], Files]
    handlers: Handlers
    hooks: Hooks
    backoff: Backoff
    fork_server: socket.socket | None  # None if no handler runs in a child
    heartbeat: socket.socket
    slots: int
    resources: Resources
    lease_ms: int
    grace: float  # seconds
    until_empty: bool
    executor: RunExecutor | None = None  # of `def` handlers, instead of children
