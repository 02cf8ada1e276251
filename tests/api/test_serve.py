"""The command: everything on one machine, started and ended as one."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fairlane import Queue
from fairlane.api import auth
from fairlane.api.first_key import ADVICE
from tests.cli.running import COMMAND, Terminal, run_program, start
from tests.servers import redis
from tests.worker.conftest import is_alive, process_tree

from .running import Server, until


def serve_and_stop(*options: str, lines: int) -> tuple[list[str], list[dict[str, Any]]]:
    """Start a server, read so many lines of its output, and stop it; return them and its log."""
    with start("serve", "--port", "0", "--no-work", *options, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stdout is not None
        output = [program.stdout.readline() for _ in range(lines)]
        program.send_signal(signal.SIGTERM)
        rest, log = program.communicate(timeout=60)
    assert (program.returncode, rest) == (0, "")
    return output, [json.loads(line) for line in log.splitlines()]


def test_on_a_terminal_the_first_admins_key_is_shown_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/queue.db"
    with Terminal(200, 40, "serve", "--port", "0", "--no-work", "--url", url) as shown:
        shown.wait_for(lambda text: re.search(r"it expires in 90 days:\s+fl_\S+\s", text))
        os.kill(shown.program.pid, signal.SIGTERM)
        assert shown.wait() == 0
    (secret,) = re.findall(r"fl_\S+", shown.shown)
    assert not list(tmp_path.glob("*.admin-key*"))
    with Queue(url) as queue:
        (key,) = auth.list_keys(queue.engine)
        ring = auth.Keyring(queue.engine)
        ring.load(key.id)
        caller = ring.caller(secret)
    assert caller is not None
    assert (caller.role, key.expires_ms) == ("admin", key.made_ms + 90 * 86_400_000)
    output, log = serve_and_stop("--url", url, lines=3)
    assert "fl_" not in "".join(output) + json.dumps(log)


def test_elsewhere_the_first_admins_key_goes_to_a_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    url, path = f"sqlite:///{tmp_path}/queue.db", tmp_path / "queue.db.admin-key"
    path.write_text("a key that expired")
    path.chmod(0o644)
    output, log = serve_and_stop("--url", url, lines=4)
    assert output[0].startswith("Fairlane is running at http://127.0.0.1:")
    assert output[1] == f"The first admin's key is in {path}; it expires in 90 days.\n"
    secret = path.read_text().strip()
    assert path.stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "queue.db.admin-key.new").exists()
    (logged,) = [line for line in log if line["event"] == "first admin key"]
    assert logged["file"] == str(path)
    assert secret.split("_", 2)[2] not in json.dumps(log) + "".join(output)
    with Queue(url) as queue:
        ring = auth.Keyring(queue.engine)
        ring.load(logged["key"])
        caller = ring.caller(secret)
    assert caller is not None
    assert caller.role == "admin"


def test_what_fills_the_disk_is_said_at_the_start(tmp_path: Path) -> None:
    """Nothing is deleted that nobody asked to delete; but whoever runs the service must know."""
    url = f"sqlite:///{tmp_path}/queue.db"
    purging = (
        "Nothing is ever purged: documents and their files are kept until you run `fairlane purge`, or start with --retention"
    )
    quota = "There is no quota: a customer may keep any number of bytes; set one with `fairlane policy --bytes-max 50GB`."
    output, log = serve_and_stop("--url", url, lines=4)
    assert output[2].startswith(purging)
    assert output[3] == f"{quota}\n"
    assert [line["advice"] + "\n" for line in log if line["event"] == "unlimited"] == output[2:]
    with Queue(url) as queue:
        queue.configure(bytes_max=10**9)
    _, log = serve_and_stop("--url", url, "--retention", "30d", lines=1)
    assert not [line for line in log if line["event"] == "unlimited"]


def test_where_the_store_is_a_server_the_log_says_how_to_make_a_key() -> None:
    """An operator's key is not enough, and is not taken for one."""
    url = redis.shared("redis").url()
    try:
        with Queue(url) as queue:
            auth.create(queue.engine, role="operator")
        output, log = serve_and_stop("--url", url, "--json", lines=1)
        with Queue(url) as queue:
            assert [key.role for key in auth.list_keys(queue.engine)] == ["operator"]
    finally:
        redis.drop_url(url)
    assert json.loads(output[0]) | {"address": ""} == {"address": "", "admin_key": None, "admin_key_file": None}
    assert [line["advice"] for line in log if line["event"] == "no admin key"] == [ADVICE]


