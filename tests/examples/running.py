"""How tests run examples: a copy in a folder of its own, the commands of its README, and servers beside them."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.api.running import until

EXAMPLES = Path(__file__).parents[2] / "examples"
LINES_MAX = 50  # a README of one screen


def copy_example(name: str, folder: Path) -> Path:
    """Copy an example, whose README must be of one screen; return the copy."""
    copied = folder / name
    shutil.copytree(EXAMPLES / name, copied, ignore=shutil.ignore_patterns("__pycache__", "*.db*"))
    assert len((copied / "README.md").read_text().splitlines()) <= LINES_MAX
    return copied


def environment(**variables: str) -> dict[str, str]:
    """Return an environment in which `python` and `fairlane` are those of the tests."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("FAIR", "OTEL_", "CELERY_", "DJANGO_"))}
    return own | variables | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONWARNINGS": "ignore"}


def bash(script: str, folder: Path, **variables: str) -> str:
    """Run a script as in a terminal, and stop at the first command that fails; return what it prints."""
    command = ["bash", "-euo", "pipefail", "-c", script]
    done = subprocess.run(
        command, cwd=folder, env=environment(**variables), capture_output=True, text=True, check=False, timeout=120
    )
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
