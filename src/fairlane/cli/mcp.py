"""The command that serves an assistant: tools for support over the Model Context Protocol."""

from __future__ import annotations

import click

from fairlane.core.errors import Mistake

from .group import main
from .options import open_queue, queue_options


@main.command(epilog="Example:  fairlane mcp --server https://fairlane.example.com --key-file viewer.key")
@click.option(
    "--allow-changes", is_flag=True, help="Offer tools that pause and resume customers and prioritize documents, too."
)
@queue_options
def mcp(allow_changes: bool, url: str | None) -> None:
    """Serve an assistant that answers questions of support.

    An assistant's program starts it and speaks the Model Context Protocol over standard input and output. Its tools explain why
    a document waits, say where a customer stands and what the queue does, find documents and tell their lives. They show
    neither payloads nor results nor files. Through a server the permissions of the key hold: a viewer's key is enough to read.
    """
    try:
        from fairlane.mcp.server import support_server
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("mcp", "mcp_types"):
            raise
        raise Mistake("fairlane mcp needs a package that is not installed; run in the clone: pip install '.[mcp]'") from None
    with open_queue(url, create=False) as queue:
        support_server(queue, may_change=allow_changes).run()
