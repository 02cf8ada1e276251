"""How tests run a command: in this process, or as a program of its own."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from fcntl import ioctl
from typing import Any

from click.testing import CliRunner, Result

from fairlane.cli import main

COMMAND = [sys.executable, "-m", "fairlane.cli"]


def run(*arguments: str, input: str | bytes | None = None, **environment: str) -> Result:
    """What a command says and how it ends."""
    return CliRunner(env={"FAIRLANE_URL": None, "FAIRLANE_BLOBS": None, **environment}).invoke(
        main, arguments, input=input, prog_name="fairlane"
    )


def told(*arguments: str) -> list[Any]:
    """What a command that succeeds says in JSON, line by line."""
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


OURS = ("FAIRLANE_URL", "FAIRLANE_BLOBS", "COLUMNS", "LINES")  # a test says itself where the queue is, and how wide a terminal


class Program(subprocess.Popen[str]):
    """A program that a test never waits for in vain."""

    def __exit__(self, *told: Any) -> None:
        if self.returncode is None and told[0] is not None:
            self.kill()
        self.wait(timeout=60)
        super().__exit__(*told)


def start(*arguments: str, **options: Any) -> Program:
    """A command as a program of its own."""
    environment = {name: value for name, value in os.environ.items() if name not in OURS}
    environment |= options.pop("environment", {})
    return Program([*COMMAND, *arguments], text=True, env=environment, **options)


def ran(*arguments: str, **options: Any) -> tuple[int, str, str]:
    """How a program of its own ended, and what it said."""
    with start(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options) as program:
        said, complained = program.communicate(timeout=60)
    assert "Traceback" not in complained
    return program.returncode, said, complained


class Terminal:
    """A terminal of a given size with one command in it; what it shows is read until it is what we wait for."""

    def __init__(self, columns: int, lines: int, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.program = start(*arguments, stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        self.shown = ""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._ours)
        self.program.kill()
        self.program.wait()

    def read(self) -> bool:
        """Read more; False if nothing more will come."""
        readable, _, _ = select.select([self._ours], [], [], 30)
        assert readable, f"nothing more came, and it had shown only: {self.shown}"
        try:
            more = os.read(self._ours, 65536)
        except OSError:  # how a terminal says that nobody writes to it any more
            return False
        self.shown += re.sub(r"\x1b\[[?\d;]*[A-Za-z]|\r", "", more.decode(errors="replace"))
        return bool(more)

    def wait_for(self, wanted: Callable[[str], object]) -> None:
        """Until it shows what is wanted."""
        deadline = time.monotonic() + 30
        while not wanted(self.shown):
            assert time.monotonic() < deadline, f"it does not come; what was shown: {self.shown[-4000:]}"
            assert self.read(), f"it ended, and had shown only: {self.shown}"

    def ended(self) -> int:
        """How the command ended, after everything it showed was read."""
        while self.read():
            pass
        return self.program.wait(timeout=30)
