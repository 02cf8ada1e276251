"""The worker: counts the pages of an order and writes them into its row. A start of its own: python worker.py"""

from __future__ import annotations

from functools import cache

from database import DATABASE_URL, Order
from sqlalchemy import Engine, create_engine
from sqlalchemy.orm import Session

from fairlane import Worker

worker = Worker(DATABASE_URL, slots=4)


@cache
def engine() -> Engine:
    """Make the engine once in each of the worker's processes."""
    return create_engine(DATABASE_URL.replace("postgresql://", "postgresql+psycopg://"))


@worker.handler("order")
def count_pages(document):
    pages = document.payload["text"].count("\f") + 1
    with Session(engine()) as session, session.begin():  # a repeated attempt writes the same again
        session.get_one(Order, document.payload["order"]).pages = pages
    return {"pages": pages}


if __name__ == "__main__":
    worker.run()
