"""A next version of the schema, which exists here only: migrated to under traffic, used by old programs, refused by them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from fairlane import Queue
from fairlane.core.document import Done, Submission
from fairlane.core.errors import StoreUnfit
from fairlane.doctor import findings
from fairlane.engine import Engine, open_engine
from fairlane.engine.postgres import PostgresEngine
from fairlane.engine.postgres import queries as postgres_queries
from fairlane.engine.redis import RedisEngine
from fairlane.engine.redis import scripts as redis_scripts
from fairlane.engine.redis.connection import RedisPool
from fairlane.engine.redis.url import parse_url
from fairlane.engine.schema import Schema
from fairlane.engine.sqlite import SqliteEngine
from fairlane.engine.sqlite import queries as sqlite_queries
from tests.servers import postgres

from .conftest import ENGINES, url_of

ROUNDS_MAX = 3000
STORES = [name for name in ENGINES if name != "memory"]
# Each adds something to every document or customer that is there, as a real version would.
SQLITE = "ALTER TABLE documents ADD COLUMN language TEXT; CREATE TABLE languages (name TEXT PRIMARY KEY);"
POSTGRES = "ALTER TABLE fairlane.documents ADD COLUMN language text; CREATE TABLE fairlane.languages (name text PRIMARY KEY);"
REDIS = """
local prefix = string.sub(KEYS[1], 1, -6)
local from = ARGV[1] == '' and '-' or '(' .. ARGV[1]
local names = redis.call('ZRANGEBYLEX', prefix .. 'names', from, '+', 'LIMIT', 0, 1)
for _, name in ipairs(names) do
  redis.call('HSET', prefix .. 'languages', name, 'en')
