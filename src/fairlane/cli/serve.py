"""The command that runs the service."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import click

from fairlane.api import auth as ring
from fairlane.api.first_key import ADVICE, make_first_key
from fairlane.api.limits import parse_limits
from fairlane.blobs import open_blobs
from fairlane.core.document import validate_text
from fairlane.core.errors import BadValue, FairlaneError, Mistake
from fairlane.core.policy import CustomerLimits
from fairlane.queue import Queue

from .group import main
from .options import blobs_option, json_option, store_settings, unsafe_option, url_option
from .output import echo, print_json
from .param_types import DURATION, EXPIRY
from .sign_in import sign_in_options, sign_in_settings

if TYPE_CHECKING:
    from fairlane.api.logging import Log

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
@click.option(
    "--audit-retention", type=EXPIRY, default="365d", show_default=True, metavar="DURATION|never",
    help="Delete entries of the audit log that are older.",
)  # fmt: skip
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
@click.option(
    "--upload-origin", "upload_origins", multiple=True, metavar="ORIGIN",
    help="Let pages of this site upload with upload tokens (CORS), as in https://app.example.com. Default: no site.",
)  # fmt: skip
@sign_in_options
@unsafe_option
@blobs_option
@url_option
@json_option
def serve(
    host: str, port: int, no_work: bool, slots: int | None, kinds: tuple[str, ...], retention: float | None,
    audit_retention: float | None, limits: tuple[str, ...], allow_private_webhooks: bool, tls_certificate: str | None,
    tls_key: str | None, behind_proxy: bool, trusted_proxies: tuple[str, ...], upload_origins: tuple[str, ...],
    is_unsafe: bool, blobs: str | None, url: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Run the service until Ctrl-C or SIGTERM.

    The service is an HTTP API, a web page, a worker and regular maintenance. If there is no admin's key yet, one is created: it
    is shown once on a terminal, and otherwise written to a file beside the queue, which the log names. Logs go to standard
    error, a JSON object per line. With --json, prints the address and the name of that file as an object.
    """
    try:
        from fairlane.api.client_address import TrustedProxies
        from fairlane.api.cors import UploadOrigins
        from fairlane.api.logging import Log
        from fairlane.api.server import ListenAddress, bind
        from fairlane.api.server import serve as run
        from fairlane.api.service import Options
        from fairlane.api.worker_process import worker_command
        from fairlane.console.app import Console
    except ImportError as error:
        raise Mistake(f"{MISSING} ({error})") from None
    log = Log()
    with _captured(log):  # before anything warns
        if not 0 <= port <= 65535:
            raise BadValue("--port", port, "a whole number from 0 to 65535")
        address = ListenAddress(host, port, tls_certificate, tls_key, behind_proxy)
        settings = store_settings(url, blobs, is_unsafe)
        at = settings.url
        if at.startswith("memory:"):
            raise Mistake(
                "a queue in memory cannot be served, because the worker is another process; use --url sqlite:///file.db"
            )
        if settings.blobs is not None:
            open_blobs(settings.blobs)  # raise for what cannot be a store now, not when a customer sends a file
        worker = None if no_work else worker_command(settings, slots)
        allowed = tuple(validate_text("--kind", kind, 100) for kind in kinds)
        proxies = TrustedProxies(trusted_proxies, is_behind_proxy=behind_proxy)
        sign_in = sign_in_settings(proxies)
        options = Options(
            parse_limits(limits), allowed, retention, audit_retention, allow_private_webhooks, worker, proxies,
            UploadOrigins(upload_origins),
        )  # fmt: skip
        listening = bind(address)
        base_url = address.url(listening.getsockname()[1])
        with Queue(at, blobs=settings.blobs) as queue:
            started = partial(_report_started, queue, base_url, retention, as_json, log)
            run(queue, options, address, listening, started, lambda service: Console(service, sign_in), log)


@contextmanager
def _captured(log: Log) -> Iterator[None]:
    """Have everything that is printed in the log; but a call that is wrong is reported as by every command."""
    release = log.capture()
    try:
        yield
    except FairlaneError:
        release()
        raise


def _report_started(queue: Queue, base_url: str, retention: float | None, as_json: bool, log: Log) -> None:
    """Print the address, and where the first admin's key is if there was none; the log never has the key itself."""
    what_grows = _what_grows(retention, queue.rules().limits)
    is_read = sys.stdout.isatty() and sys.stderr.isatty() and not as_json  # by somebody who reads it once, below
    for sentence in () if is_read else what_grows:
        log.event("unlimited", advice=sentence)
    first = make_first_key(queue.engine, queue.url, is_terminal=sys.stdout.isatty())
    if first is not None and first.path is not None:
        log.event("first admin key", key=first.key.id, file=str(first.path), expires_at=(first.key.expires_ms or 0) / 1000)
    elif first is None and not ring.has_admin(queue.engine):
        log.event("no admin key", advice=ADVICE)
    if as_json:
        secret, path = (None, None) if first is None else (first.secret, first.path)
        print_json({"address": base_url, "admin_key": secret, "admin_key_file": None if path is None else str(path)})
        return
    echo(f"Fairlane is running at {base_url}; press Ctrl-C to stop it.")
    if first is not None and first.secret is not None:
        echo("Open it in a browser. The first admin's key, shown only now; it expires in 90 days:", f"  {first.secret}")
    elif first is not None:
        echo(f"The first admin's key is in {first.path}; it expires in 90 days.")
    for sentence in what_grows:
        echo(sentence)


def _what_grows(retention: float | None, limits: CustomerLimits) -> list[str]:
    """Say what the disk is filled with unless somebody looks after it."""
    sentences = []
    if retention is None:
        sentences.append(
            "Nothing is ever purged: documents and their files are kept until you run `fairlane purge`, or start with "
            "--retention, as in --retention 30d."
        )
    if limits.bytes_max is None:
        sentences.append(
            "There is no quota: a customer may keep any number of bytes; set one with `fairlane policy --bytes-max 50GB`."
        )
    return sentences
