"""Benchmark of claims while ten thousand kinds wait: of all kinds, of a hundred and of one, on every engine.

`python -m bench.kinds`. Each kind has two documents; what is claimed is settled between the claims.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import click

from fairlane.core.document import Done, Submission
from fairlane.engine import Engine, open_engine
from fairlane.queue import new_ids
from tests.servers.postgres import Server as PostgresServer
from tests.servers.postgres import find_programs
from tests.servers.redis import Server as RedisServer

CLAIMS, BATCH = 50, 10


@contextmanager
def open_engines() -> Iterator[dict[str, Engine]]:
    """Open an empty queue on every engine, with servers of their own."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="fairlane-bench-"))
        server = stack.enter_context(PostgresServer(find_programs(), settings=()))
        redis = RedisServer("redis")
        redis.start()
        stack.callback(redis.remove)
        urls = {
            "memory": "memory://",
            "sqlite": f"sqlite:///{folder}/kinds.db",
            "postgres": server.url,
            "redis": redis.url("kinds"),
        }
        engines = {name: open_engine(url) for name, url in urls.items()}
        for engine in engines.values():
            stack.callback(engine.close)
        yield engines


def measure(engine: Engine, kinds: dict[str, int] | None) -> list[float]:
    """Return the milliseconds of each claim."""
    times = []
    for _ in range(CLAIMS):
        began = time.perf_counter()
        claims = engine.claim("bench", BATCH, 600_000, kinds)
        times.append(1000 * (time.perf_counter() - began))
        engine.settle([(claim, Done()) for claim in claims])
    return times


@click.command()
@click.option("--kinds", "count", default=10_000, show_default=True)
def main(count: int) -> None:
    """Measure claims while many kinds wait."""
    names = [f"kind-{number:05d}" for number in range(count)]
    lists = {"all kinds": None, "a hundred kinds": dict.fromkeys(names[-100:], 3), "one kind": {names[0]: 3}}
    with open_engines() as engines:
        for name, engine in engines.items():
            for first in range(0, count, 1000):
                batch = [(kind, id) for kind in names[first : first + 1000] for id in new_ids(2)]
                engine.submit([Submission(id, f"customer-{hash(kind) % 100:02d}", kind, "{}") for kind, id in batch])
            for label, kinds in lists.items():
                times = measure(engine, kinds)
                click.echo(f"{name:8} {label:16} median {statistics.median(times):7.2f} ms, worst {max(times):7.2f} ms")


if __name__ == "__main__":
    main()
