"""Who is signed in: listed and ended by commands and by admins; names go with sessions, and with a forgotten customer."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from fairlane import Queue
from fairlane.api import auth
from fairlane.console.people import Person, make_person
from fairlane.console.sessions import SESSIONS_MAX, SessionStore, list_sessions, revoke_sessions
from fairlane.core.errors import Unknown
from fairlane.engine.protocol import RECORD_BYTES_MAX
from tests.api.running import Server, problem_of, until
from tests.cli.running import run
from tests.console.page_client import open_stream
from tests.console.signing_in import session_of, sign_in
from tests.docs.snippets import snippet
from tests.servers.oidc import ForgingProvider


def person_named(name: str, customer: str | None = None) -> Person:
    person = make_person("https://login.example", name, name)
    return person if customer is None else person._replace(role="customer", customer=customer)


def test_the_command_lists_and_ends_sessions(browser: httpx.Client, server: Server, provider: ForgingProvider) -> None:
    provider.user |= {"sub": "grace", "name": "Grace Hopper"}
    sign_in(browser, provider)
    session = session_of(browser)
    assert session is not None
    id = session["person"]["id"]
    listing, revocation = (line.split()[1:] for line in snippet("docs/service.md", "fairlane sessions").splitlines())
    listed = run(*listing, "--json", "--url", server.url)
    (row,) = (row for row in map(json.loads, listed.stdout.splitlines()) if row["id"] == id)
    assert (row["name"], row["role"], row["is_person"], row["sessions"]) == ("Grace Hopper", "viewer", True, 1)
    assert "Grace Hopper" in run(*listing, "--url", server.url).stdout
    assert len(id) == len(revocation[-1])  # the docs show a person's id as it is
    with open_stream(browser, "/v1/events?after=0") as stream:
        ended = run(*revocation[:-1], id, "--url", server.url)
        assert (ended.exit_code, "1 session of" in ended.stdout) == (0, True)
        until(lambda: browser.get("/v1/me").status_code == 401)
        until(lambda: stream.is_ended)
    again = run("sessions", "revoke", id, "--url", server.url)
    assert (again.exit_code, "is signed in; `fairlane sessions list` shows who is" in again.stderr) == (2, True)


def test_admins_list_and_end_sessions(browser: httpx.Client, server: Server, provider: ForgingProvider) -> None:
    sign_in(browser, provider)
    session = session_of(browser)
    assert session is not None
    id = session["person"]["id"]
    with server.client(server.admin) as admin, server.client(server.viewer) as viewer:
        listed = admin.get("/v1/sessions").json()["sessions"]
        (row,) = (row for row in listed if row["id"] == id)
        assert row["expires_at"] > auth.time_ms() / 1000
        assert "digest" not in row
        assert problem_of(viewer.get("/v1/sessions")) == "not-allowed"
        assert problem_of(viewer.delete(f"/v1/sessions/{id}")) == "not-allowed"
        assert browser.get("/v1/me").status_code == 200
        assert admin.delete(f"/v1/sessions/{id}").status_code == 204
        assert browser.get("/v1/me").status_code == 401  # at once on this server
        assert problem_of(admin.delete(f"/v1/sessions/{id}")) == "nothing-here"


def test_the_audit_log_has_people(server: Server, provider: ForgingProvider) -> None:
    """Who signed in, what they changed, who was refused, and who ended whose sessions."""

    def audited(**query: str) -> list[tuple[str, str | None]]:
        entries = admin.get("/v1/audit", params=query).json()["entries"]
        return [(entry["action"], entry["error"]) for entry in reversed(entries)]

    with server.client(server.admin) as admin, server.client(None) as client:
        provider.user |= {"sub": "aud", "name": "Aud Itor", "groups": ["operators"]}
        sign_in(client, provider)
        session = session_of(client)
        assert session is not None
        id = session["person"]["id"]
        assert client.patch("/v1/customers/acme", json={"paused": True}).status_code == 200
        entry = admin.get("/v1/audit", params={"who": id, "what": "customer"}).json()["entries"][0]
        expected = {"kind": "person", "id": id, "name": "Aud Itor", "role": "operator", "address": "127.0.0.1"}
        assert (entry["who"], entry["customer"], entry["outcome"]) == (expected, "acme", "done")
        client.delete("/page/session")
        sign_in(client, provider)
        admin.delete(f"/v1/sessions/{id}")
        actions = [action for action, _ in audited(who="Aud Itor")]
        assert actions == ["session.begin", "customer.pause", "session.end", "session.begin"]
        revoked = admin.get("/v1/audit", params={"what": "session.revoke"}).json()["entries"][0]
        assert (revoked["target"], revoked["before"], revoked["who"]["kind"]) == (id, {"sessions": 1}, "key")
        provider.user |= {"sub": "eve", "name": "Eve", "groups": []}
        assert sign_in(client, provider) == "no_role"
        until(lambda: audited(who="Eve") == [("session.refused", "no-role")], "the entry of the refusal")
        forged = client.get("/page/oidc/callback", params={"code": "x", "state": "of another browser"})
        assert forged.headers["location"] == "/?sign_in=stale"
        until(lambda: ("session.refused", "stale") in audited(what="session.refused"), "the entry of the failure")
        provider.user |= {"sub": "cleo", "name": "Cleo", "groups": ["acme people"]}
        assert sign_in(client, provider) == ""
        until(lambda: audited(who="Cleo", customer="acme") == [("session.begin", None)], "the entry of the customer's person")


def test_a_page_of_sessions_goes_on_with_the_next(server: Server) -> None:
    store = SessionStore(server.queue.engine)
    for number in range(3):
        store.begin(person_named(f"person {number}"))
        store.begin(auth.create(server.queue.engine, role="viewer", name=f"key {number}")[1].id)
    with server.client(server.admin) as admin:
        rows, following = [], "/v1/sessions?limit=1"
        while following:
            page = admin.get(following).json()
            rows += page["sessions"]
            following = page["next"]
        assert rows == admin.get("/v1/sessions?limit=500").json()["sessions"]
    ids = [row["id"] for row in rows]
    assert len(ids) == len(set(ids)) >= 6
    assert sorted(rows, key=lambda row: (not row["is_person"], row["id"])) == rows
    assert {f"{kind} {number}" for kind in ("person", "key") for number in range(3)} <= {row["name"] for row in rows}


def test_a_person_has_few_sessions_and_they_differ() -> None:
    with Queue("memory://") as queue:
        store = SessionStore(queue.engine)
        cookies = [store.begin(person_named("ada")) for _ in range(SESSIONS_MAX + 1)]
        store.load(person_named("ada").id)
        assert [store.find(cookie) is not None for cookie in cookies] == [False] + [True] * SESSIONS_MAX
        store.end(cookies[-1])
        store.load(person_named("ada").id)
        assert store.find(cookies[-1]) is None
        assert store.find(cookies[1]) is not None


def test_a_record_never_grows_too_large() -> None:
    with Queue("memory://") as queue:
        store, id = SessionStore(queue.engine), person_named("ada").id
        cookies = [store.begin(person_named("ada"), None, "x" * 4096) for _ in range(SESSIONS_MAX)]
        store.load(id)
        assert all(store.find(cookie) for cookie in cookies)  # tokens go first
        groups = tuple(f"{number:0200}" for number in range(50))
        cookies = [store.begin(person_named("ada")._replace(groups=groups)) for _ in range(SESSIONS_MAX)]
        (record,) = queue.engine.records("people", "", 10)
        assert len(record.value) <= RECORD_BYTES_MAX
        store.load(id)
        assert [store.find(cookie) is not None for cookie in cookies][-5:] == [True] * 5  # then the oldest sessions


def test_names_go_when_the_last_session_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with Queue("memory://") as queue:
        engine, store = queue.engine, SessionStore(queue.engine)
        store.begin(person_named("ada"))
        monkeypatch.setattr("fairlane.console.sessions.SESSION_SECONDS", -1)
        store.begin(person_named("ada"))
        store.begin(person_named("bob"))
        key = auth.create(engine, role="viewer")[1]
        store.begin(key.id)
        assert [entry.name for entry in list_sessions(engine)] == ["ada"]
        store.remove_expired()
        assert [record.key for record in engine.records("people", "", 10)] == [person_named("ada").id]
        assert engine.records("sessions", "", 10) == []
        with pytest.raises(Unknown):
            revoke_sessions(engine, person_named("bob").id)


def test_the_server_removes_what_is_over_when_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Queue(f"sqlite:///{tmp_path}/queue.db") as queue:
        with monkeypatch.context() as patched:
            patched.setattr("fairlane.console.sessions.SESSION_SECONDS", -1)
            SessionStore(queue.engine).begin(person_named("ada"))
        server = Server(tmp_path)
        try:
            until(lambda: queue.engine.records("people", "", 1) == [], "the record is removed")
        finally:
            server.close()


def test_a_customer_that_is_forgotten_takes_its_people_along_and_an_export_has_no_token(tmp_path: Path) -> None:
    with Queue(f"sqlite:///{tmp_path}/queue.db") as queue:
        queue.submit("acme", 1)
        store = SessionStore(queue.engine)
        cookie = store.begin(person_named("ada", "acme"), None, "header.payload.signature")
        store.begin(person_named("bob"))
        exported = tmp_path / "acme.tar"
        queue.export("acme", exported)
        archive = exported.read_bytes()
        assert b"ada" in archive
        assert b"header.payload.signature" not in archive
        assert cookie.partition(".")[2].encode() not in archive
        queue.forget("acme")
        assert [entry.name for entry in list_sessions(queue.engine)] == ["bob"]
