"""Routes of figures and customers: charts, the list of everybody, one customer, and the rules that hold for the caller."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from starlette.responses import Response

from fairlane.api.auth import time_ms
from fairlane.api.dependencies import AnyCaller, CustomerInPath, OperatorOnly, json_response
from fairlane.api.problems import bad_value, nothing_here
from fairlane.console.read_model.customers import SORTS, Row, Wanted, page
from fairlane.console.read_model.model import Live
from fairlane.console.state import ConsoleState, SharedState
from fairlane.core.document import Customer, DocumentRow, validate_text
from fairlane.core.policy import STEP, step_of

STEPS_MAX = 500
LIMIT_MAX = 200
router = APIRouter(tags=["page"], include_in_schema=False)


@router.get("/page/history")
async def get_history(state: SharedState, _: OperatorOnly, minutes: Annotated[int, Query(ge=1, le=1440)] = 60) -> Response:
    """Figures over time, for charts."""
    return Response(await state.follower.history(minutes), media_type="application/json")


async def _live(state: ConsoleState) -> Live:
    live = await state.follower.live()
    live.pass_time(time_ms())
    return live


@router.get("/page/customers")
async def list_customers(
    context: OperatorOnly,
    state: SharedState,
    sort: Annotated[str, Query(max_length=20)] = "waiting",
    order: Literal["asc", "desc"] = "desc",
    search: Annotated[str, Query(max_length=200)] = "",
    only: Annotated[Literal["paused", "waiting", "failing"] | None, Query(alias="filter")] = None,
    after: Annotated[str | None, Query(max_length=2000)] = None,
    limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = 50,
) -> Response:
    """Customers, sorted, searched and filtered, a page at a time."""
    if sort not in SORTS:
        raise bad_value("sort", sort, f"one of {', '.join(sorted(SORTS))}")
    live, operator = await _live(state), context.access.operator
    wanted = Wanted(sort, order == "desc", search, only, _mark(after), limit)

    def told() -> dict[str, Any]:
        found, total = page(list(live.rows.values()), live.rules.policy, live.now_ms, wanted)
        rows = [_row(live, row, operator.snapshot(row.customer)) for _, row in found]
        following = json.dumps([found[-1][0], found[-1][1].customer]) if len(found) == limit else None
        return {"customers": rows, "total": total, "next": following}

    return json_response(await context.service.call(told))


def _mark(after: str | None) -> tuple[Any, str] | None:
    if after is None:
        return None
    try:
        value, customer = json.loads(after)
        if isinstance(value, int | float) and isinstance(customer, str):
            return value, customer
    except (ValueError, TypeError, RecursionError):
        pass
    raise bad_value("after", after, "what the page before told as next")


def _row(live: Live, row: Row, store: Customer) -> dict[str, Any]:
    """What is shown of a customer: where it stands as the store says, figures as the feed told them."""
    row.standing, row.terms = store.standing, store.terms
    done, failed = row.today(live.now_ms)
    return {
        "customer": store.id,
        "counter": store.counter,
        "next_priority": store.next_priority,
        "resets_in": store.resets_in_ms / 1000,
        "waiting": store.waiting,
        "running": store.running,
        "done_today": done,
        "failed_today": failed,
        "wait_p50": row.wait(50),
        "wait_p95": row.wait(95),
        "trend": row.trend(live.now_ms),
        "paused": store.terms.paused,
        "weight": store.terms.weight,
        "cap": store.terms.cap,
    }


@router.get("/page/customers/{customer}")
async def get_customer(context: OperatorOnly, state: SharedState, customer: CustomerInPath) -> Response:
    """One customer with the steps of its counter."""
    live, operator = await _live(state), context.access.operator
    row = live.rows.get(validate_text("customer", customer))
    if row is None:
        raise nothing_here()

    def told() -> dict[str, Any]:
        store = operator.snapshot(customer)
        documents = operator.newest_documents(customer, STEPS_MAX)
        policy = store.terms.policy(live.rules.policy)
        own = {"reset_interval": policy.reset_interval, "thresholds": list(policy.thresholds), "reset": policy.reset}
        terms = {"weight": store.terms.weight, "cap": store.terms.cap, "paused": store.terms.paused, **own}
        return _row(live, row, store) | {"steps": steps(documents, store.terms.weight_thousandths), "terms": terms}

    return json_response(await context.service.call(told))


def steps(newest_first: list[DocumentRow], weight: int) -> list[dict[str, Any]]:
    """The counter of a customer at each of its checks, oldest first."""
    told: list[dict[str, Any]] = []
    counter = 0
    for one in reversed(newest_first):
        check = one.check
        told.append(
            {
                "at": check.checked_ms,
                "counter": check.counter,
                "priority": check.priority,
                "is_reset": is_reset(one, weight) and check.counter_thousandths > counter,
            }
        )
        counter = check.counter_thousandths
    return told


def is_reset(document: DocumentRow, weight: int) -> bool:
    """Whether a counter stands where a reset, or the first check, leaves it."""
    return document.check.counter_thousandths == min(0, STEP - step_of(document.cost, weight))


@router.get("/page/rules")
async def get_rules(context: AnyCaller) -> Response:
    """What holds for the caller: a customer's own over everybody's, an operator's is everybody's."""
    effective = await context.service.call(context.access.own.rules)
    policy, terms = effective.policy, effective.terms
    return json_response(
        {
            "reset": policy.reset,
            "reset_interval": policy.reset_interval,
            "thresholds": list(policy.thresholds),
            "dispatch": effective.rules.dispatch,
            "open_turn_every": effective.rules.open_turn_every,
            "weight": 1 if terms is None else terms.weight,
            "cap": None if terms is None else terms.cap,
            "paused": terms is not None and terms.paused,
        }
    )
