"""Queues that older versions left on a server: brought to the newest form, with everything that they held.

`redis_form_5.json` is a queue as the last version of form 5 stored it, key by key, and what that version answered about it.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from fairlane.core.document import Claim, Done, Submission
from fairlane.core.errors import StoreFrozen, StoreUnfit
from fairlane.core.policy import KindLimit, Policy, Rules
from fairlane.engine import Engine, open_engine
from fairlane.engine.redis.connection import RedisPool
from fairlane.engine.redis.scripts import SCHEMA
from fairlane.engine.redis.url import parse_url
from fairlane.engine.schema import Schema
from fairlane.engine.walk import walk_documents
from tests.servers import redis
from tests.servers.redis import Server, fresh_queue

STORED = json.loads((Path(__file__).parent / "redis_form_5.json").read_text(encoding="utf-8"))
ANSWERS: dict[str, Any] = STORED["answers"]
AT = 30  # milliseconds: just after the older version had stopped
TO_FORM_4 = """
local prefix, stored = string.sub(KEYS[1], 1, -6), redis.call('GET', KEYS[1])
local function rewrite(key, change)
  local entries = redis.call('HGETALL', key)
  for at = 1, #entries, 2 do
    redis.call('HSET', key, entries[at], change(entries[at + 1]))
  end
end
rewrite(prefix .. 'documents:00000000000', function(record) -- without its bytes
  local rest = cmsgpack.unpack_limit(record, 1, 0)
  return string.sub(record, rest + 1)
end)
rewrite(prefix .. 'customers', function(record) -- without layout, documents and bytes
  return string.sub(record, 2, 26) .. string.sub(record, 39)
end)
local rules = {cmsgpack.unpack(string.sub(stored, 268))}
for _ = 1, 5 do
  table.remove(rules, 7) -- the limits
end
redis.call('SET', KEYS[1], string.char(4) .. string.sub(stored, 2, 267) .. cmsgpack.pack(unpack(rules)))
"""
SET_RULES = """
local stored = redis.call('GET', KEYS[1])
local rules = {cmsgpack.unpack(string.sub(stored, 268))}
rules[3], rules[4] = ARGV[1], ARGV[2]
redis.call('SET', KEYS[1], string.sub(stored, 1, 267) .. cmsgpack.pack(unpack(rules)))
local text = redis.call('HGET', string.sub(KEYS[1], 1, -6) .. 'rules', rules[1])
text = string.gsub(string.gsub(text, '"idle"', '"' .. ARGV[1] .. '"'), '"fair"', '"' .. ARGV[2] .. '"')
redis.call('HSET', string.sub(KEYS[1], 1, -6) .. 'rules', rules[1], text)
if ARGV[2] == 'strict' then -- start tags are 0
  local prefix = string.sub(KEYS[1], 1, -6)
  for _, pattern in ipairs({'turns:*', 'firsts:[1-9]'}) do
    for _, key in ipairs(redis.call('KEYS', string.gsub(prefix, '[{}]', '?') .. pattern)) do
      for _, member in ipairs(redis.call('ZRANGE', key, 0, -1)) do
        redis.call('ZADD', key, 0, member)
      end
    end
  end
  local lanes = redis.call('HGETALL', prefix .. 'lanes')
  for at = 1, #lanes, 2 do
    local head, ready, start, finish = cmsgpack.unpack(lanes[at + 1])
    redis.call('HSET', prefix .. 'lanes', lanes[at], cmsgpack.pack(head, ready, start and 0, finish))
  end
