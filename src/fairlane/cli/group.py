"""The command `fairlane` itself: what it says of its commands, and how errors end it."""

from __future__ import annotations

from typing import Any

import click

from fairlane import __version__
from fairlane.core.errors import FairlaneError, Mistake

EXIT_ANSWER = 1  # it was done, but the answer could not be written
EXIT_MISTAKE = 2  # what was asked for cannot be: change the call
EXIT_STORE = 3  # the store could not do it: try again, or mend it
EXIT_FOUND = 4  # it was done, and what was looked for is there: differences


class _Commands(click.Group):
    """Turns our errors into one line and an exit code, never a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except FairlaneError as error:
            click.echo(f"fairlane: {error}", err=True)
            ctx.exit(EXIT_MISTAKE if isinstance(error, Mistake) else EXIT_STORE)
        except BrokenPipeError:
            raise  # click ends quietly
        except OSError as error:
            click.echo(f"fairlane: the answer cannot be written: {error}", err=True)
            ctx.exit(EXIT_ANSWER)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fairlane")
def main() -> None:
    """Fairlane: a fair priority queue for document processing.

    Every document steps its customer's counter down, silence sets it back to zero, and the counter picks the document's
    priority: 1 is served first, 9 last.
    """
