"""Programs whose transaction a queue joins: a connection or session of every kind, with a table of their own."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import asyncpg
import django
import psycopg
from django.conf import settings
from django.db import connections, transaction
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from fairlane import AsyncQueue, Queue
from tests.servers import postgres


class Caller(NamedTuple):
    """A transaction that is open, and what its owner does with it."""

    transaction: Any
    execute: Callable[[str], object]  # a statement of the owner's
    commit: Callable[[], object]
    rollback: Callable[[], object]
    runner: asyncio.Runner | None = None  # of a connection of an event loop
    begin: Callable[[], object] = lambda: None  # where it does not begin by itself

    def call(self, queue: Queue | AsyncQueue, verb: str, *args: Any, **options: Any) -> Any:
        """Call a verb of the queue inside the transaction, on the event loop if there is one; return lists for iterators."""
        if isinstance(queue, Queue):
            found = getattr(queue.within(self.transaction), verb)(*args, **options)
            return list(found) if isinstance(found, Iterator) else found
        assert self.runner is not None

        async def on_loop() -> Any:
            found = getattr(queue.within(self.transaction), verb)(*args, **options)
            return [each async for each in found] if inspect.isasyncgen(found) else await found

        return self.runner.run(on_loop())


def sqlalchemy_url(driver: str) -> str:
    return postgres.shared().url.replace("postgresql://", f"postgresql+{driver}://")


@contextmanager
def psycopg_caller() -> Iterator[Caller]:
    with psycopg.connect(postgres.shared().url) as connection:
        yield Caller(connection, connection.execute, connection.commit, connection.rollback)


@contextmanager
def sqlalchemy_connection(driver: str) -> Iterator[Caller]:
    engine = create_engine(sqlalchemy_url(driver))
    with engine.connect() as connection:
        yield Caller(connection, lambda sql: connection.execute(text(sql)), connection.commit, connection.rollback)
    engine.dispose()


@contextmanager
def sqlalchemy_session(driver: str, is_scoped: bool = False) -> Iterator[Caller]:
    engine = create_engine(sqlalchemy_url(driver))
    session: Any = scoped_session(sessionmaker(engine)) if is_scoped else Session(engine)
    yield Caller(session, lambda sql: session.execute(text(sql)), session.commit, session.rollback)
    session.remove() if is_scoped else session.close()
    engine.dispose()


def set_up_django() -> None:
    """Configure Django with the databases of the tests, once in this process."""
    if not settings.configured:
        server = {"ENGINE": "django.db.backends.postgresql", "USER": "fairlane", "HOST": "127.0.0.1"}
        server |= {"NAME": "postgres", "PORT": str(postgres.shared().port)}
        settings.configure(
            DATABASES={
                "default": server,
                "server_side": server | {"OPTIONS": {"server_side_binding": True}},
                "file": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
            }
        )
        django.setup()


@contextmanager
def django_caller(alias: str = "default") -> Iterator[Caller]:
    set_up_django()
    connection = connections[alias]
    open_blocks = contextlib.ExitStack()

    def begin() -> None:
        open_blocks.enter_context(transaction.atomic(using=alias))

    def rollback() -> None:
        transaction.set_rollback(True, using=alias)
        open_blocks.close()

    def execute(sql: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(sql)

    begin()
    yield Caller(connection, execute, open_blocks.close, rollback, begin=begin)
    open_blocks.close()
    connection.close()


@contextmanager
def async_psycopg() -> Iterator[Caller]:
    with asyncio.Runner() as runner:
        connection = runner.run(psycopg.AsyncConnection.connect(postgres.shared().url))
        yield Caller(
            connection,
            lambda sql: runner.run(connection.execute(sql)),
            lambda: runner.run(connection.commit()),
            lambda: runner.run(connection.rollback()),
            runner,
        )
        runner.run(connection.close())


@contextmanager
def asyncpg_caller(is_pooled: bool = False) -> Iterator[Caller]:
    with asyncio.Runner() as runner:
        pool, connection = runner.run(_connect_asyncpg(is_pooled))
        begun: list[Any] = []

        def begin() -> None:
            begun.append(connection.transaction())
            runner.run(begun[-1].start())

        begin()
        yield Caller(
            connection,
            lambda sql: runner.run(connection.execute(sql)),
            lambda: runner.run(begun[-1].commit()),
            lambda: runner.run(begun[-1].rollback()),
            runner,
            begin,
        )
        runner.run(pool.release(connection) if pool else connection.close())
        if pool:
            runner.run(pool.close())


async def _connect_asyncpg(is_pooled: bool) -> tuple[Any, Any]:
    """Return a connection, and the pool that it is of."""
    if not is_pooled:
        return None, await asyncpg.connect(postgres.shared().url)
    pool = await asyncpg.create_pool(postgres.shared().url, min_size=1, max_size=1)
    return pool, await pool.acquire()


@contextmanager
def async_sqlalchemy(driver: str, kind: str = "session") -> Iterator[Caller]:
    with asyncio.Runner() as runner:
        engine = create_async_engine(sqlalchemy_url(driver))
        owner: Any
        if kind == "connection":
            owner = runner.run(_connect(engine))
        elif kind == "scoped":
            owner = async_scoped_session(async_sessionmaker(engine), scopefunc=lambda: 1)
        else:
            owner = AsyncSession(engine)
        yield Caller(
            owner,
            lambda sql: runner.run(owner.execute(text(sql))),
            lambda: runner.run(owner.commit()),
            lambda: runner.run(owner.rollback()),
            runner,
        )
        runner.run(owner.close())
        runner.run(engine.dispose())


async def _connect(engine: Any) -> Any:
    return await engine.connect()


CALLERS: dict[str, Callable[[], AbstractContextManager[Caller]]] = {
    "psycopg": psycopg_caller,
    "SQLAlchemy connection, psycopg": lambda: sqlalchemy_connection("psycopg"),
    "SQLAlchemy session, psycopg": lambda: sqlalchemy_session("psycopg"),
    "SQLAlchemy scoped session, psycopg": lambda: sqlalchemy_session("psycopg", is_scoped=True),
    "SQLAlchemy session, psycopg2": lambda: sqlalchemy_session("psycopg2"),
    "Django": django_caller,
    "Django, server-side binding": lambda: django_caller("server_side"),
    "async psycopg": async_psycopg,
    "asyncpg": asyncpg_caller,
    "asyncpg of a pool": lambda: asyncpg_caller(is_pooled=True),
    "SQLAlchemy async session, psycopg": lambda: async_sqlalchemy("psycopg"),
    "SQLAlchemy async session, asyncpg": lambda: async_sqlalchemy("asyncpg"),
    "SQLAlchemy async connection, asyncpg": lambda: async_sqlalchemy("asyncpg", "connection"),
    "SQLAlchemy async scoped session, asyncpg": lambda: async_sqlalchemy("asyncpg", "scoped"),
}
