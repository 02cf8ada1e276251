"""Who may do what: every route with every sort of key and person, made from the table of permissions; a route without an entry
fails."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from fairlane import Queue
from fairlane.api import auth, permissions, upload_tokens
from fairlane.api.app import ROUTERS, make_app
from fairlane.api.extension import Extension
from fairlane.api.logging import Log
from fairlane.api.permissions import ROUTES, Permission, Role, Scope
from fairlane.api.service import Options, Service
from fairlane.api.upload_tokens import TokenOptions
from fairlane.api.webhook_deliveries import DeliveryStore, document_event
from fairlane.api.webhooks import put_webhook
from fairlane.console.app import Console
from fairlane.console.people import Person, make_person
from fairlane.console.sessions import SessionStore, csrf_token
from fairlane.core.document import Failed

from .running import Server, problem_of, until

OWNER, STRANGER = "owner of all", "stranger"
LOCKED_OUT = ("no key", "wrong", "revoked", "expired", "half")


class Rights(NamedTuple):
    """What a caller's key says of it, or that it is no key but an upload token."""

    role: Role
    scopes: tuple[Scope, ...] = ()
    is_upload_token: bool = False

    @property
    def permissions(self) -> frozenset[Permission]:
        return permissions.UPLOAD if self.is_upload_token else permissions.permissions_of(self.role, self.scopes)


ADMITTED = {
    "stranger": Rights("customer"),
    "owner": Rights("customer"),
    "owner who submits": Rights("customer", ("submit",)),
    "owner who reads": Rights("customer", ("read",)),
    "owner with an upload token": Rights("customer", is_upload_token=True),
    "metrics": Rights("viewer", ("metrics",)),
    "viewer": Rights("viewer"),
    "operator": Rights("operator"),
    "operator who submits": Rights("operator", ("submit",)),
    "admin": Rights("admin"),
    "person: stranger": Rights("customer"),
    "person: owner": Rights("customer"),
    "person: viewer": Rights("viewer"),
    "person: operator": Rights("operator"),
    "person: admin": Rights("admin"),
}
STRANGERS = ("stranger", "person: stranger")
ISSUER = "http://127.0.0.1:1"  # nobody is there: these people have signed in already
GRANTS = ("viewers=viewer", "operators=operator", "admins=admin", f"owners=customer:{OWNER}", f"strangers=customer:{STRANGER}")
CALLERS = (*LOCKED_OUT, *ADMITTED)
CREDENTIALS: dict[str, Callable[..., Any]] = {"{key}": auth.create, "{token}": upload_tokens.create}  # named in paths


class Entry(NamedTuple):
    """How a route is called, and what those are answered who may use it: a stranger, the owner and staff."""

    stranger: int
    owner: int
    staff: int
    body: Any = None
    is_stream: bool = False
    query: dict[str, str] | None = None