def test_a_document_goes_in_and_its_result_comes_out(tmp_path: Path) -> None:
    server = Server(tmp_path, work=True)
    try:
        with server.client(server.key("acme")) as client:
            content = b"one two\nthree\n"
            headers = {"Content-Type": "text/plain"}
            receipt = client.post("/v1/documents", content=content, headers=headers, params={"name": "a.txt"}).json()
            assert client.get(receipt["links"]["self"], params={"wait": 60}).json()["state"] == "done"
            assert "three" in client.get(receipt["links"]["text"]).text
            assert client.get(receipt["links"]["result"]).status_code == 200
    finally:
        server.close()


def test_a_customer_cannot_have_a_file_of_the_worker_read(tmp_path: Path) -> None:
    server = Server(tmp_path, work=True)
    try:
        secret = tmp_path / "secret.txt"
        secret.write_text("a secret of the machine")
        with server.client(server.key("acme")) as client:
            for kind, refused in (("extract", 422), ("folder", 422), ("default", 202)):
                sent = client.post("/v1/documents", json={"payload": {"path": str(secret)}, "kind": kind})
                assert sent.status_code == refused
            behind = client.post("/v1/documents", content=b"text", headers={"Content-Type": "text/plain"}).json()
            assert client.get(behind["links"]["self"], params={"wait": 60}).json()["state"] == "done"
            receipt = sent.json()  # the worker has passed it over
            assert client.get(receipt["links"]["self"]).json()["state"] == "ready"
            assert client.get(receipt["links"]["text"]).status_code == 409
    finally:
        server.close()


def workers(server: Server) -> list[int]:
    return [line["pid"] for line in server.logged() if line["event"] == "worker started"]


def test_a_worker_that_dies_is_begun_again_and_ends_with_the_server(tmp_path: Path) -> None:
    server = Server(tmp_path, work=True)
    try:
        first = until(lambda: workers(server))[0]
        until(lambda: len(process_tree(first)) > 2)
        os.kill(first, signal.SIGKILL)
        second = until(lambda: len(workers(server)) > 1 and workers(server)[1])
        until(lambda: len(process_tree(second)) > 2)
        assert server.url not in Path(f"/proc/{second}/cmdline").read_text()  # it may hold a password, and all can read this
        tree = process_tree(second)
        assert server.stop() == 0
        until(lambda: not any(map(is_alive, tree)), "the worker's end")
    finally:
        server.close()


def test_a_worker_ends_with_a_server_that_was_killed(tmp_path: Path) -> None:
    server = Server(tmp_path, work=True)
    try:
        (first,) = until(lambda: workers(server))
        until(lambda: len(process_tree(first)) > 2)
        tree = process_tree(first)
        server.stop(signal.SIGKILL)
        until(lambda: not any(map(is_alive, tree)), "the worker's end")
    finally:
        server.queue.close()


def test_what_is_being_answered_is_answered_before_the_end(tmp_path: Path) -> None:
    server = Server(tmp_path)
    try:
        key = server.key("acme")
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as line:
            line.sendall(
                server.head(key, "POST", "/v1/documents", "Content-Type: application/json", "Content-Length: 2") + b"\r\n{"
            )
            with server.client(key) as client:
                client.get("/v1/me")
            server.process.send_signal(signal.SIGTERM)
            until(lambda: _refuses(server.port), "no more connections")
            line.sendall(b"}")
            assert line.recv(100).startswith(b"HTTP/1.1 202")
        assert server.stop() == 0
        assert server.queue.look("acme").waiting == 1
    finally:
        server.queue.close()


