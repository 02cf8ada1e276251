"""Benchmark of the PostgreSQL engine, beside bare psycopg, and with a million waiting documents beside a thousand.

A server of its own runs with durable settings. Our queue and the bare side have a schema each and take turns, a short round
each; medians are compared. The bare side writes the rows that ours wrote, in one prepared statement and one round trip per
call, with nothing around it: no check, no lock, no decision. What it writes is read from ours after each round.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from fairlane import Queue
from fairlane.core.document import Claim, Done, Submission
from fairlane.encryption import inner_engine
from fairlane.engine.postgres import PostgresEngine
from fairlane.queue import new_ids
from tests.servers.postgres import Server, find_programs

from .figures import Figure, Goal

CUSTOMERS = 100
BATCH, CLAIMS = 100, 50
PAYLOAD = '{"path":"inbox/00000001.pdf"}'
SUBMIT_SQL = """
WITH d AS (
  INSERT INTO {0}.documents (number, customer, counter, checked_ms, resets, policy_version, terms_version, weight, priority, id,
    kind, payload)
  SELECT number, {1}, counter, 0, 1, 1, 0, 1000, priority, id, 'extract', payload
  FROM unnest(%(numbers)s::bigint[], %(ids)s::text[], %(payloads)s::text[], %(counters)s::bigint[], %(priorities)s::smallint[])
    AS g (number, id, payload, counter, priority)
), w AS (
  INSERT INTO {0}.work (number, customer, ready_ms, cost, priority, state, id, kind)
  SELECT number, {1}, 0, 1000, priority, 'ready', id, 'extract'
  FROM unnest(%(numbers)s::bigint[], %(ids)s::text[], %(priorities)s::smallint[]) AS g (number, id, priority)
), f AS (
  INSERT INTO {0}.changes (number, at_ms, customer, document, token, what)
  SELECT %(change)s + row_number() OVER (), 0, {1}, number, 0, 'submitted' FROM unnest(%(numbers)s::bigint[]) AS g (number)
), c AS (
  UPDATE {0}.standings SET counter = %(counter)s, updated_ms = 0, resets = 1, revision = revision + 1
  WHERE customer = {1}
), known AS (
  UPDATE {0}.lanes AS l SET waiting = l.waiting + g.waiting, revision = l.revision + 1
  FROM unnest(%(levels)s::smallint[], %(waiting)s::bigint[]) AS g (priority, waiting)
  WHERE l.customer = {1} AND l.kind = 'extract' AND l.priority = g.priority RETURNING l.priority
), l AS (
  INSERT INTO {0}.lanes (customer, head, ready_ms, start, waiting, running, done, failed, cancelled, priority, kind)
  SELECT {1}, head, 0, 0, waiting, 0, 0, 0, 0, priority, 'extract'
  FROM unnest(%(levels)s::smallint[], %(heads)s::bigint[], %(waiting)s::bigint[]) AS g (priority, head, waiting)
  WHERE priority NOT IN (SELECT priority FROM known)
)
UPDATE {0}.counters SET last_change = last_change + cardinality(%(numbers)s::bigint[]), ready = clocks, revision = revision + 1
RETURNING last_change
"""
CLAIM_SQL = """
WITH w AS (
  UPDATE {0}.work AS w SET state = 'running', token = 1, attempts = 1, worker = 'bench', lease_ms = 600000, claimed_ms = 0,
    paid = 1
  FROM unnest(%(numbers)s::bigint[]) AS g (number) WHERE w.number = g.number RETURNING w.*
), f AS (
  INSERT INTO {0}.changes (number, at_ms, customer, document, token, what, note)
  SELECT %(change)s + row_number() OVER (), 0, customer, number, token, 'claimed', 'bench' FROM w
), l AS (
  UPDATE {0}.lanes AS l SET head = g.head, ready_ms = g.ready_ms, start = g.start, finish = g.finish,
    cross_tag = coalesce(g.start, 0), cross_finish = g.finish,
    waiting = l.waiting - g.count, running = l.running + g.count, revision = l.revision + 1
  FROM unnest(%(customers)s::bigint[], %(levels)s::smallint[], %(heads)s::bigint[], %(readies)s::bigint[], %(starts)s::bigint[],
    %(finishes)s::bigint[], %(counts)s::int[]) AS g (customer, priority, head, ready_ms, start, finish, count)
  WHERE l.customer = g.customer AND l.kind = 'extract' AND l.priority = g.priority
), k AS (
  INSERT INTO {0}.kinds (kind, revision, clocks) SELECT 'extract', 1, clocks FROM {0}.counters
  ON CONFLICT (kind, revision) DO UPDATE SET clocks = EXCLUDED.clocks
), t AS (
  INSERT INTO {0}.dispatches AS t (digest, kinds, number) VALUES ('', NULL, 50)
  ON CONFLICT (digest, revision) DO UPDATE SET number = t.number + 50
), q AS (
  UPDATE {0}.counters SET last_change = last_change + 50, clocks = ready, taken = clocks, revision = revision + 1
)
SELECT w.id, w.token, w.number, c.id, w.kind, w.priority, d.payload, w.attempts, w.attempts_max, w.lease_ms
FROM w JOIN {0}.documents AS d ON d.number = w.number JOIN {0}.customer_terms AS c ON c.number = w.customer
"""
SETTLE_SQL = """
WITH w AS (
  DELETE FROM {0}.work AS w USING unnest(%(numbers)s::bigint[]) AS g (number) WHERE w.number = g.number RETURNING w.*
), e AS (
  INSERT INTO {0}.endings (number, ended_ms, ready_ms, cost, token, attempts, attempts_max, state, worker, claimed_ms)
  SELECT number, 0, ready_ms, cost, token, attempts, attempts_max, 'done', worker, claimed_ms FROM w
), f AS (
  INSERT INTO {0}.changes (number, at_ms, customer, document, token, what)
  SELECT %(change)s + row_number() OVER (), 0, customer, number, token, 'done' FROM w
), l AS (
  UPDATE {0}.lanes AS l SET running = l.running - g.count, done = l.done + g.count, start = l.start + 1, finish = l.finish + 1,
    cross_tag = l.cross_tag + 1, cross_finish = l.cross_finish + 1, revision = l.revision + 1
  FROM unnest(%(customers)s::bigint[], %(levels)s::smallint[], %(counts)s::int[]) AS g (customer, priority, count)
  WHERE l.customer = g.customer AND l.kind = 'extract' AND l.priority = g.priority
), u AS (
  INSERT INTO {0}.usuals (customer, usual) SELECT DISTINCT customer, 1000 FROM unnest(%(customers)s::bigint[]) AS g (customer)
  ON CONFLICT (customer, revision) DO UPDATE SET usual = EXCLUDED.usual
)
UPDATE {0}.counters SET last_change = last_change + 50, ready = clocks, usual = 1000, revision = revision + 1
RETURNING last_change
"""


class BothSides(NamedTuple):
    """Our queue and the bare side, each in a schema of its own on one server."""

    queue: Queue
    bare: psycopg.Connection[tuple[Any, ...]]
    reader: psycopg.Connection[tuple[Any, ...]]

    def change(self) -> int:
        """Return the last number in the bare side's feed."""
        row = self.bare.execute("SELECT max(number) FROM bench_bare.changes").fetchone()
        return int((row and row[0]) or 0)


