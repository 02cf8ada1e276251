"""The route of a document's payload: formatted to be read, a long one shortened unless all of it is asked for.

Laws:
- What is sent is bounded: indentation can make a small payload a hundred times as long, so such a one is sent in one line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Query
from starlette.responses import Response

from fairlane.api.dependencies import AnyCaller, IdInPath, json_response

SHOWN_MAX = 4000  # characters that are sent unless all are asked for
INDENTED_MAX = 2_000_000  # characters; a longer text is sent without indentation
router = APIRouter(tags=["page"], include_in_schema=False)


class FormattedPayload(NamedTuple):
    """A payload as it is shown."""

    text: str
    size: int  # of the whole payload, in bytes of JSON
    is_whole: bool


@router.get("/page/documents/{id}/payload")
async def get_payload(
    context: AnyCaller, id: IdInPath, whole: Annotated[bool, Query(description="All of it, however long.")] = False
) -> Response:
    """Return the payload of a document; nothing for a file that came without one."""

    def read_payload() -> dict[str, Any]:
        file, payload = context.access.documents.payload(id)
        if file is not None and payload is None:
            return {"payload": None}
        return {"payload": format_payload(payload, INDENTED_MAX if whole else SHOWN_MAX)._asdict()}

    return json_response(await context.service.call(read_payload))


def format_payload(payload: Any, length_max: int) -> FormattedPayload:
    """Format a payload in lines, and cut it; beyond INDENTED_MAX it is one line, which is never cut."""
    compact = json.dumps(payload, ensure_ascii=False, separators=(",", ":"))
    size = len(compact.encode(errors="surrogatepass"))
    text = "".join(_take(json.JSONEncoder(ensure_ascii=False, indent=2).iterencode(payload), length_max))
    if len(text) <= length_max:
        return FormattedPayload(text, size, True)
    if length_max >= INDENTED_MAX:
        return FormattedPayload(compact, size, True)
    return FormattedPayload(text[:length_max], size, False)


def _take(chunks: Iterator[str], length_max: int) -> Iterator[str]:
    """Pass chunks on until they are longer than this."""
    length = 0
    for chunk in chunks:
        yield chunk
        length += len(chunk)
        if length > length_max:
            return
