"""A Redis or Valkey server that is killed while it works, and what it recorded."""

from __future__ import annotations

import json
from typing import Any

from fairlane import Queue
from tests.servers.redis import Server

from .history import Customer, Document, Lane, Priority, Ready, Store

QUEUE = "chaos"
LIMIT = 1_000_000
PINGS = 5

# Lanes, what is ready in them, and the counters of priorities: what no verb shows. KEYS: the queue's own record.
INSIDE = """
local prefix = string.sub(KEYS[1], 1, -6)
local queue = {struct.unpack('>B' .. string.rep('i7', 38), redis.call('GET', KEYS[1]))}
local lanes, ready, priorities, names = {}, {}, {}, {}
for _, owner in ipairs(redis.call('HKEYS', prefix .. 'customers')) do
  names[owner] = cmsgpack.unpack(string.sub(redis.call('HGET', prefix .. 'customers', owner), 26)) -- the first value of several
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
return cjson.encode({lanes, ready, priorities, {queue[6]}})
"""


class Redis:
    """What a run needs of a server: where the queue is, a failure, a moment of rest, the records."""

    def __init__(self, product: str) -> None:
        self._server = Server(product, "--appendonly", "yes", "--appendfsync", "always")
        self.url = self._server.url(QUEUE)

    def close(self) -> None:
        """The server and its folder go."""
        self._server.remove()

    def fail(self) -> None:
        """kill -9; then it recovers from its file."""
        self._server.kill()
        self._server.start()

    def rest(self) -> None:
        """Until no call is under way, the callers standing still: what they sent is read before later calls are answered."""
        with self._server.client() as client:
            before: object = None
            while (now := client.llen("{fairlane:" + QUEUE + "}:feed")) != before:
                before = now
                for _ in range(PINGS):
                    client.ping()

    @property
    def _key(self) -> str:
        return "{fairlane:" + QUEUE + "}:queue"

    def snapshot(self) -> Store:
        """Everything, read while nobody changes it."""
        with Queue(self.url) as queue:
            engine = queue.engine
            changes = engine.changes(None, LIMIT)
            documents = [
                Document(
                    one.number, one.id, one.customer, one.kind, one.state, one.priority, one.check.counter_thousandths,
                    one.check.checked_ms, one.key, one.ready_ms, one.attempts, one.attempts_max, one.token,
                    _result(engine.body(one.id)),
                )
                for one in reversed(engine.documents(None, None, None, LIMIT))
            ]  # fmt: skip
            customers = [
                Customer(
                    one.id, one.standing.counter, one.standing.updated_ms, one.waiting, one.running, one.done, one.failed,
                    one.cancelled,
                )
                for one in engine.customers("", LIMIT)
            ]  # fmt: skip
        with self._server.client() as client:
            lanes, ready, priorities, (dispatches,) = json.loads(str(client.eval(INSIDE, 1, self._key)))
        return Store(
            documents,
            customers,
            [Lane(*one[:3], *(None if value is False else int(value) for value in one[3:])) for one in lanes],
            [
                Ready(customer, kind, priority, int(number), int(ready_ms))
                for customer, kind, priority, number, ready_ms in ready
            ],
            [Priority(*one) for one in priorities],
            changes,
            dispatches,
        )


def _result(body: Any) -> str | None:
    return None if body is None else body.result
