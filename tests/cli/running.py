"""How tests run a command: in this process, or as a program of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from click.testing import CliRunner, Result

from fairlane.cli import main

COMMAND = [sys.executable, "-m", "fairlane.cli"]


def run(*arguments: str, input: str | bytes | None = None, **environment: str) -> Result:
    """What a command says and how it ends."""
    return CliRunner(env={"FAIRLANE_URL": None, **environment}).invoke(main, arguments, input=input, prog_name="fairlane")


def told(*arguments: str) -> list[Any]:
    """What a command that succeeds says in JSON, line by line."""
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def start(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    """A command as a program of its own."""
    environment = {name: value for name, value in os.environ.items() if name != "FAIRLANE_URL"}
    return subprocess.Popen([*COMMAND, *arguments], text=True, env=environment, **options)
