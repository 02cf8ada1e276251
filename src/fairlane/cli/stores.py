"""Commands for a queue's store: migrate, doctor, move."""

from __future__ import annotations

import sys

import click

from fairlane.api.key_expiry import key_findings
from fairlane.core.errors import Mistake, Unknown
from fairlane.masking import mask_url
from fairlane.queue.audit import cli_actor
from fairlane.queue.audited_queue import audited
from fairlane.transfer import TransferProgress

from .group import EXIT_FINDINGS, main
from .options import json_option, open_store, store_settings, url_option
from .output import ProgressBar, echo, format_count, print_json, print_result


@main.command()
@url_option
@json_option
def migrate(url: str | None, as_json: bool) -> None:
    """Migrate a queue's store to this version; create it if it does not exist.

    Every command and program does this when it opens the queue; this one does nothing else. It is safe while the queue is in
    use, and from many machines at once.

    \b
    Example:
      fairlane migrate --url sqlite:///fairlane.db
    """
    with open_store(url) as queue:
        engine = queue.engine
        data = {"url": mask_url(queue.url), "schema": engine.store_schema(), "durability": engine.durability}
        with audited(queue, "queue.migrate") as change:  # it was done when the store was opened, as by every other program
            change.after = {"schema": data["schema"]}
    print_result(as_json, data, f"{data['url']} is ready, schema version {data['schema']}; {data['durability']}")


@main.command()
@url_option
@json_option
def doctor(url: str | None, as_json: bool) -> None:
    """Examine a queue's store and this machine's sandbox.

    Each warning says what to do. Exits with 4 if something is bad. Where no queue was made yet, that is bad, and this
    machine is examined alone. With --json, prints an array with an object per finding.

    \b
    Example:
      fairlane doctor --url sqlite:///fairlane.db
    """
    from fairlane.doctor import findings, findings_without_queue

    may_read_everything = store_settings(url).unsafe_files_may_read_everything
    try:
        with open_store(url, create=False) as queue:
            results = findings(queue, may_read_everything, {"keys": lambda: key_findings(queue.engine)})
    except Unknown as error:
        results = findings_without_queue(str(error).partition(";")[0], may_read_everything)
    if as_json:
        fields = [{"name": f.name, "level": f.level, "told": f.message, "advice": f.advice} for f in results]
        print_json(fields)
    else:
        for finding in results:
            echo(f"{finding.level:8}", colour={"fine": "green", "warning": "yellow", "bad": "red"}[finding.level], nl=False)
            echo(f"{finding.name:11} {finding.message}")
            if finding.advice:
                echo(f"{'':20}-> {finding.advice}")
    if any(finding.level == "bad" for finding in results):
        sys.exit(EXIT_FINDINGS)


@main.command()
@click.argument("from_url", metavar="FROM-URL")
@click.argument("to_url", metavar="TO-URL", required=False)
@click.option("--from-blobs", metavar="WHERE", help="The files' folder or s3://bucket/prefix. Default: beside FROM-URL.")
@click.option("--to-blobs", metavar="WHERE", help="Where to copy the files. Default: beside TO-URL.")
@click.option("--stop", "is_stopped", is_flag=True, help="Abandon a move of FROM-URL, which then takes documents again.")
@json_option
def move(
    from_url: str, to_url: str | None, from_blobs: str | None, to_blobs: str | None, is_stopped: bool, as_json: bool
) -> None:
    """Move the queue at FROM-URL to the empty store at TO-URL.

    First FROM-URL is frozen: its users get an error that names TO-URL. Then the command waits until running documents end or
    their leases expire, and copies customers, counters, rules, keys, documents, lanes, records and files. The change feed is
    not copied. If the command is interrupted, run it again: it continues where it stopped.

    \b
    Example:
      fairlane move sqlite:///fairlane.db sqlite:////srv/fairlane.db
      fairlane move sqlite:///fairlane.db postgresql://db.example/fairlane --to-blobs s3://bucket/fairlane
    """
    from fairlane.transfer import move as move_queue
    from fairlane.transfer import stop

    if is_stopped:
        if to_url is not None:
            raise Mistake("--stop takes only FROM-URL; leave TO-URL out (it is not changed, and may be deleted)")
        stop(from_url, cli_actor())
        print_result(as_json, {"stopped": True}, f"{mask_url(from_url)} takes documents again.")
        return
    if to_url is None:
        raise Mistake("TO-URL is missing: use `fairlane move FROM-URL TO-URL`, or `fairlane move --stop FROM-URL`")
    with ProgressBar("freezing", as_json) as bar:

        def show(move: TransferProgress) -> None:
            if move.phase == "waiting":
                bar.update(f"waiting for {format_count(move.running, 'running document')}", 0, 0)
            else:
                bar.update("documents" if move.phase == "copying" else move.phase, move.copied, move.total)

        files = {"from_blobs": store_settings(from_url, from_blobs).blobs, "to_blobs": store_settings(to_url, to_blobs).blobs}
        moved = move_queue(from_url, to_url, show, **files, actor=cli_actor())
    if as_json:
        print_json(moved._asdict())
        return
    counts = [format_count(number, name.removesuffix("s")) for name, number in moved._asdict().items()]
    echo(f"Moved: {', '.join(counts)}. Use {mask_url(to_url)} from now on.")
    if to_blobs is not None:
        echo(f"The files are in {to_blobs}: set --blobs, FAIRLANE_BLOBS or blobs in fairlane.toml to that.")
