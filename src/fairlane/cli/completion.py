"""How does a shell learn to complete what is typed? Commands and options come from click, customers from the queue."""

from __future__ import annotations

import click

from .group import main

SWITCH_ON = {
    "bash": 'eval "$(fairlane completion bash)"    # in ~/.bashrc',
    "zsh": 'eval "$(fairlane completion zsh)"     # in ~/.zshrc',
    "fish": "fairlane completion fish | source     # in ~/.config/fish/config.fish",
}


@main.command(epilog="Example:\n\n\b\n  " + "\n  ".join(SWITCH_ON.values()))
@click.argument("shell", type=click.Choice(list(SWITCH_ON)))
def completion(shell: str) -> None:
    """Print what switches on completion in SHELL.

    Commands, options and the ids of customers are then completed with the tab key.
    """
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None, "click knows the shells of the choice"
    click.echo(made(main, {}, "fairlane", "_FAIRLANE_COMPLETE").source())
