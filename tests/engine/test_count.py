"""Documents that an older version stored: what they take is counted step by step, whatever others do between two steps."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import apsw
import psycopg
import pytest

from fairlane.blobs.envelope import BlobDigest, File, results_bytes, wrap_payload, wrap_results
from fairlane.core.document import Done, Failed, Outcome, Submission
from fairlane.core.errors import RetriesSpent
from fairlane.engine import Engine, open_engine
from fairlane.engine.limits import stored_bytes, text_bytes
from fairlane.engine.postgres.queries import queries
from fairlane.engine.protocol import DocumentFilter
from fairlane.engine.redis.connection import RedisPool
from fairlane.engine.redis.url import parse_url
from fairlane.engine.sqlite.count import count_some
from fairlane.engine.sqlite.pool import SqlitePool
from fairlane.engine.walk import walk_documents
from fairlane.queue import json_text
from tests.servers import postgres, redis

from .conftest import ENGINES, url_of

STORES = [name for name in ENGINES if name != "memory"]
SHA256 = 64 * "a"
FILES = {"text": BlobDigest(700, SHA256), "facts": BlobDigest(90, SHA256)}
RESULTS = (None, "3", json_text("result", {"pages": 2, "title": '"fairlane.results":{}', **wrap_results(FILES)}))
NAMES = ("a.pdf", 'the "size": 5, of {it}.zip', "żółw.txt")
CUSTOMERS = ("ada", "bob")

SQLITE = """
UPDATE documents SET bytes = NULL; UPDATE lanes SET documents = NULL, bytes = NULL; UPDATE customers SET busy_most = NULL;
UPDATE queue SET uncounted = last_number;
"""
POSTGRES = """
UPDATE tests.documents SET bytes = NULL; UPDATE tests.endings SET bytes = NULL; UPDATE tests.lanes SET documents = 0, bytes = 0;
UPDATE tests.standings SET busy_most = NULL; UPDATE tests.counters SET uncounted = (SELECT last_value FROM tests.numbers);
"""
REDIS = """
local prefix = string.sub(KEYS[1], 1, -6)
local function rewrite(key, change)
  local entries = redis.call('HGETALL', key)
  for at = 1, #entries, 2 do
    redis.call('HSET', key, entries[at], change(entries[at + 1]))
  end
