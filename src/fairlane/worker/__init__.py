"""The worker: claims documents, runs handlers, settles; heartbeat, children, graceful stop. Start reading at `run_loop`."""

from .document import ClaimedDocument as Document
from .document import Fail, Retry
from .hooks import WorkerEvent as Event
from .outbox import Summary
from .worker import Worker

__all__ = ["Document", "Event", "Fail", "Retry", "Summary", "Worker"]
