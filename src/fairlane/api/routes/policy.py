"""Routes of the policy: the rules that hold for everybody, read and changed by operators."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from fairlane.api import schemas, steering_schemas
from fairlane.api.dependencies import AnyCaller, json_response
from fairlane.core.policy import Rules

router = APIRouter(tags=["customers"])


def _policy_json(rules: Rules) -> dict[str, Any]:
    return {
        "version": rules.version,
        "reset": rules.policy.reset,
        "reset_interval": rules.policy.reset_interval,
        "thresholds": list(rules.policy.thresholds),
        "dispatch": rules.dispatch,
        "turns": rules.turns,
        "open_turn_every": rules.open_turn_every,
        "frozen": rules.frozen,
        **rules.limits._asdict(),
    }


@router.get("/v1/policy", responses={200: {"model": schemas.PolicyModel}})
async def get_policy(context: AnyCaller) -> Response:
    """What holds for everybody, with its version."""
    return json_response(_policy_json(await context.service.call(context.access.operator.rules)))


@router.post("/v1/policy/apply", responses={200: {"model": steering_schemas.BacklogStepModel}})
async def apply_policy(context: AnyCaller, body: steering_schemas.ApplyBody) -> Response:
    """Give waiting documents the priorities that the table of now gives to the counters of their checks, a step at a time; go
    on with `next` as the cursor until it is null. What was set by hand stays."""
    step = await context.service.search(context.access.operator.apply_table, body.customer, body.cursor)
    return json_response(step._asdict())


@router.put("/v1/policy", responses={200: {"model": schemas.PolicyModel}})
async def set_policy(context: AnyCaller, body: schemas.PolicyBody) -> Response:
    """Change what holds for everybody, from the next check or claim on; with `version` only if that is the current one."""
    changes = {name: getattr(body, name) for name in body.model_fields_set - {"version"}}
    if changes.get("thresholds") is not None:
        changes["thresholds"] = tuple(changes["thresholds"])
    return json_response(_policy_json(await context.service.call(context.access.operator.configure, body.version, changes)))
