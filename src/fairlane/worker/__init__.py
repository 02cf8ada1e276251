"""The worker: claims documents, runs handlers, settles; heartbeat, children, graceful stop. Start reading at `run_loop`."""

from .document import ClaimedDocument as Document
from .document import Fail, Retry, Split
from .executor import CallLost, Executor, ExecutorUnfit
from .hooks import WorkerEvent as Event
from .outbox import Summary
from .worker import Worker

__all__ = ["CallLost", "Document", "Event", "Executor", "ExecutorUnfit", "Fail", "Retry", "Split", "Summary", "Worker"]
