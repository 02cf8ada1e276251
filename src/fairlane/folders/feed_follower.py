"""A thread that follows the change feed and keeps a tracker up to date while a worker runs in the main thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial

from fairlane.core.document import ChangeRow
from fairlane.core.errors import FairlaneError, StoreError, Unknown
from fairlane.queue import PAGE_SIZE, Queue

from .tracker import TrackedDocument, Tracker, to_unix_ms

EVERY_SECONDS = 0.1

Show = Callable[[list[TrackedDocument]], None]  # called after every read, with the documents that ended since the last
OpenView = Callable[[Queue], AbstractContextManager[Show]]


class FeedFollower:
    """Follows the feed from `start` to `finish`; call `start` only once the worker has forked its processes."""

    def __init__(self, url: str, tracker: Tracker, after: int | None, open_view: OpenView) -> None:
        self._url = url
        self._tracker = tracker
        self._after = after
        self._open_view = open_view
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fairlane-follow", daemon=True)
        self._error: OSError | FairlaneError | None = None
        self.on_error: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()

    def finish(self) -> None:
        """Stop the thread and read the rest of the feed; raise the error that stopped the thread, if any."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        with Queue(self._url, create=False) as queue:
            self._update(queue)
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            with Queue(self._url, create=False) as queue, self._open_view(queue) as show:
                while not self._stop.wait(EVERY_SECONDS):
                    self._show_update(queue, show)
                self._show_update(queue, show)
        except (OSError, FairlaneError) as error:  # the output was closed, or the feed was purged
            self._error = error
            self.on_error()

    def _show_update(self, queue: Queue, show: Show) -> None:
        try:
            show(self._update(queue))
        except StoreError:
            return  # the worker gets the same error and reports it

    def _update(self, queue: Queue) -> list[TrackedDocument]:
        return self._tracker.apply(self._new_changes(queue), partial(self._look_up_member, queue))

    def _look_up_member(self, queue: Queue, id: str) -> TrackedDocument | None:
        """Return a document that was extracted from a tracked one, such as a file in an archive."""
        try:
            file, document = queue.input(id), queue.document(id)
        except Unknown:
            return None
        parent = self._tracker.documents.get(file.parent or "")
        if parent is None:
            return None
        submitted_ms = to_unix_ms(document.submitted_at)
        return TrackedDocument(document.customer, f"{parent.name}/{file.name}", document.priority, submitted_ms)

    def _new_changes(self, queue: Queue) -> Iterator[ChangeRow]:
        while changes := queue.engine.changes(self._after, PAGE_SIZE):
            yield from changes
            self._after = changes[-1].number
