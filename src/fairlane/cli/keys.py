"""Commands for the service's keys: create, list, revoke."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, get_args

import click

from fairlane.api import auth as ring
from fairlane.api.permissions import ROLE_NAMES, Role, Scope
from fairlane.core.errors import Mistake

from .group import main
from .options import complete_customer, json_option, open_store, url_option
from .output import echo, print_json, print_result, print_table
from .param_types import EXPIRY


@main.group(epilog="Example:  fairlane keys create --customer acme --expires 90d")
def keys() -> None:
    """Manage the keys of the service.

    A customer's key gives access to that customer's documents only. A viewer's key sees everything and changes nothing, an
    operator's works the queue, an admin's also manages keys. The store keeps a hash of each key; the key itself is shown once,
    when it is created.
    """


@keys.command(epilog="Example:  fairlane keys create --customer acme --name laptop --scope submit --expires 90d")
@click.option(
    "--customer", metavar="CUSTOMER", shell_complete=complete_customer, help="A key for this customer's documents only."
)
@click.option("--viewer", "role", flag_value="viewer", help="A key that sees everything and changes nothing.")
@click.option("--operator", "role", flag_value="operator", help="A key that sees everything and works the queue.")
@click.option("--admin", "role", flag_value="admin", help="A key with access to everything, keys too.")
@click.option(
    "--scope", "scopes", multiple=True, type=click.Choice(get_args(Scope)),
    help="Let the key do only this; may be given several times. A key with metrics alone only reads /metrics.",
)  # fmt: skip
@click.option("--name", default="", help="A note on what the key is for, shown in the list.")
@click.option(
    "--expires", type=EXPIRY, default="90d", show_default=True, metavar="DURATION|never", help="When the key expires."
)
@url_option
@json_option
def create(
    customer: str | None, role: Role | None, scopes: tuple[Scope, ...], name: str, expires: float | None, url: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Create a key for a customer or for staff, and show it once.

    The key is the only line on standard output: KEY=$(fairlane keys create --customer acme)
    """
    if role is None and customer is None and scopes == ("metrics",):
        role = "viewer"
    if (customer is None) == (role is None):
        raise Mistake("a key is for a customer or for staff: use --customer NAME, --viewer, --operator or --admin")
    with open_store(url) as queue:
        secret, key = ring.create(
            queue.engine,
            customer=customer,
            role=role,
            scopes=scopes,
            name=name,
            expires_seconds=expires,
            actor=queue.actor,
        )
    owner = ROLE_NAMES[key.role] if key.customer is None else f"customer {key.customer}"
    print_result(as_json, {"key": secret, **_to_dict(key)}, secret)
    if not as_json:
        ends = "It does not expire" if key.expires_ms is None else f"It expires at {_format_time(key.expires_ms)}"
        echo(f"This is a key of {owner}. {ends}. It is not shown again; keep it safe.", err=True)


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
            print_json(row)
        return None
    if not rows:
        return echo("No keys yet: `fairlane keys create --admin` creates one.")
    columns = ("id", "role", "customer", "scopes", "name", "made", "expires", "state")
    return print_table(columns, [[_cell(row[column]) for column in columns] for row in rows])


def _cell(value: Any) -> str:
    return (", ".join(value) if isinstance(value, list) else value) or "-"


@keys.command(epilog="Example:  fairlane keys revoke 3f9c2a7b51e08d46")
@click.argument("id")
@url_option
@json_option
def revoke(id: str, url: str | None, as_json: bool) -> None:
    """Revoke the key with this ID for good.

    Event streams that were opened with it end too.
    """
    with open_store(url, create=False) as queue:
        key = ring.revoke(queue.engine, id, actor=queue.actor)
    print_result(as_json, _to_dict(key), f"The key {key.id} is revoked; servers refuse it within a second.")


def _to_dict(key: ring.Key) -> dict[str, Any]:
    return {
        "id": key.id,
        "role": key.role,
        "customer": key.customer,
        "scopes": list(key.scopes),
        "name": key.name,
        "made": _format_time(key.made_ms),
        "expires": None if key.expires_ms is None else _format_time(key.expires_ms),
        "state": key.ended(ring.time_ms()) or "in use",
    }


def _format_time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms // 1000, UTC).isoformat().replace("+00:00", "Z")