OF_OWNER = {"customer": OWNER}
TABLE: dict[tuple[str, str], Entry] = {
    ("POST", "/v1/documents"): Entry(404, 202, 202, {"payload": 1, **OF_OWNER}),
    ("GET", "/v1/documents"): Entry(200, 200, 200),
    ("GET", "/v1/documents/{id}"): Entry(404, 200, 200),
    ("GET", "/v1/documents/{id}/result"): Entry(404, 409, 409),
    ("GET", "/v1/documents/{id}/file"): Entry(404, 404, 404),  # it has none
    ("GET", "/v1/documents/{id}/text"): Entry(404, 409, 409),
    ("GET", "/v1/documents/{id}/thumbnail"): Entry(404, 409, 409),
    ("GET", "/v1/documents/{id}/explain"): Entry(404, 200, 200),
    ("GET", "/v1/documents/{id}/history"): Entry(404, 200, 200),
    ("GET", "/v1/documents/{id}/steps"): Entry(404, 200, 200),
    ("GET", "/v1/documents/{id}/parts"): Entry(404, 200, 200),
    ("GET", "/v1/documents/{id}/attempts"): Entry(404, 404, 200),
    ("DELETE", "/v1/documents/{id}"): Entry(404, 200, 200),
    ("POST", "/v1/documents/{id}/retry"): Entry(404, 409, 409),
    ("POST", "/v1/documents/bulk"): Entry(404, 200, 200, {"action": "cancel", "filter": OF_OWNER, "dry_run": True}),
    ("PATCH", "/v1/documents/{id}"): Entry(404, 404, 200, {"priority": 1}),
    ("POST", "/v1/documents/prioritize"): Entry(404, 404, 200, {"priority": 1, "filter": OF_OWNER, "dry_run": True}),
    ("POST", "/v1/upload-tokens"): Entry(404, 201, 201, OF_OWNER),
    ("GET", "/v1/upload-tokens/{token}"): Entry(404, 200, 200),
    ("POST", "/v1/uploads"): Entry(403, 202, 403, {"a": "file"}),  # no key may: only an upload token
    ("POST", "/v1/batches"): Entry(404, 202, 202, {"documents": [{"payload": 1}], **OF_OWNER}),
    ("GET", "/v1/batches/{id}"): Entry(404, 200, 200),
    ("GET", "/v1/me"): Entry(200, 200, 200),
    ("POST", "/v1/checks"): Entry(404, 200, 200, OF_OWNER),
    ("GET", "/v1/customers"): Entry(404, 404, 200),
    ("GET", "/v1/customers/{customer}"): Entry(404, 404, 200),
    ("GET", "/v1/customers/{customer}/explain"): Entry(404, 404, 200),
    ("GET", "/v1/customers/{customer}/export"): Entry(404, 404, 200),
    ("PATCH", "/v1/customers/{customer}"): Entry(404, 404, 200, {"weight": 1}),
    ("POST", "/v1/customers/{customer}/reset"): Entry(404, 404, 200),
    ("GET", "/v1/webhook"): Entry(404, 200, 200, query=OF_OWNER),
    ("PUT", "/v1/webhook"): Entry(404, 200, 200, {"url": "https://customer.example/x"}, query=OF_OWNER),
    ("DELETE", "/v1/webhook"): Entry(404, 204, 204, query=OF_OWNER),
    ("POST", "/v1/webhook/rotate"): Entry(404, 200, 200, {}, query=OF_OWNER),
    ("DELETE", "/v1/webhook/old-secret"): Entry(404, 200, 200, query=OF_OWNER),
    ("GET", "/v1/webhook/deliveries"): Entry(404, 200, 200, query=OF_OWNER),
    ("POST", "/v1/webhook/deliveries"): Entry(404, 409, 409, {"document": "{id}"}),
    ("POST", "/v1/webhook/deliveries/{id}/send"): Entry(404, 202, 202, query=OF_OWNER),
    ("GET", "/v1/policy"): Entry(404, 404, 200),
    ("PUT", "/v1/policy"): Entry(404, 404, 200, {}),
    ("POST", "/v1/policy/apply"): Entry(404, 404, 200, OF_OWNER),
    ("GET", "/v1/kinds"): Entry(404, 404, 200),
    ("GET", "/v1/kinds/{kind}"): Entry(404, 404, 200),
    ("PATCH", "/v1/kinds/{kind}"): Entry(404, 404, 200, {"running_max": 3}),
    ("GET", "/v1/workers"): Entry(404, 404, 200),
    ("GET", "/v1/capacity"): Entry(404, 404, 200),
    ("POST", "/v1/workers/{worker}/drain"): Entry(404, 404, 404),  # nobody works here
    ("POST", "/v1/workers/{worker}/undrain"): Entry(404, 404, 404),
    ("GET", "/v1/events"): Entry(200, 200, 200, is_stream=True),
    ("GET", "/"): Entry(200, 200, 200),
    ("GET", "/healthz"): Entry(200, 200, 200),
    ("GET", "/readyz"): Entry(200, 200, 200),
    ("GET", "/v1/openapi.json"): Entry(200, 200, 200),
    ("GET", "/metrics"): Entry(404, 404, 200),
    ("GET", "/v1/audit"): Entry(404, 404, 200),
    ("GET", "/v1/keys"): Entry(404, 404, 200),
    ("POST", "/v1/keys"): Entry(404, 404, 201, {"keys": [OF_OWNER]}),
    ("GET", "/v1/keys/{key}"): Entry(404, 404, 200),
    ("POST", "/v1/keys/{key}/rotate"): Entry(404, 404, 201, {}),
    ("DELETE", "/v1/keys/{key}"): Entry(404, 404, 200),
    ("GET", "/static/{name:path}"): Entry(404, 404, 404),
    ("POST", "/page/session"): Entry(200, 200, 200, {"key": "of an operator"}),
    ("GET", "/v1/sessions"): Entry(404, 404, 200),
    ("DELETE", "/v1/sessions/{id}"): Entry(404, 404, 204),
    ("POST", "/page/proxy-session"): Entry(404, 404, 404, {}),
    ("GET", "/page/sign-in"): Entry(200, 200, 200),
    ("GET", "/page/oidc/sign-in"): Entry(303, 303, 303),
    ("GET", "/page/oidc/callback"): Entry(303, 303, 303),
    ("GET", "/page/session"): Entry(200, 200, 200),
    ("DELETE", "/page/session"): Entry(204, 204, 204),
    ("GET", "/page/frames"): Entry(404, 404, 200, is_stream=True),
    ("GET", "/page/history"): Entry(404, 404, 200),
    ("GET", "/page/customers"): Entry(404, 404, 200),
    ("GET", "/page/customers/{customer}"): Entry(404, 404, 200),
    ("GET", "/page/rules"): Entry(200, 200, 200),
    ("POST", "/page/what-if"): Entry(404, 404, 409, {}),
    ("GET", "/page/documents"): Entry(200, 200, 200),
    ("GET", "/page/documents/{id}"): Entry(404, 200, 200),
    ("GET", "/page/documents/{id}/payload"): Entry(404, 200, 200),
    ("GET", "/page/batches/{id}"): Entry(404, 200, 200),
    ("GET", "/page/audit/export"): Entry(404, 404, 200),
}
KNOWN = sorted(ROUTES)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    options = ["--oidc-issuer", ISSUER, "--oidc-client-id", "x", "--public-url", "http://127.0.0.1:8000"]
    options += [part for grant in GRANTS for part in ("--grant", grant)]
    folder = Path(tmp_path_factory.mktemp("http"))
    running = Server(folder, *options, variables={"FAIRLANE_OIDC_CLIENT_SECRET": "x"})
    yield running
    running.close()


