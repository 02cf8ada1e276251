"""Events: what happens, as it happens; resumed without gap or repeat; nobody else's; ended with the key."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from fairlane import Queue
from fairlane.api import auth
from fairlane.core.document import Done

from .running import Server, problem_of, until


class Stream:
    """The events of one stream, read on a thread."""

    def __init__(self, server: Server, key: str, last: int | None = None, path: str = "/v1/events") -> None:
        headers = {"Authorization": f"Bearer {key}"} | ({} if last is None else {"Last-Event-ID": str(last)})
        self._client = httpx.Client(base_url=server.address, headers=headers, timeout=30, trust_env=False)
        self._opened = self._client.stream("GET", path)
        self._answer = self._opened.__enter__()
        assert self._answer.status_code == 200
        self._line: socket.socket = self._answer.extensions["network_stream"].get_extra_info("socket")
        self.text = ""
        self.is_ended = False
        self._thread = threading.Thread(target=self._read)
        self._thread.start()
        until(lambda: ": watching" in self.text, "the stream to begin")

    def _read(self) -> None:
        try:
            for piece in self._answer.iter_text():
                self.text += piece
        except (httpx.HTTPError, ValueError, AttributeError, OSError):
            pass
        self.is_ended = True

    @property
    def events(self) -> list[tuple[int, dict[str, Any]]]:
        """Numbers and what was told, of whole events."""
        whole = self.text[: self.text.rfind("\n\n") + 2]
        return [(int(number), json.loads(data)) for number, data in re.findall(r"id: (\d+)\nevent: \w+\ndata: (.*)\n\n", whole)]

    def close(self) -> None:
        with suppress(OSError):  # the server has closed it
            self._line.shutdown(socket.SHUT_RDWR)  # the thread that reads sees the end
        self._thread.join(timeout=30)
        self._opened.__exit__(None, None, None)  # now, not when it is collected in the middle of another test
        self._client.close()


@contextmanager
def watching(server: Server, key: str, last: int | None = None, path: str = "/v1/events") -> Iterator[Stream]:
    stream = Stream(server, key, last, path)
    try:
        yield stream
    finally:
        stream.close()


def at_least(stream: Stream, number: int) -> list[tuple[int, dict[str, Any]]]:
    """The events of a stream, if there are as many."""
    events = stream.events
    return events if len(events) >= number else []


def test_what_happens_is_reported_as_it_happens(server: Server, customer: str) -> None:
    with watching(server, server.key(customer)) as stream:
        id = server.queue.submit(customer, 1).id
        until(lambda: server.queue.document(id).state == "done" or server.finish(100))
        until(lambda: len(stream.events) >= 3)
        events = [event for _, event in stream.events]
        assert [event["event"] for event in events] == ["submitted", "started", "done"]
        assert {event["document"] for event in events} == {id}
        assert {event["customer"] for event in events} == {customer}


def test_progress_is_reported_while_somebody_watches(server: Server, customer: str) -> None:
    with watching(server, server.key(customer)) as stream:
        id = server.queue.submit(customer, 1).id
        claims = until(lambda: [claim for claim in server.claim(100) if claim.id == id])
        progress = {"token": claims[0].token, "attempt": 1, "progress": 0.5, "partial": None}
        server.queue.engine.put_record("progress", id, json.dumps(progress))
        until(lambda: "event: progress" in stream.text)
        line = re.search(r"event: progress\ndata: (.*)\n", stream.text)
        assert line is not None
        assert json.loads(line[1]) == {
            "event": "progress", "customer": customer, "document": id, "progress": 0.5, "attempt": 1
        }  # fmt: skip
        assert stream.text.count("event: progress") == 1  # the same is not told again


def test_a_customer_sees_only_its_own_and_an_operator_all(server: Server, customer: str) -> None:
    with watching(server, server.key(customer)) as mine, watching(server, server.operator) as every:
        server.queue.submit(f"{customer}, neighbour", 1)
        last = server.queue.submit(customer, 1).id
        until(lambda: any(event["document"] == last for _, event in every.events))
        until(lambda: any(event["document"] == last for _, event in mine.events))
        assert {event["customer"] for _, event in mine.events} == {customer}
        assert {event["customer"] for _, event in every.events} >= {customer, f"{customer}, neighbour"}


@pytest.mark.parametrize("by", ["header", "query"])
def test_whoever_comes_back_misses_nothing_and_sees_nothing_twice(server: Server, customer: str, by: str) -> None:
    key = server.key(customer)
    ids: list[str] = []
    seen: list[str] = []
    numbers: list[int] = []
    server.queue.submit(customer, 1)
    with watching(server, key, 0) as stream:
        last = until(partial(at_least, stream, 1))[0][0]
    stop = threading.Event()

    def produce() -> None:
        while not stop.is_set():
            ids.extend(receipt.id for receipt in server.queue.submit_many(customer, [1] * 3))
            server.queue.submit(f"{customer}, neighbour", 1)

    producer = threading.Thread(target=produce)
    producer.start()
    for turn in range(10):
        path = f"/v1/events?after={last}" if by == "query" else "/v1/events"
        with watching(server, key, None if by == "query" else last, path) as stream:
            events = until(partial(at_least, stream, 1 + turn % 5))
        seen += [event["document"] for _, event in events]
        numbers += [number for number, _ in events]
        last = events[-1][0]
    stop.set()
    producer.join()
    with watching(server, key, last) as stream:
        until(lambda: len(seen) + len(stream.events) >= len(ids))
        seen += [event["document"] for _, event in stream.events]
    assert seen == ids  # all of them, in order, once
    assert len(numbers) == len(set(numbers))


def test_a_customer_cannot_tell_from_ids_how_much_others_do(server: Server, customer: str) -> None:
    """Ids neither rise nor lie close to each other, and the same id comes again for the same event, on any stream."""
    ids = [receipt.id for receipt in server.queue.submit_many(customer, [1] * 20)]
    key = server.key(customer)
    with watching(server, key, 0) as first, watching(server, key, 0) as second, watching(server, server.operator, 0) as every:
        seen = until(partial(at_least, first, 20))
        assert [event["document"] for _, event in seen] == ids
        assert until(partial(at_least, second, 20)) == seen
        until(lambda: set(ids) <= {event["document"] for _, event in every.events})
        true_numbers = {event["document"]: number for number, event in every.events}
    numbers = [number for number, _ in seen]
    distances = [abs(later - earlier) for earlier, later in pairwise(numbers)]
    assert numbers != sorted(numbers)
    assert min(distances) > 2**64
    assert not {number % 2**53 for number in numbers} & set(true_numbers.values())


def test_ids_up_to_here_do_not_show_whether_anything_happened(server: Server, customer: str) -> None:
    key = server.key(customer)
    with watching(server, key) as first, watching(server, key) as second:
        ids = [re.findall(r": watching\nid: (\d+)\n", stream.text)[0] for stream in (first, second)]
    assert ids[0] != ids[1]
    submitted = server.queue.submit(customer, 1).id
    for id in ids:  # each leads on from where it was
        with watching(server, key, int(id)) as stream:
            assert until(partial(at_least, stream, 1))[0][1]["document"] == submitted


def test_a_guessed_number_and_an_id_of_somebody_else_are_no_ids(server: Server, customer: str) -> None:
    other = f"{customer}, neighbour"
    server.queue.submit(other, 1)
    with watching(server, server.key(other), 0) as stream:
        foreign = until(partial(at_least, stream, 1))[0][0]
    with server.client(server.key(customer)) as client:
        for id in (1, 12, 2**53, foreign, foreign + 1, 10**38, 10**39 - 1):
            answer = client.get("/v1/events", params={"after": id})
            assert (answer.status_code, problem_of(answer)) == (410, "events-purged"), id
            answer = client.get("/v1/events", headers={"Last-Event-ID": str(id)})
            assert (answer.status_code, problem_of(answer)) == (410, "events-purged"), id


def test_from_the_beginning(server: Server, customer: str) -> None:
    ids = [receipt.id for receipt in server.queue.submit_many(customer, [1] * 20)]
    with watching(server, server.key(customer), path="/v1/events?after=0") as stream:
        until(lambda: len(stream.events) >= 20)
        assert [event["document"] for _, event in stream.events] == ids


def test_a_stream_ends_with_its_key(server: Server, customer: str) -> None:
    secret, key = auth.create(server.queue.engine, customer=customer)
    with watching(server, secret) as stream:
        auth.revoke(server.queue.engine, key.id)
        until(lambda: stream.is_ended)


def test_a_number_that_is_none_is_refused(server: Server) -> None:
    with server.client(server.operator) as client:
        for last in ("x", "-1", "1e3", "9" * 30):
            answer = client.get("/v1/events", headers={"Last-Event-ID": last})
            assert (answer.status_code, problem_of(answer)) == (422, "bad-value")


def purged_server(folder: Path) -> Server:
    """A server that never saw the first events of its queue: they were purged before it began."""
    with Queue(f"sqlite:///{folder}/queue.db") as queue:
        queue.submit("acme", 1)
        queue.engine.settle([(claim, Done()) for claim in queue.engine.claim("tester", 1, 60_000)])
        assert queue.purge(0, now=9_999_999_999) == 1
        queue.submit("acme", 2)
    return Server(folder)


def test_events_that_were_purged_are_reported_as_gone(tmp_path: Path) -> None:
    server = purged_server(tmp_path)
    try:
        with server.client(server.operator) as client:
            answer = client.get("/v1/events", params={"after": 1})
            assert (answer.status_code, problem_of(answer)) == (410, "events-purged")
    finally:
        server.close()


def test_streams_end_when_the_server_stops_and_go_on_at_the_next_one(tmp_path: Path) -> None:
    server = Server(tmp_path)
    try:
        key = server.key("acme")
        first = server.queue.submit("acme", 1).id
        with watching(server, key, 0) as stream:
            until(lambda: stream.events)
            assert server.stop() == 0
            until(lambda: stream.is_ended)
            last = stream.events[-1][0]
        second = server.queue.submit("acme", 1).id
        server.start()
        with watching(server, key, last) as stream:
            until(lambda: stream.events)
            assert [event["document"] for _, event in stream.events] == [second] != [first]
    finally:
        server.close()
