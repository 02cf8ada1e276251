"""The route of what-if: other rules or workers, and what the last hours would have been with them.

Laws:
- One question at a time, for so many seconds at most; it ends when whoever asked goes away, and with the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from typing import Any

from fastapi import APIRouter
from pydantic import Field, StrictInt
from starlette.requests import Request
from starlette.responses import Response

from fairlane.api.auth import time_ms
from fairlane.api.dependencies import OperatorOnly, RequestContext, json_response
from fairlane.api.problems import Problem
from fairlane.api.schemas import Number, RequestBody, Reset
from fairlane.console.state import SharedState
from fairlane.core.policy import Policy
from fairlane.procs.syscalls import die_with_parent

SECONDS_MAX = 120.0
LOOK_SECONDS = 0.25
WORKERS_MAX = 10_000
ANSWER_BYTES_MAX = 1_000_000
router = APIRouter(tags=["page"], include_in_schema=False)


class WhatIfBody(RequestBody):
    """What is to be otherwise; what is left out is as it is."""

    reset_interval: Number | None = None
    reset: Reset | None = None
    thresholds: list[Number] | None = Field(default=None, max_length=8)
    workers: StrictInt | None = Field(default=None, ge=1, le=WORKERS_MAX)
    hours: StrictInt = Field(default=24, ge=1, le=24)


@router.post("/page/what-if")
async def what_if(context: OperatorOnly, state: SharedState, request: Request, body: WhatIfBody) -> Response:
    """Replay the last hours as they are and as they would be."""
    service = context.service
    rules = await service.call(context.access.operator.rules)
    told = body.model_dump(exclude={"hours"})
    wanted = {name: told[name] for name in ("reset", "reset_interval") if told[name] is not None}
    Policy(**{"thresholds": tuple(told["thresholds"] or rules.policy.thresholds), **wanted})  # bad values are told at once
    question = told | {"url": service.store_url, "since_ms": time_ms() - body.hours * 3_600_000}
    if state.is_what_if_running:
        raise Problem("what-if-busy", "another question is being answered; ask again in a moment", retry_after=5)
    state.is_what_if_running = True
    try:
        with service.while_waiting():
            return json_response(await _answer(context, request, question))
    finally:
        state.is_what_if_running = False


async def _answer(context: RequestContext, request: Request, question: dict[str, Any]) -> dict[str, Any]:
    parent = os.getpid()

    def before_exec() -> None:
        if not die_with_parent(parent, signal.SIGKILL):
            os._exit(1)

    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "fairlane.console.what_if_process", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL, preexec_fn=before_exec,
    )  # fmt: skip
    talking = asyncio.create_task(process.communicate(json.dumps(question).encode()))
    try:
        async with asyncio.timeout(SECONDS_MAX):
            while not talking.done():
                await asyncio.wait([talking], timeout=LOOK_SECONDS)
                if context.service.is_stopping or await request.is_disconnected():
                    raise Problem("stopping", "nobody waits for the answer any more")
        written, _ = talking.result()
    except TimeoutError:
        raise Problem("overloaded", f"it took longer than {SECONDS_MAX:g} s; ask for fewer hours", retry_after=60) from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await asyncio.gather(talking, return_exceptions=True)
    told: dict[str, Any] = (
        json.loads(written) if process.returncode == 0 and len(written) < ANSWER_BYTES_MAX else {"mistake": None}
    )
    if "mistake" in told:
        if told["mistake"] is None:
            raise Problem("broken", "the replay did not end as it should")
        raise Problem("no-history", "no document has ended within that time, so there is nothing to replay")
    return told
