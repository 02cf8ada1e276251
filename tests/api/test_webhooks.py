"""Webhooks: signed by the specification, repeated until taken, not lost by a crash, led to public addresses only."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from fairlane import Queue
from fairlane.api import auth, webhook_deliveries, webhooks
from fairlane.api.access.batches import BatchAccess, BatchRecord
from fairlane.api.auth import time_ms
from fairlane.api.webhook_deliveries import DeliveryStore
from fairlane.api.webhook_transport import CallFailed, post
from fairlane.core.document import Done, Failed
from fairlane.core.errors import BadValue
from tests.conftest import need_program
from tests.docs.snippets import snippet
from tests.servers.postgres import free_port
from tests.terminal import bash

from .receivers import Listener, hooked, listening, serving
from .running import OPEN_LIMITS, SECONDS_MAX, Server, problem_of, until

SECRET = "whsec_" + base64.b64encode(32 * b"x").decode()


@pytest.fixture
def listener() -> Iterator[Listener]:
    with listening() as made:
        yield made


def verified(secret: str, call: tuple[dict[str, str], bytes]) -> dict[str, Any]:
    """What a receiver reads with the official library; raises if the signature is not of this secret."""
    headers, body = call
    event: dict[str, Any] = Webhook(secret).verify(body, headers)
    return event


def ids_of(listener: Listener) -> set[str]:
    return {headers["webhook-id"] for headers, _ in listener.calls}


def deliveries(client: httpx.Client, state: str, **query: Any) -> list[dict[str, Any]]:
    answer = client.get("/v1/webhook/deliveries", params={"state": state, **query})
    assert answer.status_code == 200, answer.text
    return list(answer.json()["deliveries"])


def times_of(server: Server, id: str) -> tuple[float, float]:
    """When a document was submitted and when it ended, as bodies have it."""
    document = server.queue.engine.document(id)
    assert document is not None
    assert document.ended_ms is not None
    return document.submitted_ms / 1000, document.ended_ms / 1000


def no_delivery_is_pending(server: Server) -> bool:
    return not server.queue.engine.records(webhook_deliveries.PENDING, "", 10)


def test_the_official_library_verifies_an_ending_that_is_repeated_until_it_is_taken(tmp_path: Path, listener: Listener) -> None:
    with serving(tmp_path, "--allow-private-webhooks") as server:
        secret = hooked(server, "acme", listener.url)
        listener.statuses = [500, 302]
        server.queue.submit("somebody else", 1)
        receipt = server.queue.submit("acme", {"x": "secret of a payload"}, content=b"bytes", name="invoice.pdf", key="inv-17")
        server.finish(2)
        until(lambda: len(listener.calls) >= 3)
        assert {headers["path"] for headers, _ in listener.calls} == {"/hook?x=1"}  # a redirect is not followed
        events = [verified(secret, call) for call in listener.calls]
        assert events[0] == events[1] == events[2]
        submitted_at, ended_at = times_of(server, receipt.id)
        assert events[0]["type"] == "document.done"
        assert events[0]["data"] == {
            "id": receipt.id, "customer": "acme", "state": "done", "reason": None, "kind": "extract", "priority": 1,
            "attempts": 1, "key": "inv-17", "file_name": "invoice.pdf", "batch": None,
            "submitted_at": submitted_at, "ended_at": ended_at,
        }  # fmt: skip
        assert datetime.fromisoformat(events[0]["timestamp"]).timestamp() == ended_at
        assert len(ids_of(listener)) == 1
        until(lambda: no_delivery_is_pending(server))
        with server.client(server.operator) as client:
            figures = client.get("/metrics").text
        assert 'fairlane_webhooks_total{outcome="taken"} 1.0' in figures
        assert 'fairlane_webhooks_total{outcome="failed"} 2.0' in figures
        assert secret.encode() not in server.log.read_bytes()
        with pytest.raises(WebhookVerificationError):
            verified(secret, (listener.calls[0][0], listener.calls[0][1] + b" "))


def test_all_that_a_receiver_can_rely_on_is_signed(tmp_path: Path, listener: Listener) -> None:
    with serving(tmp_path, "--allow-private-webhooks") as server:
        secret = hooked(server, "acme", listener.url)
        server.queue.submit("acme", 1, key="a.b.c")
        server.finish()
        until(lambda: listener.calls)
    headers, body = listener.calls[0]
    of_http = {"host", "content-type", "content-length", "user-agent", "connection", "path"}
    assert set(headers) - of_http == {"webhook-id", "webhook-timestamp", "webhook-signature"}
    assert "." not in headers["webhook-id"] + headers["webhook-timestamp"]  # what is signed can be taken apart in one way only
    verified(secret, (headers, body))
    for name, value in (("webhook-id", "msg_2"), ("webhook-timestamp", str(int(headers["webhook-timestamp"]) - 1))):
        with pytest.raises(WebhookVerificationError):
            verified(secret, ({**headers, name: value}, body))
    with pytest.raises(WebhookVerificationError):
        verified(secret, (headers, body.replace(b"done", b"lost")))


def test_a_customer_sets_its_own_webhook_and_nobody_elses(tmp_path: Path, listener: Listener) -> None:
    need_program("curl")
    command = snippet("docs/service.md", "curl -X PUT")
    with serving(tmp_path, "--allow-private-webhooks") as server, server.client(key := server.key("acme")) as client:
        assert client.get("/v1/webhook").status_code == 404
        made = json.loads(bash(command.replace("http://127.0.0.1:8000", server.address), tmp_path, KEY=key))
        assert made["secret"].startswith("whsec_")
        assert client.get("/v1/webhook").json()["url"] == "https://customer.example/fairlane"
        assert client.put("/v1/webhook", params={"customer": "other"}, json={"url": listener.url}).status_code == 404
        moved = client.put("/v1/webhook", json={"url": listener.url + "&y=2"}).json()
        assert (moved["secret"], moved["secrets"]) == (None, made["secrets"])  # another address keeps the secret
        server.queue.submit("acme", 1)
        server.finish()
        until(lambda: client.get("/v1/webhook").json()["failures"])
        # What an operator may do is no way for customers into the network of the service.
        assert client.get("/v1/webhook").json()["failure"] == "127.0.0.1 leads to no address that is public"
        assert listener.calls == []
        assert hooked(server, "acme", listener.url) == "None"  # the same webhook, now by an operator
        until(lambda: listener.calls)
        assert verified(made["secret"], listener.calls[0])["data"]["customer"] == "acme"
        assert client.delete("/v1/webhook").status_code == 204
        assert client.get("/v1/webhook").status_code == 404


def test_during_a_rotation_both_secrets_verify(tmp_path: Path, listener: Listener) -> None:
    with serving(tmp_path, "--allow-private-webhooks") as server, server.client(server.key("acme")) as client:
        first = hooked(server, "acme", listener.url)

        def next_call() -> tuple[dict[str, str], bytes]:
            count = len(listener.calls)
            server.queue.submit("acme", 1)
            server.finish()
            until(lambda: len(listener.calls) > count)
            return listener.calls[-1]

        rotated = client.post("/v1/webhook/rotate", json={"overlap": 3600}).json()
        second = rotated["secret"]
        assert [held["expires_at"] is None for held in rotated["secrets"]] == [True, False]
        call = next_call()
        assert len(call[0]["webhook-signature"].split(" ")) == 2
        assert verified(first, call) == verified(second, call)
        assert client.delete("/v1/webhook/old-secret").json()["secret"] is None
        call = next_call()
        verified(second, call)
        with pytest.raises(WebhookVerificationError):
            verified(first, call)
        third = client.post("/v1/webhook/rotate", json={"overlap": 0}).json()["secret"]
        call = next_call()
        verified(third, call)
        assert len(call[0]["webhook-signature"].split(" ")) == 1


def test_the_old_secret_of_a_rotation_expires_by_itself() -> None:
    with Queue("memory://") as queue:
        hook, _ = webhooks.put_webhook(queue.engine, "acme", "https://example.com", None, is_by_operator=False)
        rotated = webhooks.rotate_secret(queue.engine, "acme", None, 60)
        new, old = rotated.secrets
        assert old.secret == hook.secrets[0].secret
        assert old.expires_ms == new.made_ms + 60_000
        assert rotated.valid_secrets(new.made_ms + 59_999) == [new.secret, old.secret]
        assert rotated.valid_secrets(new.made_ms + 60_000) == [new.secret]
        again = webhooks.rotate_secret(queue.engine, "acme", None, 60)
        assert [held.secret for held in again.secrets[1:]] == [new.secret]  # never more than two


def test_the_end_of_a_batch_is_told_once(tmp_path: Path, listener: Listener) -> None:
    with serving(tmp_path, "--allow-private-webhooks") as server, server.client(server.key("acme")) as client:
        secret = hooked(server, "acme", listener.url)
        body = {"documents": [{"payload": number} for number in range(5)]}
        batch = client.post("/v1/batches", json=body, headers={"Idempotency-Key": "march"}).json()
        *others, last = server.claim(5)
        server.queue.engine.settle([(claim, Done()) for claim in others])
        until(lambda: len(listener.calls) == 4)
        assert {verified(secret, call)["data"]["batch"] for call in listener.calls} == {batch["id"]}
        server.queue.engine.settle([(last, Failed("not a PDF"))])
        until(lambda: len(listener.calls) == 6)
        (ended,) = [event for call in listener.calls if (event := verified(secret, call))["type"] == "batch.ended"]
        assert ended["data"] | {"made_at": 0} == {
            "id": batch["id"], "customer": "acme", "key": "march", "documents": 5, "counts": {"done": 4, "failed": 1},
            "missing": 0, "made_at": 0, "ended_at": times_of(server, last.id)[1],
        }  # fmt: skip
        server.queue.retry(last.id)  # its second ending is told, the batch's is not
        server.finish()
        until(lambda: len(listener.calls) == 7)
        assert verified(secret, listener.calls[-1])["type"] == "document.done"
        again = client.post("/v1/webhook/deliveries", json={"batch": batch["id"]})
        assert again.status_code == 202, again.text
        until(lambda: len(listener.calls) == 8)
        assert len(ids_of(listener)) == 7


def test_a_batch_of_files_that_ended_before_it_was_written_down_is_told(tmp_path: Path, listener: Listener) -> None:
    """The worker is quicker than the server: the batch's record comes after the documents have ended."""
    with serving(tmp_path, "--allow-private-webhooks") as server:
        secret = hooked(server, "acme", listener.url)
        batch = BatchRecord("0123456789abcdef", "acme", "digest", 1, ())
        receipts = [server.queue.submit("acme", number, key=f"{batch.id}/{number}") for number in range(2)]
        server.finish(2)
        until(lambda: len(listener.calls) == 2)
        batches = BatchAccess(server.queue, auth.create(server.queue.engine, customer="acme")[1].caller)
        batches.put(batch._replace(documents=tuple(receipt.id for receipt in receipts)))
        until(lambda: len(listener.calls) == 3)
        assert verified(secret, listener.calls[-1])["data"]["counts"] == {"done": 2}


