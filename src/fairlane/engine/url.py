"""Store URLs: which engine each scheme names. No other module imports a concrete engine."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable
from pathlib import Path

from fairlane.core.errors import BadValue, StoreUnfit
from fairlane.masking import mask_url

from .protocol import Engine

URL_FORMS = (
    "memory://, sqlite:///file.db (sqlite:////folder/file.db for a full path), postgresql://user@host/database, or redis:// "
    "and valkey:// with a host, as in redis://localhost:6379/0"
)
REDIS_SCHEMES = ("redis", "rediss", "valkey", "valkeys", "redis+unix", "valkey+unix")


Opener = Callable[[str, bool], Engine]


def open_engine(url: str, create: bool = True) -> Engine:
    """Open the engine that a URL names, which migrates its store; with `create` False the queue must already exist."""
    return engine_opener(url)(url, create)


def engine_opener(url: str) -> Opener:
    """Return what opens a URL; raise BadValue if it names no store, StoreUnfit if that store's driver is not installed."""
    if url == "memory://":
        return _open_memory
    if isinstance(url, str) and url.startswith("sqlite:///"):
        return _open_sqlite
    if isinstance(url, str) and url.startswith(("postgresql://", "postgres://")):
        return _postgres_opener()
    if isinstance(url, str) and url.partition("://")[0] in REDIS_SCHEMES:
        return _redis_opener()
    raise BadValue("url", mask_url(url) if isinstance(url, str) else url, URL_FORMS)


def _open_memory(_: str, __: bool) -> Engine:
    from .memory import MemoryEngine

    return MemoryEngine()


def set_memory_clock(engine: Engine, clock: Callable[[], int]) -> None:
    """Have a queue in memory go by another clock, in milliseconds since the epoch."""
    from .memory import MemoryEngine

    assert isinstance(engine, MemoryEngine)
    engine.clock = clock


def _open_sqlite(url: str, create: bool) -> Engine:
    path = url.removeprefix("sqlite:///")
    if not path or path.startswith(":memory:") or "\0" in path or path.endswith("/"):
        raise BadValue("url", url, "sqlite:/// and the path of a file; for a queue in memory say memory://")
    from .sqlite import SqliteEngine

    return SqliteEngine(Path(path), create)


def _postgres_opener() -> Opener:
    try:
        from .postgres import PostgresEngine
    except ModuleNotFoundError as error:
        if error.name != "psycopg":
            raise
        raise StoreUnfit(
            'a queue on PostgreSQL needs psycopg, which is not installed here; run in the clone: pip install ".[postgres]"'
        ) from error
    return PostgresEngine


def _redis_opener() -> Opener:
    try:
        import hiredis  # noqa: F401 - without it redis-py parses every response in Python, at half the speed
        import redis  # noqa: F401
    except ImportError as error:
        raise StoreUnfit(
            'a queue on Redis or Valkey needs two more packages; run in the clone: pip install ".[redis]"'
        ) from error
    from .redis import RedisEngine

    return RedisEngine


def join_transaction(engine: Engine, transaction: object, loop: AbstractEventLoop | None = None) -> Engine:
    """Return the same queue inside a transaction that the caller has open on the same server; an async one is on `loop`."""
    if not type(engine).__module__.startswith(f"{__package__}.postgres"):
        raise BadValue(
            "transaction",
            transaction,
            "joined by a queue at postgresql://, on the same database; to a queue elsewhere submit after your commit",
        )
    from .postgres import PostgresEngine

    assert isinstance(engine, PostgresEngine)
    return engine.within(transaction, loop)


def copy_queue_file(engine: Engine, target: Path, on_step: Callable[[int, int], None]) -> bool:
    """Copy a queue in a file as it is now, while it is in use, and check the copy; return False for other engines."""
    if not type(engine).__module__.startswith(f"{__package__}.sqlite"):
        return False
    from .sqlite import SqliteEngine
    from .sqlite.backup import check_file, copy_file

    assert isinstance(engine, SqliteEngine)
    copy_file(engine.path, target, on_step)
    check_file(target)
    return True


def fence_queue_file(path: Path) -> None:
    """Make a copy of a queue's file a queue of its own, which refuses claims that were made on the original."""
    from .sqlite.backup import fence_file

    fence_file(path)


def vacuum_queue_file(engine: Engine) -> bool:
    """Rewrite the file of a queue, so that nothing is left in it of rows that were deleted; return False for other engines."""
    if not type(engine).__module__.startswith(f"{__package__}.sqlite"):
        return False
    from .sqlite import SqliteEngine
    from .sqlite.vacuum import vacuum_file

    assert isinstance(engine, SqliteEngine)
    vacuum_file(engine.path)
    return True
