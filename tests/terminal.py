"""A terminal for tests: scripts of bash in a folder, and programs beside them, with `python` and `fairlane` of the tests."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.api.running import until

SECONDS_MAX = 300  # of a script


def environment(**variables: str) -> dict[str, str]:
    """Return an environment in which `python` and `fairlane` are those of the tests."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("FAIR", "OTEL_", "CELERY_", "DJANGO_"))}
    return own | variables | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONWARNINGS": "ignore"}


def bash(script: str, folder: Path, **variables: str) -> str:
    """Run a script as in a terminal, and stop at the first command that fails; return what it prints."""
    command = ["bash", "-euo", "pipefail", "-c", script]
    done = subprocess.run(
        command, cwd=folder, env=environment(**variables), stdin=subprocess.DEVNULL, capture_output=True, text=True,
        check=False, timeout=SECONDS_MAX,
    )  # fmt: skip
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def listens(port: int) -> bool:
    """Whether a server accepts connections on a port of this machine."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def beside(command: str, folder: Path, port: int | None = None, **variables: str) -> Iterator[None]:
    """Run a program in another terminal until the block ends; a server is up when it listens on its port."""
    log = folder / (re.sub(r"\W+", "-", command) + ".log")
    with log.open("wb") as output:
        program = subprocess.Popen(
            ["bash", "-c", f"exec {command}"], cwd=folder, env=environment(**variables), stdout=output, stderr=output
        )
    try:
        until(lambda: port is None or listens(port) or program.poll() is not None, f"the start of {command}")
        assert program.poll() is None, log.read_text()
        yield
    finally:
        program.terminate()
        program.wait(60)
