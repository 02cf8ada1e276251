"""docs/engines.md: a queue on PostgreSQL is made, and submissions join the transactions of other programs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path

import django.db
import django.db.models
import httpx
import psycopg
import pytest
import sqlalchemy.exc
from fastapi import FastAPI
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.pool import NullPool

from fairlane import AsyncQueue, Queue
from tests.docs.snippets import snippet
from tests.servers import postgres
from tests.terminal import bash

from .callers import set_up_django, sqlalchemy_url

TABLE = """
DROP TABLE IF EXISTS shop_orders;
CREATE TABLE shop_orders (
    id serial PRIMARY KEY DEFERRABLE INITIALLY DEFERRED, customer text UNIQUE DEFERRABLE INITIALLY DEFERRED
)
"""  # it refuses at the commit, when the document was submitted already


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "shop_orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str | None]


@pytest.fixture
def url() -> str:
    with psycopg.connect(postgres.shared().url, autocommit=True) as connection:
        connection.execute(TABLE)
    return postgres.empty_queue(postgres.shared())


def orders() -> list[int]:
    with psycopg.connect(postgres.shared().url) as connection:
        return [id for (id,) in connection.execute("SELECT id FROM shop_orders")]


def order_with_sqlalchemy(url: str) -> None:
    program = snippet("docs/engines.md", "with Session(engine) as session")
    engine = create_engine(sqlalchemy_url("psycopg"), poolclass=NullPool)
    with Queue(url) as queue:
        exec(program, {"Session": Session, "engine": engine, "Order": Order, "queue": queue})


async def order_over_http(url: str) -> None:
    program = snippet("docs/engines.md", '@app.post("/orders")')
    app, engine = FastAPI(), create_async_engine(sqlalchemy_url("asyncpg"), poolclass=NullPool)
    async with AsyncQueue(url) as queue:
        exec(program, {"app": app, "AsyncSession": AsyncSession, "engine": engine, "Order": Order, "queue": queue})
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as client:
            answer = await client.post("/orders", params={"customer": "acme"})
    assert answer.json() == {"order": orders()[0]}


def order_with_fastapi(url: str) -> None:
    asyncio.run(order_over_http(url))


@cache
def django_order() -> type[django.db.models.Model]:
    """Make the same table's model in Django, where a model cannot be made before its settings are."""
    set_up_django()
    fields = {"id": django.db.models.AutoField(primary_key=True), "customer": django.db.models.TextField()}
    meta = type("Meta", (), {"app_label": "shop", "db_table": "shop_orders"})
    return type("Order", (django.db.models.Model,), {"__module__": __name__, "Meta": meta, **fields})


def order_with_django(url: str) -> None:
    program, model, db = snippet("docs/engines.md", "with transaction.atomic():"), django_order(), django.db
    with Queue(url) as queue, closing(db.connection):
        names = {"transaction": db.transaction, "connection": db.connection, "Order": model, "customer": "acme"}
        exec(program, {**names, "queue": queue})


@pytest.mark.parametrize("order", [order_with_sqlalchemy, order_with_fastapi, order_with_django])
def test_an_order_and_its_document_are_there_both_or_neither(order: Callable[[str], None], url: str) -> None:
    order(url)
    with Queue(url) as queue:
        (document,) = queue.documents("acme")
        assert [queue.payload(document.id)] == [{"order": id} for id in orders()]
        queue.forget("acme")
        with pytest.raises((sqlalchemy.exc.IntegrityError, django.db.IntegrityError), match="shop_orders"):
            order(url)  # the same order once more
        assert list(queue.documents()) == []


def test_a_queue_is_made_on_postgresql(tmp_path: Path) -> None:
    install, _, commands = snippet("docs/engines.md", 'pip install ".[postgres]"').partition("\n")
    assert install.startswith("pip install ")  # is done already
    url = f"{postgres.shared().url}?schema=shop"
    printed = bash(commands.replace("postgresql://user:password@host:5432/database", url), tmp_path)
    assert f"{url} is ready" in printed
    with Queue(url, create=False) as queue:
        assert queue.submit("acme").priority == 1
