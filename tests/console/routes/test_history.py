"""Figures over time add up to what happened."""

from __future__ import annotations

from typing import Any

import httpx

from fairlane.core.document import Done, Failed, Outcome
from tests.api.running import Server, until
from tests.console.page_client import claim_only


def test_history_adds_up(server: Server, page: httpx.Client, customer: str) -> None:
    ids = [receipt.id for receipt in server.queue.submit_many(customer, [1] * 5)]
    claims = claim_only(server, *ids)
    outcomes: list[Outcome] = [Done(), Done(), Done(), Failed("too_large: no"), Failed("the handler said so")]
    server.queue.engine.settle(list(zip(claims, outcomes, strict=True)))

    def complete_series() -> dict[str, Any] | None:
        series: dict[str, Any] = page.get("/page/history").json()["series"]
        return series if sum(series["done"]) >= 3 else None

    series = until(complete_series)
    assert sum(series["done"]) == 3
    assert {code: sum(counts) for code, counts in series["failed"].items()} == {"too_large": 1, "other": 1}
    assert any(wait is not None for wait in series["wait_p95"]["1"])
    assert {len(waits) for waits in series["wait_p50"].values()} == {len(series["started"])}
    assert page.get("/page/history?minutes=2000").status_code == 422
