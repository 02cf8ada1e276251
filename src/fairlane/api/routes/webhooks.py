"""Routes of webhooks: a customer's own address, the rotation of its secret, and deliveries."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from fairlane.api import schemas
from fairlane.api.access.webhooks import WebhookView
from fairlane.api.dependencies import AnyCaller, IdInPath, json_response, quote_name
from fairlane.api.webhook_deliveries import Delivery, DeliveryState

PAGE_DEFAULT = 50
WEBHOOK = "/v1/webhook"
router = APIRouter(tags=["webhooks"])

OfCustomer = Annotated[str | None, Query(max_length=200, description="For operators: whose it is.")]


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _webhook_json(view: WebhookView) -> dict[str, Any]:
    status = view.status
    return {
        "customer": view.customer,
        "url": view.webhook.url,
        "secret": view.new_secret,
        "secrets": [{"made_at": held.made_ms / 1000, "expires_at": _seconds(held.expires_ms)} for held in view.webhook.secrets],
        "made_at": view.webhook.made_ms / 1000,
        "pending": view.pending,
        "failed": view.failed,
        "failures": status.failures,
        "delivered_at": _seconds(status.delivered_ms),
        "failed_at": _seconds(status.failed_ms),
        "failure": status.failure,
    }


def _delivery_json(delivery: Delivery, state: DeliveryState) -> dict[str, Any]:
    return {
        "id": delivery.id,
        "type": delivery.type,
        "state": state,
        "at": delivery.at_ms / 1000,
        "document": delivery.document,
        "batch": delivery.batch,
        "attempts": delivery.attempts,
        "tried_at": _seconds(delivery.tried_ms),
        "outcome": delivery.outcome,
        "next_at": delivery.due_ms / 1000 if state == "pending" else None,
    }


@router.get(WEBHOOK, responses={200: {"model": schemas.WebhookModel}})
async def get_webhook(context: AnyCaller, customer: OfCustomer = None) -> Response:
    """Where endings are sent, and how the calls go; nothing if there is no webhook."""
    return json_response(_webhook_json(await context.service.call(context.access.webhooks.get, customer)))


@router.put(WEBHOOK, responses={200: {"model": schemas.WebhookModel}})
async def set_webhook(context: AnyCaller, body: schemas.WebhookBody, customer: OfCustomer = None) -> Response:
    """Send endings of documents and batches to this address; a secret that is new is in the response, this once."""
    view = await context.service.call(context.access.webhooks.put, customer, body.url, body.secret)
    return json_response(_webhook_json(view))


@router.delete(WEBHOOK, status_code=204, response_class=Response)
async def remove_webhook(context: AnyCaller, customer: OfCustomer = None) -> Response:
    """Send nothing any more; what is pending is dropped."""
    await context.service.call(context.access.webhooks.remove, customer)
    return Response(status_code=204)


@router.post(f"{WEBHOOK}/rotate", responses={200: {"model": schemas.WebhookModel}})
async def rotate_secret(context: AnyCaller, body: schemas.RotationBody, customer: OfCustomer = None) -> Response:
    """Sign with another secret, and with the one before as well for as long as they overlap."""
    view = await context.service.call(context.access.webhooks.rotate, customer, body.secret, body.overlap)
    return json_response(_webhook_json(view))


@router.delete(f"{WEBHOOK}/old-secret", responses={200: {"model": schemas.WebhookModel}})
async def expire_old_secret(context: AnyCaller, customer: OfCustomer = None) -> Response:
    """End the overlap of a rotation now."""
    return json_response(_webhook_json(await context.service.call(context.access.webhooks.expire_old_secret, customer)))


@router.get(f"{WEBHOOK}/deliveries", responses={200: {"model": schemas.DeliveryPageModel}})
async def list_deliveries(
    context: AnyCaller,
    state: DeliveryState = "pending",
    after: Annotated[str, Query(max_length=200)] = "",
    limit: Annotated[int, Query(ge=1, le=500)] = PAGE_DEFAULT,
    customer: OfCustomer = None,
) -> Response:
    """What is to be sent, what was given up, or the newest of what was accepted; a page at a time."""
    page = await context.service.call(context.access.webhooks.deliveries, customer, state, after, limit)
    following = None
    if len(page) == limit and page[-1][0]:
        owner = "" if customer is None else f"&customer={quote_name(customer)}"
        following = f"{WEBHOOK}/deliveries?state={state}&after={quote_name(page[-1][0])}&limit={limit}{owner}"
    return json_response({"deliveries": [_delivery_json(delivery, state) for _, delivery in page], "next": following})


@router.post(f"{WEBHOOK}/deliveries", status_code=202, responses={202: {"model": schemas.DeliveryModel}})
async def send_event(context: AnyCaller, body: schemas.SendBody) -> Response:
    """Send the end of a document or a batch again, with the same id."""
    delivery = await context.service.call(context.access.webhooks.send_event, body.document, body.batch)
    return json_response(_delivery_json(delivery, "pending"), 202)


@router.post(f"{WEBHOOK}/deliveries/{{id}}/send", status_code=202, responses={202: {"model": schemas.DeliveryModel}})
async def send_again(context: AnyCaller, id: IdInPath, customer: OfCustomer = None) -> Response:
    """Send one delivery again, with the same id."""
    delivery = await context.service.call(context.access.webhooks.send_again, customer, id)
    return json_response(_delivery_json(delivery, "pending"), 202)
