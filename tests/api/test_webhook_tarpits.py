"""Webhooks under attack: addresses that keep their callers, over TLS, hold up neither other customers nor the sender for long.

Where a test says that somebody does not wait, calls may last ten minutes: the calls of the tarpits are open all the time.
"""

from __future__ import annotations

import base64
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from fairlane.api import webhook_deliveries, webhooks
from fairlane.api.webhook_deliveries import DeliveryStore
from fairlane.api.webhook_transport import RESPONSE_BYTES_MAX, CallFailed, post
from fairlane.queue.record_groups import records_of

from .receivers import Tarpit, hooked, listening, serving, tarpit
from .running import OPEN_LIMITS, SECONDS_MAX, Server, until
from .test_tls import Pair, made

CALLS = 16  # at once, of all customers; half of them for those that are not proven
LONG_CALLS = (*OPEN_LIMITS, "webhook_seconds=600", f"webhook_calls={CALLS}")

Behaviour = Callable[[Tarpit, ssl.SSLSocket], None]
_numbers = count(1)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return made(tmp_path_factory.mktemp("certificate"), "localhost")


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory, pair: Pair) -> Iterator[Server]:
    """A server whose calls last a second at most."""
    limits = (*OPEN_LIMITS, "webhook_seconds=1")
    folder, variables = tmp_path_factory.mktemp("hasty"), {"SSL_CERT_FILE": pair.certificate}
    with serving(folder, "--allow-private-webhooks", limits=limits, variables=variables) as server:
        yield server


@pytest.fixture
def patient(tmp_path: Path, pair: Pair) -> Iterator[Server]:
    """A server whose calls last longer than any test."""
    variables = {"SSL_CERT_FILE": pair.certificate}
    with serving(tmp_path, "--allow-private-webhooks", limits=LONG_CALLS, variables=variables) as server:
        yield server


def silence(_: Tarpit, connection: ssl.SSLSocket) -> None:
    while connection.recv(65536):
        pass


def slow_headers(tarpit: Tarpit, connection: ssl.SSLSocket) -> None:
    tarpit.trickle(connection, b"HTTP/1.1 200 OK\r\nX-Slow: ", b"x")


def endless_headers(tarpit: Tarpit, connection: ssl.SSLSocket) -> None:
    tarpit.trickle(connection, b"HTTP/1.1 200 OK\r\n", b"X-Long: " + 2000 * b"x" + b"\r\n")


def endless_continue(tarpit: Tarpit, connection: ssl.SSLSocket) -> None:
    tarpit.trickle(connection, b"", 40 * b"HTTP/1.1 100 Continue\r\n\r\n")


def slow_body(tarpit: Tarpit, connection: ssl.SSLSocket) -> None:
    tarpit.trickle(connection, b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b"x")


def endless_body(tarpit: Tarpit, connection: ssl.SSLSocket) -> None:
    tarpit.trickle(connection, b"HTTP/1.1 204 OK\r\nConnection: close\r\n\r\n", 65536 * b"x")


def refused_slowly(tarpit: Tarpit, connection: ssl.SSLSocket) -> None:
    tarpit.trickle(connection, b"HTTP/1.1 500 Broken\r\nContent-Length: 1000000\r\n\r\n", b"x")


def no_http(tarpit: Tarpit, connection: ssl.SSLSocket) -> None:
    tarpit.trickle(connection, b"\x00\x01\x02", b"\x00")


def status_of(server: Server, customer: str) -> dict[str, Any]:
    with server.client(server.operator) as client:
        status: dict[str, Any] = client.get("/v1/webhook", params={"customer": customer}).json()
        return status


@pytest.mark.parametrize(
    ("behave", "failure"),
    [
        (None, "no response within 1 seconds"),
        (silence, "no response within 1 seconds"),
        (slow_headers, "no response within 1 seconds"),
        (endless_headers, "unreadable response: "),
        (endless_continue, f"unreadable response: more than {RESPONSE_BYTES_MAX:,} bytes without an end"),
        (refused_slowly, "answered 500"),
        (no_http, "unreadable response: "),
    ],
)
def test_a_call_ends_at_its_deadline_whatever_is_slow(
    hasty: Server, pair: Pair, behave: Behaviour | None, failure: str
) -> None:
    customer = f"customer {next(_numbers)}"
    with tarpit(pair, behave) as slow:
        hooked(hasty, customer, slow.url)
        hasty.queue.submit(customer, 1)
        hasty.finish()
        reported = until(lambda: status_of(hasty, customer)["failure"], "an outcome of a call")
        assert reported.startswith(failure)
        until(lambda: slow.ended, "an end that the tarpit sees")
        hooked(hasty, customer, "https://localhost:1/")  # the next try leaves the tarpit alone


def test_a_receiver_that_reads_nothing_does_not_hold_the_sender() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unread:
        url, secret = f"http://127.0.0.1:{unread.getsockname()[1]}/", "whsec_" + base64.b64encode(32 * b"x").decode()
        with pytest.raises(CallFailed, match="no response within 1 seconds"):
            post(url, [secret], "msg_1", bytes(64_000_000), allow_private=True, seconds=1)


