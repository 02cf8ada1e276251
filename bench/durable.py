"""How near to the bare limit is the durable engine?

Each way of using it is measured beside the bare limit in the same run: short rounds of ours and of the bare writes take
turns, each on a file of its own, and the medians are compared. What the bare side writes was recorded from a run of ours:
beforehand where it is the same in every run. With many callers, who shares a commit depends on timing: there only the commits
of a round are counted while it is timed, and the bare side then writes as many documents in as many commits.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import apsw

from fairlane import Queue
from fairlane.core.document import Done, Submission
from fairlane.engine.sqlite.connection import connect
from fairlane.engine.sqlite.migrate import migrate
from fairlane.queue import DEFAULT_KIND, json_text, new_ids

from .bare import Commit, record_commits, replay
from .figures import Figure, Goal

CUSTOMERS = 100
LEASE_MS = 600_000
GOAL = Goal(0.5)


class Way(NamedTuple):
    """One way of using a queue; `run` does one round, `prepare` what must be there before the first."""

    name: str
    documents: int  # in a round
    run: Callable[[Queue, int], None]
    prepare: Callable[[Queue, int], None] = lambda queue, rounds: None
    in_commits: Callable[[Queue, int, int], None] | None = None  # a round in that many commits, where timing decides


class Timed(NamedTuple):
    """What one round took, a document."""

    wall_seconds: float
    cpu_seconds: float


def _customer(number: int) -> str:
    return f"customer-{number % CUSTOMERS:03d}"


def _payload(number: int) -> dict[str, str]:
    return {"path": f"inbox/{number:08d}.pdf"}


def _submission(number: int) -> Submission:
    return Submission(new_ids(1)[0], _customer(number), DEFAULT_KIND, json_text("payload", _payload(number)))


def one_caller(documents: int) -> Way:
    """One by one, each waiting for its own commit."""

    def run(queue: Queue, round: int) -> None:
        for number in range(round * documents, (round + 1) * documents):
            queue.submit(_customer(number), _payload(number))

    return Way("submit, 1 caller", documents, run)


def many_callers(documents: int, callers: int = 16) -> Way:
    """One by one from many threads on one queue, so that they share commits."""

    def caller(queue: Queue, first: int) -> None:
        for number in range(first, first + documents // callers):
            queue.submit(_customer(number), _payload(number))

    def run(queue: Queue, round: int) -> None:
        with ThreadPoolExecutor(callers) as threads:
            firsts = range(round * documents, (round + 1) * documents, documents // callers)
            for done in [threads.submit(caller, queue, first) for first in firsts]:
                done.result()

    def in_commits(queue: Queue, round: int, commits: int) -> None:
        bounds = [round * documents + place * documents // commits for place in range(commits + 1)]
        for first, last in pairwise(bounds):
            queue.engine.submit([_submission(number) for number in range(first, last)])

    return Way(f"submit, {callers} callers", documents, run, in_commits=in_commits)


def batches(documents: int, size: int = 100) -> Way:
    """Batches of one customer."""

    def run(queue: Queue, round: int) -> None:
        for first in range(round * documents, (round + 1) * documents, size):
            queue.submit_many(_customer(first // size), [_payload(number) for number in range(first, first + size)])

    return Way(f"submit_many of {size}", documents, run)


def claims(documents: int, size: int = 50) -> Way:
    """Claim and settle as done, without a handler."""

    def prepare(queue: Queue, rounds: int) -> None:
        each = -(-rounds * documents // CUSTOMERS)
        for customer in range(CUSTOMERS):
            queue.submit_many(_customer(customer), [_payload(number) for number in range(each)])

    def run(queue: Queue, _: int) -> None:
        for _ in range(documents // size):
            claimed = queue.engine.claim("bench", size, LEASE_MS)
            assert len(claimed) == size
            lost = queue.engine.settle([(one, Done()) for one in claimed])
            assert not lost

    return Way(f"claim + settle of {size}", documents, run, prepare)


class Rounds(NamedTuple):
    """What all rounds took, and what was committed in each."""

    ours: list[Timed]
    bare: list[Timed]
    commits: list[list[Commit]]


def measure(way: Way, rounds: int, folder: Path, advance: Callable[[], None]) -> list[Figure]:
    """The figures of one way: documents a second and CPU time a document, ours beside the bare limit."""
    compare = _compare_live if way.in_commits else _compare
    return _figures(way, compare(way, rounds, folder, advance))


def _compare(way: Way, rounds: int, folder: Path, advance: Callable[[], None]) -> Rounds:
    """The commits are known beforehand, so either side may go first."""
    prepared, commits = _record(way, rounds, folder / "recorded.db")
    made = Rounds([], [], commits)
    with _queue(folder / "ours.db") as queue, _bare(folder / "bare.db") as connection:
        way.prepare(queue, rounds)
        replay(connection, prepared)
        for round in range(rounds):
            turns = [
                (made.ours, partial(way.run, queue, round)),
                (made.bare, partial(replay, connection, commits[round])),
            ]
            for timings, run in turns if round % 2 else reversed(turns):
                timings.append(_timed(run, way.documents))
            advance()
        _assert_same(connection, queue)
    return made


def _compare_live(way: Way, rounds: int, folder: Path, advance: Callable[[], None]) -> Rounds:
    """How many commits ours makes is known after its round, so ours goes first; what they hold is recorded off the clock."""
    assert way.in_commits is not None
    made = Rounds([], [], [])
    with _bare(folder / "bare.db") as connection, _queue(folder / "ours.db") as queue, _queue(folder / "recorded.db") as other:
        with _counted() as count:
            _open_writer(queue)
        with record_commits() as commits:
            _open_writer(other)
        for round in range(rounds):
            before = count.total()
            made.ours.append(_timed(partial(way.run, queue, round), way.documents))
            commits.clear()
            way.in_commits(other, round, count.total() - before)
            made.commits.append(list(commits))
            made.bare.append(_timed(partial(replay, connection, made.commits[-1]), way.documents))
            advance()
        assert len(queue.engine.changes(None, 10**9)) == len(other.engine.changes(None, 10**9)) == rounds * way.documents
    return made


def _open_writer(queue: Queue) -> None:
    """The engine opens its connection with the first write; this one leaves no line in the feed."""
    queue.engine.put_record("bench", "opened", "{}")


@contextmanager
def _counted() -> Iterator[Counter[str]]:
    """Counts the commits of connections that are opened meanwhile: one short call a commit."""
    count: Counter[str] = Counter()

    def note() -> bool:
        count["commits"] += 1
        return False

    apsw.connection_hooks.append(lambda connection: connection.set_commit_hook(note))
    yield count
    apsw.connection_hooks.pop()


def _figures(way: Way, made: Rounds) -> list[Figure]:
    """Medians of all rounds but the first, which warms up; the note tells how far the rounds lie apart."""
    ours, bare = made.ours[1:], made.bare[1:]

    def rate(timings: list[Timed]) -> float:
        return 1 / statistics.median(one.wall_seconds for one in timings)

    def cpu_microseconds(timings: list[Timed]) -> float:
        return 1e6 * statistics.median(one.cpu_seconds for one in timings)

    each = way.documents * len(made.commits) / sum(map(len, made.commits))
    ratios = [limit.wall_seconds / one.wall_seconds for one, limit in zip(ours, bare, strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4)
    note = f"{each:.1f} a commit; half of the rounds {low:.2f}-{high:.2f}"
    return [
        Figure(way.name, rate(ours), "documents/s", rate(bare), GOAL, note),
        Figure(f"{way.name}: CPU", cpu_microseconds(ours), "µs/document", cpu_microseconds(bare)),
    ]


def _record(way: Way, rounds: int, path: Path) -> tuple[list[Commit], list[list[Commit]]]:
    """What ours writes: before the first round, and in each."""
    with _queue(path) as queue, record_commits() as commits:
        way.prepare(queue, rounds)
        bounds = [len(commits)]
        for round in range(rounds):
            way.run(queue, round)
            bounds.append(len(commits))
    return commits[: bounds[0]], [commits[first:last] for first, last in pairwise(bounds)]


def _timed(run: Callable[[], None], documents: int) -> Timed:
    began, cpu_began = time.perf_counter(), time.process_time()
    run()
    cpu, wall = time.process_time() - cpu_began, time.perf_counter() - began
    return Timed(wall / documents, cpu / documents)


@contextmanager
def _queue(path: Path) -> Iterator[Queue]:
    with Queue(f"sqlite:///{path}") as queue:
        yield queue


@contextmanager
def _bare(path: Path) -> Iterator[apsw.Connection]:
    connection = connect(path)
    migrate(connection, path)
    yield connection
    connection.close()


def _assert_same(connection: apsw.Connection, queue: Queue) -> None:
    """Both files hold the same feed, line by line."""
    statement = "SELECT number, what, customer, document, token FROM changes ORDER BY number"
    bare = connection.execute(statement).fetchall()
    with closing(connect(Path(queue.url.removeprefix("sqlite:///")))) as looking:
        ours = looking.execute(statement).fetchall()
    assert bare == ours, "the bare side did not write the same"