def test_deliveries_are_listed_and_sent_again(tmp_path: Path, listener: Listener) -> None:
    with serving(tmp_path, "--allow-private-webhooks") as server, server.client(server.key("acme")) as client:
        before = server.queue.submit("acme", 0).id
        hooked(server, "first", listener.url)
        server.queue.submit("first", 0)
        server.finish(2)
        until(lambda: listener.calls)  # the sender has seen both endings before acme has a webhook
        listener.calls.clear()
        secret = hooked(server, "acme", listener.url)
        listener.statuses = [503] * 2
        id = server.queue.submit("acme", 1).id
        server.finish()
        (pending,) = until(lambda: [each for each in deliveries(client, "pending") if each["attempts"] == 1])
        assert (pending["document"], pending["outcome"]) == (id, "answered 503")
        assert pending["next_at"] > pending["tried_at"]
        until(lambda: (status := client.get("/v1/webhook").json())["failures"] and status["failure"] == "answered 503")
        (delivered,) = until(lambda: deliveries(client, "delivered"))
        assert (delivered["id"], delivered["attempts"], delivered["outcome"]) == (pending["id"], 3, "answered 200")
        assert client.get("/v1/webhook").json()["failures"] == 0

        count = len(listener.calls)
        assert client.post(f"/v1/webhook/deliveries/{delivered['id']}/send").status_code == 202
        until(lambda: len(listener.calls) == count + 1)
        assert client.post("/v1/webhook/deliveries", json={"document": id}).json()["id"] == delivered["id"]
        until(lambda: len(listener.calls) == count + 2)
        assert ids_of(listener) == {delivered["id"]}
        # Also what ended before there was a webhook.
        assert client.post("/v1/webhook/deliveries", json={"document": before}).status_code == 202
        until(lambda: len(listener.calls) == count + 3)
        assert verified(secret, listener.calls[-1])["data"]["id"] == before

        running = server.queue.submit("acme", 2).id
        assert problem_of(client.post("/v1/webhook/deliveries", json={"document": running})) == "wrong-state"
        assert problem_of(client.post("/v1/webhook/deliveries", json={})) == "bad-value"
        assert client.post("/v1/webhook/deliveries/msg_unknown/send").status_code == 404
        with server.client(server.key("other")) as other:
            hooked(server, "other", listener.url)
            assert deliveries(other, "delivered") == []
            assert other.post(f"/v1/webhook/deliveries/{delivered['id']}/send").status_code == 404
            assert other.post("/v1/webhook/deliveries", json={"document": id}).status_code == 404


