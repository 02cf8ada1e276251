"""Figures: they are what the queue did, and their labels are few."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import pytest

from fairlane import Queue
from fairlane.api.metrics import REASONS_MAX, SENDERS, Metrics
from fairlane.core.document import Done, Failed
from fairlane.core.policy import Policy

from .running import Server, until


def figures(text: str) -> dict[str, float]:
    return {name: float(value) for name, value in re.findall(r"^(fairlane_\S+?(?:\{.*?\})?) (\S+)$", text, re.MULTILINE)}


async def direct(function: object, *args: object) -> object:
    """Call it at once: in this process nobody else waits."""
    return function(*args)  # type: ignore[operator]


class Followed:
    """Metrics that follow a queue in memory, in virtual time."""

    def __init__(self) -> None:
        self.queue = Queue("memory://")
        self.metrics = Metrics(self.queue, direct)
        self._last = -1

    def follow(self) -> dict[str, float]:
        """What the figures are after everything that happened."""

        async def update() -> None:
            if self._last < 0:
                await self.metrics.start()
                self._last = 0
            changes = self.queue.engine.changes(self._last, 10_000)
            await self.metrics.on_changes(changes)
            self._last = changes[-1].number if changes else self._last

        asyncio.run(update())
        return figures(self.metrics.scrape().decode())

    def measure(self) -> dict[str, float]:
        """The same, after a snapshot of the capacity."""
        self.follow()
        asyncio.run(self.metrics.refresh())
        return self.follow()

    def finish(self, number: int, now: float) -> None:
        claims = self.queue.engine.claim("tester", number, 60_000, now_ms=int(now * 1000))
        assert not self.queue.engine.settle([(claim, Done()) for claim in claims], now_ms=int(now * 1000))


def test_ready_oldest_and_waits_by_priority() -> None:
    followed = Followed()
    followed.follow()
    for number in range(5):
        followed.queue.submit("acme", number, now=1000)
    metrics = followed.follow()
    assert metrics['fairlane_ready_documents{priority="1"}'] == 3
    assert metrics['fairlane_ready_documents{priority="2"}'] == 2
    assert metrics['fairlane_sender_waiting_documents{customer="acme"}'] == 5
    followed.finish(4, 1030)
    metrics = followed.follow()
    assert metrics['fairlane_ready_documents{priority="1"}'] == 0
    assert metrics['fairlane_ready_documents{priority="2"}'] == 1
    assert metrics['fairlane_wait_seconds_count{priority="1"}'] == 3
    assert metrics['fairlane_wait_seconds_sum{priority="1"}'] == 90
    assert metrics['fairlane_documents_total{event="done",kind="default"}'] == 4
    assert metrics["fairlane_light_wait_p99_seconds"] == 30


def test_documents_that_get_another_priority_are_counted_there() -> None:
    followed = Followed()
    followed.follow()
    ids = [followed.queue.submit("acme", number, now=1000).id for number in range(4)]
    followed.follow()
    followed.queue.prioritize(ids[3], 9)
    metrics = followed.follow()
    assert [metrics[f'fairlane_ready_documents{{priority="{priority}"}}'] for priority in (1, 2, 9)] == [3, 0, 1]
    followed.queue.engine.configure(replace(followed.queue.rules(), policy=Policy(thresholds=(-1,))))
    followed.queue.apply_table()
    metrics = followed.follow()
    assert [metrics[f'fairlane_ready_documents{{priority="{priority}"}}'] for priority in (1, 2, 9)] == [2, 1, 1]
    followed.queue.reset("acme", with_backlog=True)
    metrics = followed.follow()
    assert [metrics[f'fairlane_ready_documents{{priority="{priority}"}}'] for priority in (1, 2, 9)] == [2, 1, 1]
    assert metrics['fairlane_sender_waiting_documents{customer="acme"}'] == 4


def test_only_light_documents_count_as_light() -> None:
    followed = Followed()
    followed.follow()
    for number in range(3):
        followed.queue.submit("light", number, now=1000 + number)
    for number in range(50):
        followed.queue.submit("heavy", number, now=1000)
    followed.follow()
    followed.finish(6, 1010)
    assert followed.follow()["fairlane_light_wait_p99_seconds"] <= 10
    followed.finish(100, 9000)
    assert followed.follow()["fairlane_light_wait_p99_seconds"] <= 10


def test_failures_and_senders_have_few_labels() -> None:
    followed = Followed()
    followed.follow()
    for number in range(60):
        followed.queue.submit(f"customer {number:02}", 1, now=1000)
        followed.queue.submit(f"customer {number:02}", 1, now=1000)
    claims = followed.queue.engine.claim("tester", 60, 60_000, now_ms=1_000_000)
    outcomes = [(claim, Failed(f"reason {number}: details")) for number, claim in enumerate(claims)]
    followed.queue.engine.settle(outcomes, now_ms=1_001_000)
    metrics = followed.follow()
    assert sum(name.startswith("fairlane_failures_total") for name in metrics) == REASONS_MAX + 1
    assert metrics['fairlane_failures_total{reason="other"}'] == 60 - REASONS_MAX
    assert sum(name.startswith("fairlane_sender_waiting") for name in metrics) == SENDERS


def test_what_comes_back_waits_again_and_a_delay_is_no_wait() -> None:
    followed = Followed()
    followed.follow()
    followed.queue.submit("acme", 1, delay=100, now=1000)
    assert followed.follow()['fairlane_ready_documents{priority="1"}'] == 0
    (claim,) = followed.queue.engine.claim("tester", 1, 1000, now_ms=1_110_000)
    metrics = followed.follow()
    assert (metrics["fairlane_running_documents"], metrics['fairlane_wait_seconds_sum{priority="1"}']) == (1, 10)
    assert followed.queue.engine.reclaim(10, now_ms=1_200_000) == 1
    metrics = followed.follow()
    assert (metrics["fairlane_running_documents"], metrics['fairlane_ready_documents{priority="1"}']) == (0, 1)
    followed.queue.cancel(claim.id)
    assert followed.follow()['fairlane_ready_documents{priority="1"}'] == 0


def test_a_document_that_is_taken_over_goes_on_running_and_its_time_counts_from_the_claim() -> None:
    followed = Followed()
    followed.follow()
    followed.queue.submit("acme", 1, now=1000)
    (claim,) = followed.queue.engine.claim("bridge", 1, 60_000, now_ms=1_001_000)
    (taken,) = followed.queue.engine.take_over([(claim.id, claim.token)], "worker", 60_000, now_ms=1_003_000)
    assert taken is not None
    metrics = followed.follow()
    assert (metrics["fairlane_running_documents"], metrics['fairlane_wait_seconds_count{priority="1"}']) == (1, 1)
    assert metrics['fairlane_documents_total{event="taken_over",kind="default"}'] == 1
    followed.queue.engine.settle([(taken, Done())], now_ms=1_006_000)
    metrics = followed.follow()
    assert metrics["fairlane_running_documents"] == 0
    assert metrics['fairlane_kind_handle_seconds_sum{kind="default"}'] == 5


def test_a_server_that_starts_knows_what_waits_already() -> None:
    followed = Followed()
    followed.queue.submit_many("acme", [1] * 5, now=1000)
    followed.queue.engine.claim("tester", 1, 60_000, now_ms=1_000_000)
    metrics = followed.follow()
    assert metrics['fairlane_sender_waiting_documents{customer="acme"}'] == 4
    assert metrics["fairlane_running_documents"] == 1


@pytest.mark.parametrize("customer", ['"', "\\", "a\u2028b", "{x}"])
def test_a_name_cannot_break_the_page(customer: str, tmp_path: Path) -> None:
    followed = Followed()
    followed.follow()
    followed.queue.submit(customer, 1)
    followed.follow()
    lines = followed.metrics.scrape().decode().split("\n")
    assert sum("fairlane_sender_waiting_documents{" in line for line in lines) == 1


def test_a_server_shows_its_figures(tmp_path: Path) -> None:
    server = Server(tmp_path)
    try:
        with server.client(server.key("acme")) as client, server.client(server.operator) as operator:
            for _ in range(4):
                client.post("/v1/documents", json={})
            server.queue.submit("library", 1)  # somebody who submits past the server
            client.get("/v1/documents/nothing/here/at/all")
            client.get("/v1/documents/nothing")
            metrics = until(
                lambda: (
                    (seen := figures(operator.get("/metrics").text)).get(
                        'fairlane_documents_total{event="submitted",kind="default"}'
                    )
                    == 5
                    and seen
                )
            )
        assert metrics['fairlane_ready_documents{priority="1"}'] == 4
        assert metrics['fairlane_sender_waiting_documents{customer="library"}'] == 1
        assert metrics['fairlane_http_seconds_count{method="POST",route="/v1/documents",status="2xx"}'] == 4
        assert any('route="other",status="4xx"' in name for name in metrics)
        assert any('route="/v1/documents/{id}"' in name for name in metrics)
    finally:
        server.close()
