"""Which engine does a URL name? The only place that names concrete engines."""

from __future__ import annotations

from pathlib import Path

from fairlane.core.errors import BadValue, StoreUnfit

from .protocol import Engine as Engine

URLS = "memory://, or sqlite:///file.db (sqlite:////folder/file.db for a full path), or postgresql://user@host/database"


def open_engine(url: str, create: bool = True) -> Engine:
    """The engine that a URL names, brought to this version's form; with `create` False only one that is already there."""
    engine = _engine(url, create)
    engine.migrate()
    return engine


def _engine(url: str, create: bool) -> Engine:
    if url == "memory://":
        from .memory import MemoryEngine

        return MemoryEngine()
    if isinstance(url, str) and url.startswith("sqlite:///"):
        path = url.removeprefix("sqlite:///")
        if not path or path.startswith(":memory:") or "\0" in path or path.endswith("/"):
            raise BadValue("url", url, "sqlite:/// and the path of a file; for a queue in memory say memory://")
        from .sqlite import SqliteEngine

        return SqliteEngine(Path(path), create)
    if isinstance(url, str) and url.startswith(("postgresql://", "postgres://")):
        return _postgres(url, create)
    raise BadValue("url", url, URLS)


def _postgres(url: str, create: bool) -> Engine:
    try:
        from .postgres import PostgresEngine
    except ModuleNotFoundError as error:
        if error.name not in ("psycopg", "psycopg_pool"):
            raise
        raise StoreUnfit(
            'a queue on PostgreSQL needs psycopg, which is not installed here; run: pip install "fairlane[postgres]"'
        ) from error
    return PostgresEngine(url, create)


def joined(engine: Engine, transaction: object) -> Engine:
    """The same queue inside a transaction that its caller has open on the same server."""
    wanted = "an open psycopg connection, and the queue one at postgresql://"
    if type(engine).__module__.startswith(f"{__name__}.postgres"):
        import psycopg

        from .postgres import PostgresEngine

        if isinstance(engine, PostgresEngine) and isinstance(transaction, psycopg.Connection):
            return engine.within(transaction)
    raise BadValue("transaction", transaction, wanted)
