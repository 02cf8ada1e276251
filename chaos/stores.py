"""A store of any durable engine for one run: a file of SQLite, or a server of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .servers import SERVERS

STORES = ("sqlite", *SERVERS)


@contextmanager
def open_store(engine: str, folder: Path) -> Iterator[str]:
    """Return the URL of an empty store; its server, if it has one, stops afterwards."""
    if engine == "sqlite":
        yield f"sqlite:///{folder / 'queue.db'}"
        return
    server = SERVERS[engine]()
    try:
        yield server.url
    finally:
        server.close()
