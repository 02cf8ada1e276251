"""Routes of customers: whose key this is, checks, and what operators see and change of every customer."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response, StreamingResponse

from fairlane.api import schemas, steering_schemas
from fairlane.api.access.operator import CustomerView
from fairlane.api.dependencies import AnyCaller, CustomerInPath, json_response, quote_name, value_json
from fairlane.api.download import archive_response
from fairlane.core.policy import Terms

PAGE_DEFAULT = 50
router = APIRouter(tags=["customers"])


@router.get("/v1/me", responses={200: {"model": schemas.MeModel}})
async def get_me(context: AnyCaller) -> Response:
    """Who calls, and where that customer stands: counter, next priority, waiting, running, when it resets."""
    service, caller = context.service, context.caller
    key = service.keyring.key(caller.id)
    look = await service.call(context.access.own.look)
    return json_response(
        {
            "role": caller.role,
            "permissions": sorted(caller.permissions),
            "key": None if caller.is_person else caller.id,
            "key_name": None if caller.is_person else caller.name,
            "key_expires_at": None if key is None or key.expires_ms is None else key.expires_ms / 1000,
            "person": {"id": caller.id, "name": caller.name} if caller.is_person else None,
            "customer": caller.customer,
            "standing": None if look is None else value_json(look),
            "kinds": service.kinds,
            "links": {"documents": "/v1/documents", "events": "/v1/events"},
        }
    )


@router.post("/v1/checks", responses={200: {"model": schemas.CheckModel}})
async def make_check(context: AnyCaller, body: schemas.CheckBody) -> Response:
    """One check without a document, to use its priority in another queue; it moves the counter."""
    check = await context.service.call(context.access.own.check, body.customer, body.cost)
    return json_response(value_json(check))


@router.get("/v1/customers", responses={200: {"model": schemas.CustomerPageModel}})
async def list_customers(
    context: AnyCaller,
    after: Annotated[str, Query(max_length=200, description="Customers after this id.")] = "",
    limit: Annotated[int, Query(ge=1, le=500)] = PAGE_DEFAULT,
) -> Response:
    """Where every customer stands, by id, a page at a time."""
    page = await context.service.call(context.access.operator.customers, after, limit)
    following = f"/v1/customers?after={quote_name(page[-1].customer)}&limit={limit}" if len(page) == limit else None
    return json_response({"customers": [value_json(look) for look in page], "next": following})


def _customer_json(view: CustomerView) -> dict[str, Any]:
    return {**value_json(view.look), "terms": _terms_json(view.terms), "webhook": view.webhook_url}


def _terms_json(terms: Terms) -> dict[str, Any]:
    return {
        "weight": terms.weight,
        "cap": terms.cap,
        "paused": terms.paused,
        "reset_interval": terms.reset_interval,
        "thresholds": terms.thresholds,
        "reset": terms.reset,
        **terms.limits._asdict(),
        "cost_min": terms.cost_min,
    }


@router.get("/v1/customers/{customer}", responses={200: {"model": schemas.CustomerModel}})
async def get_customer(context: AnyCaller, customer: CustomerInPath) -> Response:
    """Where a customer stands and what it has of its own; one never seen stands as before its first document."""
    return json_response(_customer_json(await context.service.call(context.access.operator.customer, customer)))


@router.get("/v1/customers/{customer}/explain", responses={200: {"model": schemas.CustomerExplanationModel}})
async def explain_customer(context: AnyCaller, customer: CustomerInPath) -> Response:
    """Where a customer stands, when that changes and what it has of its own; nothing for one never seen."""
    explanation = await context.service.call(context.access.operator.explain, customer)
    return json_response({"sentence": explanation.sentence, **explanation.facts})


@router.get(
    "/v1/customers/{customer}/export",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "A tar archive with everything that is kept of the customer, made while it is sent.",
            "content": {"application/x-tar": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def export_customer(context: AnyCaller, customer: CustomerInPath) -> Response:
    """Everything that is kept of a customer, as one archive: documents, files, feed, keys and webhook without secrets."""
    export = await context.service.call(context.access.operator.export, customer)
    return archive_response(context.service, iter(export), f"{customer}.tar")


@router.patch("/v1/customers/{customer}", responses={200: {"model": schemas.CustomerModel}})
async def tune_customer(context: AnyCaller, customer: CustomerInPath, body: schemas.TermsBody) -> Response:
    """Give a customer its own weight, cap, pause, policy or limits; what is not named stays, null is as everybody."""
    changes = {name: getattr(body, name) for name in body.model_fields_set}
    if changes.get("thresholds") is not None:
        changes["thresholds"] = tuple(changes["thresholds"])
    return json_response(_customer_json(await context.service.call(context.access.operator.tune, customer, changes)))


@router.post("/v1/customers/{customer}/reset", responses={200: {"model": steering_schemas.ResetModel}})
async def reset_customer(
    context: AnyCaller, customer: CustomerInPath, body: steering_schemas.ResetBody | None = None
) -> Response:
    """Let a customer stand as never seen; its documents keep their priorities. With its backlog its waiting documents are
    checked again, as if they came now, a step at a time: go on with `next` as the cursor until it is null."""
    wanted = body or steering_schemas.ResetBody()
    reset = context.access.operator.reset
    view, step = await context.service.search(reset, customer, wanted.with_backlog, wanted.cursor)
    return json_response({**_customer_json(view), **step._asdict()})
