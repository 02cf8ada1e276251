"""Queues of older schema versions: upgraded with everything in them, also while programs of the older version use them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import psycopg
import pytest

from fairlane.core.document import Claim, Done, Failed, Submission
from fairlane.core.errors import StoreBusy, StoreFrozen
from fairlane.core.policy import Rules
from fairlane.engine import open_engine
from fairlane.engine.codec import encode_rules
from fairlane.engine.postgres import migrate
from fairlane.engine.postgres.queries import SCHEMA, SCHEMA_VERSIONS, in_schema, queries
from tests.servers import postgres
from tests.servers.postgres import open_postgres

OLD = range(1, len(SCHEMA_VERSIONS))
ROWS_VERSION_MAX = 4  # the rows are those of a version up to this one
# Ada has sent six documents: one has ended, one runs, three wait in lanes, one has arrived. Bob's is delayed, Eve is paused.
ROWS = """
INSERT INTO other.rules VALUES (1, 0, '{rules}');
INSERT INTO other.queue (dispatches, last_change, last_record, tunings, clocks, ready, lanes, rules_version, interval_ms,
  depths, reset, dispatch, open_turn_every)
VALUES (17, 9, 4, 1, '{{2000,0,0,0,0,0,0,0,0}}', '{{3,1,0,0,0,0,0,0,0}}', '{{3,1,0,0,0,0,0,0,0}}', 1, 1500000,
  '{{2000,4000,6000,8000,10000,12000,14000,20000}}', 'idle', 'fair', 16);
INSERT INTO other.customers (id, counter, updated_ms, reset_ms, resets, terms_version, paused)
VALUES ('ada', -5000, 1000, 1000, 1, 0, false), ('bob', 0, 1000, 1000, 1, 0, false), ('eve', 0, 1000, 1000, 1, 1, true);
INSERT INTO other.terms VALUES (3, 1, 1000, '{{"paused": true}}');
INSERT INTO other.documents (number, customer, counter, checked_ms, resets, policy_version, terms_version, weight, priority, id,
  kind, payload)
SELECT n, c, 0, 1000, 1, 1, 0, 1000, p, 'd' || n, k, '{{}}'
FROM (VALUES (1, 1, 1, 'extract'), (2, 1, 1, 'extract'), (3, 1, 1, 'extract'),
  (4, 1, 2, 'extract'), (5, 1, 1, 'scan'), (6, 1, 3, 'extract'), (7, 2, 1, 'extract'), (8, 3, 1, 'extract')) AS v (n, c, p, k);
SELECT setval('other.numbers', 8);
INSERT INTO other.endings VALUES (1, 1500, 1000, 1000, 1, 1, 3, 'done', 'w', NULL, '1');
INSERT INTO other.work (number, customer, ready_ms, lease_ms, cost, token, attempts, priority, state, id, kind, worker)
VALUES (2, 1, 1000, 2000, 1000, 1, 1, 1, 'running', 'd2', 'extract', 'w'),
  (3, 1, 1000, NULL, 1000, 0, 0, 1, 'ready', 'd3', 'extract', NULL),
  (4, 1, 1000, NULL, 1000, 0, 0, 2, 'ready', 'd4', 'extract', NULL),
  (5, 1, 900, NULL, 1000, 0, 0, 1, 'ready', 'd5', 'scan', NULL),
  (7, 2, 5000, NULL, 1000, 0, 0, 1, 'delayed', 'd7', 'extract', NULL),
  (8, 3, 1000, NULL, 1000, 0, 0, 1, 'ready', 'd8', 'extract', NULL);
INSERT INTO other.arrivals VALUES (6, 1000, 1000, 'ready', NULL);
INSERT INTO other.lanes (customer, head, ready_ms, start, finish, waiting, running, done, failed, cancelled, priority, kind)
VALUES (1, 3, 1000, 3000, 3000, 1, 1, 1, 0, 0, 1, 'extract'), (1, 4, 1000, 0, 0, 1, 0, 0, 0, 0, 2, 'extract'),
  (1, 5, 900, 2000, 0, 1, 0, 0, 0, 0, 1, 'scan'), (2, NULL, NULL, NULL, 0, 1, 0, 0, 0, 0, 1, 'extract'),
  (3, 8, 1000, NULL, 0, 1, 0, 0, 0, 0, 1, 'extract');
