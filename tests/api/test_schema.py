"""The OpenAPI document is true: a few hundred cases here, 20,000 with `python -m chaos.http`."""

from __future__ import annotations

from pathlib import Path

import httpx

from chaos.http import serving, storm


def test_every_answer_fits_the_document(tmp_path: Path) -> None:
    with serving(tmp_path) as (address, operator, customer):
        statuses = storm(address, {"operator": operator, "customer": customer}, 600, 1, lambda: None)
    assert statuses.total() >= 600
    assert {"operator 200", "customer 200", "customer 202", "customer 404", "operator 409", "operator 422"} <= set(statuses)


def test_every_operation_has_problems_and_a_summary(tmp_path: Path) -> None:
    with serving(tmp_path) as (address, _, _):
        document = httpx.get(f"{address}/v1/openapi.json", trust_env=False).json()
    for path, operations in document["paths"].items():
        for operation in operations.values():
            assert operation["summary"], path
            assert "application/problem+json" in operation["responses"]["401"]["content"]
            assert ("security" in operation) == (path not in ("/", "/healthz", "/readyz"))
    assert "examples" in document["components"]["schemas"]["Receipt"]["properties"]["id"]
