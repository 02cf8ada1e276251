"""The audit log over HTTP: every change of staff is in it, sign-ins too, and never a secret; only admins read it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from fairlane import Client, Queue
from fairlane.api import auth, sign_ins
from fairlane.api.auth import Caller
from fairlane.api.permissions import ROUTES, Role
from fairlane.api.sign_ins import ALIKE_MAX, ENTRIES_MAX, SignIns
from fairlane.core.errors import Mistake, StoreUnreachable
from fairlane.queue.audit import AUDIT, AuditFilter, note, walk_audit
from tests.console.page_client import signed_in

from .running import Server, problem_of, until
from .test_access import OWNER, TABLE, called

PERSON = f"person_{7:032x}"
# What changes nothing of the queue: submissions and checks are work, what-if computes, and a session is tested below.
UNRECORDED = {
    ("POST", "/v1/documents"), ("POST", "/v1/uploads"), ("POST", "/v1/batches"), ("POST", "/v1/checks"),
    ("POST", "/page/what-if"), ("POST", "/page/session"), ("POST", "/page/proxy-session"), ("DELETE", "/page/session"),
}  # fmt: skip
ACTIONS = {
    ("GET", "/v1/customers/{customer}/export"): "customer.export",
    ("DELETE", "/v1/documents/{id}"): "document.cancel",
    ("POST", "/v1/documents/{id}/retry"): "document.retry",
    ("POST", "/v1/documents/bulk"): "documents.cancel",
    ("PUT", "/v1/webhook"): "webhook.set",
    ("DELETE", "/v1/webhook"): "webhook.remove",
    ("POST", "/v1/webhook/rotate"): "webhook.rotate",
    ("DELETE", "/v1/webhook/old-secret"): "webhook.expire-old-secret",
    ("POST", "/v1/webhook/deliveries"): "webhook.send",
    ("POST", "/v1/webhook/deliveries/{id}/send"): "webhook.send",
    ("PATCH", "/v1/customers/{customer}"): "customer.tune",
    ("POST", "/v1/customers/{customer}/reset"): "customer.reset",
    ("PATCH", "/v1/documents/{id}"): "document.prioritize",
    ("POST", "/v1/documents/prioritize"): "documents.prioritize",
    ("PUT", "/v1/policy"): "policy.set",
    ("POST", "/v1/policy/apply"): "policy.apply",
    ("PATCH", "/v1/kinds/{kind}"): "kind.limit",
    ("POST", "/v1/workers/{worker}/drain"): "worker.drain",
    ("POST", "/v1/workers/{worker}/undrain"): "worker.undrain",
    ("POST", "/v1/upload-tokens"): "upload-token.create",
    ("POST", "/v1/keys"): "key.create",
    ("POST", "/v1/keys/{key}/rotate"): "key.rotate",
    ("DELETE", "/v1/keys/{key}"): "key.revoke",
    ("DELETE", "/v1/sessions/{id}"): "session.revoke",
}
BODIES: dict[tuple[str, str], Any] = {
    ("POST", "/v1/documents/bulk"): {"action": "cancel", "filter": {"customer": OWNER}},
    ("POST", "/v1/documents/prioritize"): {"priority": 1, "filter": {"customer": OWNER}},
    ("PUT", "/v1/policy"): {"open_turn_every": 16},
    ("POST", "/v1/policy/apply"): {},
}


@pytest.fixture(scope="module")
def admin(server: Server) -> Iterator[httpx.Client]:
    with server.client(server.admin) as made:
        yield made


def listed(admin: httpx.Client, **query: Any) -> list[dict[str, Any]]:
    answer = admin.get("/v1/audit", params={"limit": 500, **query})
    assert answer.status_code == 200, answer.text
    entries: list[dict[str, Any]] = answer.json()["entries"]
    return entries


# -- changes ---------------------------------------------------------------------------------------------------------


def test_every_route_that_changes_something_is_recorded_or_said_to_be_work() -> None:
    changing = {route for route in ROUTES if route[0] != "GET"}
    assert changing == {route for route in UNRECORDED | ACTIONS.keys() if route[0] != "GET"}


@pytest.mark.parametrize(("method", "path"), sorted(ACTIONS), ids=str)
def test_what_an_operator_changes_is_recorded(server: Server, admin: httpx.Client, method: str, path: str) -> None:
    role: Role = "admin" if ROUTES[method, path] == "admin" else "operator"
    secret, key = auth.create(server.queue.engine, role=role, name="night shift")
    entry = TABLE[method, path]._replace(body=BODIES.get((method, path), TABLE[method, path].body))
    id = None
    if path == "/v1/webhook/deliveries":
        id = server.queue.submit(OWNER, 1).id
        server.queue.cancel(id)
    with server.client(secret) as operator:
        answer = called(server, operator, method, path, entry, id)
    (recorded,) = listed(admin, who=key.id)
    assert recorded["action"] == ACTIONS[method, path]
    assert recorded["who"] == {
        "kind": "key", "id": key.id, "name": "night shift", "role": role, "address": "127.0.0.1",
    }  # fmt: skip
    assert recorded["outcome"] == ("done" if answer.is_success else "failed"), recorded
    assert recorded["customer"] == (None if any(word in path for word in ("policy", "workers", "kinds")) else OWNER)


def test_what_a_customer_does_with_its_own_is_not_recorded(server: Server, client: httpx.Client, customer: str) -> None:
    admin_entries = len(list(walk_audit(server.queue.engine, AuditFilter(customer=customer))))
    id = client.post("/v1/documents", json={}).json()["id"]
    assert client.delete(f"/v1/documents/{id}").status_code == 200
    assert client.put("/v1/webhook", json={"url": "https://customer.example/x"}).status_code == 200
    assert len(list(walk_audit(server.queue.engine, AuditFilter(customer=customer)))) == admin_entries == 0


def test_what_is_refused_and_what_is_counted_only_leave_nothing(server: Server, admin: httpx.Client, customer: str) -> None:
    secret, key = auth.create(server.queue.engine, role="operator")
    id = server.queue.submit(customer, 1).id
    with server.client(secret) as operator, server.client(server.viewer) as viewer:
        dry = {"action": "cancel", "filter": {"customer": customer}, "dry_run": True}
        assert operator.post("/v1/documents/bulk", json=dry).status_code == 200
        assert operator.delete("/v1/documents/nothing").status_code == 404
        assert operator.patch(f"/v1/customers/{customer}", json={"weight": "heavy"}).status_code == 422
        assert viewer.delete(f"/v1/documents/{id}").status_code == 403
    assert listed(admin, who=key.id) == listed(admin, customer=customer) == []


def test_no_secret_is_in_the_log(server: Server, admin: httpx.Client, customer: str) -> None:
    hook = f"https://ada:hidden-password@{customer.replace(' ', '-')}.example/hidden-path?token=hidden-token"
    secret = "whsec_" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo="
    with server.client(server.operator) as operator:
        operator.put("/v1/webhook", params={"customer": customer}, json={"url": hook, "secret": secret})
        hidden = hook.replace("ada:hidden-password@", "")
        assert operator.put("/v1/webhook", params={"customer": customer}, json={"url": hidden, "secret": secret}).is_success
        rotated = operator.post("/v1/webhook/rotate", params={"customer": customer}, json={}).json()["secret"]
        id = operator.post("/v1/documents", json={"customer": customer, "payload": "hidden-payload"}).json()["id"]
        operator.delete(f"/v1/documents/{id}")
    texts = "".join(record.value for record in server.queue.engine.records(AUDIT, "", 1000))
    assert f"{customer.replace(' ', '-')}.example" in texts
    for word in ("hidden", secret[6:], rotated[6:], server.operator, server.admin):
        assert word not in texts, word


# -- reading ---------------------------------------------------------------------------------------------------------


def test_pages_and_filters(server: Server, admin: httpx.Client, customer: str) -> None:
    actor = auth.create(server.queue.engine, role="operator", name=f"key of {customer}")[1].caller.actor("192.0.2.1")
    for number in range(5):
        note(server.queue.engine, actor, f"customer.{'pause' if number % 2 else 'resume'}", customer=customer)
    first = admin.get("/v1/audit", params={"customer": customer, "limit": 2}).json()
    second = admin.get(first["next"]).json()
    third = admin.get(second["next"]).json()
    pages = [*first["entries"], *second["entries"], *third["entries"]]
    assert pages == listed(admin, customer=customer) == listed(admin, who=f"key of {customer}")
    assert len(pages) == 5
    assert len(listed(admin, customer=customer, what="customer.pause")) == 2
    assert len(listed(admin, customer=customer, what="customer")) == 5
    at = pages[-1]["at"]
    assert listed(admin, customer=customer, until=at) == []
    assert len(listed(admin, customer=customer, since=at)) == 5
    with Client(server.address, server.admin) as client:
        entries = list(client.audit(customer=customer, since=at, what="customer.pause"))
    assert [entry.who.name for entry in entries] == [f"key of {customer}"] * 2
    assert entries[0].at.timestamp() >= at


@pytest.mark.parametrize(
    "query",
    [{"limit": "0"}, {"limit": "501"}, {"since": "yesterday"}, {"since": "1e99"}, {"after": "ü"}, {"whom": "ada"}, {"who": ""}],
)
def test_a_wrong_query_is_refused(admin: httpx.Client, query: dict[str, str]) -> None:
    answer = admin.get("/v1/audit", params=query)
    assert (answer.status_code, problem_of(answer)) == (422, "bad-value")


def test_the_client_says_what_it_takes(server: Server) -> None:
    with Client(server.address, server.operator) as client, pytest.raises(Mistake, match="it takes an admin's key"):
        next(client.audit())


# -- sign-ins --------------------------------------------------------------------------------------------------------


def test_staff_signing_in_and_out_is_recorded(server: Server, admin: httpx.Client) -> None:
    secret, key = auth.create(server.queue.engine, role="viewer", name="support")
    with signed_in(server, secret) as page:
        assert [entry["action"] for entry in listed(admin, who=key.id)] == ["session.begin"]
        assert page.delete("/page/session").status_code == 204
    entries = listed(admin, who=key.id)
    assert [entry["action"] for entry in entries] == ["session.end", "session.begin"]
    assert entries[0]["who"]["address"] == "127.0.0.1"


def test_a_customer_signing_in_is_recorded_within_a_moment(server: Server, admin: httpx.Client, customer: str) -> None:
    with signed_in(server, server.key(customer)):
        until(lambda: [entry["action"] for entry in listed(admin, customer=customer)] == ["session.begin"], "the entry")


def test_refused_keys_are_recorded_with_why(server: Server, admin: httpx.Client, customer: str) -> None:
    engine = server.queue.engine
    revoked, key = auth.create(engine, customer=customer)
    auth.revoke(engine, key.id)
    expired, late = auth.create(engine, customer=customer, expires_seconds=1, now_ms=1000)
    wrong, right = auth.create(engine, role="operator")
    unknown = "fl_" + "0" * 16 + "_" + "A" * 43
    for attempt in (revoked, expired, wrong[:-4] + "AAAA", unknown):
        with server.client(attempt) as client:
            assert client.get("/v1/me").status_code == 401
    with server.client(None) as client:
        assert client.get("/v1/me").status_code == 401  # without a key nobody tries to sign in
        assert client.post("/page/session", json={"key": revoked}).status_code == 401

    def refused(id: str) -> list[tuple[str, str, str]]:
        found = listed(admin, who=id, what="session.refused")
        return [(entry["error"], entry["outcome"], entry["who"]["address"]) for entry in found]

    def counted(id: str) -> int:
        return sum(entry["after"]["count"] for entry in listed(admin, who=id, what="session.refused"))

    until(lambda: counted(key.id) == 2 and counted("0" * 16) and counted(right.id) and counted(late.id), "every entry")
    assert set(refused(key.id)) == {("revoked", "failed", "127.0.0.1")}
    assert refused(late.id) == [("expired", "failed", "127.0.0.1")]
    assert refused(right.id) == [("wrong", "failed", "127.0.0.1")]
    assert refused("0" * 16) == [("unknown", "failed", "127.0.0.1")]
    assert {entry["customer"] for entry in listed(admin, who=key.id)} == {customer}


class Store:
    """Calls of the store, which fail while it is away."""

    def __init__(self) -> None:
        self.is_away = False

    async def call(self, function: Any, *args: Any) -> Any:
        if self.is_away:
            raise StoreUnreachable("away")
        return function(*args)


def test_a_flood_of_wrong_keys_fills_neither_store_nor_memory() -> None:
    store = Store()
    with Queue("memory://") as queue:
        counting = SignIns(queue.engine, store.call)
        for number in range(10 * ALIKE_MAX):
            counting.refused(f"fl_{number:016d}_{'A' * 43}", None, f"10.0.{number % 256}.{number % 7}")
        store.is_away = True
        with pytest.raises(StoreUnreachable):
            asyncio.run(counting.flush())
        store.is_away = False
        asyncio.run(counting.flush())
        entries = list(walk_audit(queue.engine, AuditFilter()))
    assert len(entries) <= ENTRIES_MAX + 1
    assert sum(entry.after["count"] for entry in entries) == 10 * ALIKE_MAX  # none is lost by an outage
    assert sum(entry.error == "several" for entry in entries) == 1


@pytest.mark.parametrize("is_meanwhile", [False, True])
def test_a_customer_that_was_forgotten_is_not_in_what_is_written_later(
    monkeypatch: pytest.MonkeyPatch, is_meanwhile: bool
) -> None:
    with Queue("memory://") as queue:
        queue.submit("acme", 1)
        counting = SignIns(queue.engine, Store().call)
        secret, key = auth.create(queue.engine, customer="acme")
        counting.accepted(key.caller, "192.0.2.9")
        counting.refused(secret[:-4] + "AAAA", key, "192.0.2.9")
        counting.accepted(Caller(PERSON, "acme", "customer", frozenset(), "Ann", is_person=True), "192.0.2.9")
        queue.engine.put_record(sign_ins.PEOPLE, PERSON, json.dumps({"customer": "acme"}))
        written = list[str]()

        def note_late(*args: Any, **options: Any) -> None:
            written.append(repr((args, options)))
            if is_meanwhile and len(written) == 3:  # while the last entry is being written
                queue.forget("acme")
            note(*args, **options)

        monkeypatch.setattr(sign_ins, "note", note_late)
        if not is_meanwhile:
            queue.forget("acme")
        asyncio.run(counting.flush())
        entries = list(walk_audit(queue.engine, AuditFilter()))
        assert sorted(entry.action for entry in entries) == ["session.begin", "session.begin", "session.refused"]
        kept = repr(entries) if is_meanwhile else repr(entries) + repr(written)  # it was not even written
        assert not [word for word in ("acme", key.id, PERSON, "Ann", "192.0.2.9") if word in kept]


class Enough(Exception):
    """The test has seen what it wanted to see."""


def test_while_a_flood_goes_on_entries_are_written_ever_less_often() -> None:
    store, pauses = Store(), list[float]()

    async def rest(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 15:
            raise Enough
        if len(pauses) == 12:  # a quiet time: the next one comes when everybody waits for it
            asyncio.get_running_loop().call_soon(refuse)
        else:
            refuse()

    def refuse() -> None:
        counting.refused("nonsense", None, "192.0.2.1")

    with Queue("memory://") as queue:
        counting = SignIns(queue.engine, store.call, rest)
        refuse()
        with pytest.raises(Enough):
            asyncio.run(counting.run())
    assert pauses == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600, 1, 2, 4]


def test_the_retention_of_the_log_is_its_own(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/queue.db"
    with Queue(url) as queue:
        note(queue.engine, auth.create(queue.engine, role="admin")[1].caller.actor(""), "customer.pause")
        queue.cancel(queue.submit("acme", 1).id)
    server = Server(tmp_path, "--retention", "0.001s", url=url)
    try:
        until(lambda: any(line["event"] == "purged" for line in server.logged()), "the document to go")
        assert [entry.action for entry in walk_audit(server.queue.engine, AuditFilter())] == ["customer.pause"]
    finally:
        server.close()
    server = Server(tmp_path, "--audit-retention", "0", url=url)
    try:
        until(lambda: not list(walk_audit(server.queue.engine, AuditFilter())), "the entry to go")
        until(lambda: any(line.get("audit_entries") == 1 for line in server.logged()), "the log")
    finally:
        server.close()
