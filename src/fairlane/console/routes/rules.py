"""The route of the rules that hold for the caller."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from fairlane.api.dependencies import AnyCaller, json_response

router = APIRouter(tags=["page"], include_in_schema=False)


@router.get("/page/rules")
async def get_rules(context: AnyCaller) -> Response:
    """Return the rules: a customer's own terms come before the rules for all; operators see the rules for all."""
    effective = await context.service.call(context.access.own.rules)
    policy, terms = effective.policy, effective.terms
    return json_response(
        {
            "reset": policy.reset,
            "reset_interval": policy.reset_interval,
            "thresholds": list(policy.thresholds),
            "dispatch": effective.rules.dispatch,
            "turns": effective.rules.turns,
            "open_turn_every": effective.rules.open_turn_every,
            "weight": 1 if terms is None else terms.weight,
            "cap": None if terms is None else terms.cap,
            "paused": terms is not None and terms.paused,
        }
    )
