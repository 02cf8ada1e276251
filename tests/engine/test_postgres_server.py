"""What only a PostgreSQL server can show: refusals, migrations, connections, error messages."""

from __future__ import annotations

import builtins
import multiprocessing
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from fairlane.core.document import Submission
from fairlane.core.errors import BadValue, StoreBusy, StoreError, StoreUnfit, Unknown
from fairlane.engine import open_engine
from fairlane.engine.postgres import migrate
from fairlane.engine.postgres.queries import SCHEMA_VERSIONS, queries
from fairlane.engine.postgres.url import parse_url
from fairlane.engine.walk import walk_documents
from tests.servers import postgres
from tests.servers.postgres import backends, open_postgres


def submission(id: str, customer: str = "ada", **fields: Any) -> Submission:
    return Submission(id, customer, "extract", "{}", **fields)


@pytest.fixture
def url() -> str:
    return postgres.empty_queue(postgres.shared())


@pytest.fixture
def other_url() -> Iterator[str]:
    """A schema that nobody made yet."""
    server = postgres.shared()
    yield f"{server.url}?schema=other"
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS other CASCADE")


@pytest.fixture(autouse=True)
def close_all() -> Iterator[None]:
    yield
    postgres.close_engines()


@pytest.mark.parametrize(
    "schema", ["", "Fair", "1a", "a b", 'a"b', "a;drop", "pg_mine", "public", "information_schema", "x" * 41]
)
def test_a_schema_name_that_could_not_be_written_plainly_is_refused(schema: str) -> None:
    with pytest.raises(BadValue, match="schema is"):
        open_engine(f"postgresql://ada:secret@nowhere/db?schema={schema}")


def test_a_url_that_psycopg_does_not_take_is_refused_without_its_password() -> None:
    with pytest.raises(BadValue, match="url is") as raised:
        open_engine("postgresql://ada:secret@nowhere/db?nonsense=1")
    assert "secret" not in str(raised.value)


def test_a_url_is_displayed_without_its_password() -> None:
    url = parse_url("postgres://ada:secret@db.example:6432/queue?schema=two&sslmode=require")
    assert url.display == "db.example:6432/queue, schema two"
    assert (url.schema, "schema=" in url.conninfo, "sslmode=require" in url.conninfo) == ("two", False, True)


