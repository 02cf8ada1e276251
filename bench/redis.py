"""How near to the server's own limit is the engine on Redis and Valkey, and does it cost more when more waits?

The limit is a bare Lua script that makes the same writes: what the engine wrote was recorded from a server's append-only
file, and is made again with nothing around it: no check, no read, no decision, no answer; as many round trips, the same
commands. Rounds of ours and of the bare script take turns on one server, over TCP. Submissions one by one are measured on a
server that syncs each write to disk too, as one that is to be durable does; all else on servers without files. What grows is
measured on servers with jemalloc, as nearly all have it: where one was built without, this machine's is loaded into it.
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
from .durable import Way
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


def ways(is_quick: bool) -> list[Way]:
    """The same ways as for the durable engine."""
    share = 10 if is_quick else 1
    return [durable.one_caller(400 // share), durable.batches(4000 // share), durable.claims(2000 // share)]


def measure(product: str, is_quick: bool, advance: Callable[[], None]) -> list[Figure]:
    """The figures of one product."""
    rounds = 4 if is_quick else 21
    figures = []
    one_by_one, *others = ways(is_quick)
    for way, options in [(one_by_one, DURABLE), (one_by_one, ()), *((other, ()) for other in others)]:
        figures.append(_compare(product, way, rounds, options))
        advance()
    return figures


def _compare(product: str, way: Way, rounds: int, options: tuple[str, ...]) -> Figure:
    before, trips = _record(product, way, rounds)
    ours: list[float] = []
    bare: list[float] = []
    with _server(product, *options) as server, Queue(server.url("bench")) as queue, _bare(server) as replay:
        way.prepare(queue, rounds)
        replay(before)
        for round in range(rounds):
            turns = [(ours, partial(way.run, queue, round)), (bare, partial(replay, trips[round]))]
            for timings, run in turns if round % 2 else reversed(turns):
                began = time.perf_counter()
                run()
                timings.append((time.perf_counter() - began) / way.documents)
        _assert_same(server)
    return _figure(product + (", synced" if options else ""), way, ours[WARM_ROUNDS:], bare[WARM_ROUNDS:])


def _figure(product: str, way: Way, ours: list[float], bare: list[float]) -> Figure:
    goal = next(goal for name, goal in GOALS.items() if way.name.startswith(name))
    ratios = [limit / one for one, limit in zip(ours, bare, strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4)
    one, limit = statistics.median(ours), statistics.median(bare)
    name, note = f"{product}: {way.name}", f"half of the rounds {low:.2f}-{high:.2f} of the bare speed"
    if goal.is_least:
        return Figure(name, 1 / one, "documents/s", 1 / limit, goal, note)
    return Figure(name, 1e6 * one, "µs/document", 1e6 * limit, goal, note)


@contextmanager
def _server(product: str, *options: str, preload: str | None = None) -> Iterator[Server]:
    server = Server(product, *options, port=free_port(), preload=preload)
    try:
        yield server
    finally:
        server.remove()


def _record(product: str, way: Way, rounds: int) -> tuple[list[Trip], list[list[Trip]]]:
    """What ours writes: before the first round, and in each."""
    with _server(product, "--appendonly", "yes", "--appendfsync", "no") as server, Queue(server.url("bench")) as queue:
        marks = [0]
        way.prepare(queue, rounds)
        marks.append(len(_trips(server)))
        for round in range(rounds):
            way.run(queue, round)
            marks.append(len(_trips(server)))
        trips = _trips(server)
    parts = [trips[first:last] for first, last in pairwise(marks)]
    return parts[0], parts[1:]


def _trips(server: Server) -> list[Trip]:
    """Every script's writes, from the server's append-only file."""
    (file,) = (server.folder / "appendonlydir").glob("*.incr.aof")
    words = list(_commands(file))
    trips: list[Trip] = []
    is_open = False
    for command in words:
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
    """The commands of an append-only file."""
    told = file.read_bytes()
    at = 0

    def line() -> bytes:
        nonlocal at
        end = told.index(b"\r\n", at)
        text, at = told[at:end], end + 2
        return text

    while at < len(told):
        head = line()
        if head.startswith(b"#"):  # a note of the server's
            continue
        command = []
        for _ in range(int(head[1:])):
            size = int(line()[1:])
            command.append(told[at : at + size])
            at += size + 2
        yield command


@contextmanager
def _bare(server: Server) -> Iterator[Callable[[list[Trip]], None]]:
    """Runs the bare script, on a database beside ours."""
    client = Redis(port=server.port, db=1, single_connection_client=True)
    sha: Any = client.script_load(BARE)

    def replay(trips: list[Trip]) -> None:
        for trip in trips:
            client.evalsha(sha, 0, *trip)

    yield replay
    client.close()


def _assert_same(server: Server) -> None:
    """Both databases hold as many keys, as many documents and as long a feed; in how many keys ids stand is up to the time."""
    told = []
    for database in (0, 1):
        with Redis(unix_socket_path=str(server.socket), db=database, single_connection_client=True) as client:
            prefix = b"{fairlane:bench}:"
            keys = [key for key in client.scan_iter() if not key.startswith(prefix + b"ids:")]
            pieces = [key for key in keys if key.startswith(prefix + b"documents:")]
            told.append((len(keys), sum(map(client.hlen, pieces)), client.llen(prefix + b"feed")))
    assert told[0] == told[1], f"the bare side did not write the same: {told}"


# -- does it grow? -----------------------------------------------------------------------------------------------------


def grows(product: str, small: int, large: int, rounds: int, advance: Callable[[int], None]) -> list[Figure]:
    """CPU time an operation, ours and the server's together, with `large` waiting documents beside `small`."""
    preload, memory = _jemalloc(product)
    with _one_core(), _server(product, preload=preload) as few_server, _server(product, preload=preload) as many_server:
        assert not preload or preload in Path(f"/proc/{many_server.pid}/maps").read_text(encoding="utf-8")
        few, many = _Sized(few_server, small), _Sized(many_server, large)
        for there in many.fill():
            advance(there)
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
    """What to load into a server that was built without jemalloc, and what to say of it."""
    told = subprocess.run([program_of(product), "--version"], capture_output=True, text=True, check=True).stdout
    if "malloc=jemalloc" in told:
        return None, ""
    found = find_library("jemalloc")
    return found, "; jemalloc loaded into the server" if found else "; this server has no jemalloc, which users' have"


