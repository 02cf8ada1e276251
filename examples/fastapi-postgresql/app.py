"""A service that takes orders: the order is a row of SQLAlchemy, its processing a document, and both are in one transaction."""

from __future__ import annotations

from contextlib import asynccontextmanager

from database import DATABASE_URL, Base, Order
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

from fairlane import AsyncQueue

engine = create_async_engine(DATABASE_URL.replace("postgresql://", "postgresql+asyncpg://"))
Session = async_sessionmaker(engine, expire_on_commit=False)


@asynccontextmanager
async def lifespan(app: FastAPI):
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    async with AsyncQueue(DATABASE_URL) as queue:  # the same database: only so can they share a transaction
        app.state.queue = queue
        yield
    await engine.dispose()


app = FastAPI(lifespan=lifespan)


class NewOrder(BaseModel):
    customer: str
    number: str
    text: str


@app.post("/orders", status_code=201)
async def create_order(new: NewOrder) -> dict:
    try:
        async with Session.begin() as session:
            order = Order(customer=new.customer, number=new.number)
            session.add(order)
            await session.flush()  # now it has an id
            payload = {"order": order.id, "text": new.text}
            receipt = await app.state.queue.within(session).submit(new.customer, payload, kind="order")
            order.document = receipt.id
    except IntegrityError:  # at the commit, when the document was submitted already: it is gone like the row, and cost nothing
        raise HTTPException(409, f"{new.customer} has ordered {new.number} before") from None
    return {"order": order.id, "document": receipt.id, "priority": receipt.priority}


@app.get("/orders/{id}")
async def read_order(id: int) -> dict:
    async with Session() as session:
        order = await session.get(Order, id)
    if order is None:
        raise HTTPException(404, f"there is no order {id}")
    document = await app.state.queue.document(order.document)
    return {"customer": order.customer, "number": order.number, "state": document.state, "pages": order.pages}
