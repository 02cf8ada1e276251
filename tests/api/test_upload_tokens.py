"""Upload tokens: one document each, chosen by their maker, used once, whatever happens at the same time."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from fairlane import Client, Queue
from fairlane.api import auth, upload_tokens
from fairlane.api.problems import Problem
from fairlane.api.upload_tokens import GROUP, TokenOptions
from fairlane.blobs.envelope import FILE
from fairlane.core.errors import BadValue
from fairlane.queue.audit import AuditFilter, walk_audit
from tests.cli.running import run, run_json

from .running import Server, problem_of, until

ROOT = Path(__file__).parents[2]
PDF = {"Content-Type": "application/pdf"}


@pytest.fixture
def maker(server: Server, customer: str) -> Iterator[httpx.Client]:
    """A customer's own server, with a key that only submits."""
    with server.client(server.key(customer, scopes=["submit"])) as client:
        yield client


def token_of(client: httpx.Client, **options: Any) -> dict[str, Any]:
    answer = client.post("/v1/upload-tokens", json=options)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def upload(server: Server, token: str, content: bytes = b"%PDF", **options: Any) -> httpx.Response:
    headers = PDF | {"Authorization": f"Bearer {token}"} | options.pop("headers", {})
    return httpx.post(f"{server.address}/v1/uploads", content=content, headers=headers, timeout=60, trust_env=False, **options)


def documents_of(server: Server, customer: str) -> list[str]:
    return [document.id for document in server.queue.documents(customer)]


def stored(server: Server, id: str) -> tuple[str | None, bytes]:
    """The name and the bytes of a document's file."""
    with server.queue.file(id) as content:
        return server.queue.input(id).name, content.read()


# -- one document ------------------------------------------------------------------------------------------------------


def test_a_token_is_good_for_one_document_of_its_customer(server: Server, maker: httpx.Client, customer: str) -> None:
    made = token_of(maker, payload={"user": 17}, cost=3)
    assert (made["customer"], made["state"], made["links"]) == (customer, "unused", {"upload": "/v1/uploads"})
    answer = upload(server, made["token"], b"%PDF one", params={"name": "invoice ż.pdf"})
    assert answer.status_code == 202, answer.text
    id = answer.json()["id"]
    assert answer.json() == {"id": id}
    document = server.queue.document(id)
    assert (document.customer, document.kind, document.cost) == (customer, "extract", 3)
    assert server.queue.payload(id) == {"user": 17}
    assert stored(server, id) == ("invoice ż.pdf", b"%PDF one")
    looked = maker.get(f"/v1/upload-tokens/{made['id']}").json()
    assert (looked["state"], looked["document"]) == ("used", id)
    assert "token" not in looked


def test_a_second_use_is_refused_before_its_body_is_read_and_says_what_the_first_one_made(
    server: Server, maker: httpx.Client, customer: str
) -> None:
    token = token_of(maker)["token"]
    id = upload(server, token).json()["id"]
    answer = upload(server, token, b"another")
    assert (answer.status_code, problem_of(answer)) == (409, "token-used")
    assert id in answer.json()["detail"]
    head = server.head(token, "POST", "/v1/uploads", "Content-Type: application/pdf", "Content-Length: 99999")
    assert server.raw(head + b"\r\n").startswith(b"HTTP/1.1 409")
    assert documents_of(server, customer) == [id]


def test_a_form_with_one_file_is_taken_too(server: Server, maker: httpx.Client, customer: str) -> None:
    token = token_of(maker, bytes_max=4)["token"]
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=server.address, headers=headers, trust_env=False, timeout=60) as browser:
        large = browser.post("/v1/uploads", files={"file": ("a.txt", b"12345")})
        assert (large.status_code, problem_of(large)) == (413, "too-large")
        chosen = browser.post("/v1/uploads", files={"file": ("a.txt", b"1234")}, data={"cost": "0.001"})
        assert (chosen.status_code, problem_of(chosen)) == (422, "bad-value")
        answer = browser.post("/v1/uploads", files={"file": ("a.txt", b"1234")}, data={"name": "b.txt"})
    assert answer.status_code == 202, answer.text
    assert stored(server, answer.json()["id"]) == ("b.txt", b"1234")


