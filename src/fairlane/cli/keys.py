"""Commands for the keys of the service: create, list, revoke."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import click

from fairlane.api import auth as ring
from fairlane.core.errors import Mistake

from .common import json_option, open_store, some_customers, table, tell, url_option
from .group import main
from .parameters import DURATION


@main.group(epilog="Example:  fairlane keys create --customer acme --expires 90d")
def keys() -> None:
    """Keys of the service: who may call it.

    A customer's key sees and touches only that customer's documents, an operator's key all of them. The store keeps a hash of
    each key; the key itself is shown once, when it is made.
    """


@keys.command(epilog="Example:  fairlane keys create --customer acme --name laptop --expires 90d")
@click.option("--customer", metavar="CUSTOMER", shell_complete=some_customers, help="A key that sees only this customer's.")
@click.option("--operator", is_flag=True, help="A key that sees and may do everything.")
@click.option("--name", default="", help="What it is for, to find it again in the list.")
@click.option("--expires", type=DURATION, metavar="DURATION", help="It ends by itself after this long, as in 90d.")
@url_option
@json_option
def create(customer: str | None, operator: bool, name: str, expires: float | None, url: str | None, as_json: bool) -> None:
    """Make a key, for a customer or an operator, and show it once."""
    if (customer is None) != operator:
        raise Mistake("say whose key it is: --customer NAME, or --operator")
    with open_store(url) as queue:
        told, key = ring.create(queue.engine, customer=customer, name=name, expires_seconds=expires)
    whose = "an operator" if key.customer is None else f"customer {key.customer}"
    tell(as_json, {"key": told, **_shown(key)}, f"{told}\nThis is a key of {whose}. It is not shown again; keep it safe.")


@keys.command("list", epilog="Example:  fairlane keys list")
@url_option
@json_option
def list_keys(url: str | None, as_json: bool) -> None:
    """Show every key that was made, without the key itself.

    With --json an object a line.
    """
    with open_store(url, create=False) as queue:
        rows = [_shown(key) for key in ring.list_keys(queue.engine)]
    if as_json:
        for row in rows:
            click.echo(json.dumps(row))
        return None
    if not rows:
        return click.echo("No key yet: `fairlane keys create --operator` makes one.")
    columns = ("id", "role", "customer", "name", "made", "expires", "state")
    return table(columns, [[row[column] or "-" for column in columns] for row in rows])


@keys.command(epilog="Example:  fairlane keys revoke 3f9c2a7b51e08d46")
@click.argument("id")
@url_option
@json_option
def revoke(id: str, url: str | None, as_json: bool) -> None:
    """End the key with this ID, at once and for good.

    Streams that it opened end too.
    """
    with open_store(url, create=False) as queue:
        key = ring.revoke(queue.engine, id)
    tell(as_json, _shown(key), f"The key {key.id} is revoked; servers refuse it within a second.")


def _shown(key: ring.Key) -> dict[str, Any]:
    return {
        "id": key.id,
        "role": key.role,
        "customer": key.customer,
        "name": key.name,
        "made": _moment(key.made_ms),
        "expires": None if key.expires_ms is None else _moment(key.expires_ms),
        "state": key.ended(ring.time_ms()) or "in use",
    }


def _moment(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms // 1000, UTC).isoformat().replace("+00:00", "Z")
