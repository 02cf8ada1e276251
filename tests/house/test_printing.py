"""Commands print through cli/output.py, so that a new one cannot forget to make other people's text printable."""

from __future__ import annotations

import ast
from pathlib import Path

from fairlane.cli import main
from tests.cli.test_hostile_text import COMMANDS, OTHERS

CLI = Path(__file__).parents[2] / "src/fairlane/cli"
DIRECT = {"click.echo", "click.secho", "click.confirm", "click.prompt", "click.echo_via_pager", "print", "Text"}


def test_every_command_is_run_with_hostile_text() -> None:
    """Add a new command to the table of that test."""
    assert set(COMMANDS) | OTHERS == set(main.commands)


def test_commands_print_through_one_module() -> None:
    """Use `echo`, `confirm`, `print_result`, `print_json`, `print_table` or `styled` of that module instead."""
    calls = {
        (path.name, ast.unparse(node.func))
        for path in CLI.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in DIRECT
    }
    assert {name for name, _ in calls} == {"output.py"}, calls
