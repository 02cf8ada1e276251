"""The command that runs a worker: the built-in one, or one of a Python module."""

from __future__ import annotations

import json
import logging

import click

from fairlane.core.errors import Mistake
from fairlane.worker import Event, Worker

from .group import main
from .load_worker import load_worker
from .options import blobs_option, json_option, store_settings, url_option

PRINTED_EVENTS = ("finished", "unfinished", "lost", "store_failed", "untraced", "stopping")


def silence_log() -> None:
    """Drop the worker's log messages: the command prints its events instead."""
    log = logging.getLogger("fairlane")
    log.addHandler(logging.NullHandler())
    log.propagate = False


@main.command(epilog="Example:  fairlane work --slots 8 tasks:worker")
@click.argument("worker", metavar="[MODULE:WORKER]", required=False)
@click.option("--slots", type=int, help="How many documents to process at once. Default: the worker's own setting, or 4.")
@click.option("--until-empty", is_flag=True, help="Stop when no document is left to process.")
@blobs_option
@url_option
@json_option
def work(worker: str | None, slots: int | None, until_empty: bool, blobs: str | None, url: str | None, as_json: bool) -> None:
    """Process documents until Ctrl-C or SIGTERM.

    MODULE:WORKER is a Worker in a Python module; the current folder is searched first. Such a worker names its queue itself.
    Without it, the built-in worker takes documents of kind "extract" and those that an interrupted `fairlane process` left. It
    reads each file in a sandbox and stores its text, its facts and a picture. With --json, prints an object per line and event.
    """
    if worker is None:
        from fairlane.extract.handler import ExtractOptions, built_in_worker

        settings = store_settings(url, blobs)
        chosen = built_in_worker(ExtractOptions(settings.url, settings.blobs))
    elif url is not None or blobs is not None:
        option = "--url" if url is not None else "--blobs"
        raise Mistake(f"the worker {worker} names its queue itself; leave {option} out, or change it in the worker")
    else:
        chosen = load_worker(worker)
    silence_log()
    printer = EventPrinter(chosen, as_json)
    summary = chosen.run(until_empty=until_empty, slots=slots)
    printer.finish(summary._asdict())


class EventPrinter:
    """Prints a worker's events, and stops the worker when the output is closed."""

    def __init__(self, worker: Worker, as_json: bool) -> None:
        self._worker = worker
        self._as_json = as_json
        self._error: OSError | None = None
        for name in PRINTED_EVENTS:
            worker.on(name, self._print_event)
        worker.on("started", lambda event: self._print(event, f"{event.worker} is running; press Ctrl-C to stop it"))

    def finish(self, summary: dict[str, int]) -> None:
        """Print the summary; raise the error if an event could not be printed."""
        if self._error is not None:
            raise self._error
        counts = ", ".join(f"{count:,} {name}" for name, count in summary.items() if count) or "there was nothing to do"
        click.echo(json.dumps({"event": "summary", **summary}) if self._as_json else f"stopped: {counts}")

    def _print_event(self, event: Event) -> None:
        if event.id is None:
            return self._print(event, f"{event.name.replace('_', ' ')}: {event.reason}")
        duration = "" if event.seconds is None else f" after {event.seconds:.3f} s"
        reason = f": {event.reason}" if event.reason else ""
        return self._print(event, f"{event.customer}  {event.id}  {event.outcome or event.name}{duration}{reason}")

    def _print(self, event: Event, sentence: str) -> None:
        facts = {name: value for name, value in event._asdict().items() if value is not None and name != "name"}
        try:
            click.echo(json.dumps({"event": event.name, **facts}) if self._as_json else sentence)
        except OSError as error:
            self._error = error
            self._worker.stop()
