"""The commands that `celery` gets from Fairlane: `celery -A proj fairlane check`."""

from __future__ import annotations

from typing import Any

import click

# Every `celery` command loads this module; what the commands themselves need is imported when they run.


@click.group()
def fairlane() -> None:
    """Fair priorities for the tasks of this app."""


@fairlane.command()
@click.pass_context
def check(context: click.Context) -> None:
    """Verify the settings that Fairlane needs, and that its store can be reached. Exit code 1 if something is wrong."""
    from fairlane.core.errors import FairlaneError

    app = context.obj.app
    app.loader.import_default_modules()
    app.finalize()
    try:
        confirmed, problems, advice = _verify(app)
    except FairlaneError as error:
        confirmed, problems, advice = "", [str(error)], []
    for sentence in problems:
        click.echo(f"- {sentence}", err=True)
    if problems:
        context.exit(1)
    click.echo(confirmed)
    for sentence in advice:
        click.echo(f"- But {sentence}")


@fairlane.command()
@click.pass_context
def feed(context: click.Context) -> None:
    """Hand documents over to the workers of this app, in their order, until SIGTERM or Ctrl-C. Several may run."""
    import logging
    import signal

    from .bridge import bridge_of
    from .feeder import Feeder

    app = context.obj.app
    app.loader.import_default_modules()
    app.finalize()
    bridge = bridge_of(app)
    if bridge is None:
        click.echo("this app has no Bridge; make Bridge(app, url, customer=…) in the module that makes it", err=True)
        context.exit(1)
    logging.basicConfig(level=logging.INFO, format="[%(asctime)s: %(levelname)s] %(message)s")
    feeder = Feeder(app, bridge)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: feeder.stop())
    click.echo(f"{feeder.name} hands documents over")
    feeder.run()


def _verify(app: Any) -> tuple[str, list[str], list[str]]:
    """Return what is said if nothing is wrong, what is wrong, and what is advised."""
    from .publish import fairlane_of
    from .verify import Concurrency

    fairlane = fairlane_of(app)
    if fairlane is None:
        return "", ["this app has no Fairlane; add Fairlane(app, url, customer=…) to the module that makes it"], []
    findings = fairlane.settings_findings(Concurrency.of_app(app))
    fairlane.verify_counters()
    return fairlane.confirmation(), [finding.sentence for finding in findings], fairlane.advice()