@contextmanager
def open_sides() -> Iterator[BothSides]:
    """Start a durable server with a hundred customers on both sides."""
    with (
        Server(find_programs(), settings=()) as server,
        Queue(f"{server.url}?schema=bench_ours") as queue,
        Queue(f"{server.url}?schema=bench_bare") as other,
        psycopg.connect(server.url, autocommit=True) as bare,
        psycopg.connect(server.url, autocommit=True) as reader,
    ):
        for number in range(CUSTOMERS):
            queue.check(_customer(number))
            other.check(_customer(number))
        yield BothSides(queue, bare, reader)


def _customer(number: int) -> str:
    return f"customer-{number % CUSTOMERS:03d}"


def _time(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _submission(customer: int, receipts: list[Any], change: int) -> dict[str, Any]:
    """Return the rows that the bare side writes for a submission of ours."""
    levels = sorted({receipt.priority for receipt in receipts})
    return {
        "customer": customer % CUSTOMERS + 1,
        "numbers": [receipt.number for receipt in receipts],
        "ids": [receipt.id for receipt in receipts],
        "payloads": [PAYLOAD] * len(receipts),
        "counters": [receipt.check.counter_thousandths for receipt in receipts],
        "priorities": [receipt.priority for receipt in receipts],
        "counter": receipts[-1].check.counter_thousandths,
        "levels": levels,
        "heads": [next(receipt.number for receipt in receipts if receipt.priority == level) for level in levels],
        "waiting": [sum(receipt.priority == level for receipt in receipts) for level in levels],
        "change": change,
    }


def measure_submits(sides: BothSides, size: int, rounds: int, advance: Callable[[], None]) -> tuple[list[float], list[float]]:
    """Measure seconds per call, ours and bare, in turns."""
    statement = SUBMIT_SQL.format("bench_bare", "%(customer)s")
    ours, bare, change = [], [], sides.change()
    for round in range(rounds):
        batch = [Submission(id, _customer(round), "extract", PAYLOAD) for id in new_ids(size)]
        made: list[Any] = []
        ours.append(_time(lambda batch=batch, made=made: made.extend(sides.queue.engine.submit(batch))))  # type: ignore[misc]
        rows = _submission(round, made, change)
        change += size
        bare.append(_time(lambda rows=rows: sides.bare.execute(statement, rows).fetchall()))  # type: ignore[misc]
        advance()
    return ours, bare


def _lane_rows(sides: BothSides, claims: list[Claim]) -> dict[str, Any]:
    """Return the lanes after a claim, as the bare side writes them."""
    counts: dict[tuple[str, int], int] = {}
    for claim in claims:
        counts[claim.customer, claim.priority] = counts.get((claim.customer, claim.priority), 0) + 1
    rows = sides.reader.execute(
        "SELECT c.id, l.priority, l.head, l.ready_ms, l.start, l.finish FROM bench_ours.lanes AS l "
        "JOIN bench_ours.customers AS c ON c.number = l.customer"
    ).fetchall()
    lanes = {(customer, priority): rest for customer, priority, *rest in rows}
    kept = [(int(customer[-3:]) + 1, level, *lanes[customer, level], count) for (customer, level), count in counts.items()]
    names = ("customers", "levels", "heads", "readies", "starts", "finishes", "counts")
    return dict(zip(names, map(list, zip(*kept, strict=True)), strict=True)) | {"numbers": [claim.number for claim in claims]}


def measure_claims(sides: BothSides, rounds: int, advance: Callable[[], None]) -> tuple[list[float], list[float]]:
    """Measure seconds per claim with its settlement, ours and bare, in turns."""
    claimed, settled = CLAIM_SQL.format("bench_bare"), SETTLE_SQL.format("bench_bare")
    ours, bare, change = [], [], sides.change()
    for _ in range(rounds):
        began = time.perf_counter()
        claims = sides.queue.engine.claim("bench", CLAIMS, 600_000)
        claim_seconds = time.perf_counter() - began
        rows = _lane_rows(sides, claims)
        assert len(claims) == CLAIMS
        settlements = [(claim, Done()) for claim in claims]
        ours.append(claim_seconds + _time(lambda done=settlements: sides.queue.engine.settle(done)))  # type: ignore[misc]
        begin, end = rows | {"change": change}, rows | {"change": change + CLAIMS}
        change += 2 * CLAIMS
        began = time.perf_counter()
        taken = [tuple(row) for row in sides.bare.execute(claimed, begin).fetchall()]
        claim_seconds = time.perf_counter() - began
        assert len(taken) == CLAIMS
        bare.append(claim_seconds + _time(lambda end=end: sides.bare.execute(settled, end).fetchall()))  # type: ignore[misc]
        advance()
    return ours, bare


def _figure(name: str, size: int, times: tuple[list[float], list[float]], goal: Goal) -> Figure:
    ours, bare = (part[len(part) // 10 :] for part in times)  # the first tenth warms up
    ratios = [limit / own for own, limit in zip(ours, bare, strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4)
    note = f"limit: bare psycopg; half of the rounds {low:.2f}-{high:.2f}"
    return Figure(
        f"postgres: {name}", size / statistics.median(ours), "documents/s", size / statistics.median(bare), goal, note
    )


def measure(is_quick: bool, advance: Callable[[], None]) -> list[Figure]:
    """Measure all figures beside bare psycopg."""
    share = 10 if is_quick else 1
    with open_sides() as sides:
        single = measure_submits(sides, 1, 1000 // share, advance)
        many = measure_submits(sides, BATCH, 300 // share, advance)
        claims = measure_claims(sides, 300 // share, advance)
    return [
        _figure("submit, 1 caller", 1, single, Goal(1 / 1.5)),
        _figure(f"submit_many of {BATCH}", BATCH, many, Goal(0.6)),
        _figure(f"claim + settle of {CLAIMS}", CLAIMS, claims, Goal(0.5)),
    ]


# -- a million waiting documents beside a thousand ---------------------------------------------------------------------

SINGLES = 50
SCALE_GOAL = Goal(1.5, is_least=False)


class FilledServer:
    """A queue that keeps its size, and the CPU time of its server process."""

    def __init__(self, server: Server, documents: int) -> None:
        self.customers = documents // 10
        self.queue = Queue(f"{server.url}?schema=scale_{documents}")
        self.documents = documents
        self.dice = random.Random(7)
        self.rounds: list[dict[str, float]] = []

    def fill(self, advance: Callable[[int], None]) -> None:
        """Submit all documents in random order of customers, ten of each."""
        order = [number % self.customers for number in range(self.documents)]
        self.dice.shuffle(order)
        for first in range(0, self.documents, 1000):
            part = order[first : first + 1000]
            named = zip(new_ids(len(part)), part, strict=True)
            self.queue.engine.submit([Submission(id, f"customer-{number:06d}", "extract", PAYLOAD) for id, number in named])
            advance(first + len(part))

    def _cpu_seconds(self) -> float:
        """Return the CPU time of this process and of the server process of its connection."""
        engine = inner_engine(self.queue.engine)
        assert isinstance(engine, PostgresEngine)
        ((pid,),) = engine._pool.read("SELECT pg_backend_pid()")
        return time.process_time() + int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9

    def round(self) -> None:
        """Do one round of every operation; claim as many documents as it submits."""
        customer = f"customer-{self.dice.randrange(self.customers):06d}"
        singles = [f"customer-{self.dice.randrange(self.customers):06d}" for _ in range(SINGLES)]
        operations: dict[str, tuple[Callable[[], Any], int]] = {
            "submit": (lambda: [self.queue.submit(customer, {"path": "a.pdf"}) for customer in singles], SINGLES),
            f"submit_many of {BATCH}": (lambda: self.queue.submit_many(customer, [{"path": "a.pdf"}] * BATCH), BATCH),
            f"claim + settle of {CLAIMS}": (self._claims, SINGLES + BATCH),
            "look": (lambda: [self.queue.look(customer) for customer in singles], SINGLES),
        }
        microseconds = {}
        for name, (operation, count) in operations.items():
            began = self._cpu_seconds()
            operation()
            microseconds[name] = 1e6 * (self._cpu_seconds() - began) / count
        self.rounds.append(microseconds)

    def _claims(self) -> None:
        for _ in range((SINGLES + BATCH) // CLAIMS):
            claimed = self.queue.engine.claim("bench", CLAIMS, 600_000)
            lost = self.queue.engine.settle([(claim, Done()) for claim in claimed])
            assert len(claimed) == CLAIMS
            assert not lost


def measure_scale(small: int, large: int, rounds: int, advance: Callable[[int], None]) -> list[Figure]:
    """Measure CPU time per operation, of client and server, with `large` waiting documents beside `small`."""
    with Server(find_programs(), settings=("shared_buffers=1GB",)) as server:  # as a server of that size would have
        few, many = FilledServer(server, small), FilledServer(server, large)
        few.fill(lambda _: None)
        many.fill(advance)
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")
            connection.execute("CHECKPOINT")
        for _ in range(rounds + 5):
            few.round()
            many.round()
        few.queue.close()
        many.queue.close()

    def median(sized: FilledServer, name: str) -> float:
        return statistics.median(times[name] for times in sized.rounds[5:])

    note = f"{large:,} waiting, limit: {small:,}; client and server together"
    return [
        Figure(f"postgres scale: {name}", median(many, name), "µs CPU", median(few, name), SCALE_GOAL, note)
        for name in few.rounds[0]
    ]
