"""Options that commands share, and how they open the queue."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import click

from fairlane.core.document import State
from fairlane.core.errors import FairlaneError, Mistake
from fairlane.queue import KEEP, Queue
from fairlane.queue.audit import cli_actor
from fairlane.queue.audited_queue import AuditedQueue
from fairlane.settings import Settings, load_settings

from .param_types import MOMENT, SIZE, OptionalType

if TYPE_CHECKING:
    from .remote import RemoteQueue

COMPLETIONS_MAX = 50
SERVER_CUSTOMERS_MAX = 500  # read from a server to complete a customer's id: it cannot filter by prefix

URL_HELP = (
    "The queue's store. Default: FAIRLANE_URL, then url in fairlane.toml, then sqlite:///fairlane.db. Put a URL with a "
    "password there: other users of the machine can read arguments."
)
SERVER, KEY_FILE = "fairlane.server", "fairlane.key_file"  # keys of click's context.meta
F = TypeVar("F", bound=Callable[..., Any])


LIMITS: tuple[tuple[str, Any, str], ...] = (
    ("--waiting-max", click.INT, "How many documents of a customer may wait."),
    ("--descendants-max", click.INT, "How many documents may come out of one, archives in archives included."),
    ("--documents-max", click.INT, "How many documents of a customer are kept, in any state."),
    ("--bytes-max", SIZE, "What its payloads, results and files may take, such as 500MB or 50GB."),
    ("--retries-max", click.INT, "How often a customer may retry one failed document."),
)


def limit_options(command: F) -> F:
    """Add an option for each limit of customers."""
    for name, type, help in reversed(LIMITS):
        metavar = "SIZE|none" if type is SIZE else "N|none"
        command = click.option(name, type=OptionalType(type), default=KEEP, metavar=metavar, help=help)(command)
    return command


def _store_in_context(name: str) -> Callable[[click.Context, click.Parameter, str | None], None]:
    """Keep an option's value in the context, for `open_queue`, so that commands need no parameter for it."""

    def store(context: click.Context, _: click.Parameter, value: str | None) -> None:
        context.meta[name] = value

    return store


def _refuse_server(context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        raise Mistake(
            f"`{context.command_path}` needs the store itself and does not work through a server; run it where the store can "
            "be reached, with --url"
        )


def url_option(command: F) -> F:
    """Add --url to a command that needs the store itself."""
    hidden = click.option("--server", hidden=True, expose_value=False, callback=_refuse_server)
    return click.option("--url", metavar="URL", help=URL_HELP)(hidden(command))


def queue_options(command: F) -> F:
    """Add --url, --server and --key-file to a command that works on a store or through a server."""
    server = click.option(
        "--server", metavar="URL", expose_value=False, callback=_store_in_context(SERVER),
        help="Use this server instead of a store. Default: FAIRLANE_SERVER, then server in fairlane.toml.",
    )  # fmt: skip
    key_file = click.option(
        "--key-file", metavar="FILE", expose_value=False, callback=_store_in_context(KEY_FILE), type=click.Path(),
        help="A file with the key for the server. Default: the key in FAIRLANE_KEY.",
    )  # fmt: skip
    return click.option("--url", metavar="URL", help=URL_HELP)(server(key_file(command)))


def filter_options(command: F) -> F:
    """Add the options that select documents; those that were left out are None."""
    for option in (
        click.option("--until", type=MOMENT, metavar="TIME", help="Submitted before then."),
        click.option(
            "--since", type=MOMENT, metavar="TIME", help="Submitted then or later: 24h (ago), 2026-11-18, 2026-11-18T07:30."
        ),
        click.option("--reason", metavar="TEXT", help="Only failed documents whose reason contains this text."),
        click.option("--state", type=click.Choice(get_args(State)), help="Only documents in this state."),
        click.option("--kind", help="Only documents of this kind."),
        click.option("--customer", shell_complete=complete_customer, help="Only documents of this customer."),
    ):
        command = option(command)
    return command


blobs_option = click.option(
    "--blobs",
    metavar="FOLDER|URL",
    help="The folder or s3://bucket/prefix of the documents' files. Default: FAIRLANE_BLOBS, then blobs in fairlane.toml, then "
    "a folder beside the queue.",
)
unsafe_option = click.option(
    "--unsafe-files-may-read-everything",
    "is_unsafe",
    is_flag=True,
    help="Read files also on a machine where nothing keeps a hostile one from reading other customers' files, the queue and "
    "passwords. Default: refuse to.",
)
ocr_option = click.option(
    "--ocr-languages",
    metavar="NAMES",
    help="Languages that scans are read in, as tesseract names them: eng+ces. Default: FAIRLANE_OCR_LANGUAGES, then "
    "ocr_languages in fairlane.toml, then English, Polish, Portuguese, Spanish and German.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


def store_settings(
    url: str | None, blobs: str | None = None, is_unsafe: bool = False, ocr_languages: str | None = None
) -> Settings:
    """Load the settings of a command that needs the store itself."""
    settings = load_settings(url, os.environ, Path.cwd(), blobs, is_unsafe=is_unsafe, ocr_languages=ocr_languages)
    if not settings.url:
        path = click.get_current_context().command_path
        raise Mistake(
            f"`{path}` needs the store itself, but only a server is configured (FAIRLANE_SERVER, or server in fairlane.toml); "
            "run it where the store can be reached, with --url"
        )
    return settings


def open_store(url: str | None, create: bool = True, blobs: str | None = None) -> AuditedQueue:
    """Open the queue in its store; what the command changes is in the audit log."""
    settings = store_settings(url, blobs)
    return AuditedQueue(Queue(settings.url, create=create, blobs=settings.blobs), cli_actor())


def open_queue(url: str | None, create: bool = True, blobs: str | None = None) -> Queue | RemoteQueue:
    """Open the queue in its store, or behind a server; both have the same methods."""
    meta = click.get_current_context().meta
    settings = load_settings(url, os.environ, Path.cwd(), blobs, meta.get(SERVER))
    if settings.server is None:
        return AuditedQueue(Queue(settings.url, create=create, blobs=settings.blobs), cli_actor())
    if blobs is not None:
        raise Mistake("--blobs names the files of a store; a server has its own setting for that: leave --blobs out")
    from .remote import RemoteQueue, read_key

    return RemoteQueue(settings.server, read_key(meta.get(KEY_FILE), os.environ))


def complete_customer(context: click.Context, _: click.Parameter, prefix: str) -> list[str]:
    """List customers with this prefix, for the shell; none if the queue cannot be opened."""
    try:
        with context.scope(cleanup=False), open_queue(context.params.get("url"), create=False) as queue:
            ids = _customer_ids(queue, prefix)
    except FairlaneError:
        return []
    return [id for id in ids if id.startswith(prefix)]


def _customer_ids(queue: Queue | RemoteQueue, prefix: str) -> list[str]:
    if not isinstance(queue, Queue):
        return [look.customer for look in islice(queue.customers(), SERVER_CUSTOMERS_MAX)]
    page = queue.engine.customers(prefix, COMPLETIONS_MAX)  # ids after the prefix, so not an id that equals it
    exact = [queue.engine.customer(prefix)] if prefix else []
    known = [customer for customer in exact if customer.standing.resets or customer.terms_version]
    return [customer.id for customer in (*known, *page)]


customer_argument = click.argument("customer", shell_complete=complete_customer)