def test_a_json_file_is_a_file(server: Server, maker: httpx.Client) -> None:
    answer = upload(server, token_of(maker)["token"], b'{"payload": 1}', headers={"Content-Type": "application/json"})
    assert stored(server, answer.json()["id"]) == (None, b'{"payload": 1}')


@pytest.mark.parametrize("size", [9, 10, 11])
@pytest.mark.parametrize("has_length", [True, False])
def test_a_file_is_as_large_as_its_maker_allows(
    server: Server, maker: httpx.Client, customer: str, size: int, has_length: bool
) -> None:
    token = token_of(maker, bytes_max=10)["token"]
    content: Any = b"x" * size if has_length else iter([b"x" * size])
    answer = upload(server, token, content)
    assert answer.status_code == (413 if size > 10 else 202), answer.text
    assert len(documents_of(server, customer)) == (size <= 10)


def test_what_the_maker_chose_the_browser_cannot_change(server: Server, maker: httpx.Client, customer: str) -> None:
    token = token_of(maker)["token"]
    for parameters in ({"kind": "default"}, {"cost": "0.001"}, {"payload": "1"}, {"customer": "else"}, {"delay": "1"}):
        answer = upload(server, token, params=parameters)
        assert (answer.status_code, problem_of(answer)) == (422, "bad-value"), parameters
    assert problem_of(upload(server, token, headers={"Idempotency-Key": "mine"})) == "bad-value"
    assert problem_of(upload(server, token, b"")) == "bad-value"
    assert documents_of(server, customer) == []
    assert upload(server, token).status_code == 202


def test_an_upload_that_is_cut_off_leaves_the_token_usable(server: Server, maker: httpx.Client, customer: str) -> None:
    made = token_of(maker)
    head = server.head(made["token"], "POST", "/v1/uploads", "Content-Type: application/pdf", "Content-Length: 100000")
    with server.connect() as line:
        line.sendall(head + b"\r\n" + b"x" * 70_000)
    assert upload(server, made["token"]).status_code == 202
    assert len(documents_of(server, customer)) == 1


# -- making ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": ""}, {"kind": "folder"}, {"kind": "foreign"}, {"bytes_max": 0}, {"bytes_max": 1.5}, {"cost": 0.5},
        {"cost": "many"}, {"expires_in": 0}, {"expires_in": 3601}, {"expires_in": None}, {"colour": "red"},
        {"payload": "x" * 5000}, {"payload": {FILE: 1}},
    ],
    ids=str,
)  # fmt: skip
def test_bad_values_are_refused(maker: httpx.Client, wrong: dict[str, Any]) -> None:
    answer = maker.post("/v1/upload-tokens", json=wrong)
    assert (answer.status_code, problem_of(answer)) == (422, "bad-value"), answer.text


def test_staff_names_the_customer_and_is_in_the_audit_log(server: Server, customer: str) -> None:
    with server.client(server.operator) as operator:
        assert problem_of(operator.post("/v1/upload-tokens", json={})) == "bad-value"
        made = token_of(operator, customer=customer, kind="scan", bytes_max=1000)
        assert operator.get(f"/v1/upload-tokens/{made['id']}").json()["customer"] == customer
    assert server.queue.document(upload(server, made["token"]).json()["id"]).kind == "scan"
    (entry,) = walk_audit(server.queue.engine, AuditFilter(what="upload-token.create", customer=customer))
    assert (entry.target, entry.outcome, entry.after) == (
        made["id"], "done", {"kind": "scan", "bytes_max": 1000, "expires_ms": round(made["expires_at"] * 1000)},
    )  # fmt: skip


def test_a_customer_sees_its_own_tokens_only(server: Server, maker: httpx.Client) -> None:
    made = token_of(maker)
    with server.client(server.key("somebody else")) as stranger:
        foreign = stranger.get(f"/v1/upload-tokens/{made['id']}")
        unknown = stranger.get("/v1/upload-tokens/nothing")
        assert (foreign.status_code, foreign.content) == (404, unknown.content)
        assert stranger.post("/v1/upload-tokens", json={"customer": made["customer"]}).status_code == 404


