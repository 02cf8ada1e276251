"""Benchmark of the Redis engine on Redis and Valkey, beside a bare Lua script, and with many waiting documents beside few.

The limit is a bare Lua script that makes the same writes: what the engine wrote was recorded from a server's append-only
file, and is written again with nothing around it: no check, no read, no decision, no response; as many round trips, the same
commands. Rounds of ours and of the bare script take turns on one server, over TCP. Single submissions are also measured on a
server that syncs each write to disk, as a durable one does; all else on servers without files. Scale is measured on servers
with jemalloc, which nearly all have: into one that was built without it, this machine's is loaded.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes.util import find_library
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from redis import Redis

from fairlane import Queue
from tests.servers.redis import Server, free_port, program_of

from . import durable, scale
from .durable import Scenario
from .figures import Figure, Goal

GOALS = {"submit, 1 caller": Goal(1.5, is_least=False), "submit_many": Goal(0.6), "claim + settle": Goal(0.5)}
SCALE_GOAL = Goal(1.5, is_least=False)
WARM_ROUNDS = 2
DURABLE = ("--appendonly", "yes", "--appendfsync", "always")
BARE = """
-- The bare limit: the commands in ARGV, each with the number of its words before it.
local at = 1
while at <= #ARGV do
  local size = tonumber(ARGV[at])
  redis.call(unpack(ARGV, at + 1, at + size))
  at = at + size + 1
end
"""

Trip = list[bytes]  # the arguments of one bare script: every command that one script of ours wrote


def scenarios(is_quick: bool) -> list[Scenario]:
    """Return the scenarios of the SQLite benchmark."""
    share = 10 if is_quick else 1
    return [durable.one_caller(400 // share), durable.batches(4000 // share), durable.claims(2000 // share)]


def measure(product: str, is_quick: bool, advance: Callable[[], None]) -> list[Figure]:
    """Measure one product."""
    rounds = 4 if is_quick else 21
    figures = []
    one_by_one, *others = scenarios(is_quick)
    for scenario, options in [(one_by_one, DURABLE), (one_by_one, ()), *((other, ()) for other in others)]:
        figures.append(_compare(product, scenario, rounds, options))
        advance()
    return figures


def _compare(product: str, scenario: Scenario, rounds: int, options: tuple[str, ...]) -> Figure:
    before, trips = _record(product, scenario, rounds)
    ours: list[float] = []
    bare: list[float] = []
    with _server(product, *options) as server, Queue(server.url("bench")) as queue, _bare(server) as replay:
        scenario.prepare(queue, rounds)
        replay(before)
        for round in range(rounds):
            turns = [(ours, partial(scenario.run, queue, round)), (bare, partial(replay, trips[round]))]
            for timings, run in turns if round % 2 else reversed(turns):
                began = time.perf_counter()
                run()
                timings.append((time.perf_counter() - began) / scenario.documents)
        _assert_same(server)
    return _figure(product + (", synced" if options else ""), scenario, ours[WARM_ROUNDS:], bare[WARM_ROUNDS:])


def _figure(product: str, scenario: Scenario, ours: list[float], bare: list[float]) -> Figure:
    goal = next(goal for name, goal in GOALS.items() if scenario.name.startswith(name))
    ratios = [limit / own for own, limit in zip(ours, bare, strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4)
    own, limit = statistics.median(ours), statistics.median(bare)
    name, note = f"{product}: {scenario.name}", f"half of the rounds {low:.2f}-{high:.2f} of the bare speed"
    if goal.is_least:
        return Figure(name, 1 / own, "documents/s", 1 / limit, goal, note)
    return Figure(name, 1e6 * own, "µs/document", 1e6 * limit, goal, note)


@contextmanager
def _server(product: str, *options: str, preload: str | None = None) -> Iterator[Server]:
    server = Server(product, *options, port=free_port(), preload=preload)
    try:
        yield server
    finally:
        server.remove()


def _record(product: str, scenario: Scenario, rounds: int) -> tuple[list[Trip], list[list[Trip]]]:
    """Record our writes: before the first round, and in each round."""
    options = ("--appendonly", "yes", "--appendfsync", "no", "--auto-aof-rewrite-percentage", "0")  # all writes in one file
    with _server(product, *options) as server, Queue(server.url("bench")) as queue:
        marks = [0]
        scenario.prepare(queue, rounds)
        marks.append(len(_trips(server)))
        for round in range(rounds):
            scenario.run(queue, round)
            marks.append(len(_trips(server)))
        trips = _trips(server)
    parts = [trips[first:last] for first, last in pairwise(marks)]
    return parts[0], parts[1:]


def _trips(server: Server) -> list[Trip]:
    """Read the writes of every script from the server's append-only file."""
    (file,) = (server.folder / "appendonlydir").glob("*.incr.aof")
    trips: list[Trip] = []
    is_open = False
    for command in _commands(file):
        name = command[0].upper()
        if name == b"MULTI":
            is_open = True
            trips.append([])
        elif name == b"EXEC":
            is_open = False
        elif name != b"SELECT":
            if not is_open:
                trips.append([])
            trips[-1] += [str(len(command)).encode(), *command]
    return trips


def _commands(file: Path) -> Iterator[list[bytes]]:
    """Parse the commands of an append-only file."""
    content = file.read_bytes()
    position = 0

    def line() -> bytes:
        nonlocal position
        end = content.index(b"\r\n", position)
        text, position = content[position:end], end + 2
        return text

    while position < len(content):
        head = line()
        if head.startswith(b"#"):  # a comment of the server
            continue
        command = []
        for _ in range(int(head[1:])):
            size = int(line()[1:])
            command.append(content[position : position + size])
            position += size + 2
        yield command


