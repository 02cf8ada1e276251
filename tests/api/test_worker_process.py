"""What the worker beside the service prints: which lines of it are in the log."""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

import pytest

from fairlane.api.limits import ServiceLimits
from fairlane.api.logging import Log
from fairlane.api.store_calls import StoreCalls
from fairlane.api.worker_process import LINE_BYTES_MAX, OutputLines
from fairlane.core.errors import StoreUnreachable
from tests.worker.conftest import until_async

FAILURE = {"event": "store_failed", "reason": "it is away"}


def unreachable() -> None:
    raise StoreUnreachable("it is away")


def printed(stream: io.StringIO) -> list[Any]:
    return [line["said"] for line in map(json.loads, stream.getvalue().splitlines()) if line["event"] == "worker"]


def test_lines_are_logged_as_they_are_but_not_what_goes_well() -> None:
    stream = io.StringIO()
    log = Log(stream)
    output = OutputLines(log, 7, StoreCalls(int, log, ServiceLimits()))
    lost = {"event": "lost", "id": "1"}
    for text in (json.dumps(lost), json.dumps({"event": "finished", "id": "2"}), "fairlane: no", "", "7", json.dumps(FAILURE)):
        output.data_received(text.encode()[:3])
        output.data_received(text.encode()[3:] + b"\n")
    output.data_received(b"x" * 3 * LINE_BYTES_MAX + b"\nlast")
    output.connection_lost(None)
    *whole, cut, last = printed(stream)
    assert whole == [lost, "fairlane: no", 7, FAILURE]
    assert (set(cut), len(cut), last) == ({"x"}, LINE_BYTES_MAX, "last")
    assert output.is_closed.is_set()


def test_failures_are_not_logged_while_the_store_is_known_to_be_away() -> None:
    stream = io.StringIO()
    log = Log(stream)

    async def run() -> None:
        store = StoreCalls(unreachable, log, ServiceLimits())
        output = OutputLines(log, 7, store)
        watching = asyncio.create_task(store.watch())
        with pytest.raises(StoreUnreachable):
            await store.call(unreachable)
        await until_async(lambda: store.is_away)
        for said in (FAILURE, {"event": "lost"}, FAILURE):
            output.data_received(json.dumps(said).encode() + b"\n")
        watching.cancel()
        store.close()

    asyncio.run(run())
    assert printed(stream) == [{"event": "lost"}]
