"""docs/backup.md: what it shows is run, with the servers' own programs, and the queues that come back are whole."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from pathlib import Path

import psycopg
import pytest

from fairlane import Queue
from tests.conftest import missing
from tests.docs.snippets import snippet
from tests.queue.conftest import bytes_of
from tests.servers import postgres, redis
from tests.terminal import bash

SUBMITTED = [b"one", b"two", b"three"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the two that the page names."""
    for name in ("backup", "srv"):
        (tmp_path / name).mkdir()
    return tmp_path


def commands_in(folder: Path, commands: str) -> str:
    return commands.replace("/backup/", f"{folder}/backup/").replace("/srv", f"{folder}/srv")


def submit(queue: Queue) -> list[str]:
    return [queue.submit("acme", content=content).id for content in SUBMITTED]


def test_a_queue_in_a_file_comes_back_as_another(folder: Path) -> None:
    with Queue(f"sqlite:///{folder}/srv/fairlane.db") as queue:
        ids = submit(queue)
        bash(commands_in(folder, snippet("docs/backup.md", "fairlane backup /backup/monday   ")), folder / "srv")
        with Queue(f"sqlite:///{folder}/srv/restored.db", create=False) as restored:
            assert [bytes_of(restored, id) for id in ids] == SUBMITTED


def test_a_backup_of_every_night_takes_the_place_of_last_weeks(folder: Path) -> None:
    line = snippet("docs/backup.md", "0 3 * * *")
    command = commands_in(folder, line.removeprefix("0 3 * * *").replace("\\%", "%"))  # as cron reads it
    command = command.replace("$(date ", "$(date -d 2026-01-05 ")  # a Monday, also if midnight comes
    (day,) = bash("date -d 2026-01-05 +%a", folder).split()
    with Queue(f"sqlite:///{folder}/srv/fairlane.db") as queue:
        for count in (1, 2):
            queue.submit("acme")
            (folder / "backup" / f"{day}.new").mkdir()  # one that was killed a week ago
            bash(f"sh -c {shlex.quote(command)}", folder)
            assert os.listdir(folder / "backup") == [day]
            assert json.loads((folder / "backup" / day / "manifest.json").read_text())["documents"] == count


def test_a_queue_on_postgresql_comes_back_with_its_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server, files = postgres.shared(), str(folder / "srv/files")
    if not (server.programs / "pg_dump").exists():
        missing(f"there is no pg_dump in {server.programs}")
    monkeypatch.setenv("PATH", f"{server.programs}:{os.environ['PATH']}")

    def run(commands: str) -> None:
        here = commands_in(folder, commands).replace("postgresql://user@host/database", server.url)
        bash(here, folder, FAIRLANE_URL=server.url)

    with Queue(server.url, blobs=files) as queue:
        ids = submit(queue)
    run(snippet("docs/backup.md", "pg_dump "))
    shutil.rmtree(files)
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA fairlane CASCADE")
    run(snippet("docs/backup.md", "pg_restore "))
    with Queue(server.url, create=False, blobs=files) as queue:
        assert [bytes_of(queue, id) for id in ids] == SUBMITTED
        assert [claim.id for claim in queue.engine.claim("w", 5, 60_000)] == ids
        assert queue.submit("acme", {"still": "works"}).counter == -3


def test_a_queue_on_redis_comes_back_with_its_files(folder: Path) -> None:
    options = ("--appendonly", "yes", "--repl-diskless-sync-delay", "0")  # it would wait for more replicas than redis-cli
    server, files = redis.Server("redis", *options, port=redis.free_port()), str(folder / "srv/files")
    url = server.url("invoices")

    def run(commands: str) -> None:
        here = commands_in(folder, commands).replace("redis://host:6379", f"redis://127.0.0.1:{server.port}")
        bash(here, folder, FAIRLANE_URL=url)

    with Queue(url, blobs=files) as queue:
        ids = submit(queue)
    run(snippet("docs/backup.md", "redis-cli "))
    with Queue(url, blobs=files) as queue:
        queue.forget("acme")  # only the backup has it now
    server.kill()
    shutil.copy(folder / "backup/monday.rdb", server.folder / "dump.rdb")
    server.start("--appendonly", "no")
    with server.client() as client:
        client.config_set("appendonly", "yes")
    run(snippet("docs/backup.md", "fairlane restore /backup/monday --blobs"))
    with Queue(url, create=False, blobs=files) as queue:
        assert [bytes_of(queue, id) for id in ids] == SUBMITTED
        assert [claim.id for claim in queue.engine.claim("w", 5, 60_000)] == ids
    server.remove()
