"""Changes of many documents at once, as `cancel`, `retry` and `prioritize` make them: count, confirm, change step by step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from fairlane.core.errors import Mistake
from fairlane.queue import Queue
from fairlane.queue.bulk import Action, all_steps

from .group import EXIT_FAILURE
from .output import ProgressBar, confirm, echo, format_count, print_result

if TYPE_CHECKING:
    from .remote import RemoteQueue

WORDS: dict[Action, str] = {"cancel": "cancelled", "retry": "retried", "prioritize": "given priority {priority}"}
yes_option = click.option("--yes", is_flag=True, help="Change all that match without asking for confirmation.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Count what matches, and change nothing.")


def is_bulk(ids: tuple[str, ...], filter: Mapping[str, Any], yes: bool, dry_run: bool) -> bool:
    """Return whether options select the documents; refuse both ways at once, and neither."""
    is_filtered = any(value is not None for value in filter.values())
    if ids and (is_filtered or yes or dry_run):
        raise Mistake("give either IDs, or options that select documents, not both")
    if not ids and not is_filtered:
        raise Mistake("give the IDs of documents, or options that select them, such as --customer, --kind or --state")
    return is_filtered


def run_bulk(
    queue: Queue | RemoteQueue,
    action: Action,
    filter: Mapping[str, Any],
    yes: bool,
    dry_run: bool,
    as_json: bool,
    priority: int | None = None,
) -> None:
    """Count what matches, ask, and change exactly that: documents that come later are not touched."""
    start, matched, word = "", 0, WORDS[action].format(priority=priority)
    change = {**filter, "priority": priority}
    for step in all_steps(lambda cursor: queue.bulk(action, **change, cursor=cursor, dry_run=True), None):
        start, matched = start or step.start, matched + step.matched
    count = format_count(matched)
    if dry_run or not matched:
        sentence = f"{count} would be {word}." if matched else f"No document can be {word}: none matches."
        return print_result(as_json, {"matched": matched, "changed": 0}, sentence)
    if not yes and not confirm(f"{count} will be {word}. Go on?"):
        echo(f"Nothing was {word}.", err=True)
        raise click.exceptions.Exit(EXIT_FAILURE)
    changed = refused = 0
    reason = None
    with ProgressBar(word, as_json) as bar:
        for step in all_steps(lambda cursor: queue.bulk(action, **change, cursor=cursor), start):
            changed, refused, reason = changed + step.changed, refused + step.refused, reason or step.reason
            bar.update(word, changed, matched)
    data = {"matched": matched, "changed": changed, "refused": refused, "reason": reason}
    lines = [f"{format_count(changed)} {word}."]
    if refused:
        lines.append(f"{format_count(refused)} not {word}; of the first: {reason}")
    return print_result(as_json, data, *lines)