end
rewrite(prefix .. 'documents:00000000000', function(record)
  local values = {cmsgpack.unpack_limit(record, 16, 0)} -- the offset of the rest, a mark, bytes, 11 more, claimed, paid, id
  values[15] = values[17]
  return cmsgpack.pack(unpack(values, 4, 15)) .. string.sub(record, values[1] + 1)
end)
rewrite(prefix .. 'customers', function(record)
  local id, version, terms, counter, updated, resets = cmsgpack.unpack(string.sub(record, 46))
  return string.sub(record, 2, 26) .. cmsgpack.pack(id, version, terms, counter, updated, updated, resets)
end)
local last_number = struct.unpack('>i7', string.sub(redis.call('GET', KEYS[1]), 2))
redis.call('SET', prefix .. 'uncounted', last_number)
return ''
"""


class Store(NamedTuple):
    """A store with two more things to do: make everything look as an older version left it, and count the next documents."""

    url: str
    engine: Engine
    age: Callable[[], object]
    count: Callable[[int], bool]


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    name = request.param
    url = url_of(name, tmp_path)
    engine = open_engine(url)
    if name == "sqlite":
        sqlite_pool = SqlitePool(tmp_path / "queue.db")
        connection = apsw.Connection(str(tmp_path / "queue.db"))
        yield Store(
            url,
            engine,
            lambda: connection.execute(SQLITE).fetchall(),
            lambda limit: sqlite_pool.write(lambda tx: count_some(tx, limit)),
        )
        sqlite_pool.close()
        connection.close()
    elif name == "postgres":
        with psycopg.connect(postgres.shared().url, autocommit=True) as server:
            statement = queries("tests").count_some
            yield Store(
                url,
                engine,
                lambda: server.execute(POSTGRES),
                lambda limit: server.execute(statement, (limit,)).fetchone() == (True,),
            )
    else:
        redis_pool = RedisPool(parse_url(url))
        yield Store(
            url,
            engine,
            lambda: redis_pool.run_text(REDIS, [""]),
            lambda limit: bool(redis_pool.run("count", [limit], "same")),
        )
        redis_pool.close()
    engine.close()
    redis.drop_url(url)


class Program:
    """Random calls on a store."""

    def __init__(self, engine: Engine, seed: int) -> None:
        self.engine = engine
        self.random = random.Random(seed)
        self.number = 0
        self.now_ms = 0

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.now_ms += 1
            self.random.choice(
                [self.submit, self.submit, self.submit, self.work, self.work, self.retry, self.purge, self.forget]
            )()

    def submit(self) -> None:
        batch = []
        for _ in range(self.random.randint(1, 4)):
            self.number += 1
            payload = json_text("payload", {"text": self.random.choice(("plain", "żółć"))})
            size = self.random.choice((None, 1_234, 5))
            if size is not None:
                payload = wrap_payload(File(self.random.choice(NAMES), size, SHA256), payload)
            customer = self.random.choice(CUSTOMERS)
            batch.append(Submission(f"d{self.number}", customer, "extract", payload, file_bytes=size or 0))
        self.engine.submit(batch, now_ms=self.now_ms)

    def work(self) -> None:
        for claim in self.engine.claim("w", self.random.randint(1, 3), 10_000, now_ms=self.now_ms):
            result = self.random.choice(RESULTS)
            outcomes: list[Outcome] = [
                Done(result, None, results_bytes(json.loads(result)) if result else 0),
                Failed("corrupt"),
            ]
            self.engine.settle([(claim, self.random.choice(outcomes))], now_ms=self.now_ms)

    def retry(self) -> None:
        failed = list(walk_documents(self.engine, DocumentFilter(state="failed")))
        if failed:
            with suppress(RetriesSpent):
                self.engine.retry(self.random.choice(failed).id, as_customer=self.random.random() < 0.7, now_ms=self.now_ms)

    def purge(self) -> None:
        self.engine.purge(20, 2, now_ms=self.now_ms)

    def forget(self) -> None:
        if self.random.random() < 0.2:
            self.engine.forget(self.random.choice(CUSTOMERS), 2, now_ms=self.now_ms)


def assert_counted(engine: Engine) -> None:
    """Assert that the counts of every customer are those of its documents."""
    for customer in engine.customers("", 10):
        documents = list(walk_documents(engine, DocumentFilter(customer=customer.id)))
        for document in documents:
            body = engine.body(document.id)
            assert body is not None
            assert document.bytes == stored_bytes(body.payload, body.result)
        assert (customer.documents, customer.bytes) == (len(documents), sum(document.bytes for document in documents))


@pytest.mark.parametrize("seed", range(8))
def test_counting_ends_with_what_is_there_whatever_happens_between_two_steps(store: Store, seed: int) -> None:
    program = Program(store.engine, seed)
    program.run(30)
    assert_counted(store.engine)
    store.age()
    assert all((customer.documents, customer.bytes) == (0, 0) for customer in store.engine.customers("", 10))
    while store.count(2):
        program.run(2)
    program.run(10)
    assert_counted(store.engine)
    assert not store.count(1)  # there is nothing left to count


def test_whoever_opens_an_older_store_counts_it(store: Store) -> None:
    Program(store.engine, 1).run(30)
    store.age()
    open_engine(store.url).close()
    assert_counted(store.engine)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("result", RESULTS)
def test_the_bytes_of_a_stored_document_are_those_that_were_counted_when_it_came(name: str, result: str | None) -> None:
    payload = wrap_payload(File(name, 1_234, SHA256), '{"size": 7}')
    files = results_bytes(json.loads(result)) if result else 0
    assert stored_bytes(payload, result) == text_bytes(payload) + 1_234 + text_bytes(result) + files
