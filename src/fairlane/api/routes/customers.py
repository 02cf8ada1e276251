"""Routes of customers and rules: who am I, and what operators see and change."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from fairlane.api import schemas
from fairlane.api.dependencies import ByAnybody, ByOperator, CustomerInPath, answered, in_path
from fairlane.api.problems import Problem
from fairlane.api.webhooks import drop_webhook, put_webhook, webhook_of
from fairlane.core.document import validate_text
from fairlane.core.policy import Rules
from fairlane.core.policy import Terms as OwnTerms
from fairlane.queue import DEFAULT_KIND, Queue

PAGE_DEFAULT = 50
routes = APIRouter(tags=["customers"])


@routes.get("/v1/me", responses={200: {"model": schemas.Me}})
async def get_me(asked: ByAnybody) -> Response:
    """Whose key this is, and where that customer stands: counter, next priority, waiting, running, when it resets."""
    service, caller = asked
    key = service.keyring.key(caller.key_id)
    look = None
    if caller.customer is not None:
        look = (await service.call(service.wall.look, caller, caller.customer))._asdict()
    return answered(
        {
            "role": "operator" if caller.is_operator else "customer",
            "key": caller.key_id,
            "key_name": "" if key is None else key.name,
            "key_expires_at": None if key is None or key.expires_ms is None else key.expires_ms / 1000,
            "customer": caller.customer,
            "standing": look,
            "kinds": [DEFAULT_KIND, *service.options.kinds],
            "links": {"documents": "/v1/documents", "events": "/v1/events"},
        }
    )


@routes.post("/v1/checks", responses={200: {"model": schemas.Check}})
async def make_check(asked: ByAnybody, body: schemas.CheckBody) -> Response:
    """One check without a document, to use its priority in another queue; it moves the counter."""
    customer = asked.service.wall.customer(asked.caller, body.customer)
    made = await asked.service.call(asked.service.queue.check, customer, cost=body.cost)
    told = {"customer": made.customer, "priority": made.priority, "counter": made.counter, "checked_at": made.checked_at}
    return answered(told)


@routes.get("/v1/customers", responses={200: {"model": schemas.Customers}})
async def list_customers(
    asked: ByOperator,
    after: Annotated[str, Query(max_length=200, description="Customers after this id.")] = "",
    limit: Annotated[int, Query(ge=1, le=500)] = PAGE_DEFAULT,
) -> Response:
    """Where every customer stands, by id, a page at a time."""

    def looks() -> list[dict[str, Any]]:
        queue = asked.service.queue
        return [queue.look(one.id)._asdict() for one in queue.engine.customers(after and validate_text("after", after), limit)]

    page = await asked.service.call(looks)
    following = f"/v1/customers?after={in_path(page[-1]['customer'])}&limit={limit}" if len(page) == limit else None
    return answered({"customers": page, "next": following})


def _customer(queue: Queue, customer: str) -> dict[str, Any]:
    hook = webhook_of(queue.engine, customer)
    terms = queue.terms(customer)
    return {**queue.look(customer)._asdict(), "terms": _terms(terms), "webhook": None if hook is None else hook.url}


def _terms(terms: OwnTerms) -> dict[str, Any]:
    return {
        "weight": terms.weight,
        "cap": terms.cap,
        "paused": terms.paused,
        "reset_interval": terms.reset_interval,
        "thresholds": terms.thresholds,
        "reset": terms.reset,
    }


@routes.get("/v1/customers/{customer}", responses={200: {"model": schemas.Customer}})
async def get_customer(asked: ByOperator, customer: CustomerInPath) -> Response:
    """Where a customer stands and what it has of its own; one never seen stands as before its first document."""
    return answered(await asked.service.call(_customer, asked.service.queue, validate_text("customer", customer)))


@routes.get("/v1/customers/{customer}/explain", responses={200: {"model": schemas.CustomerExplanation}})
async def explain_customer(asked: ByOperator, customer: CustomerInPath) -> Response:
    """Where a customer stands, when that changes and what it has of its own; nothing for one never seen."""
    told = await asked.service.call(asked.service.queue.explain_customer, validate_text("customer", customer))
    return answered({"sentence": told.sentence, **told.facts})


@routes.patch("/v1/customers/{customer}", responses={200: {"model": schemas.Customer}})
async def tune_customer(asked: ByOperator, customer: CustomerInPath, body: schemas.TermsBody) -> Response:
    """Give a customer its own weight, cap, pause or policy; what is not named stays, null is as everybody."""
    wanted = {name: getattr(body, name) for name in body.model_fields_set}
    if wanted.get("thresholds") is not None:
        wanted["thresholds"] = tuple(wanted["thresholds"])

    def tune() -> dict[str, Any]:
        asked.service.queue.tune(customer, **wanted)
        return _customer(asked.service.queue, customer)

    return answered(await asked.service.call(tune))


@routes.post("/v1/customers/{customer}/reset", responses={200: {"model": schemas.Customer}})
async def reset_customer(asked: ByOperator, customer: CustomerInPath) -> Response:
    """Let a customer stand as never seen; its documents keep their priorities."""

    def reset() -> dict[str, Any]:
        asked.service.queue.reset(customer)
        return _customer(asked.service.queue, customer)

    return answered(await asked.service.call(reset))


@routes.put("/v1/customers/{customer}/webhook", responses={200: {"model": schemas.Webhook}})
async def set_webhook(asked: ByOperator, customer: CustomerInPath, body: schemas.WebhookBody) -> Response:
    """Tell endings of a customer's documents to this address; the answer holds the secret that calls are signed with."""
    validate_text("customer", customer)
    hook = await asked.service.call(put_webhook, asked.service.queue.engine, customer, body.url, body.secret)
    return answered({"customer": customer, **hook._asdict()})


@routes.delete("/v1/customers/{customer}/webhook", status_code=204, response_class=Response)
async def remove_webhook(asked: ByOperator, customer: CustomerInPath) -> Response:
    """Tell nothing any more."""
    await asked.service.call(drop_webhook, asked.service.queue.engine, validate_text("customer", customer))
    return Response(status_code=204)


def _policy(rules: Rules) -> dict[str, Any]:
    return {
        "version": rules.version,
        "reset": rules.policy.reset,
        "reset_interval": rules.policy.reset_interval,
        "thresholds": list(rules.policy.thresholds),
        "dispatch": rules.dispatch,
        "open_turn_every": rules.open_turn_every,
    }


@routes.get("/v1/policy", responses={200: {"model": schemas.Policy}})
async def get_policy(asked: ByOperator) -> Response:
    """What holds for everybody, with its version."""
    return answered(_policy(await asked.service.call(asked.service.queue.rules)))


@routes.put("/v1/policy", responses={200: {"model": schemas.Policy}})
async def set_policy(asked: ByOperator, body: schemas.PolicyBody) -> Response:
    """Change what holds for everybody, from the next check or claim on; with `version` only if that is the current one."""

    def configure() -> Rules:
        queue = asked.service.queue
        if body.version is not None and queue.rules().version != body.version:
            raise Problem("changed-meanwhile", f"the policy has another version than {body.version}; look at it again")
        return queue.configure(
            reset=body.reset,
            reset_interval=body.reset_interval,
            thresholds=None if body.thresholds is None else tuple(body.thresholds),
            dispatch=body.dispatch,
            open_turn_every=body.open_turn_every,
        )

    return answered(_policy(await asked.service.call(configure)))
