"""The table of orders, and where the database is."""

from __future__ import annotations

import os

from sqlalchemy import UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

DATABASE_URL = os.environ["DATABASE_URL"]  # postgresql://user:password@host/database


class Base(DeclarativeBase):
    pass


class Order(Base):
    """What a customer wants to have processed."""

    __tablename__ = "orders"
    __table_args__ = (UniqueConstraint("customer", "number", deferrable=True, initially="DEFERRED"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]
    number: Mapped[str]  # the customer's own; each only once, which PostgreSQL checks at the commit
    document: Mapped[str | None]  # the id in the queue
    pages: Mapped[int | None]  # what the worker found