@contextmanager
def _one_core() -> Iterator[None]:
    """All run on one core, servers that are started meanwhile too: a call to a sleeping core costs twice as much, by chance."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _spread(few: _Sized, many: _Sized, name: str) -> str:
    pairs = zip(few.rounds[scale.WARM_ROUNDS :], many.rounds[scale.WARM_ROUNDS :], strict=True)
    low, _, high = statistics.quantiles([two[name] / one[name] for one, two in pairs], n=4)
    return f"half of the rounds {low:.2f}-{high:.2f}"


class _Sized:
    """A queue of one size, and what its operations took.

    A small one is made anew for every round. A few rounds turn all of it over, and its customers would end with long lanes of
    the last priority only, of which a claim takes several documents at once; the large one never comes to that.
    """

    def __init__(self, server: Server, documents: int) -> None:
        self.rounds: list[dict[str, float]] = []
        self._server = server
        self._documents = documents
        self._client = server.client()
        self._queue: Queue | None = None

    def fill(self) -> Iterator[int]:
        """All documents, ten a customer, in place of what was there; tells how many are there."""
        self.close()
        self._client.flushall()
        self._queue = Queue(self._server.url("bench"))
        self.sized = scale.Sized(self._queue, self._documents, self._documents // scale.EACH, seed=len(self.rounds))
        return self.sized.fill()

    def close(self) -> None:
        """Let go of the queue."""
        if self._queue is not None:
            self._queue.close()

    def _cpu_seconds(self) -> float:
        told = self._client.info("cpu")
        return time.process_time() + float(told["used_cpu_user"]) + float(told["used_cpu_sys"])

    def round(self) -> None:
        """One round of every operation, after calls that move nothing: whoever was idle or is new starts slower."""
        one = self.sized
        one.looks()
        one.explains()
        operations: dict[str, tuple[Callable[[], None], int]] = {
            "submit": (one.submit_singles, scale.SINGLES),
            f"submit_many of {scale.BATCH}": (one.submit_batch, scale.BATCH),
            f"claim + settle of {scale.CLAIMS}": (one.claim_and_settle, scale.SINGLES + scale.BATCH),
            "look": (one.looks, scale.LOOKS),
            "explain": (one.explains, scale.LOOKS),
        }
        took = {}
        for name, (operation, count) in operations.items():
            began = self._cpu_seconds()
            operation()
            took[name] = 1e6 * (self._cpu_seconds() - began) / count
        self.rounds.append(took)

    def median(self, name: str) -> float:
        """Of all rounds but those that warm up."""
        return statistics.median(one[name] for one in self.rounds[scale.WARM_ROUNDS :])
