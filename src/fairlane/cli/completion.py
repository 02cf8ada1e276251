"""The command that prints a shell's completion script; commands and options come from click, customers from the queue."""

from __future__ import annotations

import click

from .group import main
from .output import echo_exactly

SETUP_LINES = {
    "bash": 'eval "$(fairlane completion bash)"    # in ~/.bashrc',
    "zsh": 'eval "$(fairlane completion zsh)"     # in ~/.zshrc',
    "fish": "fairlane completion fish | source     # in ~/.config/fish/config.fish",
}


@main.command(epilog="Example:\n\n\b\n  " + "\n  ".join(SETUP_LINES.values()))
@click.argument("shell", type=click.Choice(list(SETUP_LINES)))
def completion(shell: str) -> None:
    """Print the script that turns on completion in SHELL.

    The tab key then completes commands, options and the ids of customers.
    """
    from click.shell_completion import get_completion_class

    completion_class = get_completion_class(shell)
    assert completion_class is not None, "click has a class for every shell of the choice"
    echo_exactly(completion_class(main, {}, "fairlane", "_FAIRLANE_COMPLETE").source())
