"""Commands for sessions of the page: list who is signed in, and end their sessions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from fairlane.console.sessions import SessionEntry, list_sessions, revoke_sessions

from .group import main
from .options import json_option, open_store, url_option
from .output import echo, format_count, print_json, print_result, print_table

COLUMNS = ("id", "name", "role", "customer", "sessions", "until")


@main.group(epilog="Example:  fairlane sessions list")
def sessions() -> None:
    """See who is signed in to the page, and end their sessions.

    An ID is that of a person, who signed in as such, or the public part of a key. Whoever may still sign in can do so again:
    take a person out of its group at the provider, or revoke the key, first.
    """


@sessions.command("list", epilog="Example:  fairlane sessions list")
@url_option
@json_option
def list_all(url: str | None, as_json: bool) -> None:
    """List who is signed in: people, with the role they had at sign-in, and keys.

    With --json, prints an object per line.
    """
    with open_store(url, create=False) as queue:
        rows = [_to_dict(entry) for entry in list_sessions(queue.engine)]
    if as_json:
        for row in rows:
            print_json(row)
        return None
    if not rows:
        return echo("Nobody is signed in.")
    return print_table(COLUMNS, [[str(row[column] or "-") for column in COLUMNS] for row in rows])


@sessions.command(epilog="Example:  fairlane sessions revoke person_3f9c2a7b51e08d463f9c2a7b51e08d46")
@click.argument("id")
@url_option
@json_option
def revoke(id: str, url: str | None, as_json: bool) -> None:
    """End all sessions of the person or the key with this ID.

    Event streams that were opened with them end too.
    """
    with open_store(url, create=False) as queue:
        ended = revoke_sessions(queue.engine, id, queue.actor)
    message = (
        f"{format_count(ended, 'session')} of {id} ended; servers refuse {'it' if ended == 1 else 'them'} within a second."
    )
    print_result(as_json, {"id": id, "ended": ended}, message)


def _to_dict(entry: SessionEntry) -> dict[str, Any]:
    until = datetime.fromtimestamp(entry.expires_ms // 1000, UTC).isoformat().replace("+00:00", "Z")
    return {
        "id": entry.id,
        "is_person": entry.is_person,
        "name": entry.name,
        "role": entry.role,
        "customer": entry.customer,
        "sessions": entry.sessions,
        "until": until,
    }