@contextmanager
def _bare(server: Server) -> Iterator[Callable[[list[Trip]], None]]:
    """Yield a function that runs the bare script, on a database beside ours."""
    client = Redis(port=server.port, db=1, single_connection_client=True)
    sha: Any = client.script_load(BARE)

    def replay(trips: list[Trip]) -> None:
        for trip in trips:
            client.evalsha(sha, 0, *trip)

    yield replay
    client.close()


def _assert_same(server: Server) -> None:
    """Check that both databases have as many keys and documents and as long a feed; the keys of ids depend on the time."""
    sizes = []
    for database in (0, 1):
        with Redis(unix_socket_path=str(server.socket), db=database, single_connection_client=True) as client:
            prefix = b"{fairlane:bench}:"
            keys = [key for key in client.scan_iter() if not key.startswith(prefix + b"ids:")]
            pieces = [key for key in keys if key.startswith(prefix + b"documents:")]
            sizes.append((len(keys), sum(map(client.hlen, pieces)), client.llen(prefix + b"feed")))
    assert sizes[0] == sizes[1], f"the bare side did not write the same: {sizes}"


# -- scale -------------------------------------------------------------------------------------------------------------


def measure_scale(product: str, small: int, large: int, rounds: int, advance: Callable[[int], None]) -> list[Figure]:
    """Measure CPU time per operation, ours and the server's together, with `large` waiting documents beside `small`."""
    preload, memory = _jemalloc(product)
    with _one_core(), _server(product, preload=preload) as few_server, _server(product, preload=preload) as many_server:
        assert not preload or preload in Path(f"/proc/{many_server.pid}/maps").read_text(encoding="utf-8")
        few, many = _SizedServer(few_server, small), _SizedServer(many_server, large)
        for count in many.fill():
            advance(count)
        for _ in range(scale.WARM_ROUNDS + rounds):
            for _ in few.fill():
                pass
            few.round()
            many.round()
        few.close()
        many.close()
    note = f"{large:,} waiting, limit: {small:,}{memory}"
    return [
        Figure(
            f"{product} scale: {name}",
            many.median(name),
            "µs CPU",
            few.median(name),
            SCALE_GOAL,
            f"{note}; {_spread(few, many, name)}",
        )
        for name in few.rounds[0]
    ]


def _jemalloc(product: str) -> tuple[str | None, str]:
    """Return the library to load into a server that was built without jemalloc, and a note about it."""
    version = subprocess.run([program_of(product), "--version"], capture_output=True, text=True, check=True).stdout
    if "malloc=jemalloc" in version:
        return None, ""
    library = find_library("jemalloc")
    return library, "; jemalloc loaded into the server" if library else "; this server has no jemalloc, which users' have"


@contextmanager
def _one_core() -> Iterator[None]:
    """Run on one core, with the servers that are started meanwhile: waking another core can double the cost of a call."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _spread(few: _SizedServer, many: _SizedServer, name: str) -> str:
    pairs = zip(few.rounds[scale.WARM_ROUNDS :], many.rounds[scale.WARM_ROUNDS :], strict=True)
    low, _, high = statistics.quantiles([two[name] / pair[name] for pair, two in pairs], n=4)
    return f"half of the rounds {low:.2f}-{high:.2f}"


class _SizedServer:
    """A queue of one size, and what its operations took.

    A small one is filled anew for every round. A few rounds replace all of its documents, and its customers would end up with
    long lanes of the last priority only, of which a claim takes several documents at once; the large one never gets there.
    """

    def __init__(self, server: Server, documents: int) -> None:
        self.rounds: list[dict[str, float]] = []
        self._server = server
        self._documents = documents
        self._client = server.client()
        self._queue: Queue | None = None

    def fill(self) -> Iterator[int]:
        """Replace everything by all documents, ten per customer; yield how many were submitted so far."""
        self.close()
        self._client.flushall()
        self._queue = Queue(self._server.url("bench"))
        self.filled = scale.FilledQueue(
            self._queue, self._documents, self._documents // scale.DOCUMENTS_PER_CUSTOMER, seed=len(self.rounds)
        )
        return self.filled.fill()

    def close(self) -> None:
        """Close the queue."""
        if self._queue is not None:
            self._queue.close()

    def _cpu_seconds(self) -> float:
        usage = self._client.info("cpu")
        return time.process_time() + float(usage["used_cpu_user"]) + float(usage["used_cpu_sys"])

    def round(self) -> None:
        """Do one round of every operation, after reads that warm up an idle or new server."""
        filled = self.filled
        filled.looks()
        filled.explains()
        operations: dict[str, tuple[Callable[[], None], int]] = {
            "submit": (filled.submit_singles, scale.SINGLES),
            f"submit_many of {scale.BATCH}": (filled.submit_batch, scale.BATCH),
            f"claim + settle of {scale.CLAIMS}": (filled.claim_and_settle, scale.SINGLES + scale.BATCH),
            "look": (filled.looks, scale.LOOKS),
            "explain": (filled.explains, scale.LOOKS),
        }
        microseconds = {}
        for name, (operation, count) in operations.items():
            began = self._cpu_seconds()
            operation()
            microseconds[name] = 1e6 * (self._cpu_seconds() - began) / count
        self.rounds.append(microseconds)

    def median(self, name: str) -> float:
        """Return the median of all rounds but the warm-up."""
        return statistics.median(times[name] for times in self.rounds[scale.WARM_ROUNDS :])
