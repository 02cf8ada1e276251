"""What only SQLite can show: file checks, migrations, processes, query plans."""

from __future__ import annotations

import multiprocessing
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import apsw
import pytest

from fairlane.core.document import Done, Submission
from fairlane.core.errors import BadValue, StoreBusy, StoreError, StoreUnfit, Unknown
from fairlane.engine import open_engine
from fairlane.engine.sqlite import errors, file_checks, submit
from fairlane.engine.sqlite.group_commit import PendingOperation
from fairlane.engine.sqlite.migrate import APPLICATION_ID, migrate
from fairlane.engine.sqlite.pool import SqlitePool
from fairlane.engine.sqlite.queries import SCHEMA_VERSIONS, sql
from fairlane.engine.sqlite.transaction import Transaction
from fairlane.engine.walk import walk_documents

MOUNTS = """\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:26 / /mnt/share\\040one rw - nfs4 server:/export rw
31 22 0:27 / /home rw - cifs //server/home rw
32 31 0:28 / /home/local rw - xfs /dev/sdb rw
33 22 0:29 / /mnt/zażółć rw - nfs server:/export rw
"""


def submission(id: str, customer: str = "ada", payload: str = "{}") -> Submission:
    return Submission(id, customer, "extract", payload)


def url(folder: Path) -> str:
    return f"sqlite:///{folder}/queue.db"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/srv/queue.db", "ext4"),
        ("/mnt/share one/queue.db", "nfs4"),
        ("/mnt/share one more/queue.db", "ext4"),
        ("/home/ada/queue.db", "cifs"),
        ("/home/local/queue.db", "xfs"),
        ("/mnt/zażółć/queue.db", "nfs"),
    ],
)
def test_the_disk_under_a_path_is_the_deepest_mount_that_holds_it(path: str, expected: str) -> None:
    assert file_checks.filesystem_type(Path(path), MOUNTS) == expected


def test_a_file_on_a_network_disk_is_refused_with_the_reason(tmp_path: Path) -> None:
    mounts = MOUNTS + f"40 22 0:30 / {tmp_path} rw - nfs4 server:/export rw\n"
    with pytest.raises(StoreUnfit, match=r"network disk \(nfs4\).*use a local disk"):
        file_checks.refuse_unfit(tmp_path / "queue.db", create=True, mounts=mounts)


def test_an_sqlite_that_can_corrupt_a_shared_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreUnfit, match=r"SQLite 3\.51\.2.*pip install --upgrade apsw"):
        file_checks.refuse_unfit(tmp_path / "queue.db", create=True, library="3.51.2")
    file_checks.refuse_unfit(tmp_path / "queue.db", create=True, library="3.51.3")


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nowhere does not exist; create it"):
        open_engine(f"sqlite:///{tmp_path}/nowhere/queue.db")


def test_a_queue_that_must_be_there_and_is_not_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(Unknown, match="there is no queue at"):
        open_engine(url(tmp_path), create=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "wrong", ["sqlite://", "sqlite:///", "sqlite:///:memory:", "mysql://x", "queue.db", "memory", "sqlite:///a/"]
)
def test_a_url_that_names_no_engine_is_refused(wrong: str) -> None:
    with pytest.raises(BadValue, match="url is"):
        open_engine(wrong)


# Ada has sent four documents at priority 1: one is done, one runs, one waits, one is delayed.
OLD_ROWS = (
    f"""
PRAGMA application_id = {APPLICATION_ID};
INSERT INTO rules VALUES (1, 0, '{{"reset_interval": 1500, "thresholds": [-1], "reset": "idle", "dispatch": "fair", """
    """
  "open_turn_every": 16}');
UPDATE queue SET dispatches = 2, last_number = 4, last_change = 8;
UPDATE priorities SET clock = 1000, ready = 1, lanes = 1 WHERE priority = 1;
INSERT INTO customers VALUES (1, 'ada', -3000, 1000, 1000, 1);
INSERT INTO documents SELECT n, 'd' || n, 1, 'ada', 'extract', state, 1, 0, 1000, 1, 0, 1000, 1, 1000, NULL, ready_ms,
  attempts, 3, attempts, 'w', lease_ms, ended_ms, NULL
FROM (SELECT 1 AS n, 'done' AS state, 1000 AS ready_ms, 1 AS attempts, NULL AS lease_ms, 1500 AS ended_ms
  UNION ALL SELECT 2, 'running', 1000, 1, 2000, NULL UNION ALL SELECT 3, 'ready', 1000, 0, NULL, NULL
  UNION ALL SELECT 4, 'delayed', 9000, 0, NULL, NULL);
INSERT INTO payloads SELECT number, '"żółw"' FROM documents;
INSERT INTO results VALUES (1, '{"pages":1,"fairlane.results":{"text":{"size":500,"sha256":"ab"}}}');
INSERT INTO lanes VALUES (1, 0, 'extract', 1, 0, 1000, 3, 2000, 2000, 2, 1, 1, 0, 0),
  (1, 1, 'extract', 1, 3, 1000, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
"""
)


