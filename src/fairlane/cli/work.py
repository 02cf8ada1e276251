"""The command that works documents off, and the worker that is built in."""

from __future__ import annotations

import json
import logging

import click

from fairlane.core.errors import Mistake
from fairlane.worker import Event, Worker

from .common import blobs_option, json_option, store_settings, url_option
from .group import main
from .load_worker import load_worker

TOLD = ("finished", "unfinished", "lost", "store_failed", "untraced", "stopping")


def quiet_log() -> None:
    """What a worker would log is told by the commands themselves."""
    log = logging.getLogger("fairlane")
    log.addHandler(logging.NullHandler())
    log.propagate = False


@main.command(epilog="Example:  fairlane work --slots 8 tasks:worker")
@click.argument("worker", metavar="[MODULE:WORKER]", required=False)
@click.option("--slots", type=int, help="How many documents at once; 4 unless the worker says otherwise.")
@click.option("--until-empty", is_flag=True, help="End when nothing is left to do.")
@blobs_option
@url_option
@json_option
def work(worker: str | None, slots: int | None, until_empty: bool, blobs: str | None, url: str | None, as_json: bool) -> None:
    """Work documents off until Ctrl-C or SIGTERM.

    MODULE:WORKER is a Worker in a Python module, looked for in this folder first; it names its queue itself. Without it the
    built-in handler takes documents of kind "extract" (and those that an interrupted `fairlane process` left), reads each
    file in a sandbox, and keeps its text, its facts and a picture beside the queue. With --json an object a line, a line an
    event.
    """
    if worker is None:
        from fairlane.extract.handler import ExtractOptions, built_in_worker

        settings = store_settings(url, blobs)
        chosen = built_in_worker(ExtractOptions(settings.url, settings.blobs))
    elif url is not None or blobs is not None:
        option = "--url" if url is not None else "--blobs"
        raise Mistake(f"the worker {worker} names its queue itself; leave {option} out, or change it there")
    else:
        chosen = load_worker(worker)
    quiet_log()
    teller = Teller(chosen, as_json)
    summary = chosen.run(until_empty=until_empty, slots=slots)
    teller.finish(summary._asdict())


class Teller:
    """Prints what a worker does; when nobody reads it any more, the worker stops."""

    def __init__(self, worker: Worker, as_json: bool) -> None:
        self._worker = worker
        self._as_json = as_json
        self._error: OSError | None = None
        for name in TOLD:
            worker.on(name, self._told)
        worker.on("started", self._started)

    def finish(self, summary: dict[str, int]) -> None:
        """The sum of it."""
        if self._error is not None:
            raise self._error
        counts = ", ".join(f"{count:,} {name}" for name, count in summary.items() if count) or "nothing was to do"
        click.echo(json.dumps({"event": "summary", **summary}) if self._as_json else f"stopped: {counts}")

    def _started(self, event: Event) -> None:
        self._print(event, f"{event.worker} works; Ctrl-C stops it")

    def _told(self, event: Event) -> None:
        if event.id is None:
            return self._print(event, f"{event.name.replace('_', ' ')}: {event.reason}")
        took = "" if event.seconds is None else f" after {event.seconds:.3f} s"
        reason = f": {event.reason}" if event.reason else ""
        return self._print(event, f"{event.customer}  {event.id}  {event.outcome or event.name}{took}{reason}")

    def _print(self, event: Event, sentence: str) -> None:
        facts = {name: value for name, value in event._asdict().items() if value is not None and name != "name"}
        try:
            click.echo(json.dumps({"event": event.name, **facts}) if self._as_json else sentence)
        except OSError as error:
            self._error = error
            self._worker.stop()
