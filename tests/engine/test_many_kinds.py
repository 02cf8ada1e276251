"""Thousands of kinds: a claim of all kinds, or of a list of them, works in proportion to its batch and its list.

What is counted: calls of Python functions on the memory engine and on SQLite (a statement is one), buffers on PostgreSQL,
commands on Redis and Valkey.
"""

from __future__ import annotations

import cProfile
import itertools
import pstats
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest

from fairlane.core.document import Submission
from fairlane.core.policy import Policy, Rules
from fairlane.engine import Engine, open_engine
from fairlane.engine.postgres.queries import queries
from tests.servers import postgres, redis

from .conftest import ENGINES, url_of

FEW, MANY = 60, 3000
BATCH = 20  # so that at least one of its turns is open
LIST = {f"kind-{number:04d}": 3 for number in range(50)}


class Filled(NamedTuple):
    """A queue of an engine with that many kinds, two documents of each."""

    name: str
    url: str
    engine: Engine
    schema: str


@pytest.fixture(params=ENGINES)
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Filled, Filled]]:
    filled = []
    for index, kinds in enumerate((FEW, MANY)):
        (folder := tmp_path / str(kinds)).mkdir()
        url = url_of(request.param, folder, index)
        engine = open_engine(url)
        engine.configure(Rules(Policy(thresholds=())), now_ms=0)
        for document in range(2):
            batch = [Submission(f"{document}-{kind}", f"c{kind % 7}", f"kind-{kind:04d}", "{}") for kind in range(kinds)]
            engine.submit(batch, now_ms=document)
        filled.append(Filled(request.param, url, engine, f"tests{index or ''}"))
    few, many = filled
    yield few, many
    for queue in filled:
        queue.engine.close()
        redis.drop_url(queue.url)


def count_work(queue: Filled, kinds: dict[str, int] | None) -> int:
    """Claim a batch and return how much work it was."""
    if queue.name == "postgres":
        return count_buffers(queue, kinds)
    if queue.name in redis.PRODUCTS:
        with redis.shared(queue.name).client() as client:
            before = count_commands(client.info("commandstats"))
            claim(queue, kinds)
            return count_commands(client.info("commandstats")) - before
    with cProfile.Profile() as profile:
        claim(queue, kinds)
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]


def claim(queue: Filled, kinds: dict[str, int] | None) -> None:
    assert len(queue.engine.claim("w", BATCH, 1000, kinds, now_ms=10)) == BATCH


def count_commands(stats: dict[str, dict[str, int]]) -> int:
    return sum(stat["calls"] for stat in stats.values())


def count_buffers(queue: Filled, kinds: dict[str, int] | None) -> int:
    parameters = ("w", BATCH, 1000, *((None, None) if kinds is None else (list(kinds), list(kinds.values()))), 1000, 10)
    with psycopg.connect(postgres.shared().url) as connection:
        explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {queries(queue.schema).claim}"
        for _ in range(2):  # once so that plans are made
            row = connection.execute(explain, parameters).fetchone()
            connection.rollback()
    assert row is not None
    return int(row[0][0]["Plan"]["Shared Hit Blocks"] + row[0][0]["Plan"]["Shared Read Blocks"])


@pytest.mark.parametrize("kinds", [None, LIST], ids=["all kinds", "a list"])
def test_the_work_of_a_claim_does_not_grow_with_the_kinds_that_wait(
    both: tuple[Filled, Filled], kinds: dict[str, int] | None
) -> None:
    few, many = both
    for queue in both:
        count_work(queue, kinds)  # what is made once
    counts = count_work(few, kinds), count_work(many, kinds)
    assert counts[1] <= 1.6 * counts[0] + 100


def test_a_list_of_kinds_takes_a_few_reads_for_each(both: tuple[Filled, Filled]) -> None:
    """Not a batch for each. (The memory engine looks at the first head of each kind for every turn.)"""
    _, many = both
    each = 5 * BATCH if many.name == "memory" else 20
    warm, short, long = ({f"kind-{number:04d}": 3 for number in part} for part in (range(20), range(100, 120), range(200, 400)))
    count_work(many, warm)  # what is made once
    counts = count_work(many, short), count_work(many, long)
    assert counts[1] <= counts[0] + 180 * each


@pytest.mark.parametrize("both", ["postgres"], indirect=True)
def test_statistics_of_an_empty_table_do_not_make_a_claim_read_the_lanes_of_all_kinds(both: tuple[Filled, Filled]) -> None:
    """They are gathered while the first documents are on their way, and believed until the next time."""
    _, many = both
    table = f"{many.schema}.lanes"
    indexes = "SELECT indexrelid FROM pg_index WHERE indrelid = %s::regclass"
    counts = {}
    for pages, rows in itertools.product((1, 10, 20, 40, 60, 80, 120), (0, 1)):
        with psycopg.connect(postgres.shared().url) as connection:
            update = "UPDATE pg_class SET relpages = %s, reltuples = %s WHERE oid"
            connection.execute(f"{update} = %s::regclass", (pages, rows, table))
            connection.execute(f"{update} IN ({indexes})", (1, 0, table))
        counts[pages, rows] = count_buffers(many, LIST)
    assert max(counts.values()) <= 1.6 * min(counts.values()) + 100, counts


def test_waiting_for_all_kinds_reads_one(both: tuple[Filled, Filled]) -> None:
    for queue in both:
        assert queue.engine.wait(0.01) is True
