"""The command `fairlane` itself: what it says of its commands, and how errors end it."""

from __future__ import annotations

import contextlib
import os
import sys
from io import TextIOWrapper
from typing import Any

import click

from fairlane import __version__
from fairlane.core.errors import FairlaneError, Mistake

EXIT_OTHERWISE = 1  # it ended otherwise than asked: the answer could not be written, you said no, a document failed
EXIT_MISTAKE = 2  # what was asked for cannot be: change the call
EXIT_STORE = 3  # the store could not do it: try again, or mend it
EXIT_FOUND = 4  # it was done, and what was looked for is there: differences


SECTIONS = {
    "Try it": ("demo", "process", "simulate", "advise", "verify"),
    "Documents": ("submit", "work", "explain", "cancel", "retry", "purge", "sweep"),
    "Service": ("serve", "keys"),
    "Customers": ("status", "check", "pause", "resume", "tune", "reset", "forget"),
}


class _Commands(click.Group):
    """Turns our errors into one line and an exit code, never a traceback; lists commands by what they are for."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        listed = [name for names in SECTIONS.values() for name in names]
        others = tuple(name for name in self.list_commands(ctx) if name not in listed)
        for title, names in {**SECTIONS, "Rules and tools": others}.items():
            known = [(name, self.commands[name]) for name in names if name in self.commands]
            if known:
                with formatter.section(title):
                    formatter.write_dl([(name, command.get_short_help_str(formatter.width)) for name, command in known])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except FairlaneError as error:
            click.echo(f"fairlane: {error}", err=True)
            ctx.exit(EXIT_MISTAKE if isinstance(error, Mistake) else EXIT_STORE)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # a letter that the terminal has no code for is no reason to fail
        try:
            try:
                return super().main(*args, **kwargs)  # a closed pipe ends it quietly
            finally:
                sys.stdout.flush()
        except OSError as error:
            click.echo(f"fairlane: the answer cannot be written: {error}", err=True)
            _discard_output()
            sys.exit(EXIT_OTHERWISE)


def _discard_output() -> None:
    """Send what is still buffered nowhere: Python flushes stdout once more as it exits, and ends with 120 if that fails."""
    with contextlib.suppress(OSError):  # stdout has no file descriptor: nothing is flushed to a file either
        descriptor = sys.stdout.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, descriptor)
        os.close(nowhere)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fairlane")
def main() -> None:
    """Fairlane: a fair priority queue for document processing.

    Every document steps its customer's counter down, silence sets it back to zero, and the counter picks the document's
    priority: 1 is served first, 9 last.
    """
