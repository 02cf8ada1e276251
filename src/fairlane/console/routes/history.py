"""The route of the charts: figures over time."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from fairlane.api.dependencies import AnyCaller
from fairlane.console.state import SharedState

router = APIRouter(tags=["page"], include_in_schema=False)


@router.get("/page/history")
async def get_history(state: SharedState, _: AnyCaller, minutes: Annotated[int, Query(ge=1, le=1440)] = 60) -> Response:
    """Return figures over time."""
    return Response(await state.loader.history(minutes), media_type="application/json")