end
"""


class StoredQueue:
    """A queue of form 5 on a server."""

    def __init__(self, server: Server) -> None:
        self.name = fresh_queue()
        self.url = server.url(self.name)
        self.client = Redis(unix_socket_path=str(server.socket))
        for name, (type, values) in STORED["keys"].items():
            self._restore(self.key(name), type, values)

    def key(self, name: str) -> str:
        return f"{{fairlane:{self.name}}}:{name}"

    def _restore(self, key: str, type: str, values: Any) -> None:
        if type == "string":
            self.client.set(key, b64decode(values))
        elif type == "hash":
            self.client.hset(key, mapping={b64decode(field): b64decode(value) for field, value in values})
        elif type == "set":
            self.client.sadd(key, *map(b64decode, values))
        elif type == "zset":
            self.client.zadd(key, {b64decode(member): score for member, score in values})
        else:
            self.client.rpush(key, *map(b64decode, values))

    def age(self, form: int) -> None:
        """Make it one of an even older form."""
        if form < 5:
            self.client.eval(TO_FORM_4, 1, self.key("queue"))
        if form == 3:
            self.client.delete(*(self.key(f"firsts:{priority}") for priority in range(10)))
            self.client.setrange(self.key("queue"), 0, chr(3))

    def set_rules(self, reset: str, dispatch: str) -> None:
        self.client.eval(SET_RULES, 1, self.key("queue"), reset, dispatch)


@pytest.fixture(params=redis.PRODUCTS)
def older(request: pytest.FixtureRequest) -> Iterator[StoredQueue]:
    server = redis.shared(request.param)
    older = StoredQueue(server)
    yield older
    older.client.close()
    redis.drop(server, older.name)


def running() -> list[Claim]:
    return [Claim(*claim) for claim in ANSWERS["running"]]


def read(engine: Engine) -> dict[str, Any]:
    """Everything that an older version could say about a queue."""
    return {
        "documents": [
            [
                each.id, each.number, each.customer, each.kind, each.state, each.priority, each.check.counter_thousandths,
                each.cost, each.ready_ms, each.attempts, each.token, each.lease_ms, each.bytes,
            ]
            for each in walk_documents(engine)
        ],
        "customers": [
            [
                each.id, each.standing.counter, each.standing.updated_ms, each.standing.resets, each.waiting, each.running,
                each.done, each.failed, each.cancelled, each.documents, each.bytes,
            ]
            for each in engine.customers("", 100, now_ms=AT)
        ],
        "changes": [
            [each.number, each.at_ms, each.what, each.customer, each.document, each.token]
            for each in engine.changes(None, 1000)
        ],
    }  # fmt: skip


@pytest.mark.parametrize("form", [3, 4, 5])
def test_everything_is_there_after_the_upgrade(older: StoredQueue, form: int) -> None:
    older.age(form)
    engine = open_engine(older.url)
    assert read(engine) == {name: ANSWERS[name] for name in ("documents", "customers", "changes")}
    assert (engine.store_schema(), older.client.get(older.key("oldest"))) == (7, b"7")
    assert engine.rules().turns == "time"
    assert not older.client.exists(older.key("uncounted"))
    assert engine.wait(0.01)
    engine.close()


@pytest.mark.parametrize("form", [3, 4, 5])
def test_lanes_go_on_where_they_were(older: StoredQueue, form: int) -> None:
    """Priorities, and in each of them the turns that lanes of a kind had paid for, are those of before."""
    older.age(form)
    engine = open_engine(older.url)
    claims = [[claim.customer, claim.kind, claim.priority] for claim in engine.claim("w", 12, 60_000, now_ms=AT)]
    assert [priority for *_, priority in claims] == [priority for *_, priority in ANSWERS["next"]]
    for kind in ("extract", "scan"):
        assert [claim for claim in claims if claim[1] == kind] == [claim for claim in ANSWERS["next"] if claim[1] == kind]
    engine.close()


def test_what_an_older_version_had_claimed_ends_and_is_not_trued_up(older: StoredQueue) -> None:
    engine = open_engine(older.url)
    claims = running()
    lanes = engine.pack(json.dumps(["lanes", None]), 1000).lanes
    assert engine.settle([(claim, Done("1")) for claim in claims], now_ms=50_000) == []
    assert {document.id: document.claimed_ms for document in walk_documents(engine) if document.state == "done"}.keys() >= {
        claim.id for claim in claims
    }
    assert {customer.usual for customer in engine.customers("", 100, now_ms=50_000)} == {None}
    after = {lane[:3]: lane for lane in engine.pack(json.dumps(["lanes", None]), 1000).lanes}
    assert {lane[:3]: lane for lane in lanes if lane.customer != "bob"}.items() <= after.items()  # bob was at his cap
    (claim,) = engine.claim("w", 1, 1000, {"scan": 3}, now_ms=50_000)
    engine.settle([(claim, Done("1"))], now_ms=50_400)
    assert engine.customer(claim.customer, now_ms=50_400).usual == 400_000
    engine.close()


def test_an_older_queue_does_what_a_queue_in_memory_does_that_it_was_moved_to(older: StoredQueue) -> None:
    engine, judge = open_engine(older.url), open_engine("memory://")
    engine.reclaim(100, now_ms=10**6)
    packed = engine.pack(None, 1000)
    while True:
        judge.unpack(packed)
        if packed.cursor is None:
            break
        packed = engine.pack(packed.cursor, 1000)
    for now_ms in range(10**6, 10**6 + 9_000, 300):
        replies = []
        for each in (engine, judge):
            if now_ms == 10**6 + 900:
                each.limit_kind("extract", KindLimit(running=2), 0, now_ms=now_ms)
            claims = each.claim("w", 3, 10**6, now_ms=now_ms)
            each.settle([(claim, Done("1")) for claim in claims[:2]], now_ms=now_ms + 200)
            each.submit([Submission(f"n-{now_ms}", ("ada", "new")[now_ms % 600 > 0], "scan", "1")], now_ms=now_ms)
            replies.append((claims, each.customers("", 10, now_ms=now_ms), list(walk_documents(each)), each.totals()))
        assert replies[0] == replies[1]
    engine.close()


def test_under_strict_documents_are_served_by_number_after_the_upgrade(older: StoredQueue) -> None:
    older.set_rules("idle", "strict")
    engine = open_engine(older.url)
    engine.submit([Submission(f"new-{number}", "new", "extract", "1") for number in range(3)], now_ms=AT)
    claims = engine.claim("w", 100, 1000, now_ms=AT)
    assert len(claims) > 10
    assert [(claim.priority, claim.number) for claim in claims] == sorted((claim.priority, claim.number) for claim in claims)
    engine.close()


@pytest.mark.parametrize("reset", ["window", "gradual"])
def test_rules_whose_reset_is_gone_are_frozen_until_somebody_sets_another(older: StoredQueue, reset: str) -> None:
    older.set_rules(reset, "fair")
    engine = open_engine(older.url)
    rules = engine.rules()
    assert rules.policy.reset == "sliding"
    with pytest.raises(StoreFrozen, match=f"reset = {reset}, which is gone"):
        engine.submit([Submission("a", "ada", "extract", "1")], now_ms=AT)
    assert engine.configure(Rules(Policy(reset="sliding"), version=rules.version), now_ms=AT)
    (receipt,) = engine.submit([Submission("a", "ada", "extract", "1")], now_ms=AT)
    assert receipt.counter == -12  # as many as the counter says were sent lately
    engine.close()


def test_programs_of_the_form_before_are_refused(older: StoredQueue) -> None:
    open_engine(older.url).close()
    program = RedisPool(parse_url(older.url), Schema(SCHEMA.scripts[:1], oldest=5, first=5))
    for verb in ("rules", "reclaim"):
        with pytest.raises(StoreUnfit, match="has schema version 7, made by a newer Fairlane"):
            program.run(verb, [AT, 1], "same")
    program.close()
