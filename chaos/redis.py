"""A Redis or Valkey server that is killed under load, and a snapshot of its records."""

from __future__ import annotations

import json
from typing import Any

from fairlane import Queue
from fairlane.engine.walk import walk_documents
from tests.servers.redis import Server

from .history import Customer, Document, Lane, Priority, Ready, StoreSnapshot

QUEUE = "chaos"
LIMIT = 1_000_000
PINGS = 5

# Read lanes, their ready documents and the counters of priorities, which no method returns. KEYS: the queue's own record.
INSIDE = """
local prefix = string.sub(KEYS[1], 1, -6)
local queue = {struct.unpack('>B' .. string.rep('i7', 38), redis.call('GET', KEYS[1]))}
local lanes, ready, priorities, names = {}, {}, {}, {}
for _, owner in ipairs(redis.call('HKEYS', prefix .. 'customers')) do
  names[owner] = cmsgpack.unpack(string.sub(redis.call('HGET', prefix .. 'customers', owner), 46)) -- the first value of several
end
for _, name in ipairs(redis.call('HKEYS', prefix .. 'lanes')) do
  local owner, priority, kind = string.match(name, '^(%d+):(%d)(.*)$')
  local head, since, start = cmsgpack.unpack(redis.call('HGET', prefix .. 'lanes', name))
  lanes[#lanes + 1] = {names[owner], kind, tonumber(priority), head, since, start}
  for _, member in ipairs(redis.call('ZRANGE', prefix .. 'ready:' .. name, 0, -1)) do
    ready[#ready + 1] = {names[owner], kind, tonumber(priority), string.sub(member, 1, 16), string.sub(member, 17)}
  end
end
for priority = 1, 9 do
  priorities[priority] = {priority, queue[21 + priority], queue[30 + priority]}
end
local dispatches = queue[6] -- to workers of all kinds
for _, count in ipairs(redis.call('HVALS', prefix .. 'dispatches')) do
  dispatches = dispatches + tonumber(count)
end
return cjson.encode({lanes, ready, priorities, {dispatches}})
"""


class Redis:
    """A Redis or Valkey server for `chaos.servers`."""

    def __init__(self, product: str) -> None:
        self._server = Server(product, "--appendonly", "yes", "--appendfsync", "always")
        self.url = self._server.url(QUEUE)
        self.upstream = self._server.socket

    def url_through(self, host: str, port: int) -> str:
        """Return the URL of the same queue by way of a proxy."""
        return f"redis://{host}:{port}/0?queue={QUEUE}"

    def close(self) -> None:
        """Stop the server and remove its folder."""
        self._server.remove()

    def fail(self) -> None:
        """Kill the server; the start then recovers from the append-only file."""
        self._server.kill()
        self._server.start()

    def rest(self) -> None:
        """Wait until no call is under way; the callers are frozen, and the server reads what they sent before our pings."""
        with self._server.client() as client:
            before: object = None
            while (now := client.llen("{fairlane:" + QUEUE + "}:feed")) != before:
                before = now
                for _ in range(PINGS):
                    client.ping()

    @property
    def _key(self) -> str:
        return "{fairlane:" + QUEUE + "}:queue"

    def snapshot(self) -> StoreSnapshot:
        """Read everything; the callers are frozen, so that nothing changes meanwhile."""
        with Queue(self.url) as queue:
            engine = queue.engine
            changes = engine.changes(None, LIMIT)
            documents = [
                Document(
                    document.number, document.id, document.customer, document.kind, document.state, document.priority,
                    document.check.counter_thousandths, document.check.checked_ms, document.key, document.ready_ms,
                    document.attempts, document.attempts_max, document.token, _result(engine.body(document.id)),
                    document.whole, document.parts_left,
                )
                for document in reversed(list(walk_documents(engine)))
            ]  # fmt: skip
            customers = [
                Customer(
                    customer.id, customer.standing.counter, customer.standing.updated_ms, customer.waiting, customer.running,
                    customer.done, customer.failed, customer.cancelled,
                )
                for customer in engine.customers("", LIMIT)
            ]  # fmt: skip
        with self._server.client() as client:
            lanes, ready, priorities, (dispatches,) = json.loads(str(client.eval(INSIDE, 1, self._key)))
        return StoreSnapshot(
            documents,
            customers,
            [Lane(*lane[:3], *(None if value is False else int(value) for value in lane[3:])) for lane in lanes],
            [
                Ready(customer, kind, priority, int(number), int(ready_ms))
                for customer, kind, priority, number, ready_ms in ready
            ],
            [Priority(*priority) for priority in priorities],
            changes,
            dispatches,
        )


def _result(body: Any) -> str | None:
    return None if body is None else body.result
