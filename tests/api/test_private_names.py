"""Customers never learn where the store is: no URL, host, path or name of a worker in any response."""

from __future__ import annotations

import logging
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from fairlane.api.problems import problem_of
from fairlane.core.errors import StoreBusy, StoreError, StoreFrozen, StoreFull, StoreUnfit, StoreUnreachable
from tests.cli.running import run
from tests.conftest import missing, need_program

from .receivers import serving
from .running import problem_of as type_of
from .running import until
from .test_events import at_least, watching

STORE = "postgresql://fairlane@db.internal:5432/queue"
WORKER = "host-7-worker"
FILL = 'mount -t tmpfs -o size=1m none "$0" && exec "$@"'  # a small disk of its own


def everything_said(client: httpx.Client, ids: list[str]) -> str:
    """What a customer gets from every address that concerns documents, bodies and headers."""
    calls = [
        ("GET", f"/v1/documents/{id}{part}")
        for id in ids
        for part in ("", "/explain", "/history", "/steps", "/parts", "/result", "/text", "/file")
    ]
    calls += [("GET", f"/page/documents/{id}") for id in ids]
    calls += [
        ("GET", path)
        for path in (
            "/page/documents",
            "/page/rules",
            "/v1/documents",
            "/v1/me",
            "/v1/webhook",
            "/v1/batches/unknown",
            "/readyz",
            "/",
        )
    ]
    calls += [("POST", path) for path in ("/v1/documents", "/v1/checks", f"/v1/documents/{ids[0]}/retry")]
    calls += [("DELETE", f"/v1/documents/{ids[0]}"), ("POST", "/v1/workers/x/drain"), ("GET", "/v1/workers")]
    answers = [client.request(method, path, json={} if method == "POST" else None) for method, path in calls]
    return "\n".join(f"{answer.request.url} {answer.status_code} {answer.headers} {answer.text}" for answer in answers)


def test_a_queue_that_was_moved_does_not_say_where(tmp_path: Path) -> None:
    with serving(tmp_path) as server, server.client(server.key("acme")) as client:
        ids = [receipt.id for receipt in server.queue.submit_many("acme", [1, 2, 3])]
        server.queue.engine.claim(WORKER, 1, 600_000)
        for reason in ("is being moved to", "was moved to"):
            server.queue.engine.configure(replace(server.queue.rules(), frozen=f"{reason} {STORE}: use that one"))
            said = everything_said(client, ids)
            assert "the queue is being moved to another store" in said  # it was looked at
            assert "It is running on a worker" in said
            assert [word for word in ("db.internal", "postgresql:", WORKER, str(tmp_path), "sqlite:") if word in said] == []
        with watching(server, server.key("acme"), 0) as stream:
            events = until(lambda: at_least(stream, 4))  # three submissions and a start
            assert "started" in str(events)
            assert WORKER not in str(events)
        with server.client(server.operator) as operator:
            assert "db.internal" in operator.get(f"/v1/documents/{ids[1]}/explain").text


@pytest.fixture
def full(tmp_path: Path) -> tuple[Path, tuple[str, ...]]:
    """A folder that will be a disk of 1 MB, and what makes it one for a program."""
    unshare = [need_program("unshare"), "--mount", "--map-root-user"]
    if subprocess.run([*unshare, "true"], check=False, capture_output=True).returncode:
        missing("this system does not allow a private mount, so a full disk cannot be made")
    disk = tmp_path / "disk"
    disk.mkdir()
    return disk, (*unshare, "sh", "-c", FILL, str(disk))


def test_a_full_disk_is_named_in_the_log_only(tmp_path: Path, full: tuple[Path, tuple[str, ...]]) -> None:
    disk, prefix = full
    with serving(tmp_path, "--blobs", f"{disk}/files", prefix=prefix) as server, server.client(server.key("acme")) as client:
        answer = client.post("/v1/documents", content=bytes(2_000_000), headers={"Content-Type": "application/octet-stream"})
        assert (answer.status_code, type_of(answer)) == (507, "store-full")
        assert str(tmp_path) not in answer.text + str(answer.headers)
        failed = until(lambda: [line for line in server.logged() if line["event"] == "store failed"])
        assert f"no room left to write in {disk}/files" in failed[0]["told"]


def test_a_place_for_files_that_can_be_none_is_refused_at_start(tmp_path: Path) -> None:
    handlers, hook = list(logging.getLogger().handlers), sys.excepthook
    result = run("serve", "--port", "0", "--url", f"sqlite:///{tmp_path}/queue.db", "--blobs", "ftp://files.internal/x")
    assert (result.exit_code, "it must be a folder" in result.stderr, list(tmp_path.iterdir())) == (2, True, [])
    assert (logging.getLogger().handlers, sys.excepthook) == (
        handlers,
        hook,
    )  # the log of a service that did not start is closed


@pytest.mark.parametrize("kind", [StoreError, StoreBusy, StoreFull, StoreFrozen, StoreUnfit, StoreUnreachable])
def test_no_error_of_a_store_says_where_it_is(kind: type[StoreError]) -> None:
    problem = problem_of(kind(f"at {STORE} something is wrong with /srv/files"))
    assert problem.status in (503, 507)
    assert not any(word in problem.detail for word in ("db.internal", "/srv"))