@pytest.fixture(scope="module")
def clients(server: Server) -> Iterator[dict[str, httpx.Client]]:
    """A client for every sort of caller."""
    engine = server.queue.engine
    revoked, key = auth.create(engine, customer=OWNER)
    auth.revoke(engine, key.id)
    keys: dict[str, str | None] = {
        "no key": None,
        "wrong": server.key(OWNER)[:-3] + "abc",
        "revoked": revoked,
        "expired": server.key(OWNER, expires_seconds=1, now_ms=1000),
        "half": server.key(OWNER)[:30],
        **{name: _key(server, name, rights) for name, rights in ADMITTED.items() if not name.startswith("person")},
        **{name: None for name in ADMITTED if name.startswith("person")},
    }
    clients = {name: server.client(key) for name, key in keys.items()}
    yield clients
    for client in clients.values():
        client.close()


def _key(server: Server, name: str, rights: Rights) -> str:
    if rights.is_upload_token:
        return upload_tokens.create(server.queue.engine, OWNER, TokenOptions(expires_seconds=3600))[0]
    customer = None if rights.role != "customer" else STRANGER if name == "stranger" else OWNER
    return server.key(customer, role=rights.role, scopes=rights.scopes)


def sign_in(server: Server, client: httpx.Client, caller: str) -> None:
    """Let a person sign in anew, since signing out is among the calls; others have their keys."""
    kind, _, group = caller.partition(": ")
    if kind == "person":
        person = Person(make_person(ISSUER, caller, caller).id, caller, ISSUER, (f"{group}s",))
        cookie = SessionStore(server.queue.engine).begin(person)
        client.headers.update({"Cookie": f"fairlane={cookie}", "X-Fairlane-CSRF": csrf_token(cookie)})


