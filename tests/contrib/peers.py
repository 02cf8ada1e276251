"""What tests of the async libraries share: databases of their own, a store that is locked, and who began before whom."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

import apsw
import psycopg

from tests.servers import postgres

FLOOD, LIGHT = 150, 15
_databases = count(1)


@contextlib.contextmanager
def database(name: str) -> Iterator[str]:
    """A new database of the shared PostgreSQL; its URL."""
    server = postgres.shared()
    name = f"{name}_{next(_databases)}"
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    yield server.url.removesuffix("/postgres") + f"/{name}"
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock a store in a file, by the SQLite that the engine uses: another in this process would not see its locks."""
    connection = apsw.Connection(str(path))
    try:
        connection.execute("BEGIN EXCLUSIVE")
        yield
    finally:
        connection.close()


def floods_before(labels: Sequence[str]) -> list[int]:
    """Return how many tasks of the flood began before each light customer's."""
    return [
        sum(before.startswith("whale") for before in labels[:position])
        for position, label in enumerate(labels)
        if label.startswith("light")
    ]
