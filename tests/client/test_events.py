"""The stream of events: each once, in order, over lost connections and servers that were killed."""

from __future__ import annotations

import asyncio
import gc
import re
import threading
from collections.abc import AsyncIterator, Iterator
from itertools import islice
from pathlib import Path
from warnings import catch_warnings, simplefilter

import pytest

from fairlane import AsyncClient, Client
from fairlane.api import auth
from fairlane.client import AsyncEvents
from fairlane.core.errors import BadValue, Mistake, Unknown
from fairlane.queue import Change
from tests.api.running import Server, until
from tests.api.test_events import purged_server

from .faulty_proxy import FaultyProxy


@pytest.fixture
def proxy(server: Server) -> Iterator[FaultyProxy]:
    with FaultyProxy(server.port) as proxy:
        yield proxy


def test_events_come_as_they_happen_and_resume_by_themselves(server: Server, proxy: FaultyProxy, customer: str) -> None:
    with Client(proxy.address, server.key(customer), patience=30) as client, client.events() as events:
        ids = []
        seen: list[Change] = []
        reading = threading.Thread(target=lambda: seen.extend(islice(events, 20)))
        reading.start()
        until(lambda: events.last is not None, "the stream to begin")
        for number in range(20):
            ids.append(client.submit().id)
            if number % 5 == 0:
                proxy.drop_connections()
        reading.join(timeout=40)
    assert [event.document for event in seen] == ids
    assert {(event.event, event.customer) for event in seen} == {("submitted", customer)}
    assert len({event.number for event in seen}) == 20


def test_everything_since_an_event_comes_again(server: Server, client: Client) -> None:
    ids = [client.submit().id for _ in range(5)]
    with client.events(after=0) as events:
        first = list(islice(events, 5))
    assert [event.document for event in first] == ids
    with client.events(after=first[2].number) as events:
        assert [event.document for event in islice(events, 2)] == ids[3:]


def test_an_event_is_the_change_that_the_queue_has(server: Server, client: Client) -> None:
    id = client.submit().id
    change = next(change for change in server.queue.changes() if change.document == id)
    with Client(server.address, server.operator) as operator, operator.events(after=0) as events:
        assert next(event for event in events if event.document == id) == change
    with client.events(after=0) as events:  # a customer's numbers do not show how much the whole queue does
        assert next(event for event in events if event.document == id)._replace(number=change.number) == change


def test_a_stream_is_closed_from_another_thread(server: Server, client: Client) -> None:
    events = client.events()
    is_over = threading.Event()

    def read() -> None:
        assert list(events) == []
        is_over.set()

    reading = threading.Thread(target=read)
    reading.start()
    until(lambda: events.last is not None, "the stream to begin")
    events.close()
    assert is_over.wait(30)
    reading.join()


def test_a_key_that_is_revoked_ends_the_stream_with_the_reason(server: Server, customer: str) -> None:
    key = server.key(customer)
    with Client(server.address, key) as client, client.events(after=0) as events:
        client.submit()
        next(events)
        auth.revoke(server.queue.engine, key.split("_")[1])
        with pytest.raises(Mistake, match="a key that is in use"):
            next(events)


def test_events_that_were_purged_are_an_error(tmp_path: Path) -> None:
    server = purged_server(tmp_path)
    try:
        with Client(server.address, server.operator) as client, pytest.raises(Unknown, match="were purged"):
            next(client.events(after=1))
    finally:
        server.close()


def test_a_stream_whose_loop_was_left_is_closed(client: Client) -> None:
    client.submit({"order": 17})
    with catch_warnings(record=True) as warned:
        simplefilter("always")
        for _ in client.events(after=0):
            break
        gc.collect()
    assert [str(warning.message) for warning in warned if warning.category is ResourceWarning] == []


def test_numbers_that_cannot_be_are_refused(client: Client) -> None:
    with pytest.raises(BadValue, match="after is -1"):
        client.events(after=-1)


def test_the_awaited_face_has_the_same_verbs(server: Server, customer: str) -> None:
    async def use() -> None:
        async with AsyncClient(server.address, server.key(customer), patience=30) as client:
            receipts = await asyncio.gather(*(client.submit({"n": n}) for n in range(20)))
            assert len({receipt.id for receipt in receipts}) == 20
            assert (await client.look()).waiting == 20
            assert len([document async for document in client.documents()]) == 20
            assert [look.customer async for look in client.customers()] == [customer]
            async with client.events(after=0) as events:
                seen = [event.document async for event in _some(events, 20)]
            assert set(seen) == {receipt.id for receipt in receipts}
            assert await client.cancel(receipts[0].id)
            assert (await client.wait(receipts[0].id, timeout=30)).state == "cancelled"

    asyncio.run(use())


async def _some(events: AsyncEvents, count: int) -> AsyncIterator[Change]:
    async for event in events:
        yield event
        count -= 1
        if not count:
            return


def test_a_stream_that_waits_for_a_server_ends_with_its_client(tmp_path: Path) -> None:
    server = Server(tmp_path)
    client = Client(server.address, server.operator, patience=600)
    events = client.events(after=0)
    seen: list[Change] = []
    reading = threading.Thread(target=lambda: seen.extend(events))
    reading.start()
    client.submit(customer="acme")
    until(lambda: seen, "the first event")
    server.close()
    client.close()
    reading.join(timeout=40)
    assert not reading.is_alive()


def test_a_stream_says_at_once_where_it_begins(server: Server, client: Client, customer: str) -> None:
    """Otherwise a client that is cut off before the first event would miss what happens until it is back."""
    client.submit()
    with server.client(server.key(customer)) as bare, bare.stream("GET", "/v1/events") as response:
        assert re.fullmatch(r": watching\nid: [1-9]\d*\n\n", next(response.iter_text()))
