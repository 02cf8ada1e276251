"""Benchmark of the SQLite engine, beside the same writes made directly with apsw.

Each scenario is measured beside its bare limit in the same run: short rounds of ours and of the bare writes take turns, each
on a file of its own, and the medians are compared. The bare side writes what was recorded from a run of ours: beforehand where
it is the same in every run. With many callers, timing decides who shares a commit: there only the commits of a round are
counted while it is timed, and the bare side then writes as many documents in as many commits.
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


class Scenario(NamedTuple):
    """One way to use a queue: `run` does one round, `prepare` makes what the first round needs."""

    name: str
    documents: int  # in a round
    run: Callable[[Queue, int], None]
    prepare: Callable[[Queue, int], None] = lambda queue, rounds: None
    in_commits: Callable[[Queue, int, int], None] | None = (
        None  # does a round in that many commits, if timing decides how many there are
    )


class Timing(NamedTuple):
    """The time of one round, per document."""

    elapsed_seconds: float
    cpu_seconds: float


def _customer(number: int) -> str:
    return f"customer-{number % CUSTOMERS:03d}"


def _payload(number: int) -> dict[str, str]:
    return {"path": f"inbox/{number:08d}.pdf"}


def _submission(number: int) -> Submission:
    return Submission(new_ids(1)[0], _customer(number), DEFAULT_KIND, json_text("payload", _payload(number)))


def one_caller(documents: int) -> Scenario:
    """Submit one by one, each waiting for its own commit."""

    def run(queue: Queue, round: int) -> None:
        for number in range(round * documents, (round + 1) * documents):
            queue.submit(_customer(number), _payload(number))

    return Scenario("submit, 1 caller", documents, run)


def many_callers(documents: int, callers: int = 16) -> Scenario:
    """Submit one by one from many threads on one queue, so that they share commits."""

    def caller(queue: Queue, first: int) -> None:
        for number in range(first, first + documents // callers):
            queue.submit(_customer(number), _payload(number))

    def run(queue: Queue, round: int) -> None:
        with ThreadPoolExecutor(callers) as threads:
            firsts = range(round * documents, (round + 1) * documents, documents // callers)
            for done in [threads.submit(caller, queue, first) for first in firsts]:
                done.result()

    def in_commits(queue: Queue, round: int, commits: int) -> None:
        bounds = [round * documents + number * documents // commits for number in range(commits + 1)]
        for first, last in pairwise(bounds):
            queue.engine.submit([_submission(number) for number in range(first, last)])

    return Scenario(f"submit, {callers} callers", documents, run, in_commits=in_commits)


def batches(documents: int, size: int = 100) -> Scenario:
    """Submit batches of one customer."""

    def run(queue: Queue, round: int) -> None:
        for first in range(round * documents, (round + 1) * documents, size):
            queue.submit_many(_customer(first // size), [_payload(number) for number in range(first, first + size)])

    return Scenario(f"submit_many of {size}", documents, run)


def claims(documents: int, size: int = 50) -> Scenario:
    """Claim and settle as done, without a handler."""

    def prepare(queue: Queue, rounds: int) -> None:
        each = -(-rounds * documents // CUSTOMERS)
        for customer in range(CUSTOMERS):
            queue.submit_many(_customer(customer), [_payload(number) for number in range(each)])

    def run(queue: Queue, _: int) -> None:
        for _ in range(documents // size):
            claimed = queue.engine.claim("bench", size, LEASE_MS)
            assert len(claimed) == size
            lost = queue.engine.settle([(claim, Done()) for claim in claimed])
            assert not lost

    return Scenario(f"claim + settle of {size}", documents, run, prepare)


class Rounds(NamedTuple):
    """The times of all rounds, and the commits of each."""

    ours: list[Timing]
    bare: list[Timing]
    commits: list[list[Commit]]


def measure(scenario: Scenario, rounds: int, folder: Path, advance: Callable[[], None]) -> list[Figure]:
    """Measure documents per second and CPU time per document, ours beside the bare limit."""
    compare = _compare_live if scenario.in_commits else _compare
    return _figures(scenario, compare(scenario, rounds, folder, advance))


def _compare(scenario: Scenario, rounds: int, folder: Path, advance: Callable[[], None]) -> Rounds:
    """Compare when the commits are known beforehand, so that either side may go first."""
    prepared, commits = _record(scenario, rounds, folder / "recorded.db")
    made = Rounds([], [], commits)
    with _queue(folder / "ours.db") as queue, _bare(folder / "bare.db") as connection:
        scenario.prepare(queue, rounds)
        replay(connection, prepared)
        for round in range(rounds):
            turns = [
                (made.ours, partial(scenario.run, queue, round)),
                (made.bare, partial(replay, connection, commits[round])),
            ]
            for timings, run in turns if round % 2 else reversed(turns):
                timings.append(_time(run, scenario.documents))
            advance()
        _assert_same(connection, queue)
    return made


def _compare_live(scenario: Scenario, rounds: int, folder: Path, advance: Callable[[], None]) -> Rounds:
    """Compare when the number of commits is known only after our round; their content is recorded outside the timing."""
    assert scenario.in_commits is not None
    made = Rounds([], [], [])
    with _bare(folder / "bare.db") as connection, _queue(folder / "ours.db") as queue, _queue(folder / "recorded.db") as other:
        with _count_commits() as count:
            _open_writer(queue)
        with record_commits() as commits:
            _open_writer(other)
        for round in range(rounds):
            before = count.total()
            made.ours.append(_time(partial(scenario.run, queue, round), scenario.documents))
            commits.clear()
            scenario.in_commits(other, round, count.total() - before)
            made.commits.append(list(commits))
            made.bare.append(_time(partial(replay, connection, made.commits[-1]), scenario.documents))
            advance()
        assert len(queue.engine.changes(None, 10**9)) == len(other.engine.changes(None, 10**9)) == rounds * scenario.documents
    return made


def _open_writer(queue: Queue) -> None:
    """Make the engine open its connection, with a write that leaves no change in the feed."""
    queue.engine.put_record("bench", "opened", "{}")


@contextmanager
def _count_commits() -> Iterator[Counter[str]]:
    """Count the commits of connections that are opened in the block."""
    count: Counter[str] = Counter()

    def note() -> bool:
        count["commits"] += 1
        return False

    apsw.connection_hooks.append(lambda connection: connection.set_commit_hook(note))
    yield count
    apsw.connection_hooks.pop()


def _figures(scenario: Scenario, made: Rounds) -> list[Figure]:
    """Compute medians of all rounds but the first, which warms up; the note shows the spread of the rounds."""
    ours, bare = made.ours[1:], made.bare[1:]

    def rate(timings: list[Timing]) -> float:
        return 1 / statistics.median(timing.elapsed_seconds for timing in timings)

    def cpu_microseconds(timings: list[Timing]) -> float:
        return 1e6 * statistics.median(timing.cpu_seconds for timing in timings)

    each = scenario.documents * len(made.commits) / sum(map(len, made.commits))
    ratios = [limit.elapsed_seconds / own.elapsed_seconds for own, limit in zip(ours, bare, strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4)
    note = f"{each:.1f} a commit; half of the rounds {low:.2f}-{high:.2f}"
    return [
        Figure(scenario.name, rate(ours), "documents/s", rate(bare), GOAL, note),
        Figure(f"{scenario.name}: CPU", cpu_microseconds(ours), "µs/document", cpu_microseconds(bare)),
    ]


def _record(scenario: Scenario, rounds: int, path: Path) -> tuple[list[Commit], list[list[Commit]]]:
    """Record our commits: before the first round, and in each round."""
    with _queue(path) as queue, record_commits() as commits:
        scenario.prepare(queue, rounds)
        bounds = [len(commits)]
        for round in range(rounds):
            scenario.run(queue, round)
            bounds.append(len(commits))
    return commits[: bounds[0]], [commits[first:last] for first, last in pairwise(bounds)]


def _time(run: Callable[[], None], documents: int) -> Timing:
    began, cpu_began = time.perf_counter(), time.process_time()
    run()
    cpu, elapsed = time.process_time() - cpu_began, time.perf_counter() - began
    return Timing(elapsed / documents, cpu / documents)


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
    """Check that as much happened in both files; in which order documents are claimed depends on how long attempts took."""
    statement = "SELECT what, token, count(*), count(DISTINCT customer) FROM changes GROUP BY what, token"
    bare = connection.execute(statement).fetchall()
    with closing(connect(Path(queue.url.removeprefix("sqlite:///")))) as reader:
        ours = reader.execute(statement).fetchall()
    assert bare == ours, "the bare side did not write the same"
