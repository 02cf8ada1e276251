"""Helpers of tests that run a command: in this process, as a program of its own, or in a terminal."""

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
UNSET = ("FAIRLANE_URL", "FAIRLANE_BLOBS", "COLUMNS", "LINES")  # a test sets the queue and the terminal's size itself


def run(*arguments: str, input: str | bytes | None = None, **environment: str) -> Result:
    """Run a command in this process."""
    return CliRunner(env={"FAIRLANE_URL": None, "FAIRLANE_BLOBS": None, **environment}).invoke(
        main, arguments, input=input, prog_name="fairlane"
    )


def run_json(*arguments: str) -> list[Any]:
    """Run a command that succeeds with --json; return the values it prints, line by line."""
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


class Program(subprocess.Popen[str]):
    """A program that is killed if the test fails."""

    def __exit__(self, *error: Any) -> None:
        if self.returncode is None and error[0] is not None:
            self.kill()
        self.wait(timeout=60)
        super().__exit__(*error)


def start(*arguments: str, **options: Any) -> Program:
    """Start a command as a program of its own."""
    environment = {name: value for name, value in os.environ.items() if name not in UNSET}
    environment |= options.pop("environment", {})
    return Program([*COMMAND, *arguments], text=True, env=environment, **options)


def run_program(*arguments: str, **options: Any) -> tuple[int, str, str]:
    """Run a command as a program of its own; return its exit code, output and errors."""
    with start(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options) as program:
        stdout, stderr = program.communicate(timeout=60)
    assert "Traceback" not in stderr
    return program.returncode, stdout, stderr


class Terminal:
    """A terminal of a given size with one command in it; `shown` is everything it has displayed so far."""

    def __init__(self, columns: int, lines: int, *arguments: str) -> None:
        self._controller, terminal = pty.openpty()
        ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.program = start(*arguments, stdin=terminal, stdout=terminal, stderr=terminal)
        os.close(terminal)
        self.shown = ""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._controller)
        self.program.kill()
        self.program.wait()

    def read(self) -> bool:
        """Read more output; return False at its end."""
        readable, _, _ = select.select([self._controller], [], [], 30)
        assert readable, f"no more output; so far: {self.shown}"
        try:
            output = os.read(self._controller, 65536)
        except OSError:  # the other side was closed
            return False
        self.shown += re.sub(r"\x1b\[[?\d;]*[A-Za-z]|\r", "", output.decode(errors="replace"))
        return bool(output)

    def wait_for(self, condition: Callable[[str], object]) -> None:
        """Read until the output meets the condition."""
        deadline = time.monotonic() + 30
        while not condition(self.shown):
            assert time.monotonic() < deadline, f"the expected output did not come; the last of it: {self.shown[-4000:]}"
            assert self.read(), f"the command ended; its output: {self.shown}"

    def wait(self) -> int:
        """Read the output to its end; return the exit code."""
        while self.read():
            pass
        return self.program.wait(timeout=30)
