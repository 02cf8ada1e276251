"""The audit log as a download: every entry that matches, a line each; broken off, and seen to be, when its key has ended."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import httpx
import pytest
from starlette.responses import StreamingResponse

from fairlane import Queue
from fairlane.api import auth
from fairlane.api.app import make_app
from fairlane.api.dependencies import RequestContext
from fairlane.api.extension import Extension
from fairlane.api.logging import Log
from fairlane.api.problems import Problem
from fairlane.api.service import Options, Service
from fairlane.console.routes.audit import export_audit
from fairlane.engine import Engine
from fairlane.queue.audit import PAGE_SIZE, SCAN_MAX, Actor, AuditFilter, audit_json, note, walk_audit
from tests.api.running import Server, problem_of, until
from tests.console.page_client import signed_in

EXPORT = "/page/audit/export"


def write(engine: Engine, count: int, name: str, customer: str | None = None) -> None:
    """Write entries of one person."""
    for number in range(count):
        note(engine, Actor("person", name, name, "operator"), "customer.pause", customer=customer, after={"number": number})


def lines_of(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    assert answer.text.endswith("\n")
    return [json.loads(line) for line in answer.text.splitlines()]


def test_every_entry_that_matches_is_a_line_newest_first(server: Server, customer: str) -> None:
    engine, other = server.queue.engine, f"{customer}, neighbour"
    write(engine, PAGE_SIZE + 30, "ada", customer)
    write(engine, 3, "eve", other)
    with signed_in(server, server.admin) as page:
        answer = page.get(EXPORT, params={"customer": customer})
        assert answer.headers["content-type"] == "application/jsonl"
        assert answer.headers["content-disposition"].startswith('attachment; filename="audit.jsonl"')
        assert answer.headers["cache-control"] == "no-store"
        assert lines_of(answer) == [audit_json(entry) for entry in walk_audit(engine, AuditFilter(customer=customer))]
        assert [line["after"]["number"] for line in lines_of(answer)] == [*range(PAGE_SIZE + 29, -1, -1)]
        assert len(lines_of(page.get(EXPORT, params={"customer": other, "who": "eve", "what": "customer"}))) == 3
        assert page.get(EXPORT, params={"customer": other, "who": "ada"}).text == ""
        since = lines_of(page.get(EXPORT, params={"customer": other}))[0]["at"]
        assert page.get(EXPORT, params={"customer": other, "since": since + 1}).text == ""
        assert problem_of(page.get(EXPORT, params={"limit": 5})) == "bad-value"
        assert page.head(EXPORT).status_code == 200


@asynccontextmanager
async def downloading(service: Service, secret: str, **filters: Any) -> AsyncIterator[AsyncIterator[bytes]]:
    """The pieces of a download, as the route makes them."""
    make_app(service, Extension())
    caller = await service.caller(secret)
    assert caller is not None
    try:
        with service.answering(caller.id):
            response = await export_audit(RequestContext(service, caller, secret, "127.0.0.1"), **filters)
            assert isinstance(response, StreamingResponse)
            yield cast(AsyncIterator[bytes], response.body_iterator)
    finally:
        await service.close()


def test_what_stands_behind_thousands_of_others_is_in_it() -> None:
    async def download() -> bytes:
        with Queue("memory://") as queue:
            secret, _ = auth.create(queue.engine, role="admin")
            write(queue.engine, 2, "ada")
            write(queue.engine, SCAN_MAX + 10, "somebody busy")
            async with downloading(Service(queue, Options(), Log()), secret, who="ada") as pieces:
                return b"".join([piece async for piece in pieces])

    assert [json.loads(line)["after"]["number"] for line in asyncio.run(download()).splitlines()] == [1, 0]


@pytest.mark.parametrize("ended", ["revoked", "stopping"])
def test_a_download_breaks_off_when_its_key_ends_or_the_server_stops(ended: str) -> None:
    async def download() -> tuple[int, str]:
        with Queue("memory://") as queue:
            secret, key = auth.create(queue.engine, role="admin")
            write(queue.engine, 3 * PAGE_SIZE, "ada")
            service = Service(queue, Options(), Log())
            async with downloading(service, secret) as pieces:
                first = await anext(pieces)
                if ended == "revoked":
                    auth.revoke(queue.engine, key.id)
                    await asyncio.to_thread(until, lambda: not service.keyring.is_cached(key.id), "the end of the cache")
                else:
                    service.stop()
                with pytest.raises(Problem) as raised:  # which breaks off the connection: a response has begun
                    await anext(pieces)
            return first.count(b"\n"), raised.value.type

    assert asyncio.run(download()) == (PAGE_SIZE, "no-key" if ended == "revoked" else "stopping")
