"""Figures over time add up to what happened."""

from __future__ import annotations

from typing import Any

import httpx

from fairlane.core.document import Done, Failed, Outcome
from tests.api.running import Server, until
from tests.console.page_client import caught_up, claim_only, open_stream


def test_history_adds_up(server: Server, page: httpx.Client, customer: str) -> None:
    with open_stream(page) as stream:  # the figures hold what other tests did
        caught_up(server, stream)
    before = page.get("/page/history").json()["series"]
    ids = [receipt.id for receipt in server.queue.submit_many(customer, [1] * 5)]
    claims = claim_only(server, *ids)
    outcomes: list[Outcome] = [Done(), Done(), Done(), Failed("too_large: no"), Failed("the handler said so")]
    server.queue.engine.settle(list(zip(claims, outcomes, strict=True)))

    def growth(name: str, series: dict[str, Any]) -> int:
        return int(sum(series[name]) - sum(before[name]))

    def grown_series() -> dict[str, Any] | None:
        series: dict[str, Any] = page.get("/page/history").json()["series"]
        return series if growth("done", series) >= 3 else None

    series = until(grown_series)
    assert growth("done", series) == 3
    assert sum(series["failed"]["too_large"]) - sum(before["failed"].get("too_large", ())) == 1
    assert sum(series["failed"]["other"]) - sum(before["failed"].get("other", ())) == 1
    assert any(wait is not None for wait in series["wait_p95"]["1"])
    assert {len(waits) for waits in series["wait_p50"].values()} == {len(series["started"])}
    assert page.get("/page/history?minutes=2000").status_code == 422