def fresh_id(server: Server, path: str) -> str:
    """Make what a path is about, of the owner; returns its id."""
    if path.startswith("/v1/sessions"):
        person = make_person(ISSUER, "somebody", "Somebody")._replace(role="customer", customer=OWNER)
        SessionStore(server.queue.engine).begin(person)
        return person.id
    if path.endswith("/send"):
        event = document_event(OWNER, "one", "done", auth.time_ms() + 3_600_000, None)
        DeliveryStore(server.queue.engine).add(event)
        return event.id
    if "batches" in path:
        with server.client(server.operator) as operator:
            return str(operator.post("/v1/batches", json={"documents": [{"payload": 1}], **OF_OWNER}).json()["id"])
    return server.queue.submit(OWNER, 1).id


def called(server: Server, client: httpx.Client, method: str, path: str, entry: Entry, id: str | None = None) -> httpx.Response:
    """Call a route on something fresh of the owner, unless another id is given."""
    if "webhook" in path:
        put_webhook(server.queue.engine, OWNER, "https://customer.example/x", None, is_by_operator=True)
    if "{id}" in path + str(entry.body) and id is None:
        id = fresh_id(server, path)
    address = path.replace("{id}", str(id)).replace("{customer}", OWNER)
    for name, create in CREDENTIALS.items():
        if name in path:
            address = path.replace(name, create(server.queue.engine, customer=OWNER)[1].id if id is None else id)
    if entry.is_stream:
        with client.stream(method, address) as answer:
            if answer.status_code != 200:
                answer.read()
            return answer
    body = {"key": server.operator} if path == "/page/session" else entry.body
    if body == {"document": "{id}"}:
        body = {"document": id}
    answer = client.request(method, address, json=body, params=entry.query)
    client.cookies.clear()  # each caller shows its own key, and nothing else
    return answer


def test_every_route_has_an_entry_and_every_entry_a_route() -> None:
    routes = {
        (method, str(getattr(route, "path", "")))
        for router in (*ROUTERS, *Console.routers)
        for route in router.routes
        for method in getattr(route, "methods", ())
    }
    assert routes | {("GET", "/v1/openapi.json")} == set(ROUTES) == set(TABLE)


def test_a_route_that_is_missing_in_the_table_stops_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(permissions.ROUTES, ("GET", "/metrics"))
    with Queue("memory://") as queue:
        service = Service(queue, Options(), Log())
        with pytest.raises(RuntimeError, match="no permission is set for GET /metrics; add it to ROUTES"):
            make_app(service, Extension())


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize(("method", "path"), KNOWN, ids=lambda value: str(value))
def test_the_matrix(server: Server, clients: dict[str, httpx.Client], method: str, path: str, caller: str) -> None:
    entry, permission = TABLE[method, path], ROUTES[method, path]
    sign_in(server, clients[caller], caller)
    answer = called(server, clients[caller], method, path, entry)
    if permission == "public":
        assert answer.status_code == entry.staff, answer.text
        return
    if caller in LOCKED_OUT:
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert answer.json()["type"] == "no-key"
        return
    rights = ADMITTED[caller]
    if permission in rights.permissions:
        admitted = entry.stranger if caller in STRANGERS else entry.owner if rights.role == "customer" else entry.staff
        assert answer.status_code == admitted, answer.text
    elif rights.role == "customer" and permission in permissions.STAFF:
        assert (answer.status_code, problem_of(answer)) == (404, "nothing-here")
    else:
        assert (answer.status_code, problem_of(answer)) == (403, "not-allowed")


def allowed(role: Role, *scopes: Scope) -> set[tuple[str, str]]:
    return {route for route, permission in ROUTES.items() if permission in permissions.permissions_of(role, scopes)}


