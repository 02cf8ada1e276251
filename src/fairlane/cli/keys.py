"""Commands for the service's keys: create, list, rotate, revoke; and for upload tokens."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, get_args

import click

from fairlane.api import auth as ring
from fairlane.api import upload_tokens
from fairlane.api.key_expiry import ends_soon
from fairlane.api.key_uses import last_use
from fairlane.api.permissions import ROLE_NAMES, Role, Scope
from fairlane.core.errors import Mistake
from fairlane.queue import FILE_KIND, KEEP, Keep

from .group import main
from .options import complete_customer, json_option, open_store, url_option
from .output import echo, print_json, print_result, print_table
from .param_types import DURATION, EXPIRY


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
        echo(f"This is a key of {owner}. {_expiry(key)}", err=True)


@keys.command("list", epilog="Example:  fairlane keys list --customer acme")
@click.option("--customer", metavar="CUSTOMER", shell_complete=complete_customer, help="Only keys of this customer.")
@click.option("--active", is_flag=True, help="Leave out keys that expired or were revoked.")
@url_option
@json_option
def list_keys(customer: str | None, active: bool, url: str | None, as_json: bool) -> None:
    """List keys, without the secrets.

    Says of each when it was last used, up to a minute or so ago, and warns of those that end within two weeks. With --json,
    prints an object per line.
    """
    with open_store(url, create=False) as queue:
        found = [key for key in ring.list_keys(queue.engine) if customer in (None, key.customer)]
        rows = [_to_dict(key, last_use(queue.engine, key.id)) for key in found if not active or not key.ended(ring.time_ms())]
    if as_json:
        for row in rows:
            print_json(row)
        return None
    if not rows:
        return echo("No keys here: `fairlane keys create --admin` creates one.")
    columns = ("id", "role", "customer", "scopes", "name", "expires", "last used", "state")
    return print_table(columns, [[_cell(row, column) for column in columns] for row in rows])


def _cell(row: dict[str, Any], column: str) -> str:
    if column == "state" and row["replaced_by"]:
        return f"{row['state']}, replaced by {row['replaced_by']}"
    if column == "state" and row["ends_soon"]:
        return f"{row['state']}, ends soon"
    value = row[column.replace(" ", "_")]
    return (", ".join(value) if isinstance(value, list) else value) or "-"


@keys.command(epilog="Example:  fairlane keys rotate 3f9c2a7b51e08d46 --overlap 7d")
@click.argument("id")
@click.option(
    "--overlap", type=DURATION, default="7d", show_default=True, metavar="DURATION", help="How long the old key stays valid."
)
@click.option(
    "--expires", type=EXPIRY, default=KEEP, metavar="DURATION|never",
    help="When the new key expires. Default: it is valid for as long as the old one was.",
)  # fmt: skip
@url_option
@json_option
def rotate(id: str, overlap: float, expires: float | Keep | None, url: str | None, as_json: bool) -> None:
    """Replace the key with this ID by a new one, and show that once.

    The new key has the same holder, role, scopes and name. Both are valid until the overlap is over. The key is the only line
    on standard output.
    """
    with open_store(url, create=False) as queue:
        secret, new, old = ring.rotate(queue.engine, id, overlap_seconds=overlap, expires_seconds=expires, actor=queue.actor)
    print_result(as_json, {"key": secret, **_to_dict(new), "old": _to_dict(old)}, secret)
    if not as_json:
        assert old.expires_ms is not None
        echo(f"The key {old.id} expires at {_format_time(old.expires_ms)}. {_expiry(new)}", err=True)


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


@keys.command("upload-token", epilog="Example:  fairlane keys upload-token --customer acme --bytes-max 10000000")
@click.option(
    "--customer", metavar="CUSTOMER", required=True, shell_complete=complete_customer, help="Whose document it will be."
)
@click.option("--kind", default=FILE_KIND, show_default=True, metavar="KIND", help="The kind of the document.")
@click.option("--bytes-max", type=int, metavar="BYTES", help="The largest file. Default: as every upload.")
@click.option(
    "--expires", type=DURATION, default="15m", show_default=True, metavar="DURATION", help="When it expires; an hour at most."
)
@url_option
@json_option
def upload_token(customer: str, kind: str, bytes_max: int | None, expires: float, url: str | None, as_json: bool) -> None:
    """Create an upload token for one document, and show it once.

    Whoever has it can upload one file and do nothing else. Programs make theirs over the API. The token is the only line on
    standard output.
    """
    options = upload_tokens.TokenOptions(kind, bytes_max, expires_seconds=expires)
    with open_store(url, create=False) as queue:
        secret, token = upload_tokens.create(queue.engine, customer, options, actor=queue.actor)
    expires_at = _format_time(token.expires_ms)
    shown = {"id": token.id, "customer": customer, "kind": kind, "bytes_max": bytes_max, "expires": expires_at}
    print_result(as_json, {"token": secret, **shown}, secret)
    if not as_json:
        echo(f"It is good for one document of customer {customer}, until {expires_at}.", err=True)


def _expiry(key: ring.Key) -> str:
    ends = "It does not expire" if key.expires_ms is None else f"It expires at {_format_time(key.expires_ms)}"
    return f"{ends}. It is not shown again; keep it safe."


def _to_dict(key: ring.Key, last_used_ms: int | None = None) -> dict[str, Any]:
    now_ms = ring.time_ms()
    return {
        "id": key.id,
        "role": key.role,
        "customer": key.customer,
        "scopes": list(key.scopes),
        "name": key.name,
        "made": _format_time(key.made_ms),
        "expires": _format_time(key.expires_ms),
        "ends_soon": ends_soon(key, now_ms),
        "last_used": _format_time(last_used_ms),
        "state": key.state(now_ms),
        "replaced_by": key.replaced_by,
    }


def _format_time(at_ms: int | None) -> str | None:
    return None if at_ms is None else datetime.fromtimestamp(at_ms // 1000, UTC).isoformat().replace("+00:00", "Z")