@pytest.mark.parametrize("behave", [slow_body, endless_body])
def test_the_status_counts_although_the_body_never_ends(hasty: Server, pair: Pair, behave: Behaviour) -> None:
    customer = f"customer {next(_numbers)}"
    with tarpit(pair, behave) as slow:
        hooked(hasty, customer, slow.url)
        hasty.queue.submit(customer, 1)
        hasty.finish()
        until(lambda: status_of(hasty, customer)["delivered_at"], "an accepted delivery")
        until(lambda: slow.ended, "an end that the tarpit sees")


def test_a_certificate_that_is_not_trusted_is_an_outcome(hasty: Server, tmp_path: Path) -> None:
    with listening(made(tmp_path, "other")) as listener:
        hooked(hasty, "untrusting", listener.url)
        hasty.queue.submit("untrusting", 1)
        hasty.finish()
        failure = until(lambda: status_of(hasty, "untrusting")["failure"])
        assert failure == "its certificate is not trusted: self-signed certificate"
        assert listener.calls == []


@pytest.mark.parametrize("behave", [None, silence, slow_headers, slow_body])
def test_others_are_called_while_a_tarpits_call_is_open(patient: Server, pair: Pair, behave: Behaviour | None) -> None:
    with listening(pair) as listener, tarpit(pair, behave) as slow:
        hooked(patient, "stuck", slow.url)
        hooked(patient, "acme", listener.url)
        hooked(patient, "other", listener.url)
        patient.queue.submit_many("stuck", [1] * 100)
        patient.finish(100)
        until(lambda: slow.opened, "a call of the tarpit")
        patient.queue.submit_many("acme", [1] * 30)
        patient.queue.submit_many("other", [1] * 30)
        patient.finish(60)
        until(lambda: len(listener.calls) == 60, "every call of the others")
        assert (slow.opened, slow.ended) == (1, 0)  # an address that was never called has one call at a time


def test_customers_with_tarpits_leave_half_of_the_calls_to_the_rest(patient: Server, pair: Pair) -> None:
    """There are more of them than one page of those that are due holds, and they have been due for longer."""
    with listening(pair) as listener, tarpit(pair, silence) as slow:
        engine = patient.queue.engine
        hooked(patient, "zoe", listener.url)
        patient.queue.submit("zoe", 0)
        patient.finish()
        until(lambda: status_of(patient, "zoe")["delivered_at"])  # zoe is proven
        deliveries, stuck_max = DeliveryStore(engine), webhook_deliveries.PAGE * 2 + 10
        for number in range(stuck_max):
            customer = f"stuck {number:05}"
            webhooks.put_webhook(engine, customer, slow.url, None, is_by_operator=True)
            deliveries.add(webhook_deliveries.document_event(customer, f"gone {number}", "done", 1, None))
            deliveries.wake(customer)
        until(lambda: slow.opened == CALLS // 2, "as many calls of tarpits as there may be")
        patient.queue.submit_many("zoe", [1] * 50)
        patient.finish(50)
        until(lambda: len(listener.calls) == 51, "every call of zoe")
        assert (slow.opened, slow.ended) == (CALLS // 2, 0)


def test_a_customer_does_not_wait_for_its_slowest_call(patient: Server, pair: Pair) -> None:
    """The second call is never answered; one of the others is refused, and tried again meanwhile."""
    release = threading.Event()
    with listening(pair) as listener:
        hooked(patient, "acme", listener.url)
        patient.queue.submit("acme", 0)
        patient.finish()
        until(lambda: status_of(patient, "acme")["delivered_at"])  # proven: several calls at once
        listener.statuses = [200, 503]
        listener.before_answer = lambda number: number == 2 and release.wait(SECONDS_MAX * 3)
        try:
            ids = {receipt.id for receipt in patient.queue.submit_many("acme", [1] * 40)}
            patient.finish(40)
            until(lambda: len(listener.calls) == 42, "forty calls, and one of them again")
            assert {json.loads(body)["data"]["id"] for _, body in listener.calls[1:]} == ids
            stuck = json.loads(listener.calls[1][1])["data"]["id"]
            until(lambda: pending_documents(patient) == [stuck], "nothing left but what is not answered")
        finally:
            release.set()
        until(lambda: not pending_documents(patient))


def test_a_customer_that_is_forgotten_while_it_is_called_leaves_nothing(patient: Server, pair: Pair) -> None:
    release = threading.Event()
    with listening(pair) as listener:
        hooked(patient, "acme", listener.url)
        listener.statuses = [503]
        listener.before_answer = lambda _: release.wait(SECONDS_MAX * 3)
        try:
            patient.queue.submit("acme", 1)
            patient.finish()
            until(lambda: listener.calls, "a call")
            patient.queue.forget("acme")
        finally:
            release.set()
        until(lambda: any(line["event"] == "webhook" for line in patient.logged()), "its outcome")
        until(lambda: not list(records_of(patient.queue.engine, "acme")), "nothing of it")


def pending_documents(server: Server) -> list[str]:
    """The documents of what is to be delivered."""
    return [json.loads(record.value)["document"] for record in server.queue.engine.records(webhook_deliveries.PENDING, "", 100)]