def test_what_was_given_up_is_listed_and_can_be_sent_again(tmp_path: Path, listener: Listener) -> None:
    with serving(tmp_path, "--allow-private-webhooks") as server, server.client(server.key("acme")) as client:
        hooked(server, "acme", listener.url)
        store, last_try = DeliveryStore(server.queue.engine), webhook_deliveries.ATTEMPTS_MAX - 1
        listener.statuses = [500]
        for number in range(3):
            event = webhook_deliveries.document_event("acme", f"gone-{number}", "done", 1000 + number, None)
            too_old = event._replace(attempts=1)  # and one that has one try left
            store.add(too_old if number else event._replace(at_ms=time_ms(), due_ms=1, attempts=last_try))
        store.wake("acme")
        failed = until(lambda: len(page := deliveries(client, "failed")) == 3 and page)
        assert {each["document"] for each in failed} == {"gone-0", "gone-1", "gone-2"}
        assert client.get("/v1/webhook").json()["failed"] == 3
        first = client.get("/v1/webhook/deliveries", params={"state": "failed", "limit": 2}).json()
        rest = client.get(first["next"]).json()
        assert [each["id"] for each in (*first["deliveries"], *rest["deliveries"])] == [each["id"] for each in failed]
        assert len(listener.calls) == 1
        assert client.post(f"/v1/webhook/deliveries/{failed[0]['id']}/send").status_code == 202
        until(lambda: len(listener.calls) == 2)
        until(lambda: len(deliveries(client, "failed")) == 2)
        webhook_deliveries.forget_failures(server.queue.engine, 0)
        assert deliveries(client, "failed") == []


