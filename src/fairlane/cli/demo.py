"""The command that makes sample documents."""

from __future__ import annotations

from shlex import quote

import click

from fairlane.demo.make import make

from .group import main
from .shared import counted, json_option, tell


@main.command(epilog="Example:  fairlane demo inbox && fairlane process inbox")
@click.argument("folder", type=click.Path())
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed makes the same documents.")
@click.option("--big", type=int, default=150, show_default=True, help="How many documents the big customer has.")
@click.option("--small", type=int, default=5, show_default=True, help="How many small customers there are; up to 10.")
@click.option("--each", type=int, default=4, show_default=True, help="How many documents each small customer has.")
@click.option("--paragraphs", type=int, default=6, show_default=True, help="How long each document is.")
@json_option
def demo(folder: str, seed: int, big: int, small: int, each: int, paragraphs: int, as_json: bool) -> None:
    """Make sample documents in FOLDER, which must be new or empty.

    One big and several small customers, each in a sub-folder of its own; letters and invoices in five languages as PDF,
    DOCX, text, e-mail, HTML, Markdown, CSV and JSON.
    """
    counts = make(folder, seed, big, small, each, paragraphs)
    lines = [f"  {customer:12} {count:,}" for customer, count in counts.items()]
    total = counted(sum(counts.values()))
    tell(as_json, {"folder": folder, "documents": counts}, "\n".join([f"{total} in {folder}:", *lines, _next(folder)]))


def _next(folder: str) -> str:
    return f"Work them off with: fairlane process {quote(folder)}"