def _refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=30).close()
    except OSError:
        return True
    return False


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--host", "0.0.0.0"), "keys would cross the network in the clear"),
        (("--host", "::"), "--behind-proxy if something in front of it has TLS"),
        (("--host", "no.such.host.invalid", "--behind-proxy"), "cannot listen on no.such.host.invalid"),
        (("--port", "70000"), "--port is 70000"),
        (("--limit", "speed=9"), "is not a limit"),
        (("--kind", ""), "--kind is ''; it must be text"),
        (("--limit", "connections=0"), "limit connections is 0"),
        (("--url", "memory://"), "a queue in memory cannot be served"),
    ],
)
def test_what_cannot_be_is_reported(tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    code, said, complained = run_program("serve", *options, cwd=tmp_path)
    assert (code, said, message in complained) == (2, "", True), complained


def test_a_port_that_is_taken_is_reported(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, _, complained = run_program("serve", "--port", str(taken.getsockname()[1]), cwd=tmp_path)
    assert (code, "cannot listen on 127.0.0.1 port" in complained) == (2, True), complained


def test_old_documents_are_purged_while_it_runs(tmp_path: Path) -> None:
    server = Server(tmp_path, "--retention", "100ms")
    try:
        with server.client(server.key("acme")) as client:
            batch = client.post("/v1/batches", json={"documents": [{"payload": 1}]}).json()
            server.finish()
            until(lambda: server.queue.engine.document(batch["documents"][0]["id"]) is None)
            until(lambda: client.get(batch["links"]["self"]).status_code == 404)  # the batch goes with its last document
        assert any(line["event"] == "purged" for line in server.logged())
    finally:
        server.close()


def test_ready_says_why_not(tmp_path: Path) -> None:
    server = Server(tmp_path)
    try:
        with server.client(None) as client:
            assert client.get("/readyz").json() == {"status": "ready", "reasons": []}
            rules = server.queue.rules()
            from dataclasses import replace

            server.queue.engine.configure(replace(rules, frozen="is being moved to elsewhere"))
            answer = client.get("/readyz")
            assert answer.status_code == 503
            reason = "the queue is frozen: it is being moved, or its rules must be set; `fairlane doctor` says which"
            assert answer.json() == {"status": "not ready", "reasons": [reason]}
            with server.client(server.key("acme")) as customer:
                refused = customer.post("/v1/documents", json={})
            assert (refused.status_code, refused.json()["type"]) == (503, "store-busy")
            assert "elsewhere" not in refused.text
    finally:
        server.close()


def test_without_its_packages_it_says_what_to_install(tmp_path: Path) -> None:
    hidden = "import sys; sys.modules['uvicorn'] = None; from fairlane.cli import main; main(['serve'])"
    ran = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert ran.returncode == 2
    assert "pip install '.[serve]'" in ran.stderr


def test_other_commands_do_not_load_the_framework(tmp_path: Path) -> None:
    script = "import sys; import fairlane.cli; print([one for one in ('fastapi', 'uvicorn', 'pydantic') if one in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def test_several_servers_share_a_queue(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    first = Server(tmp_path / "one")
    command = [*COMMAND, "serve", "--port", "0", "--no-work", "--json", "--url", first.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as other:
        try:
            assert other.stdout is not None
            address = json.loads(other.stdout.readline())["address"]
            with first.client(first.key("acme")) as client, Queue(first.url) as queue:
                id = client.post("/v1/documents", json={}).json()["id"]
                assert client.get(f"{address}/v1/documents/{id}").json()["state"] == "ready"
                assert queue.document(id).customer == "acme"
        finally:
            other.terminate()
            first.close()
