"""Commands about where a queue lives: bring it to this version, examine it, move it."""

from __future__ import annotations

import json
import sys

import click

from fairlane.core.errors import Mistake
from fairlane.transfer import TransferProgress

from .common import counted, json_option, open_store, store_settings, url_option
from .group import EXIT_FOUND, main


@main.command()
@url_option
@json_option
def migrate(url: str | None, as_json: bool) -> None:
    """Bring a queue's store to this version's form, making it if it is not there.

    Every command and every program does this by itself when it opens the queue; this one does nothing else. Safe under
    traffic and from many machines at once.

    \b
    Example:
      fairlane migrate --url sqlite:///fairlane.db
    """
    with open_store(url) as queue:
        told = {"url": _shown(queue.url), "durability": queue.engine.durability}
    click.echo(json.dumps(told) if as_json else f"{told['url']} is ready; {told['durability']}")


@main.command()
@url_option
@json_option
def doctor(url: str | None, as_json: bool) -> None:
    """Examine a queue's store; each finding says what to do.

    Exit code 4 if something is bad. With --json an array, an object a finding.

    \b
    Example:
      fairlane doctor --url sqlite:///fairlane.db
    """
    from fairlane.doctor import findings

    with open_store(url, create=False) as queue:
        found = findings(queue)
    if as_json:
        fields = [{"name": f.name, "level": f.level, "told": f.message, "advice": f.advice} for f in found]
        click.echo(json.dumps(fields))
    else:
        for one in found:
            click.secho(f"{one.level:8}", fg={"fine": "green", "warning": "yellow", "bad": "red"}[one.level], nl=False)
            click.echo(f"{one.name:11} {one.message}")
            if one.advice:
                click.echo(f"{'':20}-> {one.advice}")
    if any(one.level == "bad" for one in found):
        sys.exit(EXIT_FOUND)


@main.command()
@click.argument("from_url", metavar="FROM-URL")
@click.argument("to_url", metavar="TO-URL", required=False)
@click.option("--from-blobs", metavar="WHERE", help="Where the files are, if not beside FROM-URL; else as --blobs elsewhere.")
@click.option("--to-blobs", metavar="WHERE", help="Where files shall be, as s3://bucket/prefix, if not beside TO-URL.")
@click.option("--stop", "is_stopped", is_flag=True, help="Give a move of FROM-URL up; it takes documents again.")
@json_option
def move(
    from_url: str, to_url: str | None, from_blobs: str | None, to_blobs: str | None, is_stopped: bool, as_json: bool
) -> None:
    """Move the queue at FROM-URL to the empty store at TO-URL.

    FROM-URL is frozen, with an error that tells its users where it is going; what runs may end, or its leases are waited out;
    then customers, counters, rules, keys, documents, lanes, records and files are carried over. Run it again if it was
    interrupted: it goes on where it stopped. The feed of changes stays behind.

    \b
    Example:
      fairlane move sqlite:///fairlane.db sqlite:////srv/fairlane.db
      fairlane move sqlite:///fairlane.db postgresql://db.example/fairlane --to-blobs s3://bucket/fairlane
    """
    from fairlane.transfer import move as move_queue
    from fairlane.transfer import stop

    if is_stopped:
        if to_url is not None:
            raise Mistake("--stop takes FROM-URL alone: the target is left as it is, and may be dropped")
        stop(from_url)
        click.echo(json.dumps({"stopped": True}) if as_json else f"{_shown(from_url)} takes documents again.")
        return
    if to_url is None:
        raise Mistake("say where to: fairlane move FROM-URL TO-URL")
    with _MoveBar(as_json) as bar:
        files = {"from_blobs": store_settings(from_url, from_blobs).blobs, "to_blobs": store_settings(to_url, to_blobs).blobs}
        moved = move_queue(from_url, to_url, bar.told, **files)
    if as_json:
        click.echo(json.dumps(moved._asdict()))
        return
    carried = [counted(number, name.removesuffix("s")) for name, number in moved._asdict().items()]
    click.echo(f"Carried over: {', '.join(carried)}. Use {_shown(to_url)} from now on.")
    if to_blobs is not None:
        click.echo(f"Files are in {to_blobs}: say so with --blobs, FAIRLANE_BLOBS or blobs in fairlane.toml.")


def _shown(url: str) -> str:
    from fairlane.transfer import display_url

    return display_url(url)


class _MoveBar:
    """How far a move has come, on the terminal's error stream."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet or not sys.stderr.isatty()

    def __enter__(self) -> _MoveBar:
        if not self.quiet:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self.progress = Progress(*columns, console=Console(stderr=True), transient=True)
            self.task = self.progress.add_task("freezing", total=None)
            self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if not self.quiet:
            self.progress.stop()

    def told(self, at: TransferProgress) -> None:
        if self.quiet:
            return
        if at.phase == "waiting":
            self.progress.update(self.task, description=f"waiting for {counted(at.running, 'running document')}")
        else:
            name = "documents" if at.phase == "copying" else at.phase
            self.progress.update(self.task, description=name, completed=at.copied, total=at.total)
