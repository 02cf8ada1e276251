"""The command that makes sample documents, and the service that is fed with them."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

import click

from fairlane.core.errors import BadValue, Mistake
from fairlane.demo.make import make
from fairlane.folders.scan import scan

from .common import counted, json_option, tell, temporary_folder
from .group import main


@main.command(epilog="Example:  fairlane demo inbox && fairlane process inbox    (or: fairlane demo --serve)")
@click.argument("folder", type=click.Path(), required=False)
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed makes the same documents.")
@click.option("--big", type=int, default=150, show_default=True, help="How many documents the big customer has.")
@click.option("--small", type=int, default=5, show_default=True, help="How many small customers there are; up to 10.")
@click.option("--each", type=int, default=4, show_default=True, help="How many documents each small customer has.")
@click.option("--paragraphs", type=int, default=6, show_default=True, help="How long each document is.")
@click.option("--serve", is_flag=True, help="Run the service and let these customers use it, until Ctrl-C.")
@click.option("--port", type=int, help="With --serve: listen there; else on 8000 or the next that is free.")
@json_option
def demo(
    folder: str | None, seed: int, big: int, small: int, each: int, paragraphs: int, serve: bool, port: int | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Make sample documents in FOLDER, which must be new or empty.

    One big and several small customers, each in a sub-folder of its own; letters and invoices in five languages as PDF,
    DOCX, text, e-mail, HTML, Markdown, CSV and JSON. With --serve there is no FOLDER: the service runs in a temporary one, on
    a SQLite file, the big customer floods it and the small ones send now and then, all with keys of their own.
    """
    if serve:
        return _serve(folder, (seed, big, small, each, paragraphs), port, as_json)
    if folder is None:
        raise Mistake("say where: fairlane demo FOLDER; or fairlane demo --serve, which needs none")
    if port is not None:
        raise Mistake("--port says where the service listens; give it with --serve")
    counts = make(folder, seed, big, small, each, paragraphs)
    lines = [f"  {customer:12} {count:,}" for customer, count in counts.items()]
    total = counted(sum(counts.values()))
    return tell(as_json, {"folder": folder, "documents": counts}, "\n".join([f"{total} in {folder}:", *lines, _next(folder)]))


def _serve(folder: str | None, sizes: tuple[int, int, int, int, int], port: int | None, as_json: bool) -> None:
    if folder is not None or as_json:
        raise Mistake("--serve takes no FOLDER and no --json: it runs in a temporary folder, to be watched")
    if port is not None and not 0 <= port <= 65535:
        raise BadValue("--port", port, "a whole number from 0 to 65535")
    from .demo_server import show

    with temporary_folder("fairlane-demo-") as temporary:
        inbox = str(Path(temporary) / "inbox")
        make(inbox, *sizes)
        show(Path(temporary), scan(inbox).documents, port)


def _next(folder: str) -> str:
    return f"Work them off with: fairlane process {quote(folder)}"
