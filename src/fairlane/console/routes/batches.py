"""The route of one batch: how far it is, and its documents with their states, a page at a time."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from fairlane.api.dependencies import AnyCaller, IdInPath, document_json, json_response
from fairlane.core.document import State

from .documents import batch_json, file_json

LIMIT_MAX = 200
router = APIRouter(tags=["page"], include_in_schema=False)


@router.get("/page/batches/{id}")
async def get_batch(
    context: AnyCaller,
    id: IdInPath,
    state: State | None = None,
    after: Annotated[int, Query(ge=0, le=1_000_000, description="The documents behind this position.")] = 0,
    limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = 50,
) -> Response:
    """Return a batch with a page of its documents, in the order in which they were submitted."""

    def read_batch() -> dict[str, Any]:
        progress = context.access.batches.progress(id)
        positions = {document_id: position for position, document_id in enumerate(progress.batch.documents, start=1)}
        matching = [document for document in progress.members if state in (None, document.state)]
        following = [document for document in matching if positions[document.id] > after]
        shown = following[:limit]
        return {
            "batch": batch_json(progress.batch),
            "counts": progress.counts,
            "missing": progress.missing,
            "ended": progress.ended,
            "expected_in": progress.expected_in,
            "documents": [document_json(context.caller, document) | file_json(context, document) for document in shown],
            "next": positions[shown[-1].id] if len(following) > limit else None,
        }

    return json_response(await context.service.search(read_batch))
