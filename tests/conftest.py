"""Helpers of all tests: programs of the system, and running as an ordinary user."""

from __future__ import annotations

import gc
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from hypothesis import settings

from .system import why_missing

settings.register_profile("fairlane", deadline=None)  # on a busy machine a deadline would fail good tests
settings.load_profile("fairlane")
# A shell ignores SIGINT for background jobs, and nohup ignores SIGHUP; programs that tests start would inherit that.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, handler)


def pytest_collection_finish() -> None:
    """Freeze the garbage collector's objects: many tests fork this process, and a collection would copy every page."""
    gc.collect()
    gc.freeze()


def need_program(name: str) -> str:
    """Return the path of a program of the system; without it skip the test with the reason, or fail in CI."""
    reason = why_missing(name)
    if reason is not None:
        missing(reason)
    return shutil.which(name) or ""


def missing(reason: str) -> None:
    """Skip the test, or fail it in CI."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture
def program() -> Callable[[str], str]:
    return need_program


@contextmanager
def as_nobody() -> Iterator[None]:
    """Run as user nobody if this is root, who may read everything; use it with paths relative to this folder."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
