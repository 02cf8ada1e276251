"""What the commands have in common: options, opening the queue, and how answers are shown. `rich` is loaded only to draw."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from fairlane.core.errors import FairlaneError, Mistake
from fairlane.queue import Queue
from fairlane.settings import Settings, load_settings

if TYPE_CHECKING:
    from rich.table import Table

    from .remote import Remote

OFFERED_MAX = 50  # customers that a shell lists
ASKED_MAX = 500  # customers that a server is asked for to find them
PIPE_WIDTH = 160  # a pipe has no edge to wrap at
FIRST_LEAST = 8  # so much of a row's name is shown, however narrow the terminal is
ENDING = (signal.SIGTERM, signal.SIGHUP)

URL_HELP = "The queue; else FAIRLANE_URL, else url in fairlane.toml, else sqlite:///fairlane.db."
SERVER, KEY_FILE = "fairlane.server", "fairlane.key_file"  # where a context keeps what was said
F = TypeVar("F", bound=Callable[..., Any])


def _kept(name: str) -> Callable[[click.Context, click.Parameter, str | None], None]:
    """What an option said is kept for `open_queue`: no command needs to know of it."""

    def keep(context: click.Context, _: click.Parameter, value: str | None) -> None:
        context.meta[name] = value

    return keep


def _no_server(context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        raise Mistake(
            f"`{context.command_path}` works on the store itself and not through a server; run it where the store can be "
            "reached, with --url"
        )


def url_option(command: F) -> F:
    """For commands that need the store itself."""
    hidden = click.option("--server", hidden=True, expose_value=False, callback=_no_server)
    return click.option("--url", metavar="URL", help=URL_HELP)(hidden(command))


def place_options(command: F) -> F:
    """For commands that work on a store or through a server."""
    server = click.option(
        "--server", metavar="URL", expose_value=False, callback=_kept(SERVER),
        help="Use the server there instead; else FAIRLANE_SERVER, else server in fairlane.toml.",
    )  # fmt: skip
    key_file = click.option(
        "--key-file", metavar="FILE", expose_value=False, callback=_kept(KEY_FILE), type=click.Path(),
        help="Holds the key of the server; else it is in FAIRLANE_KEY.",
    )  # fmt: skip
    return click.option("--url", metavar="URL", help=URL_HELP)(server(key_file(command)))


blobs_option = click.option(
    "--blobs",
    metavar="FOLDER|URL",
    help="Where files are, as s3://bucket/prefix; else FAIRLANE_BLOBS, else blobs in fairlane.toml, else beside the queue.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


def store_settings(url: str | None, blobs: str | None = None) -> Settings:
    """Where the store is, for those who need it itself."""
    settings = load_settings(url, os.environ, Path.cwd(), blobs)
    if not settings.url:
        path = click.get_current_context().command_path
        raise Mistake(
            f"`{path}` works on the store itself, and only a server is named (FAIRLANE_SERVER, or server in fairlane.toml); "
            "run it where the store can be reached, with --url"
        )
    return settings


def open_store(url: str | None, create: bool = True, blobs: str | None = None) -> Queue:
    """The queue in its store."""
    settings = store_settings(url, blobs)
    return Queue(settings.url, create=create, blobs=settings.blobs)


def open_queue(url: str | None, create: bool = True, blobs: str | None = None) -> Queue | Remote:
    """The queue in its store or behind a server, with the same verbs."""
    told = click.get_current_context().meta
    settings = load_settings(url, os.environ, Path.cwd(), blobs, told.get(SERVER))
    if settings.server is None:
        return Queue(settings.url, create=create, blobs=settings.blobs)
    if blobs is not None:
        raise Mistake("--blobs says where the files of a store are; a server knows that itself: leave it out")
    from .remote import Remote, told_key

    return Remote(settings.server, told_key(told.get(KEY_FILE), os.environ))


def some_customers(context: click.Context, _: click.Parameter, beginning: str) -> list[str]:
    """Customers that begin like this; none if there is no queue to ask."""
    try:
        with context.scope(cleanup=False), open_queue(context.params.get("url"), create=False) as queue:
            known = _known(queue, beginning)
    except FairlaneError:
        return []
    return [one for one in known if one.startswith(beginning)]


def _known(queue: Queue | Remote, beginning: str) -> list[str]:
    """A few customers from this beginning on."""
    if not isinstance(queue, Queue):
        return [one.customer for one in islice(queue.customers(), ASKED_MAX)]
    page = queue.engine.customers(beginning, OFFERED_MAX)  # those after it, so not the one that is exactly this
    whole = [queue.engine.customer(beginning)] if beginning else []
    return [one.id for one in (*(one for one in whole if one.standing.resets or one.terms_version), *page)]


customer_argument = click.argument("customer", shell_complete=some_customers)


def tell(as_json: bool, told: dict[str, Any], sentence: str) -> None:
    """One answer: an object for programs, a sentence for people."""
    click.echo(json.dumps(told) if as_json else sentence)


def counted(count: int, one: str = "document") -> str:
    return f"{count:,} {one}" + ("" if count == 1 else "s")


def seconds(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 100:
        return f"{seconds:.1f} s"
    days, rest = divmod(round(seconds), 86400)
    clock = f"{rest // 3600}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days} d {clock}" if days else clock


def table(columns: Sequence[str], rows: Iterable[Sequence[object] | None]) -> None:
    """Print a table on the terminal."""
    from rich.console import Console

    console = Console(file=sys.stdout)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    known = list(rows)
    for part in parts(columns, known, console.width):
        console.print(drawn([columns[at] for at in part], [row and [row[at] for at in part] for row in known]))


def parts(columns: Sequence[str], rows: Sequence[Sequence[object] | None], width: int) -> list[list[int]]:
    """Which columns stand side by side, so that no figure is cut: the first in every part, and as many more as fit."""
    from rich.cells import cell_len

    def widest(at: int) -> int:
        cells = (str(row[at]) for row in rows if row)
        return max(cell_len(line) for cell in (columns[at], *cells) for line in cell.split("\n"))

    first = min(widest(0), FIRST_LEAST) + 2  # with the edges of the table
    made, left = [[0]], width - first
    for at in range(1, len(columns)):
        needed = widest(at) + 2  # with the gap before it
        if needed > left and len(made[-1]) > 1:
            made.append([0])
            left = width - first
        made[-1].append(at)
        left -= needed
    return made


@contextmanager
def temporary_folder(prefix: str) -> Iterator[str]:
    """A folder that is gone afterwards, also if SIGTERM or a closed terminal ends the command: they are as Ctrl-C."""
    heard = [number for number in ENDING if signal.getsignal(number) != signal.SIG_IGN]  # nohup has it ignored
    before = {number: signal.signal(number, interrupt) for number in heard}
    try:
        with tempfile.TemporaryDirectory(prefix=prefix) as folder:
            yield folder
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def drawn(columns: Sequence[str], rows: Iterable[Sequence[object] | None], one_line: bool = False) -> Table:
    """A table: text, then numbers; a row that is None draws a line. With `one_line` a long text is cut instead of wrapped."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for number, column in enumerate(columns):
        first = number == 0  # only this one gives way when there is little room
        table.add_column(column, justify="left" if first else "right", no_wrap=not first, overflow="fold")
    for row in rows:
        if row is None:
            table.add_section()
            continue
        cells = [cell if isinstance(cell, Text) else Text(str(cell)) for cell in row]
        if one_line:
            cells[0].no_wrap, cells[0].overflow = True, "ellipsis"
        table.add_row(*cells)
    return table
