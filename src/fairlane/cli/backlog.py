"""The option that applies a changed table to waiting documents, for the commands that change one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fairlane.queue import Queue

from .output import ProgressBar, format_count

if TYPE_CHECKING:
    from .remote import RemoteQueue

backlog_option = click.option(
    "--apply-to-backlog", is_flag=True, help="Give waiting documents the priorities that the thresholds of now give."
)


def apply_table(queue: Queue | RemoteQueue, customer: str | None, as_json: bool) -> int:
    """Apply the table of now to the waiting documents of a customer, or of all; return how many changed."""
    with ProgressBar("reprioritized", as_json) as bar:
        return queue.apply_table(customer, on_progress=bar.update)


def reprioritized_sentence(changed: int) -> str:
    """Say how many waiting documents got another priority."""
    if not changed:
        return "No waiting document got another priority."
    return f"{format_count(changed, 'waiting document')} got another priority."
