"""The worker: claims documents, runs handlers, settles; heartbeats, children, graceful stop. Start reading at `shift`."""

from .document import Document, Fail, Retry
from .hooks import Event
from .run_loop import Summary
from .worker import Worker

__all__ = ["Document", "Event", "Fail", "Retry", "Summary", "Worker"]