INSERT INTO other.changes SELECT n, 1000, 1, 1, 0, 'submitted', NULL FROM generate_series(1, 9) AS n;
INSERT INTO other.records VALUES ('group', 'key', 'value', 4);
"""


@pytest.fixture
def url() -> Iterator[str]:
    server = postgres.shared()
    yield f"{server.url}?schema=other"
    postgres.close_engines()
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS other CASCADE")


def make_old_queue(version: int) -> None:
    """Make a queue as that version left it, with a function that is gone since."""
    with psycopg.connect(postgres.shared().url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA other")
        for script in SCHEMA_VERSIONS[: min(version, ROWS_VERSION_MAX)]:
            connection.execute(in_schema(script, "other"))
        connection.execute(ROWS.format(rules=encode_rules(Rules())))
        for script in SCHEMA_VERSIONS[ROWS_VERSION_MAX:version]:
            connection.execute(in_schema(script, "other"))
        connection.execute("CREATE FUNCTION other.tidy(lanes other.lanes[]) RETURNS void LANGUAGE sql AS ''")
        connection.execute(queries("other").write_schema_version, (version,))


@pytest.mark.parametrize("version", OLD)
def test_a_queue_of_an_older_version_is_upgraded_with_its_documents(url: str, version: int) -> None:
    make_old_queue(version)
    engine = open_postgres(url)
    ada = engine.customer("ada", now_ms=1000)
    assert ada.standing == (-5000, 1000, 1, ())
    assert (ada.documents, ada.bytes, ada.limits) == (6, 6 * len("{}") + len("1"), Rules().limits)
    assert [(claim.id, claim.turn) for claim in engine.claim("w", 9, 1000, now_ms=4000)] == [
        ("d3", 18), ("d5", 19), ("d4", 20), ("d6", 21),
    ]  # fmt: skip
    (taken,) = engine.take_over([("d3", 1)], "other", 1000, now_ms=4000)
    assert taken is not None
    assert (taken.token, taken.payload, taken.lease_ms) == (2, "{}", 5000)
    assert engine.reclaim(9, now_ms=4000) == 1
    assert [claim.id for claim in engine.claim("w", 9, 1000, {"extract": 3}, now_ms=5000)] == ["d7", "d2"]
    assert engine.put_record("group", "key", "new", 4) == 5
    assert engine.changes(8, 99)[1].number == 10
    with psycopg.connect(postgres.shared().url) as connection:
        assert connection.execute("SELECT version, to_regproc('other.tidy') FROM other.version").fetchone() == (
            SCHEMA.mark,
            None,
        )


def test_lanes_keep_their_finish_tags_and_start_level_between_kinds(url: str) -> None:
    make_old_queue(6)
    engine = open_postgres(url)
    with psycopg.connect(postgres.shared().url) as connection:
        lanes = connection.execute(
            "SELECT kind, priority, start, finish, cross_tag, cross_finish FROM other.lanes WHERE start IS NOT NULL "
            "ORDER BY head"
        ).fetchall()
        kinds = connection.execute(
            "SELECT kind, clocks[1:2], first_head, oldest_head FROM other.kinds ORDER BY kind"
        ).fetchall()
        queue = connection.execute(
            "SELECT last_change, last_record, clocks[1], ready[1], lanes[1], frozen FROM other.queue"
        ).fetchall()
    assert lanes == [("extract", 1, 3000, 3000, 0, 0), ("extract", 2, 0, 0, 0, 0), ("scan", 1, 2000, 0, 0, 0),
                     ("extract", 3, 0, 0, 0, 0)]  # fmt: skip
    assert kinds == [("extract", [2000, 0], 3, 3), ("scan", [2000, 0], 5, 5)]  # no lane is behind its clock
    assert queue == [(10, 4, 0, 3, 3, None)]  # what had arrived is in the feed now
    assert engine.ready_kinds("", 9) == [("extract", 1000), ("scan", 900)]


def test_what_an_older_version_has_claimed_is_not_trued_up(url: str) -> None:
    make_old_queue(6)
    engine = open_postgres(url)
    document = engine.document("d2")
    assert document is not None
    assert (document.state, document.claimed_ms, document.priority, document.check.priority) == ("running", None, 1, 1)
    before = engine.pack('["lanes", null]', 99).lanes
    claim = Claim("d2", 1, 2, "ada", "extract", 1, "{}", 1, 3, 2000, 0, False)
    assert engine.settle([(claim, Failed("no"))], now_ms=9_000_000) == []
    assert engine.pack('["lanes", null]', 99).lanes == before
    assert (engine.customer("ada").usual, engine.customer("ada").failed) == (None, 1)


def test_rules_whose_reset_is_gone_hold_the_queue_up_until_another_is_chosen(url: str) -> None:
    make_old_queue(6)
    with psycopg.connect(postgres.shared().url) as connection:
        connection.execute("UPDATE other.counters SET reset = 'window'")
        connection.execute("UPDATE other.rules SET body = replace(body, '\"idle\"', '\"window\"')")
    engine = open_postgres(url)
    rules = engine.rules()
    assert rules.policy.reset == "sliding"
    with pytest.raises(StoreFrozen, match="reset = window, which is gone: `fairlane policy --reset sliding`"):
        engine.submit([Submission("new", "ada", "extract", "{}")], now_ms=4000)
    assert rules.frozen is not None
    engine.configure(replace(rules, frozen=None))
    assert engine.submit([Submission("new", "ada", "extract", "{}")], now_ms=4000)[0].check.counter == -6


def test_an_upgrade_that_must_wait_for_a_session_gives_up_and_changes_nothing(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_old_queue(2)
    monkeypatch.setattr(migrate, "WAIT_SECONDS", 0.1)
    with psycopg.connect(postgres.shared().url) as holder:
        holder.execute("SELECT FROM other.customers")
        with pytest.raises(StoreBusy, match=r"not upgraded.*; end the session that is idle in transaction"):
            open_engine(url)
        assert holder.execute("SELECT version FROM other.version").fetchone() == (2,)
    assert len(open_postgres(url).claim("w", 2, 1000)) == 2


def test_an_upgraded_queue_takes_documents_and_ends_them(url: str) -> None:
    make_old_queue(2)
    engine = open_postgres(url)
    engine.submit([Submission("new", "ada", "extract", "{}")], now_ms=4000)
    claims = engine.claim("w", 9, 1000, now_ms=4000)
    assert claims[-1].id == "new"
    assert engine.settle([(claim, Done()) for claim in claims], now_ms=4000) == []
    assert engine.customer("ada", now_ms=4000)[4:8] == (0, 1, 6, 0)
