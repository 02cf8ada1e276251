"""What every test may use: a program of the system, installed if that is allowed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from hypothesis import settings

settings.register_profile("fairlane", deadline=None)  # the machine may be busy: no test is judged by its time
settings.load_profile("fairlane")
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # a shell starts what is in the background so, and programs inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


def need_program(name: str, package: str) -> str:
    """The path of a program; installed where the run may do so, else a skip with its reason, which CI does not accept."""
    found = shutil.which(name)
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "update", "-qq"], check=False, capture_output=True)
        subprocess.run(["apt-get", "install", "-qq", "-y", package], check=False, capture_output=True)
        found = shutil.which(name)
    if found is None:
        missing(f"the program {name} is not here; install the package {package}")
    assert found is not None
    return found


def missing(reason: str) -> None:
    """Skip at home, fail in CI."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture
def program() -> Callable[[str, str], str]:
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
