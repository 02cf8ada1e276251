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
    """Verify the settings that priorities need, and that the counters can be reached. Exit code 1 if something is wrong."""
    from fairlane.core.errors import FairlaneError

    app = context.obj.app
    app.loader.import_default_modules()
    app.finalize()
    try:
        problems, advice = _verify(app)
    except FairlaneError as error:
        problems, advice = [str(error)], []
    for sentence in problems:
        click.echo(f"- {sentence}", err=True)
    if problems:
        context.exit(1)
    click.echo("Workers serve tasks in the order of their priorities, and the counters answer.")
    for sentence in advice:
        click.echo(f"- But {sentence}")


def _verify(app: Any) -> tuple[list[str], list[str]]:
    """Return what is wrong, and what is advised."""
    from .publish import fairlane_of
    from .verify import Concurrency, worker_advice, worker_findings

    fairlane = fairlane_of(app)
    if fairlane is None:
        return ["this app has no Fairlane; add Fairlane(app, url, customer=…) to the module that makes it"], []
    findings = fairlane.unaccepted(worker_findings(app, Concurrency.of_app(app)))
    fairlane.verify_counters()
    return [finding.sentence for finding in findings], list(worker_advice(app))