def test_a_customer_makes_so_many_tokens_a_second(tmp_path: Path) -> None:
    server = Server(tmp_path, limits=("upload_tokens_a_second=1",))
    try:
        with server.client(server.key("acme")) as maker, server.client(server.key("bolt")) as other:
            answers = [maker.post("/v1/upload-tokens", json={}) for _ in range(50)]
            refused = [answer for answer in answers if answer.status_code != 201]
            assert 0 < len(refused) < 50
            assert {problem_of(answer) for answer in refused} == {"too-many-requests"}
            assert refused[0].headers["retry-after"] == "1"
            assert other.post("/v1/upload-tokens", json={}).status_code == 201
    finally:
        server.close()


# -- its end -----------------------------------------------------------------------------------------------------------


def test_an_expired_unknown_or_wrong_token_is_no_token(server: Server, maker: httpx.Client, customer: str) -> None:
    engine = server.queue.engine
    late, _ = upload_tokens.create(engine, customer, now_ms=auth.time_ms() - 901_000)
    right = token_of(maker)["token"]
    for wrong in (late, right[:-3] + "abc", right.replace("flu_", "fl_"), "flu_", "flu_x_y", f"flu_{'0' * 26}_{'x' * 43}"):
        answer = upload(server, wrong)
        assert (answer.status_code, problem_of(answer)) == (401, "no-key"), wrong
    assert documents_of(server, customer) == []


def test_a_token_ends_with_the_key_that_made_it(server: Server, customer: str) -> None:
    secret, key = auth.create(server.queue.engine, customer=customer)
    with server.client(secret) as maker:
        token = token_of(maker)["token"]
    auth.revoke(server.queue.engine, key.id)
    until(lambda: upload(server, token, b"").status_code == 401)
    assert documents_of(server, customer) == []


def test_a_token_opens_no_session_and_no_stream(server: Server, maker: httpx.Client) -> None:
    token = token_of(maker)["token"]
    answer = httpx.post(f"{server.address}/page/session", json={"key": token}, trust_env=False, timeout=60)
    assert (answer.status_code, problem_of(answer)) == (401, "no-key")
    with server.client(token) as client:
        answer = client.get("/v1/documents")
    assert (answer.status_code, answer.json()["detail"]) == (
        403, "this is an upload token, which does nothing but upload one document: POST /v1/uploads",
    )  # fmt: skip


def test_tokens_are_removed_a_day_after_they_expired(customer: str) -> None:
    with Queue("memory://") as queue:
        engine, now_ms = queue.engine, auth.time_ms()
        made = [upload_tokens.create(engine, customer, now_ms=now_ms - age)[1].id for age in (0, 86_000_000, 87_400_000, 10**9)]
        assert upload_tokens.remove_expired(engine, now_ms=now_ms) == 2
        assert {record.key for record in engine.records(GROUP, "", 10)} == set(made[:2])
        with pytest.raises(Problem, match="has expired"):
            upload_tokens.spend(engine, made[3], "document")


def test_the_store_and_the_log_hold_no_token(server: Server, maker: httpx.Client) -> None:
    made = token_of(maker)
    upload(server, made["token"])
    record = server.queue.engine.record(GROUP, made["id"])
    assert record is not None
    secret = made["token"].split("_", 2)[2]
    assert secret not in record.value
    line = until(lambda: next((line for line in server.logged() if line.get("upload_token") == made["id"]), None))
    assert (line["customer"], line["document"]) == (made["customer"], json.loads(record.value)["document"])
    assert secret not in server.log.read_text()


# -- once --------------------------------------------------------------------------------------------------------------