def test_a_viewer_sees_what_an_operator_sees_and_changes_nothing() -> None:
    assert {route for route in allowed("operator") if route[0] == "GET"} == {
        route for route in allowed("viewer") if route[0] == "GET"
    }
    assert {route for route in allowed("viewer") if route[0] != "GET"} == {
        ("DELETE", "/page/session"), ("POST", "/page/what-if"),
    }  # fmt: skip


def test_scopes_take_away_and_never_add() -> None:
    who_am_i = {
        ("GET", "/v1/me"), ("GET", "/page/session"), ("DELETE", "/page/session"), ("GET", "/v1/upload-tokens/{token}"),
    }  # fmt: skip
    submits = {
        ("POST", "/v1/documents"), ("POST", "/v1/batches"), ("POST", "/v1/checks"), ("POST", "/v1/upload-tokens"),
    }  # fmt: skip
    assert allowed("customer", "submit") == allowed("operator", "submit") == who_am_i | submits
    reads = allowed("customer", "read") - who_am_i
    assert {method for method, _ in reads} == {"GET"}
    assert ("GET", "/v1/documents/{id}/file") in reads
    assert allowed("customer", "submit", "read") == allowed("customer")
    assert allowed("customer") - reads - submits - who_am_i == {
        route for route in TABLE if route[0] != "GET" and ("webhook" in route[1] or "/v1/documents/" in route[1])
    } - {("PATCH", "/v1/documents/{id}"), ("POST", "/v1/documents/prioritize")}
    assert allowed("viewer", "metrics") == {("GET", "/metrics")}
    for role in permissions.OF_ROLE:
        for scope in permissions.OF_SCOPE:
            assert permissions.permissions_of(role, (scope,)) <= permissions.permissions_of(role, ())


def test_no_key_uploads_and_an_upload_token_does_nothing_else() -> None:
    assert {route for route, permission in ROUTES.items() if permission in permissions.UPLOAD} == {("POST", "/v1/uploads")}
    assert not any(permissions.UPLOAD & allowed for allowed in permissions.OF_ROLE.values())


def test_an_operator_has_nothing_of_an_admin() -> None:
    assert allowed("operator") <= allowed("admin")
    assert {ROUTES[route] for route in allowed("admin") - allowed("operator")} <= {"admin"}


def test_nothing_is_read_of_somebody_who_may_not_send_it(server: Server) -> None:
    """The answer comes although the body never does."""
    for key, path in ((server.viewer, "/v1/documents"), (server.key(OWNER, scopes=["read"]), "/v1/documents")):
        answer = server.raw(server.head(key, "POST", path, "Content-Type: application/json", "Content-Length: 9") + b"\r\n")
        assert answer.startswith(b"HTTP/1.1 403")
        assert problem_of(answer) == "not-allowed"


def test_another_method_of_a_route_for_staff_does_not_exist_for_customers(
    server: Server, clients: dict[str, httpx.Client]
) -> None:
    for path in ("/v1/customers", "/metrics", "/v1/policy", "/page/what-if"):
        wrong = clients["owner"].delete(path)
        assert compared(wrong) == compared(clients["owner"].delete("/v1/no/such/place"))
        assert clients["operator"].delete(path).status_code == 405
    assert clients["owner"].put("/v1/documents").status_code == 405


def test_a_path_that_two_routes_share_needs_the_permission_of_the_one_that_answers(
    server: Server, clients: dict[str, httpx.Client]
) -> None:
    """The framework takes GET /v1/documents/bulk for a document of that id."""
    assert clients["owner who submits"].get("/v1/documents/bulk").status_code == 403
    assert clients["owner"].get("/v1/documents/bulk").status_code == 404


def test_keys_of_an_older_version_stay_what_they_were(server: Server) -> None:
    engine = server.queue.engine
    for customer, role in ((None, "operator"), (OWNER, "customer")):
        secret, key = auth.create(engine, customer=customer)
        record = engine.record(auth.GROUP, key.id)
        assert record is not None
        older = {name: value for name, value in json.loads(record.value).items() if name not in ("scopes",)}
        assert older["role"] == role
        engine.put_record(auth.GROUP, key.id, json.dumps(older | {"from_the_future": 1}), record.version)
        with server.client(secret) as client:
            me = client.get("/v1/me").json()
        assert (me["role"], set(me["permissions"])) == (role, set(permissions.OF_ROLE[role]))  # type: ignore[index]


