"""The bare limit of the SQLite engine: its own writes replayed in apsw, in the same transactions, without checks or reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import apsw

Commit = list[tuple[str, list[Any]]]  # the writes of one transaction: a statement and its rows


@contextmanager
def record_commits() -> Iterator[list[Commit]]:
    """Record every write of the connections that are opened meanwhile, commit by commit."""
    commits: list[Commit] = []

    def record(_: apsw.Cursor, statement: str, row: Any) -> bool:
        if statement.startswith("BEGIN IMMEDIATE"):
            commits.append([])
        elif statement.startswith(("INSERT", "UPDATE", "DELETE", "REPLACE")):
            if not commits[-1] or commits[-1][-1][0] != statement:
                commits[-1].append((statement, []))
            commits[-1][-1][1].append(row)
        return True

    apsw.connection_hooks.append(lambda connection: setattr(connection, "exec_trace", record))
    yield commits
    apsw.connection_hooks.pop()


def replay(connection: apsw.Connection, commits: Sequence[Commit]) -> None:
    """Make the writes and the commits again."""
    for commit in commits:
        connection.execute("BEGIN IMMEDIATE")
        for statement, rows in commit:
            connection.executemany(statement, rows).fetchall()
        connection.execute("COMMIT")
