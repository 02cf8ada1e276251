"""Bulk changes over HTTP: counted first, a step a call, and never of another customer's documents."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from fairlane import Client
from fairlane.queue.bulk import all_steps

from .running import Server, problem_of


def change(client: httpx.Client, action: str, cursor: str | None = None, dry_run: bool = False, **filter: Any) -> Any:
    body = {"action": action, "filter": filter, "cursor": cursor, "dry_run": dry_run}
    response = client.post("/v1/documents/bulk", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def test_documents_are_counted_and_cancelled(server: Server, operator: httpx.Client, customer: str) -> None:
    server.queue.submit_many(customer, range(7), kind=customer)
    counted = change(operator, "cancel", dry_run=True, kind=customer)
    assert (counted["matched"], counted["changed"], counted["next"]) == (7, 0, None)
    assert server.queue.look(customer).waiting == 7
    late = server.queue.submit(customer, kind=customer)
    assert change(operator, "cancel", counted["start"], kind=customer)["changed"] == 7
    assert server.queue.document(late.id).state == "ready"
    server.queue.cancel(late.id)


def test_a_customer_changes_only_its_own(server: Server, client: httpx.Client, customer: str) -> None:
    other = f"{customer}, neighbour"
    server.queue.submit_many(customer, range(3), kind="shared")
    server.queue.submit_many(other, range(3), kind="shared")
    assert change(client, "cancel", dry_run=True, kind="shared")["matched"] == 3
    assert change(client, "cancel", kind="shared")["changed"] == 3
    assert (server.queue.look(customer).waiting, server.queue.look(other).waiting) == (0, 3)
    body = {"action": "cancel", "filter": {"customer": other, "kind": "shared"}}
    assert client.post("/v1/documents/bulk", json=body).status_code == 404
    assert server.queue.look(other).waiting == 3


@pytest.mark.parametrize(
    "body",
    [
        {"action": "cancel", "filter": {}},
        {"action": "purge", "filter": {"kind": "scan"}},
        {"action": "cancel", "filter": {"color": "red"}},
        {"action": "cancel", "filter": {"kind": "scan"}, "cursor": "x"},
        {"action": "cancel", "filter": {"state": "done"}},
        {"action": "retry"},
        {"action": "retry", "filter": {"since": "yesterday"}},
    ],
)
def test_what_makes_no_sense_is_refused(operator: httpx.Client, body: dict[str, Any]) -> None:
    response = operator.post("/v1/documents/bulk", json=body)
    assert (response.status_code, problem_of(response)) == (422, "bad-value")


def test_the_client_does_it_step_by_step(server: Server, customer: str) -> None:
    server.queue.submit_many(customer, range(5), kind=customer)
    with Client(server.address, server.operator) as client:
        steps = list(all_steps(lambda cursor: client.bulk("cancel", customer=customer, state="ready", cursor=cursor), None))
    assert sum(step.changed for step in steps) == 5
    assert server.queue.look(customer).cancelled == 5