end
return names[1] or ''
"""


def next_schema(url: str, keeps_old: bool = True, count: int = 1) -> Schema:
    """The schema of a program `count` versions newer; it lets the present one go on, or not."""
    present, script = {
        "sqlite": (sqlite_queries.SCHEMA, SQLITE),
        "postgresql": (postgres_queries.SCHEMA, POSTGRES),
    }.get(url.partition("://")[0], (redis_scripts.SCHEMA, REDIS))
    later = tuple(script.replace("language", f"language{number or ''}") for number in range(count))
    newer = present._replace(scripts=present.scripts + later)
    return newer._replace(oldest=present.version if keeps_old else newer.version)


def open_newer(url: str, schema: Schema) -> Engine:
    """Open a queue as a newer program does: it knows another schema."""
    if url.startswith("sqlite"):
        return SqliteEngine(Path(url.removeprefix("sqlite:///")), schema=schema)
    return PostgresEngine(url, schema=schema) if url.startswith("postgres") else RedisEngine(url, schema=schema)


def has_new_fields(url: str) -> bool:
    if url.startswith("sqlite"):
        rows = apsw.Connection(url.removeprefix("sqlite:///")).execute("PRAGMA table_info(documents)")
        return "language" in [row[1] for row in rows]
    if url.startswith("postgres"):
        with psycopg.connect(postgres.shared().url) as connection:
            return connection.execute("SELECT to_regclass('upgraded.languages')").fetchone() != (None,)
    return bool(RedisPool(parse_url(url)).execute("HLEN", f"{parse_url(url).prefix}languages"))


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """A schema that no other test uses, since it is not as they expect it afterwards."""
    server = postgres.shared()
    yield f"{server.url}?schema=upgraded"
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS upgraded CASCADE")


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return url_of(request.param, tmp_path)


@contextmanager
def old_program(url: str, name: str) -> Iterator[subprocess.Popen[str]]:
    """A process of the present version that submits, claims and settles."""
    command = [sys.executable, "-m", "tests.engine.upgrade_traffic", url, name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def rounds(process: subprocess.Popen[str], count: int = 0) -> list[dict[str, Any]]:
    """Read that many rounds, or all up to the end, which comes soon."""
    assert process.stdout is not None
    read: list[dict[str, Any]] = []
    while len(read) < (count or ROUNDS_MAX) and (line := process.stdout.readline()):
        read.append(json.loads(line))
    return read


def end(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    """Let a program end what is waiting; return its last rounds."""
    assert process.stdin is not None
    process.stdin.close()
    last = rounds(process)
    assert process.wait(timeout=60) == 0
    return last


def until_refused(engine: Engine) -> None:
    """Use an open store until it is refused: a program looks at least once a second."""
    for _ in repeat(None, 1_000_000):
        engine.rules()


def test_old_programs_go_on_while_the_store_is_migrated_and_afterwards(url: str) -> None:
    open_engine(url).close()
    schema = next_schema(url)
    with old_program(url, "one") as one, old_program(url, "other") as other:
        reported = rounds(one, 10) + rounds(other, 10)
        newer = open_newer(url, schema)  # under traffic
        reported += rounds(one, 10) + rounds(other, 10)
        newer.submit([Submission(f"new-{number}", "new", "extract", "null") for number in range(20)])
        own = [claim.id for claim in newer.claim("newer", 5, 600_000)]
        newer.settle([(claim, Done("1")) for claim in newer.claim("newer", 5, 600_000)])
        assert newer.store_schema() == schema.version == newer.schema
        reported += end(one) + end(other)
    assert not [line for line in reported if "refused" in line]
    accepted = {id for line in reported for id in line["submitted"]} | {f"new-{number}" for number in range(20)}
    changes, after = [], None
    while page := newer.changes(after, 1000):
        changes += page
        after = page[-1].number
    submitted = Counter(change.document for change in changes if change.what == "submitted")
    ended = Counter(change.document for change in changes if change.what == "done")
    assert submitted == Counter(accepted)  # nothing was lost, nothing doubled
    assert ended == Counter(accepted - set(own))  # each ended once; what the new program holds still runs
    assert has_new_fields(url)
    newer.close()


def test_an_old_program_that_starts_on_a_store_that_keeps_it_works(url: str) -> None:
    open_engine(url).close()
    schema = next_schema(url, count=2)
    open_newer(url, schema).close()
    engine = open_engine(url)
    engine.submit([Submission("a", "acme", "extract", "null")])
    (claim,) = engine.claim("old", 5, 1000)
    assert engine.settle([(claim, Done("1"))]) == []
    assert (engine.store_schema(), engine.schema) == (schema.version, schema.version - 2)
    engine.close()
    with Queue(url) as queue:
        examined = {finding.name: finding for finding in findings(queue)}
    assert re.search(rf"\b{schema.version}$", examined["version"].message)
    assert examined["schema"].level == "warning"
    assert examined["schema"].message == (
        f"a newer Fairlane brought the store to version {schema.version}; this one knows up to "
        f"{schema.version - 2} and may go on using it"
    )


def test_a_store_that_is_too_new_is_refused_at_start_and_at_work(url: str) -> None:
    old = open_engine(url)
    old.submit([Submission("a", "acme", "extract", "null")])
    (held,) = old.claim("old", 1, 1000)
    with old_program(url, "working") as working:
        rounds(working, 3)
        schema = next_schema(url, keeps_old=False)
        newer = open_newer(url, schema)
        last = rounds(working)[-1]  # it stops by itself, with a sentence
        sentence = (
            rf"has schema version {schema.version}, made by a newer Fairlane; this one knows up to "
            rf"version {schema.version - 1}: install the newer Fairlane here too, and start this program again"
        )
        assert re.search(sentence, last["refused"])
    with pytest.raises(StoreUnfit, match=sentence):
        until_refused(old)
    for attempt in (
        lambda: old.submit([Submission("b", "acme", "extract", "null")]),
        lambda: old.claim("old", 1, 1000),
        lambda: old.settle([(held, Done("1"))]),
        lambda: open_engine(url),
    ):
        with pytest.raises(StoreUnfit, match=sentence):
            attempt()
    # Nothing is lost: what the old program held is taken over when its lease is over.
    later = newer.now() + 10_000
    assert newer.document("b") is None
    newer.reclaim(100, now_ms=later)
    assert "a" in [claim.id for claim in newer.claim("newer", 1000, 1000, now_ms=later)]
    open_newer(url, next_schema(url, keeps_old=False, count=2)).close()
    with pytest.raises(StoreUnfit, match=rf"knows up to version {schema.version}\b"):  # the next one refuses likewise
        open_newer(url, schema)
    old.close()
    newer.close()


def test_many_programs_that_migrate_at_once_do_it_once(url: str) -> None:
    open_engine(url).close()
    schema = next_schema(url)
    engines: list[Engine] = []
    threads = [threading.Thread(target=lambda: engines.append(open_newer(url, schema))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [engine.store_schema() for engine in engines] == [schema.version] * 6
    for engine in engines:
        engine.close()


def test_behind_a_transaction_that_was_left_open_the_upgrade_waits_and_holds_up_nobody(
    postgres_url: str,
) -> None:
    """An ALTER TABLE that waits makes everybody wait who comes after it."""
    url = postgres_url
    old, schema = open_engine(url), next_schema(url)
    upgraded: list[Engine] = []
    migrating = threading.Thread(target=lambda: upgraded.append(open_newer(url, schema)))
    with psycopg.connect(postgres.shared().url) as holder, psycopg.connect(postgres.shared().url, autocommit=True) as watcher:
        holder.execute("SELECT FROM upgraded.documents LIMIT 1")  # a lock that lasts as long as the transaction
        migrating.start()
        waiting = "SELECT FROM pg_locks WHERE NOT granted AND relation = 'upgraded.documents'::regclass"
        while not watcher.execute(waiting).fetchall():
            pass
        for number in range(200):
            old.submit([Submission(f"d{number}", "acme", "extract", "null")])
        assert not upgraded  # still waiting, and all of that went on
        holder.rollback()
        migrating.join()
    assert upgraded[0].store_schema() == schema.version
    assert len(upgraded[0].claim("new", 1000, 1000)) == 200
    upgraded[0].close()
    old.close()
