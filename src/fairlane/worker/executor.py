"""Running `def` handlers in an executor: threads or processes of the standard library, a cluster with `fairlane.contrib.ray`.

Laws:
- An executor gets one call without arguments for each document, and returns a future, as `concurrent.futures` does.
- What a handler returns or raises is the call's answer. An exception of the future means that the call itself was lost.
- An executor whose `submit` raises, or whose future has a `BrokenExecutor`, can run nothing any more: the worker stops. Unless
  it is an `ExecutorUnfit`, the calls that ran each cost an attempt.
- What crosses to another process is the handler, the document and where files are: no URL of the store, no encryption key.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future
from functools import cache
from typing import Any, NamedTuple, Protocol, TypeVar

from fairlane.blobs.files import Files
from fairlane.core.document import Claim, Outcome
from fairlane.core.errors import BadValue, Mistake
from fairlane.core.retry import Backoff
from fairlane.encryption import load_keyring
from fairlane.encryption.files import FileCipher

from .document import ClaimedDocument, ProgressReport
from .handlers import run_handler

T = TypeVar("T")


class Executor(Protocol):
    """Runs calls elsewhere; every `concurrent.futures.Executor` is one. With an attribute `slots` it says how many at once."""

    def submit(self, call: Callable[[], T], /) -> Future[T]:
        """Run a call; its future is `running()` from the moment when the call began, and `cancel()` stops it if that can be."""


class CallLost(Exception):
    """The call of a document ended without an answer. The message is for customers; its cause is kept for operators."""


class ExecutorUnfit(BrokenExecutor):
    """No call can be run, whatever its document is: the worker stops, and no attempt is counted."""


class Answer(NamedTuple):
    """What became of a document, and the traceback of an exception."""

    outcome: Outcome
    traceback: str | None


class StoredFiles(NamedTuple):
    """Where a queue's files are: the way to them from another process, which has its keys from its own environment."""

    location: str | None
    namespace: str = ""

    @classmethod
    def of(cls, files: Files) -> StoredFiles:
        """Return where these files are, whatever the current folder of the other process is."""
        is_folder = "://" not in files.location
        return cls(os.path.abspath(files.location) if is_folder else files.location, files.namespace)

    def __call__(self) -> Files:
        if self.location is None:
            raise Mistake('this worker has no storage for files; give it one: Worker(url, blobs="s3://bucket/prefix")')
        return _open(self.location, self.namespace)


@cache
def _open(location: str, namespace: str) -> Files:
    return Files(location, namespace, FileCipher(load_keyring()))


class DocumentCall:
    """One document and its handler: what an executor is given. Called, it returns an `Answer`; it can be pickled."""

    def __init__(
        self,
        function: Callable[..., Any],
        claim: Claim,
        backoff: Backoff,
        files: Callable[[], Files],
        stored_files: StoredFiles,
        report: Callable[[ProgressReport], None],
    ) -> None:
        self.report = report  # an executor that gets reports back from elsewhere passes them on here, from any thread
        self._function = function
        self._claim = claim
        self._backoff = backoff
        self._files = files
        self._stored_files = stored_files

    def __call__(self) -> Answer:
        document = ClaimedDocument(self._claim, self.report, self._files)
        return Answer(*run_handler(self._function, document, self._backoff))

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"report": _drop, "_files": self._stored_files}


def _drop(report: ProgressReport) -> None:
    """Drop a report: there is no way back to the worker from here."""


class RunExecutor:
    """The executor of one run of a worker, and what its calls need."""

    def __init__(self, executor: Executor, files: Callable[[], Files], stored_files: StoredFiles, backoff: Backoff) -> None:
        self._executor = executor
        self._files = files
        self._stored_files = stored_files
        self._backoff = backoff

    def submit(self, function: Callable[..., Any], claim: Claim, report: Callable[[ProgressReport], None]) -> Future[Answer]:
        """Have the executor run a document's handler."""
        call = DocumentCall(function, claim, self._backoff, self._files, self._stored_files, report)
        return self._executor.submit(call)


def slots_of(executor: object, slots: int | None, default: int) -> int:
    """Return how many documents run at once; raises BadValue unless it is known, or if the executor has fewer slots."""
    if executor is None:
        return default if slots is None else slots
    if not callable(getattr(executor, "submit", None)):
        raise BadValue("executor", executor, "one of concurrent.futures, a RayExecutor, or another object with submit(call)")
    own: int | None = getattr(executor, "slots", None)
    wanted = own if slots is None else slots
    if wanted is None:
        raise BadValue("slots", slots, "as many as the executor has threads or processes: Worker(url, executor=…, slots=8)")
    if own is not None and wanted > own:
        raise BadValue("slots", slots, f"at most {own}, as the executor runs that many at once; or leave slots out")
    return wanted
