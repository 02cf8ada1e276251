"""Commands for the service's keys: create, list, revoke."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import click

from fairlane.api import auth as ring
from fairlane.core.errors import Mistake

from .group import main
from .options import complete_customer, json_option, open_store, url_option
from .output import print_result, print_table
from .param_types import DURATION


@main.group(epilog="Example:  fairlane keys create --customer acme --expires 90d")
def keys() -> None:
    """Manage the keys of the service.

    A customer's key gives access to that customer's documents only, an operator's key to everything. The store keeps a hash of
    each key; the key itself is shown once, when it is created.
    """


@keys.command(epilog="Example:  fairlane keys create --customer acme --name laptop --expires 90d")
@click.option(
    "--customer", metavar="CUSTOMER", shell_complete=complete_customer, help="A key for this customer's documents only."
)
@click.option("--operator", is_flag=True, help="A key with access to everything.")
@click.option("--name", default="", help="A note on what the key is for, shown in the list.")
@click.option("--expires", type=DURATION, metavar="DURATION", help="When the key expires, such as 90d. Default: never.")
@url_option
@json_option
def create(customer: str | None, operator: bool, name: str, expires: float | None, url: str | None, as_json: bool) -> None:
    """Create a key for a customer or an operator, and show it once.

    The key is the only line on standard output: KEY=$(fairlane keys create --customer acme)
    """
    if (customer is None) != operator:
        raise Mistake("a key is either for a customer or for an operator: use --customer NAME or --operator")
    with open_store(url) as queue:
        secret, key = ring.create(queue.engine, customer=customer, name=name, expires_seconds=expires)
    owner = "an operator" if key.customer is None else f"customer {key.customer}"
    print_result(as_json, {"key": secret, **_to_dict(key)}, secret)
    if not as_json:
        click.echo(f"This is a key of {owner}. It is not shown again; keep it safe.", err=True)


@keys.command("list", epilog="Example:  fairlane keys list")
@url_option
@json_option
def list_keys(url: str | None, as_json: bool) -> None:
    """List all keys, without the secrets.

    With --json, prints an object per line.
    """
    with open_store(url, create=False) as queue:
        rows = [_to_dict(key) for key in ring.list_keys(queue.engine)]
    if as_json:
        for row in rows:
            click.echo(json.dumps(row))
        return None
    if not rows:
        return click.echo("No keys yet: `fairlane keys create --operator` creates one.")
    columns = ("id", "role", "customer", "name", "made", "expires", "state")
    return print_table(columns, [[row[column] or "-" for column in columns] for row in rows])


@keys.command(epilog="Example:  fairlane keys revoke 3f9c2a7b51e08d46")
@click.argument("id")
@url_option
@json_option
def revoke(id: str, url: str | None, as_json: bool) -> None:
    """Revoke the key with this ID for good.

    Event streams that were opened with it end too.
    """
    with open_store(url, create=False) as queue:
        key = ring.revoke(queue.engine, id)
    print_result(as_json, _to_dict(key), f"The key {key.id} is revoked; servers refuse it within a second.")


def _to_dict(key: ring.Key) -> dict[str, Any]:
    return {
        "id": key.id,
        "role": key.role,
        "customer": key.customer,
        "name": key.name,
        "made": _format_time(key.made_ms),
        "expires": None if key.expires_ms is None else _format_time(key.expires_ms),
        "state": key.ended(ring.time_ms()) or "in use",
    }


def _format_time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms // 1000, UTC).isoformat().replace("+00:00", "Z")
