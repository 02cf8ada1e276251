"""What every test may use: the programs of the system."""

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

settings.register_profile("fairlane", deadline=None)  # the machine may be busy: no test is judged by its time
settings.load_profile("fairlane")
# A shell ignores SIGINT for what it starts in the background, nohup SIGHUP, and programs that tests start inherit that.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, handler)


def pytest_collection_finish() -> None:
    """Many tests fork this process: keep the garbage collector away from what was collected, or every fork copies it."""
    gc.collect()
    gc.freeze()


def need_program(name: str) -> str:
    """The path of a program of the system; without it the test is skipped with the reason, which CI does not accept."""
    reason = why_missing(name)
    if reason is not None:
        missing(reason)
    return shutil.which(name) or ""


def missing(reason: str) -> None:
    """Skip at home, fail in CI."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture
def program() -> Callable[[str], str]:
    return need_program


@contextmanager
def as_nobody() -> Iterator[None]:
    """As an ordinary user, whom permissions stop: root may read everything. Use it with paths relative to this folder."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
