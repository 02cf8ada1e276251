"""The command that runs a worker: the built-in one, or one of a Python module."""

from __future__ import annotations

import json
import logging
import sys
from contextlib import ExitStack
from typing import Any

import click

from fairlane.core.errors import Mistake
from fairlane.printable import printable, printable_lines
from fairlane.worker import Event, Worker
from fairlane.worker.async_output import outside_handler

from .group import main
from .line_writer import LineWriter
from .load_worker import load_worker
from .options import blobs_option, json_option, ocr_option, store_settings, unsafe_option, url_option

PRINTED_EVENTS = (
    "finished",
    "unfinished",
    "raised",
    "printed",
    "dropped",
    "lost",
    "store_failed",
    "unserved",
    "untraced",
    "draining",
    "undrained",
    "stopping",
)
LEVELS = ("debug", "info", "warning", "error")


def silence_log() -> None:
    """Drop the worker's log messages: the command prints its events instead."""
    log = logging.getLogger("fairlane")
    log.addHandler(logging.NullHandler())
    log.propagate = False


@main.command(epilog="Example:  fairlane work --slots 8 tasks:worker")
@click.argument("worker", metavar="[MODULE:WORKER]", required=False)
@click.option("--slots", type=int, help="How many documents to process at once. Default: the worker's own setting, or 4.")
@click.option("--until-empty", is_flag=True, help="Stop when no document is left to process.")
@click.option("--metrics-port", type=click.IntRange(1, 65535), metavar="PORT", help="Serve metrics for Prometheus at /metrics.")
@click.option("--metrics-host", default="127.0.0.1", show_default=True, help="The address that metrics are served on.")
@click.option(
    "--log-level",
    type=click.Choice(LEVELS),
    default="info",
    show_default=True,
    help="The least level of log records to print. A module that configures logging itself prints them itself.",
)
@ocr_option
@unsafe_option
@blobs_option
@url_option
@json_option
def work(
    worker: str | None,
    slots: int | None,
    until_empty: bool,
    metrics_port: int | None,
    metrics_host: str,
    log_level: str,
    ocr_languages: str | None,
    is_unsafe: bool,
    blobs: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Process documents until Ctrl-C or SIGTERM.

    MODULE:WORKER is a Worker in a Python module; the current folder is searched first. Such a worker names its queue itself.
    Without it, the built-in worker takes documents of kind "extract" and those that an interrupted `fairlane process` left. It
    reads each file in a sandbox and stores its text, its facts and a picture. What handlers print and log is printed as it
    comes, with its document, and so are their tracebacks. With --json, prints an object per line and event.
    """
    silence_log()
    unsafe_reason = None
    if worker is None:
        from fairlane import sandbox
        from fairlane.extract.handler import ExtractOptions, built_in_worker, limits_with

        settings = store_settings(url, blobs, is_unsafe, ocr_languages)
        may_read_everything = settings.unsafe_files_may_read_everything
        limits = limits_with(settings.ocr_languages)
        chosen = built_in_worker(ExtractOptions(settings.url, settings.blobs, limits, may_read_everything=may_read_everything))
        unsafe_reason = sandbox.unsafe_reason(may_read_everything)
    elif url is not None or blobs is not None or ocr_languages is not None or is_unsafe:
        options = {"--url": url, "--blobs": blobs, "--ocr-languages": ocr_languages, "--unsafe-files-may-read-everything": ""}
        option = next(name for name, value in options.items() if value is not None)
        raise Mistake(f"the worker {worker} names its queue itself; leave {option} out, or change it in the worker")
    else:
        chosen = load_worker(worker)
    printer = EventPrinter(chosen, as_json, unsafe_reason)
    if not logging.getLogger().handlers:  # otherwise the module prints its records itself
        logging.basicConfig(level=log_level.upper(), handlers=[RecordPrinter(printer)])
    with ExitStack() as stack:
        stack.enter_context(printer)
        if metrics_port is not None:
            _serve_metrics(chosen, metrics_host, metrics_port, slots, stack)
        summary = chosen.run(until_empty=until_empty, slots=slots)
        printer.print_summary(summary._asdict())


def _serve_metrics(worker: Worker, host: str, port: int, slots: int | None, stack: ExitStack) -> None:
    """Serve the worker's metrics while it runs; the port is tried now, and opened when the worker has started."""
    try:
        from fairlane.worker.metrics import MetricsServer, WorkerMetrics
    except ImportError as error:
        raise Mistake(f"--metrics-port needs packages that are not installed: the extra fairlane[serve] ({error})") from None
    metrics = WorkerMetrics(worker.slots if slots is None else slots)
    server = MetricsServer(host, port, metrics.registry)
    worker.on("*", metrics)
    worker.on("started", lambda _: server.open())
    stack.callback(server.close)


class EventPrinter:
    """Prints a worker's events, and stops the worker when the output is closed."""

    def __init__(self, worker: Worker, as_json: bool, unsafe_reason: str | None) -> None:
        self._worker = worker
        self._unsafe_reason = unsafe_reason
        self._as_json = as_json
        self._error: OSError | None = None
        self._writer = LineWriter(sys.stdout, self._fail, self._format_dropped)
        for name in PRINTED_EVENTS:
            worker.on(name, self._print_event)
        worker.on("started", self._print_start)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Print what is left; raise the error if an event could not be printed."""
        self._writer.close()
        if self._error is not None and kind is None:
            raise self._error

    def print_summary(self, summary: dict[str, int]) -> None:
        """Print what became of the documents."""
        counts = ", ".join(f"{count:,} {name}" for name, count in summary.items() if count) or "there was nothing to do"
        self.print({"event": "summary", **summary}, f"stopped: {counts}")

    def _print_start(self, event: Event) -> None:
        """Print that the worker runs; it has forked all that it forks, so that lines may be written on a thread from now on."""
        self._print(event, printable(f"{event.worker} is running; press Ctrl-C to stop it"))
        if self._unsafe_reason is not None:
            self.print({"event": "unsafe", "reason": self._unsafe_reason}, f"UNSAFE: {self._unsafe_reason}")
        self._writer.start()

    def _print_event(self, event: Event) -> None:
        self._print(event, _sentence(event))

    def _print(self, event: Event, sentence: str) -> None:
        facts = {name: value for name, value in event._asdict().items() if value is not None and name != "name"}
        self.print({"event": event.name, **facts}, sentence)

    def print(self, facts: dict[str, Any], sentence: str) -> None:
        """Print one line for programs, or one or more for people."""
        self._writer.write(json.dumps(facts) if self._as_json else sentence)

    def _fail(self, error: OSError) -> None:
        self._error = error
        self._worker.stop()

    def _format_dropped(self, number: int) -> str:
        sentence = f"{number:,} lines were dropped, as nobody read them in time"
        return json.dumps({"event": "unread", "number": number}) if self._as_json else sentence


def _sentence(event: Event) -> str:
    """Say what happened in a line; a traceback follows, indented."""
    if event.id is None:
        return printable(f"{event.name.replace('_', ' ')}: {event.reason}")
    duration = "" if event.seconds is None else f" after {event.seconds:.3f} s"
    reason = f": {event.reason}" if event.reason else ""
    text = f"{event.outcome or event.name}{duration}{reason}"
    if event.name == "printed":
        text = event.value.expandtabs()
    elif event.name == "dropped":
        text = f"{event.number:,} lines of output were dropped: too many"
    line = printable(f"{event.customer}  {event.id}  {text}")
    return line + (_indented(event.traceback) if event.traceback else "")


def _indented(text: str) -> str:
    return "".join(f"\n    {line}" for line in printable_lines(text).split("\n"))


class RecordPrinter(logging.Handler):
    """Prints records of `logging`, with the document whose handler made them."""

    def __init__(self, printer: EventPrinter) -> None:
        super().__init__()
        self._printer = printer

    def emit(self, record: logging.LogRecord) -> None:
        try:
            with outside_handler():  # the line is already that of a document
                self._print(record)
        except Exception:  # noqa: BLE001 - as every handler of the standard library does
            self.handleError(record)

    def _print(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        exception = record.exc_text or (logging.Formatter().formatException(record.exc_info) if record.exc_info else None)
        facts = {
            "event": "logged", "level": record.levelname, "logger": record.name, "message": message, "exception": exception,
            "id": getattr(record, "fairlane_document", None), "customer": getattr(record, "fairlane_customer", None),
            "attempt": getattr(record, "fairlane_attempt", None),
        }  # fmt: skip
        first, _, others = f"{record.levelname} {record.name}: {message}".partition("\n")
        document = f"{facts['customer']}  {facts['id']}  " if facts["id"] else ""
        more = "\n".join(filter(None, (others, exception)))
        sentence = printable(document + first.expandtabs()) + (_indented(more) if more else "")
        self._printer.print({name: value for name, value in facts.items() if value is not None}, sentence)