def test_an_address_that_never_answers_does_not_hold_up_others(tmp_path: Path, listener: Listener) -> None:
    silent = socket.create_server(("127.0.0.1", 0), backlog=200)  # accepts, and never answers
    with serving(tmp_path, "--allow-private-webhooks", limits=(*OPEN_LIMITS, "webhook_seconds=600")) as server, silent:
        hooked(server, "stuck", f"http://127.0.0.1:{silent.getsockname()[1]}/")
        hooked(server, "acme", listener.url)
        server.queue.submit_many("stuck", [1] * 200)
        server.finish(200)
        silent.settimeout(SECONDS_MAX)
        with silent.accept()[0], server.client(server.operator) as client:  # it is being called
            server.queue.submit("acme", 1)
            server.finish()
            until(lambda: listener.calls)
            waiting = deliveries(client, "pending", customer="stuck", limit=500)
            assert [each["attempts"] for each in waiting] == [0] * 200  # none of those calls has ended


def test_a_crash_loses_none(tmp_path: Path, listener: Listener) -> None:
    with serving(tmp_path, "--allow-private-webhooks") as server:
        hooked(server, "acme", listener.url)
        ended: set[str] = set()
        for _ in range(4):
            server.queue.submit_many("acme", [1] * 10)
            ended |= {claim.id for claim in server.finish(10)}
            listener.statuses = [503] * 3
            server.stop(signal.SIGKILL)
            server.queue.submit_many("acme", [1] * 5)
            ended |= {claim.id for claim in server.finish(5)}  # while nobody serves
            record = server.queue.engine.record(webhooks.STATE, "lease")
            if record is not None:  # its lease is over, as it would be after a minute
                server.queue.engine.put_record(webhooks.STATE, "lease", json.dumps({"name": "dead", "until_ms": 0}))
            server.start()
        until(lambda: {json.loads(body)["data"]["id"] for _, body in listener.calls} >= ended)
        until(lambda: no_delivery_is_pending(server))
        until(lambda: not server.queue.engine.records(webhook_deliveries.DUE, "", 10))


