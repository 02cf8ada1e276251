"""Who follows the feed while a worker works? One thread that takes in what happened and shows it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import click

from fairlane.core.document import ChangeRow
from fairlane.core.errors import FairlaneError, StoreError, Unknown
from fairlane.folders.tracker import Course, Courses
from fairlane.queue import PAGE_SIZE, Queue

from .display import Picture, ended, terminal

EVERY_SECONDS = 0.1


Show = Callable[[list[Course]], None]  # shows what happened; it is given the documents that ended


class Follower:
    """Follows some documents from `start` to `finish`; `start` may be called late, when a worker has made its processes."""

    def __init__(self, url: str, courses: Courses, after: int | None, is_shown: bool) -> None:
        self._url = url
        self._courses = courses
        self._after = after
        self._is_shown = is_shown
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fairlane-follow", daemon=True)
        self._error: OSError | FairlaneError | None = None
        self.on_error: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()

    def finish(self) -> None:
        """Take in the last of it; raises what went wrong with showing it."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()
        with Queue(self._url, create=False) as queue:
            self._follow(queue)
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            with Queue(self._url, create=False) as queue, self._shown(queue) as show:
                while not self._over.wait(EVERY_SECONDS):
                    self._once(queue, show)
                self._once(queue, show)
        except (OSError, FairlaneError) as error:  # nobody reads what we print, or the feed was purged
            self._error = error
            self.on_error()

    def _once(self, queue: Queue, show: Show) -> None:
        try:
            show(self._follow(queue))
        except StoreError:
            return  # the worker meets it too, and tells

    def _follow(self, queue: Queue) -> list[Course]:
        return self._courses.follow(self._news(queue), partial(self._member, queue))

    def _member(self, queue: Queue, id: str) -> Course | None:
        """A document that came out of one that is followed."""
        try:
            file, document = queue.input(id), queue.document(id)
        except Unknown:
            return None
        parent = self._courses.documents.get(file.parent or "")
        if parent is None:
            return None
        return Course(document.customer, f"{parent.name}/{file.name}", document.priority, document.submitted_ms)

    def _news(self, queue: Queue) -> Iterator[ChangeRow]:
        while changes := queue.changes(self._after, PAGE_SIZE):
            yield from changes
            self._after = changes[-1].number

    @contextmanager
    def _shown(self, queue: Queue) -> Iterator[Show]:
        console = terminal() if self._is_shown else None
        if console is None:
            yield _lines if self._is_shown else _nothing
            return
        from rich.live import Live

        picture = Picture(self._courses, queue.look, console)
        with Live(console=console, auto_refresh=False, transient=True, vertical_overflow="crop") as live:
            yield lambda ended: live.update(picture.draw(), refresh=True)


def _lines(courses: list[Course]) -> None:
    for course in courses:
        click.echo(ended(course))


def _nothing(_: list[Course]) -> None:
    """For programs, which read the end."""
