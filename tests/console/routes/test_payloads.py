"""The payload of a document as the page shows it: formatted, bounded, and only for those who may see the document."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from fairlane.console.routes.payloads import INDENTED_MAX, SHOWN_MAX, format_payload
from tests.api.running import Server
from tests.console.page_client import signed_in


def payload_of(client: httpx.Client, id: str, **query: Any) -> Any:
    return client.get(f"/page/documents/{id}/payload", params=query).json()["payload"]


def test_a_payload_is_formatted_for_operators_and_its_customer(server: Server, page: httpx.Client, customer: str) -> None:
    payload = {"name": "Größe </pre><script>1</script>", "pages": [1, 2], "half": "\ud800"}
    id = server.queue.submit(customer, payload, key="invoice-17").id
    shown = payload_of(page, id)
    assert shown["text"] == json.dumps(payload, ensure_ascii=False, indent=2)
    assert shown["is_whole"] is True
    assert page.get(f"/page/documents/{id}").json()["document"]["key"] == "invoice-17"
    with signed_in(server, server.key(customer)) as owner:
        assert payload_of(owner, id) == shown
    with signed_in(server, server.key(f"{customer}, neighbour")) as neighbour:
        assert neighbour.get(f"/page/documents/{id}/payload").status_code == 404


def test_a_long_payload_is_cut_and_shown_whole_when_asked_for(server: Server, page: httpx.Client, customer: str) -> None:
    payload = ["line"] * 2000
    id = server.queue.submit(customer, payload).id
    whole = json.dumps(payload, indent=2)
    assert payload_of(page, id) == {"text": whole[:SHOWN_MAX], "size": 14_001, "is_whole": False}
    assert payload_of(page, id, whole=True) == {"text": whole, "size": 14_001, "is_whole": True}


def test_what_is_known_of_a_file_is_not_part_of_its_payload(server: Server, page: httpx.Client, customer: str) -> None:
    bare = server.queue.submit(customer, content=b"x", name="bare.txt").id
    explained = server.queue.submit(customer, {"case": 7}, content=b"x", name="explained.txt").id
    empty = server.queue.submit(customer).id
    assert payload_of(page, bare) is None
    assert json.loads(payload_of(page, explained)["text"]) == {"case": 7}
    assert payload_of(page, empty)["text"] == "null"


@pytest.mark.parametrize("length_max", [SHOWN_MAX, INDENTED_MAX])
def test_indentation_cannot_make_a_payload_much_longer(length_max: int) -> None:
    payload: Any = [1] * 120_000
    for _ in range(98):
        payload = [payload]
    formatted = format_payload(payload, length_max)
    assert len(formatted.text) <= length_max
    assert formatted.is_whole == (length_max == INDENTED_MAX)
    if formatted.is_whole:
        assert json.loads(formatted.text) == payload