def test_without_psycopg_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("psycopg"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name.partition(".")[0])
        return kept(name, *rest)

    for name in [name for name in sys.modules if name.startswith(("psycopg", "fairlane.engine.postgres"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(StoreUnfit, match=r'pip install "\.\[postgres\]"'):
        open_engine("postgresql://nowhere/db")


def test_a_server_that_is_not_there_is_named_with_advice() -> None:
    with pytest.raises(
        StoreError, match=rf"127\.0\.0\.1:{(port := postgres.free_port())}/db, schema fairlane cannot be reached.*host and port"
    ):
        open_engine(f"postgresql://ada@127.0.0.1:{port}/db")


def test_a_database_that_is_not_there_is_named_with_advice() -> None:
    with pytest.raises(StoreError, match='database "nowhere" does not exist; create the database'):
        open_engine(postgres.shared().url.replace("/postgres", "/nowhere"))


def test_a_wrong_user_is_named_with_advice() -> None:
    with pytest.raises(StoreError, match='role "nobody" does not exist; check the user and the password'):
        open_engine(postgres.shared().url.replace("fairlane@", "nobody:secret@"))


def test_a_wrong_password_is_reported_without_showing_it() -> None:
    server = postgres.shared()
    rules = server.folder / "data" / "pg_hba.conf"
    before = rules.read_text()
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE ROLE locked LOGIN PASSWORD 'right'")
        rules.write_text("host all locked 127.0.0.1/32 scram-sha-256\n" + before)
        connection.execute("SELECT pg_reload_conf()")
        try:
            with pytest.raises(StoreError, match=r"password authentication failed.*check the user and the password") as raised:
                open_engine(server.url.replace("fairlane@", "locked:wrong@"))
            assert "wrong" not in str(raised.value)
        finally:
            rules.write_text(before)
            connection.execute("SELECT pg_reload_conf()")
            connection.execute("DROP ROLE locked")


def test_a_role_that_may_not_make_the_schema_learns_what_to_grant(other_url: str) -> None:
    server = postgres.shared()
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE ROLE guest LOGIN")
        try:
            with pytest.raises(StoreUnfit, match="GRANT CREATE ON DATABASE"):
                open_engine(other_url.replace("fairlane@", "guest@"))
        finally:
            connection.execute("DROP ROLE guest")


def test_an_old_server_another_encoding_and_a_standby_are_refused() -> None:
    url = parse_url("postgresql://db/queue")
    with pytest.raises(StoreUnfit, match=r"runs PostgreSQL 13\.4; Fairlane needs 14 or newer"):
        migrate.refuse_unfit(url, 130004, "13.4", "UTF8", False)
    with pytest.raises(StoreUnfit, match="encoded in LATIN1; make one with: createdb --encoding UTF8"):
        migrate.refuse_unfit(url, 150000, "15", "LATIN1", False)
    with pytest.raises(StoreUnfit, match="is a standby"):
        migrate.refuse_unfit(url, 150000, "15", "UTF8", True)
    migrate.refuse_unfit(url, 140000, "14", "UTF8", False)


@pytest.mark.parametrize(
    ("fsync", "commit", "pages", "start"),
    [("on", "on", "on", "durable"), ("on", "local", "on", "durable"), ("on", "remote_apply", "on", "durable"),
     ("on", "off", "on", "not durable"), ("off", "on", "on", "not durable"), ("on", "on", "off", "not durable")],
)  # fmt: skip
def test_the_engine_says_what_an_acknowledgement_is_worth(fsync: str, commit: str, pages: str, start: str) -> None:
    sentence = migrate.durability_of(fsync, commit, pages)
    assert sentence.startswith(f"{start}: ")
    assert f"fsync={fsync}, synchronous_commit={commit}" in sentence


def test_durability_is_read_from_the_server(url: str) -> None:
    assert open_postgres(url).durability.startswith("not durable: a crash of the server's machine")  # tests run without fsync


def test_a_queue_that_must_be_there_and_is_not_is_not_made(other_url: str) -> None:
    with pytest.raises(Unknown, match="there is no queue at"):
        open_engine(other_url, create=False)
    with psycopg.connect(postgres.shared().url) as connection:
        assert connection.execute("SELECT to_regnamespace('other')").fetchone() == (None,)


def test_a_newer_schema_is_refused(other_url: str) -> None:
    open_engine(other_url).close()
    with psycopg.connect(postgres.shared().url, autocommit=True) as connection:
        connection.execute("UPDATE other.version SET version = %s", (len(SCHEMA_VERSIONS) + 1,))
    with pytest.raises(StoreUnfit, match="made by a newer Fairlane"):
        open_engine(other_url)


def test_migrating_again_changes_nothing_and_needs_no_lock(url: str) -> None:
    engine = open_postgres(url)
    engine.submit([submission("a")])
    with psycopg.connect(postgres.shared().url) as holder:
        holder.execute("SELECT FROM tests.queue_lock FOR UPDATE")
        holder.execute("LOCK TABLE tests.work IN ROW EXCLUSIVE MODE")  # as traffic does
        open_engine(url).close()
    assert engine.document("a") is not None


def open_and_submit(url: str, name: str) -> None:
    engine = open_engine(url)
    engine.submit([submission(name)])
    engine.close()


def test_many_processes_may_make_the_same_schema_at_once(other_url: str) -> None:
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=open_and_submit, args=(other_url, f"d{n}")) for n in range(6)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 6
    assert len(list(walk_documents(open_postgres(other_url)))) == 6


def test_several_queues_share_a_database(url: str, other_url: str) -> None:
    first, second = open_postgres(url), open_postgres(other_url)
    first.submit([submission("a")])
    assert second.claim("w", 5, 1000) == []
    second.submit([submission("a")])
    assert [claim.id for claim in first.claim("w", 5, 1000)] == ["a"]
    assert second.customer("ada").waiting == 1


def test_a_closed_queue_says_so(url: str) -> None:
    engine = open_postgres(url)
    engine.close()
    with pytest.raises(StoreError, match="was closed; open it again"):
        engine.submit([submission("a")])
    with pytest.raises(StoreError, match="was closed; open it again"):
        engine.rules()


def test_a_schema_that_is_gone_says_so(other_url: str) -> None:
    engine = open_postgres(other_url)
    with psycopg.connect(postgres.shared().url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA other CASCADE")
    with pytest.raises(Unknown, match="there is no queue at"):
        engine.submit([submission("a")])


def test_a_forked_child_uses_connections_of_its_own(url: str) -> None:
    engine = open_postgres(url)
    engine.submit([submission("before")])
    parents = backends("%submit%")
    child = os.fork()
    if child == 0:  # pragma: no cover - in the child
        code = 1
        try:
            engine.submit([submission("child")])
            code = 0 if engine.document("before") and backends("%snapshots%") - parents else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    engine.submit([submission("after")])
    assert {document.id for document in walk_documents(engine)} == {"before", "child", "after"}


def test_an_id_that_is_already_there_is_refused_and_nothing_of_the_batch_happens(url: str) -> None:
    engine = open_postgres(url)
    engine.submit([submission("twice")], now_ms=0)
    before = engine.customers("", 10, now_ms=0), engine.changes(None, 100)
    with pytest.raises(StoreError, match="id is used once"):
        engine.submit([submission("fresh"), submission("twice")], now_ms=1)
    with pytest.raises(StoreError, match="id is used once"):
        engine.submit([submission("twice", "bob")], now_ms=1)
    assert (engine.customers("", 10, now_ms=0), engine.changes(None, 100)) == before


def test_a_queue_held_too_long_by_others_is_a_clear_error_and_works_afterwards(url: str) -> None:
    engine = open_postgres(url)
    engine.submit([submission("a")])
    with psycopg.connect(postgres.shared().url) as holder:
        alter = "ALTER FUNCTION tests.claim SET lock_timeout = '{}'"
        holder.execute(alter.format("50ms"))
        holder.commit()
        holder.execute("SELECT FROM tests.queue_lock FOR UPDATE")
        with pytest.raises(StoreBusy, match=r"held the queue at .*idle in transaction"):
            engine.claim("w", 1, 1000)
        holder.rollback()
        holder.execute(alter.format("30s"))
    assert len(engine.claim("w", 1, 1000)) == 1


def test_a_call_that_the_server_undid_is_run_again(url: str) -> None:
    """Two transactions that wait for each other: the server ends ours, and it is run again without a word."""
    engine = open_postgres(url)
    engine.check("ada", 1000)
    with psycopg.connect(postgres.shared().url, autocommit=True) as connection:
        connection.execute("ALTER FUNCTION tests.check_customer SET deadlock_timeout = '20ms'")
        answers: list[object] = []
        try:
            with psycopg.connect(postgres.shared().url) as holder:
                holder.execute("SET deadlock_timeout = '60s'")
                holder.execute("SELECT FROM tests.queue_lock FOR UPDATE")
                caller = threading.Thread(target=lambda: answers.append(engine.check("ada", 1000).counter))
                caller.start()
                waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%check_customer%'"
                while connection.execute(waits).fetchone() == (0,):
                    pass
                holder.execute("SELECT FROM tests.customer_terms WHERE id = 'ada' FOR UPDATE")  # now in a circle: ours is ended
            caller.join()
        finally:
            connection.execute("ALTER FUNCTION tests.check_customer RESET deadlock_timeout")
    assert answers == [-1]


def test_a_dead_connection_is_found_before_anything_is_sent(url: str) -> None:
    engine = open_postgres(url)
    engine.submit([submission("a")])
    with psycopg.connect(postgres.shared().url, autocommit=True) as connection:
        for _ in range(3):
            connection.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND state = 'idle' "
                "AND query LIKE '%submit_one%'"
            )
            engine.submit([submission(f"b{_}")])
            assert engine.document(f"b{_}") is not None


def test_every_statement_says_what_it_does_and_is_used() -> None:
    code = "".join(path.read_text() for path in Path(migrate.__file__).parent.glob("*.py"))
    for name, sentence in queries().sentences.items():
        assert sentence.endswith("."), name
        assert f"sql.{name}" in code, f"{name} is not used"
