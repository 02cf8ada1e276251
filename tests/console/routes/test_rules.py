"""The rules that the page explains are those of the caller."""

from __future__ import annotations

import httpx

from tests.api.running import Server
from tests.console.page_client import signed_in


def test_rules_are_those_of_the_caller(server: Server, page: httpx.Client, customer: str) -> None:
    for_all = page.get("/page/rules").json()
    assert (for_all["reset_interval"], for_all["weight"], for_all["dispatch"], for_all["turns"]) == (1500, 1, "fair", "time")
    server.queue.tune(customer, weight=3, reset="sliding")
    with signed_in(server, server.key(customer)) as client:
        rules = client.get("/page/rules").json()
        assert (rules["weight"], rules["reset"], rules["thresholds"]) == (3, "sliding", for_all["thresholds"])