def test_of_many_uses_at_once_on_two_servers_one_wins(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one = Server(tmp_path / "one")
    two = Server(tmp_path / "two", url=one.url)
    try:
        for number in range(10):
            _, token = upload_tokens.create(one.queue.engine, f"customer {number}")
            secret, token = upload_tokens.create(one.queue.engine, f"customer {number}")
            start = threading.Barrier(6)

            def use(at: int, secret: str = secret, start: threading.Barrier = start) -> httpx.Response:
                start.wait(60)
                return upload((one, two)[at % 2], secret, b"%d" % at)

            with ThreadPoolExecutor(6) as threads:
                answers = list(threads.map(use, range(6)))
            assert sorted(answer.status_code for answer in answers) == [202] + [409] * 5
            (winner,) = (answer.json()["id"] for answer in answers if answer.status_code == 202)
            assert documents_of(one, f"customer {number}") == [winner]
            assert upload_tokens.find(one.queue.engine, token.id).document == winner
        assert one.queue.sweep(grace=0).removed == 0  # the bytes of those that lost are gone
    finally:
        two.close()
        one.close()


def between(engine: Any, act: Callable[[], object]) -> Any:
    """The engine, where something happens between the first read of a record and what follows."""

    class Between:
        def __getattr__(self, name: str) -> Any:
            return getattr(engine, name)

        def record(self, group: str, key: str) -> Any:
            nonlocal act
            found, then, act = engine.record(group, key), act, lambda: None
            then()
            return found

    return Between()


def test_a_token_that_is_used_between_a_look_and_the_use_is_refused() -> None:
    with Queue("memory://") as queue:
        _, token = upload_tokens.create(queue.engine, "acme")
        racing = between(queue.engine, lambda: upload_tokens.spend(queue.engine, token.id, "first"))
        with pytest.raises(Problem, match="was used, for document first"):
            upload_tokens.spend(racing, token.id, "second")
        assert upload_tokens.find(queue.engine, token.id).document == "first"


def test_a_use_that_came_to_nothing_gives_back_only_its_own() -> None:
    with Queue("memory://") as queue:
        _, token = upload_tokens.create(queue.engine, "acme")
        upload_tokens.spend(queue.engine, token.id, "first")
        upload_tokens.give_back(queue.engine, token.id, "second")
        assert upload_tokens.find(queue.engine, token.id).document == "first"
        upload_tokens.give_back(queue.engine, token.id, "first")
        upload_tokens.spend(queue.engine, token.id, "second")


def test_a_token_whose_document_the_queue_refused_can_be_used_later(tmp_path: Path) -> None:
    server = Server(tmp_path)
    try:
        server.queue.tune("acme", documents_max=1)
        first = server.queue.submit("acme", 1).id
        secret, token = upload_tokens.create(server.queue.engine, "acme")
        full = upload(server, secret)
        assert (full.status_code, set(full.json())) == (
            507,
            {"type", "title", "status", "detail"},
        )  # and nothing of its customer
        assert full.json()["type"] == "quota-full"
        assert upload_tokens.find(server.queue.engine, token.id).document is None
        server.queue.tune("acme", documents_max=None)
        assert upload(server, secret).status_code == 202
        assert first in documents_of(server, "acme")
        assert server.queue.sweep(grace=0).removed == 0
    finally:
        server.close()


@pytest.mark.parametrize("engine", ["sqlite", "postgres", "redis"])
def test_a_server_that_is_killed_at_any_step_never_makes_two_documents(tmp_path: Path, engine: str) -> None:
    program = [sys.executable, "-m", "tests.api.upload_dying", str(tmp_path), engine]
    ended = subprocess.run(program, check=False, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    outcome = json.loads(ended.stdout)
    assert outcome["wrong"] == []
    assert outcome["steps"] >= 5


# -- by hand -----------------------------------------------------------------------------------------------------------


def test_the_client_makes_tokens_and_looks_at_them(server: Server, customer: str) -> None:
    with Client(server.address, server.key(customer, scopes=["submit"])) as client:
        made = client.create_upload_token(expires=60, bytes_max=100, payload={"user": 1})
        token = made.info
        assert (token.customer, token.kind, token.bytes_max, token.state) == (customer, "extract", 100, "unused")
        assert (token.expires_at - token.made_at).total_seconds() == 60
        id = upload(server, made.secret).json()["id"]
        used = client.upload_token(token.id)
    assert (used.state, used.document, used.payload) == ("used", id, {"user": 1})


def test_the_command_makes_a_token(server: Server, customer: str) -> None:
    secret = run("keys", "upload-token", "--customer", customer, "--expires", "5m", "--url", server.url).stdout.strip()
    id = upload(server, secret).json()["id"]
    assert documents_of(server, customer) == [id]
    (made,) = run_json("keys", "upload-token", "--customer", customer, "--bytes-max", "10", "--url", server.url)
    assert (made["customer"], made["bytes_max"]) == (customer, 10)
    (entry, _) = walk_audit(server.queue.engine, AuditFilter(what="upload-token", customer=customer))
    assert (entry.who.kind, entry.target) == ("cli", made["id"])


def test_values_of_the_library_are_refused_too() -> None:
    with Queue("memory://") as queue:
        for options in (TokenOptions(cost=0), TokenOptions(bytes_max=0), TokenOptions(expires_seconds=4000)):
            with pytest.raises(BadValue):
                upload_tokens.create(queue.engine, "acme", options)


# -- other sites -------------------------------------------------------------------------------------------------------

SITE = "https://app.example.com"
PREFLIGHT = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server to which pages of two sites may send documents."""
    options = ("--upload-origin", SITE, "--upload-origin", "http://localhost:3000")
    running = Server(Path(tmp_path_factory.mktemp("shared")), *options)
    yield running
    running.close()


def ask(server: Server, site: str) -> httpx.Response:
    """Ask as a browser does before a page of that site may upload."""
    headers = {"Origin": site, **PREFLIGHT}
    return httpx.options(f"{server.address}/v1/uploads", headers=headers, trust_env=False, timeout=60)


def cors_of(answer: httpx.Response) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name.startswith("access-control") or name == "vary"}


def test_pages_of_a_site_that_is_named_may_upload(shared: Server) -> None:
    for site in (SITE, "http://localhost:3000"):
        preflight = httpx.options(
            f"{shared.address}/v1/uploads", headers={"Origin": site, **PREFLIGHT}, trust_env=False, timeout=60
        )
        assert (preflight.status_code, preflight.content) == (204, b"")
        spoken = {"access-control-allow-origin": site, "access-control-expose-headers": "Retry-After", "vary": "Origin"}
        assert cors_of(preflight) == spoken | {
            "access-control-allow-methods": "POST",
            "access-control-allow-headers": "authorization, content-type",
            "access-control-max-age": "600",
        }
        secret, _ = upload_tokens.create(shared.queue.engine, "acme")
        for status in (202, 409):
            answer = upload(shared, secret, headers={"Origin": site})
            assert (answer.status_code, cors_of(answer)) == (status, spoken)
        assert cors_of(upload(shared, "flu_wrong", headers={"Origin": site})) == spoken  # the page can say why


@pytest.mark.parametrize(
    "site", ["https://evil.example.com", "http://app.example.com", "https://app.example.com.evil", "null", "*", ""]
)
def test_other_sites_learn_nothing(shared: Server, site: str) -> None:
    headers = {"Origin": site}
    preflight = ask(shared, site)
    assert (preflight.status_code, cors_of(preflight)) == (401, {"vary": "Origin"})
    secret, _ = upload_tokens.create(shared.queue.engine, "acme")
    assert cors_of(upload(shared, secret, headers=headers)) == {"vary": "Origin"}


def test_no_other_route_speaks_to_other_sites(shared: Server) -> None:
    headers = {"Origin": SITE, **PREFLIGHT}
    with shared.client(shared.admin) as admin:
        for method, path in (
            ("OPTIONS", "/v1/documents"),
            ("GET", "/v1/documents"),
            ("GET", "/"),
            ("POST", "/v1/upload-tokens"),
        ):
            assert cors_of(admin.request(method, path, headers=headers)) == {}, path
        assert admin.options("/v1/uploads", headers={"Origin": SITE}).status_code == 405  # no preflight


def test_unless_a_site_is_named_none_may(server: Server) -> None:
    preflight = ask(server, SITE)
    assert (preflight.status_code, cors_of(preflight)) == (401, {})


@pytest.mark.parametrize(
    "wrong",
    ["*", "null", "app.example.com", "https://", "https://*.example.com", "https://app.example.com/", "ftp://app.example.com",
     "https://App.example.com", "https://u@app.example.com", "https://app.example.com:99999", "https://app.example.com?x", ""],
)  # fmt: skip
def test_what_is_no_site_is_refused_at_the_start(tmp_path: Path, wrong: str) -> None:
    ended = run("serve", "--upload-origin", wrong, "--url", f"sqlite:///{tmp_path}/queue.db")
    assert ended.exit_code != 0
    assert f"--upload-origin is {wrong!r}; it must be the origin of a site" in ended.stderr
    assert "Traceback" not in ended.output