@pytest.mark.parametrize("version", range(1, len(SCHEMA_VERSIONS)))
def test_a_file_of_an_older_version_is_upgraded_with_its_documents(tmp_path: Path, version: int) -> None:
    connection = apsw.Connection(str(tmp_path / "queue.db"))
    for script in (SCHEMA_VERSIONS[0], OLD_ROWS, *SCHEMA_VERSIONS[1:version]):
        connection.execute(script)
    connection.pragma("user_version", version)
    engine = open_engine(url(tmp_path))
    assert connection.pragma("user_version") == len(SCHEMA_VERSIONS)
    customer = engine.customer("ada", now_ms=1000)
    assert (customer.waiting, customer.running, customer.done, customer.counter) == (2, 1, 1, -3)
    assert (customer.documents, customer.bytes) == (4, 4 * len('"żółw"'.encode()) + 66 + 500)
    assert engine.rules().limits.waiting_max == 100_000
    assert engine.reclaim(9, now_ms=3000) == 1
    engine.submit([submission("new")], now_ms=3000)
    claims = engine.claim("w", 9, 1000, now_ms=9000)
    assert [claim.id for claim in claims] == ["d2", "d3", "d4", "new"]
    assert engine.settle([(claim, Done()) for claim in claims], now_ms=9000) == []
    assert len(engine.purge(0, 100, now_ms=10_000).documents) == 5
    assert engine.customer("ada", now_ms=9000).bytes == 0
    engine.close()


def test_a_strict_queue_of_an_older_version_goes_on_by_submission_number(tmp_path: Path) -> None:
    connection = apsw.Connection(str(tmp_path / "queue.db"))
    strict = OLD_ROWS.replace('"dispatch": "fair"', '"dispatch": "strict"')
    for script in (SCHEMA_VERSIONS[0], strict, "UPDATE lanes SET start = 0 WHERE part = 0", *SCHEMA_VERSIONS[1:3]):
        connection.execute(script)
    connection.pragma("user_version", 3)
    engine = open_engine(url(tmp_path))
    engine.submit([Submission("later", "bob", "extract", "1")], now_ms=3000)
    assert [claim.id for claim in engine.claim("w", 2, 1000, now_ms=3000)] == ["d3", "later"]
    engine.close()


def test_a_file_that_is_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    text, other = tmp_path / "text.db", tmp_path / "other.db"
    text.write_text("this is not a database, but it is long enough to be looked at" * 20)
    connection = apsw.Connection(str(other))
    connection.execute("CREATE TABLE cats (name)")
    with pytest.raises(StoreUnfit, match="not an SQLite file"):
        open_engine(f"sqlite:///{text}")
    with pytest.raises(StoreUnfit, match="not a Fairlane queue"):
        open_engine(f"sqlite:///{other}")
    assert text.read_text().startswith("this is not")
    assert connection.pragma("journal_mode") == "delete"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.db", "text.db"]


def test_a_folder_is_refused_as_one(tmp_path: Path) -> None:
    with pytest.raises(StoreUnfit, match="is a folder, not the file of a queue; name a file in it"):
        open_engine(f"sqlite:///{tmp_path}")


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    open_engine(url(tmp_path)).close()
    with apsw.Connection(str(tmp_path / "queue.db")) as connection:
        connection.pragma("user_version", len(SCHEMA_VERSIONS) + 1)
    with pytest.raises(StoreUnfit, match="made by a newer Fairlane"):
        open_engine(url(tmp_path))