def test_private_addresses_are_refused_when_connecting(tmp_path: Path, listener: Listener) -> None:
    with serving(tmp_path) as server:
        hooked(server, "acme", listener.url)
        server.queue.submit("acme", 1)
        server.finish()
        refused = until(lambda: [line for line in server.logged() if line["event"] == "webhook"])
        assert refused[0]["outcome"] == "127.0.0.1 leads to no address that is public"
        assert listener.calls == []


def test_without_its_webhook_nothing_is_sent(tmp_path: Path, listener: Listener) -> None:
    with serving(tmp_path, "--allow-private-webhooks") as server:
        hooked(server, "acme", listener.url)
        hooked(server, "other", listener.url)
        with server.client(server.operator) as client:
            assert client.get("/v1/customers/acme").json()["webhook"] == listener.url
            assert client.delete("/v1/webhook", params={"customer": "acme"}).status_code == 204
            assert client.get("/v1/customers/acme").json()["webhook"] is None
        server.queue.submit("acme", 1)
        server.queue.submit("other", 1)
        server.finish(2)
        until(lambda: listener.calls)
        assert {json.loads(body)["data"]["customer"] for _, body in listener.calls} == {"other"}


def test_the_receiver_in_the_docs_works_as_written(tmp_path: Path) -> None:
    code = snippet("docs/service.md", "import os, sys\nfrom http.server")
    port = free_port()
    with serving(tmp_path, "--allow-private-webhooks") as server:
        secret = hooked(server, "acme", f"http://127.0.0.1:{port}/")
        with subprocess.Popen(
            [sys.executable, "-c", code, str(port)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env=os.environ | {"WEBHOOK_SECRET": secret},
        ) as receiver:  # fmt: skip
            id = server.queue.submit("acme", 1).id
            server.finish()
            assert receiver.stdout is not None
            seen, type, document = receiver.stdout.readline().split()
            assert (type, document) == ("document.done", id)
            until(lambda: no_delivery_is_pending(server))
            forged = httpx.post(f"http://127.0.0.1:{port}/", json={}, headers={"webhook-id": seen}, trust_env=False)
            assert forged.status_code == 400
            receiver.kill()


@pytest.mark.parametrize(
    "secret", ["", "short", "whsec_", "whsec_" + 23 * "x", base64.b64encode(32 * b"x").decode(),
               "whsec_" + base64.b64encode(23 * b"x").decode(), "whsec_" + base64.b64encode(65 * b"x").decode(), "whsec_ä"],
)  # fmt: skip
def test_a_secret_of_ones_own_has_the_form_of_the_specification(secret: str) -> None:
    own = "whsec_" + base64.b64encode(24 * b"x").decode()
    with Queue("memory://") as queue:
        with pytest.raises(BadValue) as refused:
            webhooks.put_webhook(queue.engine, "acme", "https://example.com", secret, is_by_operator=False)
        assert not secret.startswith("whsec_x") or secret not in str(refused.value)
        hook, _ = webhooks.put_webhook(queue.engine, "acme", "https://example.com", own, is_by_operator=False)
        assert hook.secrets[0].secret == own


def test_an_answer_that_is_none_is_an_error(listener: Listener) -> None:
    listener.shutdown()
    listener.server_close()
    with pytest.raises(CallFailed, match=r"^the connection failed: Connection refused$"):
        post(listener.url, [SECRET], "msg_1", b"{}", allow_private=True, seconds=SECONDS_MAX)


def test_operators_see_what_is_wrong(tmp_path: Path) -> None:
    with serving(tmp_path) as server, server.client(server.operator) as client:
        answer: httpx.Response = client.put("/v1/webhook", params={"customer": "acme"}, json={"url": "nowhere"})
        assert (answer.status_code, problem_of(answer)) == (422, "bad-value")
