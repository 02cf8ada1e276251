"""The `fairlane` command group: its help, and how errors become messages and exit codes."""

from __future__ import annotations

import contextlib
import os
import sys
from io import TextIOWrapper
from typing import Any

import click

from fairlane import __version__
from fairlane.core.errors import FairlaneError, Mistake, QueueFull

from .output import echo

EXIT_FAILURE = 1  # the output could not be written, the user declined, or a document failed
EXIT_USAGE = 2  # the call is wrong: change it
EXIT_STORE = 3  # the store failed, or too many documents wait: try again, or repair it
EXIT_FINDINGS = 4  # the command ran, and found differences or problems


SECTIONS = {
    "Try it": ("demo", "process", "simulate", "advise", "verify"),
    "Documents": (
        "submit",
        "work",
        "documents",
        "show",
        "result",
        "events",
        "explain",
        "cancel",
        "retry",
        "prioritize",
        "purge",
        "sweep",
    ),
    "Service": ("serve", "keys", "audit", "workers", "kinds", "kind"),
    "Customers": ("status", "check", "pause", "resume", "tune", "reset", "forget"),
}


class _CommandGroup(click.Group):
    """Turns errors into one line and an exit code, never a traceback; lists commands by section."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        listed = [name for names in SECTIONS.values() for name in names]
        others = tuple(name for name in self.list_commands(ctx) if name not in listed)
        for title, names in {**SECTIONS, "Rules and tools": others}.items():
            commands = [(name, self.commands[name]) for name in names if name in self.commands]
            if commands:
                with formatter.section(title):
                    formatter.write_dl([(name, command.get_short_help_str(formatter.width)) for name, command in commands])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except FairlaneError as error:
            echo(*f"fairlane: {error}".replace("\n", "\n    ").split("\n"), err=True)  # a quoted line never looks like ours
            ctx.exit(EXIT_USAGE if isinstance(error, Mistake) and not isinstance(error, QueueFull) else EXIT_STORE)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # do not fail on a letter that the terminal cannot encode
        try:
            try:
                return super().main(*args, **kwargs)  # click exits quietly when the pipe is closed
            finally:
                sys.stdout.flush()
        except OSError as error:
            echo(f"fairlane: cannot write the output: {error}", err=True)
            _discard_output()
            sys.exit(EXIT_FAILURE)


def _discard_output() -> None:
    """Redirect stdout to /dev/null: Python flushes it once more at exit, and exits with 120 if that fails."""
    with contextlib.suppress(OSError):  # stdout without a file descriptor has nothing to flush
        descriptor = sys.stdout.fileno()
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, descriptor)
        os.close(null)


@click.group(cls=_CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fairlane")
def main() -> None:
    """Fairlane: a fair priority queue for document processing.

    Every document moves its customer's counter one step down, and a pause in sending resets it to zero. The counter decides
    the document's priority: 1 is served first, 9 last.
    """