def test_a_queue_made_by_another_while_an_empty_file_is_looked_at_is_not_somebody_elses_file(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    connection = apsw.Connection(str(path))
    connection.pragma("journal_mode", "WAL")  # so that the other may write while this one reads
    made: list[str] = []

    def make_meanwhile(_cursor: object, statement: str, _values: object) -> bool:
        if "sqlite_schema" in statement and not made:
            made.append(statement)
            open_engine(url(tmp_path)).close()
        return True

    connection.exec_trace = make_meanwhile
    migrate(connection, path)
    assert made
    assert connection.pragma("user_version") == len(SCHEMA_VERSIONS)


def test_migrating_again_changes_nothing(tmp_path: Path) -> None:
    engine = open_engine(url(tmp_path))
    engine.submit([submission("a")])
    open_engine(url(tmp_path)).close()
    assert engine.document("a") is not None
    engine.close()
    assert open_engine(url(tmp_path)).document("a") is not None


def open_and_submit(folder: str, name: str) -> None:
    engine = open_engine(url(Path(folder)))
    engine.submit([submission(name)])
    engine.close()


def test_many_processes_may_make_the_same_file_at_once(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=open_and_submit, args=(str(tmp_path), f"d{n}")) for n in range(6)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 6
    assert len(list(walk_documents(open_engine(url(tmp_path))))) == 6


def test_a_forked_child_may_use_and_close_the_queue_without_harm_to_its_parent(tmp_path: Path) -> None:
    engine = open_engine(url(tmp_path))
    engine.submit([submission("before")])
    child = os.fork()
    if child == 0:  # pragma: no cover - in the child
        code = 1
        try:
            engine.submit([submission("child")])
            code = 0 if engine.document("before") else 2
            engine.close()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    engine.submit([submission("after")])
    assert {document.id for document in walk_documents(engine)} == {"before", "child", "after"}
    assert {finding.level for finding in engine.diagnose() if finding.name == "pages"} == {"fine"}


def test_a_closed_queue_says_so(tmp_path: Path) -> None:
    engine = open_engine(url(tmp_path))
    engine.close()
    with pytest.raises(StoreError, match="was closed; open it again"):
        engine.submit([submission("a")])
    with pytest.raises(StoreError, match="was closed; open it again"):
        engine.rules()


def test_a_file_held_too_long_by_others_is_a_clear_error_and_works_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errors, "BUSY_SECONDS", 0.05)
    engine = open_engine(url(tmp_path))
    other = apsw.Connection(str(tmp_path / "queue.db"))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusy, match="locked by other processes for more than"):
        engine.submit([submission("a")])
    assert engine.customers("", 10) == []
    other.execute("ROLLBACK")
    engine.submit([submission("a")])