def compared(answer: httpx.Response) -> tuple[int, dict[str, str], bytes]:
    """Everything of an answer but the time of day."""
    return answer.status_code, {name: value for name, value in answer.headers.items() if name != "date"}, answer.content


@pytest.mark.parametrize(
    ("method", "path"),
    [route for route in KNOWN if TABLE[route].stranger == 404],
    ids=lambda value: str(value),
)
def test_what_is_somebody_elses_cannot_be_distinguished_from_what_is_not_there(
    server: Server, clients: dict[str, httpx.Client], method: str, path: str
) -> None:
    entry = TABLE[method, path]
    foreign = called(server, clients["stranger"], method, path, entry)
    unknown = called(server, clients["stranger"], method, path, entry, "01a1e26c-a079-7924-b052-ca4fc538e719")
    nowhere = clients["stranger"].request(method, "/v1/no/such/place", json=entry.body)
    assert compared(foreign) == compared(unknown) == compared(nowhere)


@pytest.mark.parametrize(
    ("method", "path"), [route for route in KNOWN if ROUTES[route] in permissions.STAFF], ids=lambda value: str(value)
)
def test_for_customers_there_is_nothing_where_operators_are_whatever_they_send(
    server: Server, clients: dict[str, httpx.Client], method: str, path: str
) -> None:
    address = path.replace("{customer}", OWNER)
    wrong = clients["owner"].request(method, address, content=b"{", headers={"Content-Type": "application/json"})
    nowhere = clients["owner"].request(method, "/v1/no/such/place", content=b"{", headers={"Content-Type": "application/json"})
    assert compared(wrong) == compared(nowhere)


def test_without_a_key_nobody_learns_what_there_is(server: Server, clients: dict[str, httpx.Client]) -> None:
    id = server.queue.submit(OWNER, 1).id
    answers = [clients["no key"].get(path) for path in (f"/v1/documents/{id}", "/v1/documents/x", "/nowhere", "/v1/customers")]
    assert len({repr(compared(answer)) for answer in answers}) == 1


def test_lists_counts_and_sentences_name_nobody_else(server: Server, clients: dict[str, httpx.Client]) -> None:
    server.queue.submit("a very secret name", {"x": "a very secret payload"})
    mine = server.queue.submit(STRANGER, 1).id
    claims = server.claim(1000)
    server.queue.engine.settle([(claim, Failed("no")) for claim in claims if claim.id == mine])
    for path in ("/v1/documents", "/v1/me", f"/v1/documents/{mine}", f"/v1/documents/{mine}/explain", "/readyz", "/"):
        answer = clients["stranger"].get(path)
        assert answer.status_code == 200
        assert "very secret" not in answer.text
        assert OWNER not in answer.text
        assert "tester" not in answer.text


def test_a_key_revoked_elsewhere_ends_within_a_moment(server: Server) -> None:
    secret, key = auth.create(server.queue.engine, customer="leaver")
    with server.client(secret) as client:
        assert client.get("/v1/me").status_code == 200
        auth.revoke(server.queue.engine, key.id)
        until(lambda: client.get("/v1/me").status_code == 401)


def test_neither_the_store_nor_the_log_holds_a_key(server: Server, clients: dict[str, httpx.Client]) -> None:
    secret = server.operator.split("_", 2)[2]  # it may hold underscores itself
    clients["operator"].post("/v1/documents", json={"customer": OWNER, "payload": {"x": "secret of a payload"}})
    server.stop()
    written = b"".join(path.read_bytes() for path in Path(server.folder).iterdir() if path.is_file())
    server.start()
    assert secret.encode() not in written
    assert b"secret of a payload" not in server.log.read_bytes()
    assert any(line.get("customer") == OWNER and "document" in line for line in server.logged())
