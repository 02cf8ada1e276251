"""Routes of customers: the list of all, and one with the steps of its counter."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from starlette.responses import Response

from fairlane.api.dependencies import AnyCaller, CustomerInPath, json_response
from fairlane.api.problems import bad_value, nothing_here
from fairlane.console.counter import counter_steps
from fairlane.console.read_model.customers import SORTS, CustomerQuery, CustomerRow, customer_page
from fairlane.console.state import SharedState
from fairlane.core.document import Customer, validate_text
from fairlane.core.policy import weight_of

STEPS_MAX = 500
LIMIT_MAX = 200
router = APIRouter(tags=["page"], include_in_schema=False)


@router.get("/page/customers")
async def list_customers(
    context: AnyCaller,
    state: SharedState,
    sort: Annotated[str, Query(max_length=20)] = "waiting",
    order: Literal["asc", "desc"] = "desc",
    search: Annotated[str, Query(max_length=200)] = "",
    filter: Annotated[Literal["paused", "waiting", "failing"] | None, Query()] = None,
    after: Annotated[str | None, Query(max_length=2000)] = None,
    limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = 50,
) -> Response:
    """Return a page of customers, sorted, searched and filtered."""
    if sort not in SORTS:
        raise bad_value("sort", sort, f"one of {', '.join(sorted(SORTS))}")
    query = CustomerQuery(sort, order == "desc", search, filter, _parse_position(after), limit)
    model, operator = await state.loader.model(), context.access.operator

    def read_page() -> dict[str, Any]:
        page, total = customer_page(list(model.rows.values()), model.rules.policy, model.now_ms, query)
        customers = [_row_json(row, operator.snapshot(row.customer), model.now_ms) for _, row in page]
        position = json.dumps([page[-1][0], page[-1][1].customer]) if len(page) == limit else None
        return {"customers": customers, "total": total, "next": position}

    return json_response(await context.service.call(read_page))


def _parse_position(after: str | None) -> tuple[Any, str] | None:
    """Parse the position that `next` of the page before holds: a sort value and a customer."""
    if after is None:
        return None
    try:
        value, customer = json.loads(after)
        if isinstance(value, int | float) and isinstance(customer, str):
            return value, customer
    except (ValueError, TypeError, RecursionError):
        pass
    raise bad_value("after", after, "the value of next on the page before")


def _row_json(row: CustomerRow, stored: Customer, now_ms: int) -> dict[str, Any]:
    """Return a customer's standing, from the store, with the row's figures; the row takes over the standing."""
    row.standing, row.terms = stored.standing, stored.terms
    done, failed = row.today(now_ms)
    return {
        "customer": stored.id,
        "counter": stored.counter,
        "next_priority": stored.next_priority,
        "resets_in": stored.resets_in_ms / 1000,
        "waiting": stored.waiting,
        "running": stored.running,
        "done_today": done,
        "failed_today": failed,
        "wait_p50": row.wait(50),
        "wait_p95": row.wait(95),
        "trend": row.trend(now_ms),
        "paused": stored.terms.paused,
        "weight": stored.terms.weight,
        "cap": stored.terms.cap,
        "documents": stored.documents,
        "bytes": stored.bytes,
        **stored.limits._asdict(),
    }


@router.get("/page/customers/{customer}")
async def get_customer(context: AnyCaller, state: SharedState, customer: CustomerInPath) -> Response:
    """Return one customer with the steps of its counter."""
    model, operator = await state.loader.model(), context.access.operator
    row = model.rows.get(validate_text("customer", customer))
    if row is None:
        raise nothing_here()

    def read_customer() -> dict[str, Any]:
        stored = operator.snapshot(customer)
        terms, policy = stored.terms, stored.terms.policy(model.rules.policy)
        documents = operator.newest_documents(customer, STEPS_MAX)
        return _row_json(row, stored, model.now_ms) | {
            "steps": counter_steps(documents, weight_of(terms)),
            "terms": {
                "weight": terms.weight,
                "cap": terms.cap,
                "paused": terms.paused,
                "reset_interval": policy.reset_interval,
                "thresholds": list(policy.thresholds),
                "reset": policy.reset,
                **terms.limits._asdict(),
                "cost_min": terms.cost_min,
            },
        }

    return json_response(await context.service.call(read_customer))