def test_one_callers_fault_in_a_shared_commit_is_its_own(tmp_path: Path) -> None:
    """A submission that the store itself refuses (an id that is already there) fails alone, whoever shares its group."""
    engine = open_engine(url(tmp_path))
    engine.submit([submission("twice")])
    refused: list[str] = []

    def send(thread: int) -> None:
        for n in range(20):
            id = "twice" if n % 5 == 0 else f"{thread}-{n}"
            try:
                engine.submit([submission(id)])
            except StoreError:
                refused.append(id)

    threads = [threading.Thread(target=send, args=(thread,)) for thread in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refused == ["twice"] * 32
    assert engine.customer("ada").waiting == 1 + 8 * 16
    assert engine.customer("ada").counter == -(8 * 16)


def test_a_mistake_found_after_something_was_written_leaves_nothing_behind(tmp_path: Path) -> None:
    engine = open_engine(url(tmp_path))

    def write_then_refuse(tx: Transaction) -> None:
        submit.check(tx, "ada", 1000, 0)
        tx.flush()
        raise BadValue("x", 1, "something else")

    with pytest.raises(BadValue):
        SqlitePool(tmp_path / "queue.db").write(write_then_refuse)
    assert engine.customers("", 10) == []
    assert engine.changes(None, 10) == []


def fail(_: Transaction) -> None:
    raise apsw.IOError("made up")


def test_after_a_disk_error_the_file_is_opened_again(tmp_path: Path) -> None:
    open_engine(url(tmp_path)).close()
    pool = SqlitePool(tmp_path / "queue.db")
    pool.write(lambda tx: tx.execute("CREATE TEMP TABLE of_this_connection (x)").fetchall())
    with pytest.raises(StoreError, match="whether this call took effect is not known"):
        pool.write(fail)
    assert pool.write(lambda tx: tx.execute("SELECT name FROM temp.sqlite_schema").fetchall()) == []


def test_what_fails_for_the_whole_group_is_tried_once_and_every_caller_gets_the_error(tmp_path: Path) -> None:
    """After a failed sync the commit may have happened: nothing of it may be run again."""
    open_engine(url(tmp_path)).close()
    runs: list[str] = []
    group: list[PendingOperation[None]] = [PendingOperation(lambda _: runs.append("innocent")), PendingOperation(fail)]
    SqlitePool(tmp_path / "queue.db").commit(group)
    assert runs == ["innocent"]
    for pending in group:
        with pytest.raises(StoreError, match="whether this call took effect is not known"):
            pending.result()


def test_a_relative_path_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    engine = open_engine("sqlite:///queue.db")
    engine.submit([submission("a")])
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert engine.document("a") is not None
    engine.close()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_closing_while_others_write_ends_them_with_a_clear_error(tmp_path: Path) -> None:
    engine = open_engine(url(tmp_path))
    errors: list[Exception] = []
    begun = threading.Barrier(5)

    def send(thread: int) -> None:
        begun.wait()
        try:
            for n in range(10_000):
                engine.submit([submission(f"{thread}-{n}")])
                engine.document("0-0")
        except Exception as error:  # noqa: BLE001 - the test looks at what it is
            errors.append(error)

    threads = [threading.Thread(target=send, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    begun.wait()
    engine.close()
    for thread in threads:
        thread.join()
    assert [type(error) for error in errors] == [StoreError] * 4
    assert all("was closed; open it again" in str(error) for error in errors)


def test_the_feed_skips_nothing_that_commits_late(tmp_path: Path) -> None:
    engine = open_engine(url(tmp_path))
    done = threading.Event()

    def send(thread: int) -> None:
        own = open_engine(url(tmp_path))
        for n in range(40):
            own.submit([submission(f"{thread}-{n}-{m}") for m in range(3)])
        own.close()

    seen: list[int] = []

    def follow() -> None:
        last = 0
        while True:
            is_last = done.is_set()
            for change in engine.changes(last, 7):
                seen.append(change.number)
                last = change.number
            if is_last and not engine.changes(last, 1):
                return

    follower = threading.Thread(target=follow)
    follower.start()
    threads = [threading.Thread(target=send, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    follower.join()
    assert seen == list(range(1, 4 * 40 * 3 + 1))


def test_wait_wakes_when_another_process_submits(tmp_path: Path) -> None:
    engine = open_engine(url(tmp_path))
    program = f"from tests.engine.test_sqlite_file import open_and_submit; input(); open_and_submit({str(tmp_path)!r}, 'x')"
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, cwd=root) as other:
        woken: list[bool] = []
        waiting = threading.Thread(target=lambda: woken.append(engine.wait(60)))
        waiting.start()
        assert other.stdin is not None
        other.stdin.write(b"\n")
        other.stdin.close()
        waiting.join()
    assert woken == [True]


def test_wait_wakes_when_a_delayed_document_is_due(tmp_path: Path) -> None:
    engine = open_engine(url(tmp_path))
    engine.submit([Submission("a", "ada", "extract", "{}", delay_ms=300)])
    assert engine.wait(60) is True
    assert len(engine.claim("w", 1, 1000)) == 1


def plan(connection: apsw.Connection, statement: str) -> str:
    parameters = (None,) * max(statement.count("?"), 1)
    count = len(set(re.findall(r"\?\d+", statement))) or statement.count("?")
    return "\n".join(row[3] for row in connection.execute("EXPLAIN QUERY PLAN " + statement, parameters[:count]))


COLD = {
    "read_competing_lanes",
    "delete_changes",
    "page_running_documents",
    "read_index_names",
    "pack_clocks",
    "pack_dispatches",
    "level_lanes",
    "drop_floors",
    "fence_queue",
    "fence_documents",
}
STATEMENTS = sorted(name for name in sql.sentences if name not in COLD and name != "data_version")


@pytest.mark.parametrize("name", STATEMENTS)
def test_no_statement_on_a_hot_path_scans_or_sorts(tmp_path: Path, name: str) -> None:
    open_engine(url(tmp_path)).close()
    query_plan = plan(apsw.Connection(str(tmp_path / "queue.db")), getattr(sql, name))
    assert "TEMP B-TREE" not in query_plan
    single = {
        "read_queue",
        "read_uncounted",
        "write_queue",
        "read_priorities",
        "read_oldest_changes",
        "read_rules",
        "read_rules_version",
        "read_queue_and_rules",
    }
    single |= {"read_customers", "read_next_due"}  # one row, nine rows, or one end of an index
    single |= {"kinds_in_turn", "kinds_in_age", "has_any_head"}  # read lazily from one end of an index
    single |= {"read_limited_kinds", "count_running_of_kind"}  # an index of those that have a limit, or run
    assert name in single or not re.search(r"\bSCAN (?!CONSTANT)", query_plan), query_plan


def test_every_statement_says_what_it_does_and_is_used() -> None:
    folder = Path(file_checks.__file__).parent
    code = "".join(path.read_text() for path in folder.glob("*.py"))
    for name, sentence in sql.sentences.items():
        assert sentence.endswith("."), name
        assert f"sql.{name}" in code, f"{name} is not used"


def test_what_ends_is_durable_for_others_at_once(tmp_path: Path) -> None:
    first, second = open_engine(url(tmp_path)), open_engine(url(tmp_path))
    first.submit([submission("a")])
    (claim,) = second.claim("w", 1, 1000)
    assert first.settle([(claim, Done("1"))]) == []
    document = second.document("a")
    assert document is not None
    assert document.state == "done"


def test_the_engine_says_what_an_acknowledgement_is_worth(tmp_path: Path) -> None:
    assert open_engine("memory://").durability.startswith("not durable")
    assert open_engine(url(tmp_path)).durability.startswith("durable")
    pool = SqlitePool(tmp_path / "queue.db")
    assert pool.write(lambda tx: tx.execute(sql.synchronous).fetchone()) == (2,)
    assert pool.write(lambda tx: tx.execute(sql.journal_mode).fetchone()) == ("wal",)
