"""The server's problem responses as Fairlane's errors: the problem's code decides which.

Laws:
- Only the code (the member `type`) is relied on; `detail` is for people, and becomes the message unchanged.
- Every problem code of the service is listed here: a test compares them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from fairlane.core.errors import (
    BadValue,
    FairlaneError,
    KeyConflict,
    LimitReached,
    Mistake,
    QueueFull,
    QuotaFull,
    RetriesSpent,
    StoreBusy,
    StoreError,
    StoreFull,
    Unknown,
    WrongState,
)

ERRORS_BY_CODE: dict[str, type[FairlaneError]] = {
    "bad-request": Mistake,
    "no-key": Mistake,
    "not-allowed": Mistake,
    "nothing-here": Unknown,
    "wrong-method": Mistake,
    "too-slow": StoreError,
    "key-conflict": KeyConflict,
    "wrong-state": WrongState,
    "changed-meanwhile": WrongState,
    "token-used": WrongState,
    "events-purged": Unknown,
    "too-large": Mistake,
    "wrong-media-type": Mistake,
    "bad-value": BadValue,
    "retries-spent": RetriesSpent,
    "too-many-queued": QueueFull,
    "quota-full": QuotaFull,
    "too-many-requests": StoreBusy,
    "too-many-headers": Mistake,
    "broken": StoreError,
    "overloaded": StoreBusy,
    "store-busy": StoreBusy,
    "stopping": StoreBusy,
    "store-full": StoreFull,
    "not-from-page": Mistake,
    "no-history": Unknown,
    "what-if-busy": WrongState,
}
NOT_STARTED = frozenset(("too-many-queued", "too-many-requests", "overloaded", "stopping"))  # nothing was changed
DETAIL_LENGTH_MAX = 1000


class ServerProblem(NamedTuple):
    """A response that is an error; an empty code: not in Fairlane's form."""

    status: int
    code: str
    detail: str
    members: Mapping[str, Any] = {}


def parse_problem(status: int, media_type: str, body: bytes) -> ServerProblem:
    """Parse the error response of a server, or of a proxy in front of it."""
    if media_type.partition(";")[0].strip().lower() == "application/problem+json":
        try:
            members = json.loads(body)
            return ServerProblem(status, str(members["type"]), str(members["detail"])[:DETAIL_LENGTH_MAX], members)
        except (ValueError, KeyError, TypeError):
            pass
    return ServerProblem(status, "", f"the server responded {status} without a reason; a proxy in front of it may have done so")


def to_error(problem: ServerProblem) -> FairlaneError:
    """Return the error to raise."""
    kind = ERRORS_BY_CODE.get(problem.code)
    if kind is None:
        kind = Mistake if 400 <= problem.status < 500 and problem.status not in (408, 429) else StoreError
    error = kind.__new__(kind, problem.detail)  # without __init__, which would build another message
    if isinstance(error, BadValue):
        error.name, error.value = problem.detail.partition(" ")[0], None
    if isinstance(error, KeyConflict):
        error.document = ""
    if isinstance(error, LimitReached):
        error.limit = str(problem.members.get("limit", ""))
        figures = [problem.members.get(name) for name in ("used", "adding", "most")]
        error.used, error.adding, error.most = (figure if isinstance(figure, int) else 0 for figure in figures)
    return error
