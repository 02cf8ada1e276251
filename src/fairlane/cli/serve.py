"""The command that runs the service."""

from __future__ import annotations

import json

import click

from fairlane.api import auth as ring
from fairlane.api.limits import parse_limits
from fairlane.core.document import validate_text
from fairlane.core.errors import BadValue, Mistake
from fairlane.queue import Queue

from .group import main
from .options import blobs_option, json_option, store_settings, url_option
from .param_types import DURATION

MISSING = "the service needs packages that are not installed; run in the clone: pip install '.[serve]'"


@main.command(epilog="Example:  fairlane serve --port 8000 --retention 7d")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=int, default=8000, show_default=True, help="The port to listen on; 0: any free port.")
@click.option("--no-work", is_flag=True, help="Serve only the API; workers run elsewhere.")
@click.option("--slots", type=int, help="How many documents the worker processes at once.")
@click.option(
    "--kind", "kinds", multiple=True, metavar="KIND", help="Let customers submit this kind too, besides the defaults."
)
@click.option("--retention", type=DURATION, metavar="DURATION", help="Purge documents that ended longer ago. Default: never.")
@click.option("--limit", "limits", multiple=True, metavar="NAME=NUMBER", help="Change a limit; docs/service.md lists them.")
@click.option(
    "--allow-private-webhooks", is_flag=True, help="Let webhooks that an operator set lead to private and loopback addresses."
)
@click.option("--tls-certificate", type=click.Path(exists=True, dir_okay=False), metavar="FILE", help="Use TLS with this.")
@click.option("--tls-key", type=click.Path(exists=True, dir_okay=False), metavar="FILE", help="The certificate's private key.")
@click.option("--behind-proxy", is_flag=True, help="Allow other hosts than loopback without TLS: a proxy in front does TLS.")
@click.option(
    "--trusted-proxy", "trusted_proxies", multiple=True, metavar="ADDRESS/NET",
    help="Take the client's address from what this proxy says (X-Forwarded-For, Forwarded).",
)  # fmt: skip
@blobs_option
@url_option
@json_option
def serve(
    host: str, port: int, no_work: bool, slots: int | None, kinds: tuple[str, ...], retention: float | None,
    limits: tuple[str, ...], allow_private_webhooks: bool, tls_certificate: str | None, tls_key: str | None,
    behind_proxy: bool, trusted_proxies: tuple[str, ...], blobs: str | None, url: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Run the service until Ctrl-C or SIGTERM.

    The service is an HTTP API, a web page, a worker and regular maintenance. If there is no operator key yet, one is created
    and shown once. Logs go to standard error, a JSON object per line. With --json, prints the address and the key as an object.
    """
    try:
        from fairlane.api.client_address import TrustedProxies
        from fairlane.api.server import ListenAddress, bind
        from fairlane.api.server import serve as run
        from fairlane.api.service import Options
        from fairlane.api.worker_process import worker_command
        from fairlane.console.app import Console
    except ImportError as error:
        raise Mistake(f"{MISSING} ({error})") from None
    if not 0 <= port <= 65535:
        raise BadValue("--port", port, "a whole number from 0 to 65535")
    address = ListenAddress(host, port, tls_certificate, tls_key, behind_proxy)
    settings = store_settings(url, blobs)
    at = settings.url
    if at.startswith("memory:"):
        raise Mistake("a queue in memory cannot be served, because the worker is another process; use --url sqlite:///file.db")
    worker = None if no_work else worker_command(at, settings.blobs, slots)
    allowed = tuple(validate_text("--kind", kind, 100) for kind in kinds)
    proxies = TrustedProxies(trusted_proxies, is_behind_proxy=behind_proxy)
    options = Options(parse_limits(limits), allowed, retention, allow_private_webhooks, worker, proxies)
    listening = bind(address)
    base_url = address.url(listening.getsockname()[1])
    with Queue(at, blobs=settings.blobs) as queue:
        run(queue, options, address, listening, lambda: _print_started(queue, base_url, as_json), Console)


def _print_started(queue: Queue, base_url: str, as_json: bool) -> None:
    """Print the address, and the first operator key if there was none."""
    key = None
    if not ring.has_operator(queue.engine):
        key, _ = ring.create(queue.engine, customer=None, name="first")
    if as_json:
        click.echo(json.dumps({"address": base_url, "operator_key": key}))
        return
    click.echo(f"Fairlane is running at {base_url}; press Ctrl-C to stop it.")
    if key is not None:
        click.echo(f"The first operator key, shown only now: {key}")
