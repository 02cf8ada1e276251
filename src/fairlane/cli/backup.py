"""Commands that back up a queue with its files, and restore a backup."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fairlane.queue.audit import cli_actor

from .group import EXIT_FINDINGS, main
from .options import blobs_option, json_option, store_settings, url_option
from .output import ProgressBar, echo, format_count, print_json

if TYPE_CHECKING:
    from fairlane.backup import Copied


@main.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--check", is_flag=True, help="Read every file and compare its hash, also where a hard link is enough.")
@click.option(
    "--files-only", is_flag=True, help="Copy only the files of a queue on PostgreSQL, Redis or Valkey, after its dump."
)
@blobs_option
@url_option
@json_option
def backup(folder: Path, check: bool, files_only: bool, blobs: str | None, url: str | None, as_json: bool) -> None:
    """Back up a queue and its files to a new FOLDER, while it is in use.

    Everything that was accepted before the command began is in the backup. Nobody waits for it. Files become hard links where
    FOLDER is on the same file system, else copies. For a queue on PostgreSQL, Redis or Valkey it prints what to run instead.
    Exits with 4 if files of the queue are missing or damaged.

    \b
    Example:
      fairlane backup /backup/monday
      fairlane backup /backup/monday --check --url sqlite:////srv/fairlane.db
    """
    from fairlane.backup import back_up

    settings = store_settings(url, blobs)
    with ProgressBar("opening the queue", as_json) as bar:
        copied = back_up(
            settings.url, folder, settings.blobs, bar.update, check=check, files_only=files_only, actor=cli_actor()
        )
    _report("Backed up", f"to {folder}", copied, as_json)


@main.command()
@click.argument("folder", type=click.Path(path_type=Path))
@blobs_option
@url_option
@json_option
def restore(folder: Path, blobs: str | None, url: str | None, as_json: bool) -> None:
    """Restore the backup in FOLDER as a new queue at --url.

    Checks every byte, and overwrites nothing. What ran when the backup was made waits until its lease ends, and runs again.
    Workers of the original queue can change nothing in the new one. Exits with 4 if files are missing or damaged in the backup;
    everything else is restored.

    \b
    Example:
      fairlane restore /backup/monday --url sqlite:////srv/restored.db
    """
    from fairlane.backup import restore as restore_backup

    settings = store_settings(url, blobs)
    with ProgressBar("checking the backup", as_json) as bar:
        copied = restore_backup(folder, settings.url, settings.blobs, bar.update, actor=cli_actor())
    _report("Restored", f"at {settings.url}", copied, as_json)


def _report(done: str, where: str, copied: Copied, as_json: bool) -> None:
    if as_json:
        print_json(copied._asdict())
    else:
        files = f"{format_count(copied.files, 'file')} ({copied.bytes:,} bytes, {format_count(copied.links, 'hard link')})"
        echo(f"{done} {format_count(copied.documents)} and {files} {where}.")
        if copied.erased:
            echo(f"{format_count(copied.erased, 'file')} of customers that were forgotten meanwhile left out.")
    if copied.lost:
        names = ", ".join(copied.lost_documents)
        echo(f"fairlane: {format_count(copied.lost, 'file')} missing or damaged, of documents such as {names}", err=True)
        sys.exit(EXIT_FINDINGS)
