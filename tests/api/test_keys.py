"""Keys over HTTP: admins make many at once, list, rotate and revoke them; when each was last used, and which end soon."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from fairlane import Client, Queue
from fairlane.api import auth
from fairlane.api.key_expiry import WARNED_MS, ends_soon, key_findings
from fairlane.api.key_uses import USES, KeyUses, last_use, write_uses
from fairlane.api.permissions import OF_ROLE
from fairlane.core.document import Record
from fairlane.core.errors import StoreUnreachable, WrongState
from tests.cli.running import run, run_json
from tests.docs.snippets import snippet

from .running import Server, problem_of, until

DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def admin(server: Server) -> Iterator[httpx.Client]:
    with server.client(server.admin) as made:
        yield made


def made(admin: httpx.Client, *keys: dict[str, Any]) -> list[dict[str, Any]]:
    answer = admin.post("/v1/keys", json={"keys": keys})
    assert answer.status_code == 201, answer.text
    created: list[dict[str, Any]] = answer.json()["keys"]
    return created


def me(server: Server, key: str) -> httpx.Response:
    with server.client(key) as client:
        return client.get("/v1/me")


# -- making ----------------------------------------------------------------------------------------------------------


def test_four_hundred_customers_are_taken_on_in_four_calls(server: Server, admin: httpx.Client) -> None:
    customers = [f"newcomer {number}" for number in range(400)]
    keys = [
        key for start in range(0, 400, 100) for key in made(admin, *({"customer": c} for c in customers[start : start + 100]))
    ]
    assert [key["customer"] for key in keys] == customers
    assert len({key["key"] for key in keys}) == 400
    for number in (0, 123, 399):
        assert me(server, keys[number]["key"]).json()["customer"] == customers[number]
    listed, address = [], "/v1/keys?state=active&role=customer&limit=200"
    while address:
        page = admin.get(address).json()
        listed += page["keys"]
        address = page["next"]
    assert {key["customer"] for key in listed} >= set(customers)
    assert len({key["id"] for key in listed}) == len(listed)


def test_the_example_of_the_docs_takes_customers_on(server: Server, admin: httpx.Client, tmp_path: Path) -> None:
    program = snippet("docs/service.md", "import os\nfrom fairlane import Client")
    names = [f"taken on {number} ż" for number in range(250)]
    made(admin, {"customer": names[7]})
    (tmp_path / "customers.txt").write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
    variables = os.environ | {"FAIRLANE_SERVER": server.address, "ADMIN_KEY": server.admin, "PYTHONUTF8": "1"}
    command = [sys.executable, "-c", program]
    printed = subprocess.run(command, check=True, cwd=tmp_path, env=variables, capture_output=True, text=True).stdout
    lines = [line.split("\t") for line in printed.splitlines()]
    assert [line[0] for line in lines] == names[:7] + names[8:]
    assert me(server, lines[-1][1]).json()["customer"] == names[-1]
    assert re.fullmatch(r"until \d{4}-\d\d-\d\d", lines[0][2])


def test_a_key_has_the_role_and_scopes_it_was_made_with(server: Server, admin: httpx.Client, customer: str) -> None:
    scanner, support, prometheus = made(
        admin,
        {"customer": customer, "scopes": ["submit"], "name": "scanner"},
        {"role": "viewer", "name": "support"},
        {"scopes": ["metrics"]},
    )
    assert me(server, scanner["key"]).json()["permissions"] == ["self", "submit"]
    assert set(me(server, support["key"]).json()["permissions"]) == OF_ROLE["viewer"]
    assert me(server, prometheus["key"]).status_code == 403
    with server.client(prometheus["key"]) as client:
        assert client.get("/metrics").status_code == 200
    (listed,) = admin.get("/v1/keys", params={"customer": customer}).json()["keys"]
    assert listed == {name: value for name, value in scanner.items() if name != "key"}
    assert (listed["scopes"], listed["name"], listed["state"], listed["last_used_at"]) == (
        ["submit"],
        "scanner",
        "active",
        None,
    )


def test_a_key_expires_after_ninety_days_unless_it_is_said(admin: httpx.Client, customer: str) -> None:
    usual, short, never = made(
        admin, {"customer": customer}, {"customer": customer, "expires_in": 60.5}, {"customer": customer, "expires_in": None}
    )
    assert usual["expires_at"] - usual["made_at"] == pytest.approx(90 * 86400)
    assert short["expires_at"] - short["made_at"] == pytest.approx(60.5)
    assert never["expires_at"] is None
    assert [key["ends_soon"] for key in (usual, short, never)] == [False, True, False]


@pytest.mark.parametrize(
    "wrong",
    [
        {}, {"customer": "a", "role": "viewer"}, {"role": "customer"}, {"role": "boss"}, {"customer": ""}, {"customer": 7},
        {"customer": "a", "scopes": ["metrics"]}, {"role": "viewer", "scopes": ["submit"]}, {"scopes": ["read", "metrics"]},
        {"customer": "a", "scopes": ["all"]}, {"customer": "a", "expires_in": 0}, {"customer": "a", "expires_in": 1e12},
        {"customer": "a", "expires_in": "90d"}, {"customer": "a", "name": "x" * 201}, {"customer": "a", "colour": "red"},
    ],
    ids=str,
)  # fmt: skip
def test_if_one_cannot_be_made_none_is(server: Server, admin: httpx.Client, customer: str, wrong: dict[str, Any]) -> None:
    answer = admin.post("/v1/keys", json={"keys": [{"customer": customer}, wrong]})
    assert (answer.status_code, problem_of(answer)) == (422, "bad-value")
    assert admin.get("/v1/keys", params={"customer": customer}).json()["keys"] == []


@pytest.mark.parametrize("body", [{}, {"keys": []}, {"keys": [{"role": "viewer"}] * 101}, {"customer": "a"}, []])
def test_how_many_are_made_at_once_is_limited(admin: httpx.Client, body: Any) -> None:
    assert problem_of(admin.post("/v1/keys", json=body)) == "bad-value"


# -- listing ---------------------------------------------------------------------------------------------------------


def test_keys_are_found_by_customer_role_and_state(admin: httpx.Client, server: Server, customer: str) -> None:
    engine = server.queue.engine
    _, active = auth.create(engine, customer=customer)
    _, expired = auth.create(engine, customer=customer, expires_seconds=1, now_ms=1000)
    _, revoked = auth.create(engine, customer=customer)
    auth.revoke(engine, revoked.id)

    def found(**query: str) -> set[str]:
        return {key["id"] for key in admin.get("/v1/keys", params={"customer": customer, **query}).json()["keys"]}

    assert found() == {active.id, expired.id, revoked.id}
    assert (found(state="active"), found(state="expired"), found(state="revoked")) == (
        {active.id}, {expired.id}, {revoked.id},
    )  # fmt: skip
    assert found(role="admin") == set()
    one = admin.get(f"/v1/keys/{revoked.id}").json()
    assert (one["state"], one["revoked_at"] is not None) == ("revoked", True)


def test_what_is_no_key_is_not_there_and_a_whole_key_is_not_repeated(admin: httpx.Client, server: Server) -> None:
    for path, method in (("", "GET"), ("", "DELETE"), ("/rotate", "POST")):
        body: dict[str, Any] | None = {} if method == "POST" else None
        assert problem_of(admin.request(method, f"/v1/keys/0123456789abcdef{path}", json=body)) == "nothing-here"
        whole = admin.request(method, f"/v1/keys/{server.viewer}{path}", json=body)
        assert (whole.status_code, problem_of(whole)) == (422, "bad-value")
        assert server.viewer not in whole.text


# -- rotating and revoking -------------------------------------------------------------------------------------------


def test_both_keys_are_valid_while_they_overlap(server: Server, admin: httpx.Client, customer: str) -> None:
    (old,) = made(admin, {"customer": customer, "scopes": ["read"], "name": "reader", "expires_in": 86400 * 30})
    answer = admin.post(f"/v1/keys/{old['id']}/rotate", json={"overlap": 3600})
    assert answer.status_code == 201
    new = answer.json()
    assert {name: new[name] for name in ("role", "customer", "scopes", "name")} == {
        name: old[name] for name in ("role", "customer", "scopes", "name")
    }
    assert new["expires_at"] - new["made_at"] == pytest.approx(86400 * 30)  # as long as the old one was made for
    assert me(server, old["key"]).status_code == me(server, new["key"]).status_code == 200
    shown = admin.get(f"/v1/keys/{old['id']}").json()
    assert (shown["replaced_by"], shown["ends_soon"], shown["state"]) == (new["id"], False, "active")
    assert shown["expires_at"] - new["made_at"] == pytest.approx(3600)


def test_the_old_key_ends_after_the_overlap(server: Server, customer: str) -> None:
    engine = server.queue.engine
    now_ms = auth.time_ms()
    secret, key = auth.create(engine, customer=customer, now_ms=now_ms - 2 * 3_600_000)
    new_secret, *_ = auth.rotate(engine, key.id, overlap_seconds=3600, now_ms=now_ms - 3_600_001)
    assert (me(server, secret).status_code, me(server, new_secret).status_code) == (401, 200)


def test_without_an_overlap_the_old_key_ends_at_once(server: Server, admin: httpx.Client, customer: str) -> None:
    (old,) = made(admin, {"customer": customer})
    new = admin.post(f"/v1/keys/{old['id']}/rotate", json={"overlap": 0, "expires_in": None}).json()
    assert new["expires_at"] is None
    until(lambda: me(server, old["key"]).status_code == 401)
    assert me(server, new["key"]).status_code == 200


def test_only_a_key_that_is_active_and_not_replaced_is_rotated(admin: httpx.Client, customer: str) -> None:
    first, second = made(admin, {"customer": customer}, {"customer": customer})
    for wrong in ({"overlap": -1}, {"overlap": 366 * 86400}, {"overlap": "1d"}, {"expires_in": 0}):
        assert problem_of(admin.post(f"/v1/keys/{first['id']}/rotate", json=wrong)) == "bad-value"
    assert admin.post(f"/v1/keys/{first['id']}/rotate", json={}).status_code == 201
    again = admin.post(f"/v1/keys/{first['id']}/rotate", json={})
    assert (again.status_code, problem_of(again)) == (409, "wrong-state")
    assert "was replaced by" in again.json()["detail"]
    assert admin.delete(f"/v1/keys/{second['id']}").json()["state"] == "revoked"
    revoked = admin.post(f"/v1/keys/{second['id']}/rotate", json={})
    assert (revoked.status_code, "is revoked" in revoked.json()["detail"]) == (409, True)


def test_of_two_rotations_at_once_one_is_made(server: Server, customer: str) -> None:
    _, key = auth.create(server.queue.engine, customer=customer)
    together, outcomes = threading.Barrier(4), list[str]()

    def rotate() -> None:
        with Queue(server.url) as queue:
            together.wait()
            try:
                outcomes.append(auth.rotate(queue.engine, key.id)[1].id)
            except WrongState:
                outcomes.append("refused")

    threads = [threading.Thread(target=rotate) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (successor,) = [outcome for outcome in outcomes if outcome != "refused"]
    held = [each.id for each in auth.list_keys(server.queue.engine) if each.customer == customer]
    assert sorted(held) == sorted([key.id, successor])
    assert auth.find(server.queue.engine, key.id).replaced_by == successor


def test_a_revoked_key_is_refused_within_a_moment(server: Server, admin: httpx.Client, customer: str) -> None:
    (key,) = made(admin, {"customer": customer})
    assert me(server, key["key"]).status_code == 200
    assert admin.delete(f"/v1/keys/{key['id']}").json()["state"] == "revoked"
    until(lambda: me(server, key["key"]).status_code == 401)


def test_the_client_has_verbs_for_keys(server: Server, customer: str) -> None:
    with Client(server.address, server.admin) as client:
        new = client.create_key(customer=customer, scopes=["submit"], name="scanner", expires=None)
        assert (new.info.customer, new.info.scopes, new.info.expires_at) == (customer, ("submit",), None)
        with Client(server.address, new.secret) as scanner:
            assert scanner.me().permissions == ("self", "submit")
        many = client.create_keys([{"customer": customer}, {"role": "viewer"}])
        assert [key.info.role for key in many] == ["customer", "viewer"]
        rotated = client.rotate_key(new.info.id, overlap=60)
        assert [key.replaced_by for key in client.keys(customer=customer) if key.id == new.info.id] == [rotated.info.id]
        assert client.revoke_key(rotated.info.id).state == "revoked"
        assert {key.id for key in client.keys(customer=customer, state="active")} == {new.info.id, many[0].info.id}


# -- last used -------------------------------------------------------------------------------------------------------


class Calls:
    """Calls of the store, which fail while it is away."""

    def __init__(self) -> None:
        self.is_away = False
        self.count = 0

    async def call(self, function: Any, *args: Any) -> Any:
        self.count += 1
        if self.is_away:
            raise StoreUnreachable("away")
        return function(*args)


def test_the_latest_use_counts_whichever_server_saw_it() -> None:
    with Queue("memory://") as queue:
        _, key = auth.create(queue.engine, customer="acme")
        assert last_use(queue.engine, key.id) is None
        write_uses(queue.engine, [(key.id, 2000)])
        write_uses(queue.engine, [(key.id, 1000), ("gone", 1000)])
        assert last_use(queue.engine, key.id) == 2000
        assert last_use(queue.engine, "gone") is None
        write_uses(queue.engine, [(key.id, 3000)])
        assert last_use(queue.engine, key.id) == 3000


def test_uses_are_written_in_the_background_and_kept_while_the_store_is_away() -> None:
    calls = Calls()
    with Queue("memory://") as queue:
        keys = [auth.create(queue.engine, customer="acme")[1] for _ in range(120)]
        uses = KeyUses(queue.engine, calls.call)
        for _ in range(10):
            for key in keys:
                uses.note(key.id)
        assert calls.count == 0  # a request waits for nothing
        calls.is_away = True
        with pytest.raises(StoreUnreachable):
            asyncio.run(uses.flush())
        calls.is_away = False
        asyncio.run(uses.flush())
        assert all(last_use(queue.engine, key.id) for key in keys)
        written = calls.count
        asyncio.run(uses.flush())
        assert calls.count == written


def test_a_use_of_a_key_that_is_being_forgotten_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with Queue("memory://") as queue:
        engine = queue.engine
        _, key = auth.create(engine, customer="acme")
        put_record, forgotten = engine.put_record, list[Record]()

        def put_and_forget(group: str, *args: Any) -> int | None:
            version = put_record(group, *args)
            if group == USES and not forgotten:
                forgotten.extend(engine.records(auth.GROUP, "", 10))
                put_record(auth.GROUP, key.id, None)
            return version

        monkeypatch.setattr(engine, "put_record", put_and_forget)
        write_uses(engine, [(key.id, 1000)])
        assert forgotten
        assert engine.records(USES, "", 10) == []


def test_a_server_writes_uses_before_it_ends(tmp_path: Path) -> None:
    server = Server(tmp_path)
    try:
        secret, key = auth.create(server.queue.engine, customer="acme")
        before_ms = auth.time_ms()
        assert me(server, secret).status_code == 200
        assert server.stop() == 0
        used_ms = last_use(server.queue.engine, key.id)
        assert used_ms is not None
        assert before_ms <= used_ms <= auth.time_ms()
        (row,) = run_json("keys", "list", "--customer", "acme", "--url", server.url)
        assert row["last_used"].startswith("20")
        server.start()
        with server.client(server.admin) as admin:
            assert admin.get(f"/v1/keys/{key.id}").json()["last_used_at"] == used_ms / 1000
    finally:
        server.close()


# -- keys that end soon ----------------------------------------------------------------------------------------------


def test_which_keys_end_soon(tmp_path: Path) -> None:
    with Queue("memory://") as queue:
        now_ms = auth.time_ms()

        def made_to_last(days: float, **options: Any) -> auth.Key:
            return auth.create(queue.engine, expires_seconds=days * 86400, now_ms=now_ms, **options)[1]

        assert key_findings(queue.engine) == []
        fresh, late = made_to_last(90, customer="acme"), made_to_last(13, role="admin")
        assert not ends_soon(fresh, now_ms)
        assert ends_soon(fresh, now_ms + 90 * DAY_MS - WARNED_MS + 1)
        assert not ends_soon(fresh, now_ms + 90 * DAY_MS)  # it has ended
        assert ends_soon(late, now_ms)
        (finding,) = key_findings(queue.engine)
        assert finding.level == "warning"
        assert finding.message.startswith(f"2 active, 1 of them end within two weeks: first {late.id} (admin), on 20")
        assert finding.advice == f"rotate them, as in fairlane keys rotate {late.id}"
        auth.rotate(queue.engine, late.id, expires_seconds=None)
        (finding,) = key_findings(queue.engine)
        assert (finding.level, finding.message) == ("fine", "3 active, none ends within two weeks")


def test_people_are_warned_by_the_list_doctor_and_the_log(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/queue.db"
    (key,) = run_json("keys", "create", "--customer", "acme", "--expires", "5d", "--url", url)
    assert key["ends_soon"]
    assert "active, ends soon" in run("keys", "list", "--url", url).output
    assert f"keys rotate {key['id']}" in run("doctor", "--url", url).output
    server = Server(tmp_path, url=url)
    try:
        until(lambda: any(line["event"] == "key ends soon" for line in server.logged()), "the warning")
        (line,) = [line for line in server.logged() if line["event"] == "key ends soon"]
        assert (line["key"], line["customer"], line["role"]) == (key["id"], "acme", "customer")
    finally:
        server.close()


def test_a_key_is_rotated_from_the_command_line(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/queue.db"
    (old,) = run_json("keys", "create", "--customer", "acme", "--scope", "submit", "--expires", "never", "--url", url)
    result = run("keys", "rotate", old["id"], "--overlap", "1h", "--url", url)
    assert result.stdout.startswith("fl_")
    assert len(result.stdout.splitlines()) == 1
    assert f"The key {old['id']} expires at 20" in result.stderr
    assert "It does not expire." in result.stderr
    listed = {row["id"]: row for row in run_json("keys", "list", "--active", "--url", url)}
    new = listed[listed[old["id"]]["replaced_by"]]
    assert (new["scopes"], new["expires"]) == (["submit"], None)
    assert f"replaced by {new['id']}" in run("keys", "list", "--url", url).output
    again = run("keys", "rotate", old["id"], "--url", url)
    assert (again.exit_code, f"was replaced by {new['id']}" in again.stderr) == (2, True), again.output
    (rotated,) = run_json("keys", "rotate", new["id"], "--expires", "2d", "--url", url)
    assert rotated["old"]["replaced_by"] == rotated["id"]


def test_the_commands_of_the_docs_make_list_rotate_and_revoke_keys(server: Server, admin: httpx.Client) -> None:
    def printed(line: str) -> str:
        result = run(*shlex.split(line)[1:], FAIRLANE_URL=server.url)
        assert result.exit_code == 0, result.output
        return result.stdout.strip()

    *creations, listing, rotation, revocation = snippet("docs/service.md", "fairlane keys create").splitlines()
    laptop, scanner, operator, prometheus = map(printed, creations)
    id, scanner_id, prometheus_id = (key.split("_")[1] for key in (laptop, scanner, prometheus))
    assert me(server, laptop).json()["customer"] == me(server, scanner).json()["customer"] == "acme"
    assert me(server, scanner).json()["permissions"] == ["self", "submit"]
    assert me(server, operator).json()["role"] == "operator"
    with server.client(prometheus) as client:
        assert (client.get("/metrics").status_code, client.get("/v1/me").status_code) == (200, 403)
    assert {id, scanner_id, prometheus_id} <= {line.split()[0] for line in printed(listing).splitlines() if line.split()}
    lasting = admin.get(f"/v1/keys/{scanner_id}").json()
    assert lasting["expires_at"] - lasting["made_at"] == pytest.approx(7 * 86400)
    assert admin.get(f"/v1/keys/{prometheus_id}").json()["expires_at"] is None
    successor = printed(rotation.replace("3f9c2a7b51e08d46", id))
    old = admin.get(f"/v1/keys/{id}").json()
    new = admin.get(f"/v1/keys/{old['replaced_by']}").json()
    assert new["id"] == successor.split("_")[1]
    assert old["expires_at"] - new["made_at"] == pytest.approx(7 * 86400)
    assert "is revoked" in printed(revocation.replace("3f9c2a7b51e08d46", id))
    until(lambda: me(server, laptop).status_code == 401)
    assert me(server, successor).status_code == 200
