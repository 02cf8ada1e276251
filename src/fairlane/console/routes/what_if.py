"""The route of what-if: the last hours replayed under other rules, or with other workers.

Laws:
- One question at a time, with a time limit; its process ends when the client disconnects, and with the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from typing import Any

from fastapi import APIRouter
from pydantic import Field, StrictInt
from starlette.requests import Request
from starlette.responses import Response

from fairlane.api.auth import time_ms
from fairlane.api.dependencies import AnyCaller, RequestContext, json_response
from fairlane.api.problems import Problem
from fairlane.api.schemas import Number, Reset, StrictBody, Turns
from fairlane.console.state import SharedState
from fairlane.core.policy import Policy
from fairlane.procs.python import python_command
from fairlane.procs.syscalls import die_with_parent

SECONDS_MAX = 120.0
POLL_SECONDS = 0.25  # between checks whether the client is still there
WORKERS_MAX = 10_000
ANSWER_BYTES_MAX = 1_000_000
router = APIRouter(tags=["page"], include_in_schema=False)


class WhatIfBody(StrictBody):
    """The rules and workers to replay with; what is left out stays as it is."""

    reset_interval: Number | None = None
    reset: Reset | None = None
    turns: Turns | None = None
    thresholds: list[Number] | None = Field(default=None, max_length=8)
    workers: StrictInt | None = Field(default=None, ge=1, le=WORKERS_MAX)
    hours: StrictInt = Field(default=24, ge=1, le=24)


@router.post("/page/what-if")
async def what_if(context: AnyCaller, state: SharedState, request: Request, body: WhatIfBody) -> Response:
    """Replay the last hours under the current rules and under others."""
    service = context.service
    rules = await service.call(context.access.operator.rules)
    fields = body.model_dump(exclude={"hours"})
    changed = {name: fields[name] for name in ("reset", "reset_interval") if fields[name] is not None}
    Policy(**{"thresholds": tuple(fields["thresholds"] or rules.policy.thresholds), **changed})  # refuses bad values now
    question = fields | {"url": service.store_url, "since_ms": time_ms() - body.hours * 3_600_000}
    if state.is_what_if_running:
        raise Problem("what-if-busy", "another question is being answered; try again in a moment", retry_after=5)
    state.is_what_if_running = True
    try:
        with service.while_waiting():
            return json_response(await _run_process(context, request, question))
    finally:
        state.is_what_if_running = False


async def _run_process(context: RequestContext, request: Request, question: dict[str, Any]) -> dict[str, Any]:
    parent = os.getpid()

    def before_exec() -> None:
        if not die_with_parent(parent, signal.SIGKILL):
            os._exit(1)

    process = await asyncio.create_subprocess_exec(
        *python_command("fairlane.console.what_if_process"), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL, preexec_fn=before_exec,
    )  # fmt: skip
    communication = asyncio.create_task(process.communicate(json.dumps(question).encode()))
    try:
        async with asyncio.timeout(SECONDS_MAX):
            while not communication.done():
                await asyncio.wait([communication], timeout=POLL_SECONDS)
                if context.service.is_stopping or await request.is_disconnected():
                    raise Problem("stopping", "the server stops, or the client has disconnected")
        output, _ = communication.result()
    except TimeoutError:
        raise Problem(
            "overloaded", f"the replay took longer than {SECONDS_MAX:g} s; ask for fewer hours", retry_after=60
        ) from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await asyncio.gather(communication, return_exceptions=True)
    return _parse_answer(process.returncode, output)


def _parse_answer(exit_code: int | None, output: bytes) -> dict[str, Any]:
    is_whole = exit_code == 0 and len(output) < ANSWER_BYTES_MAX
    answer: dict[str, Any] = json.loads(output) if is_whole else {"mistake": None}
    if "mistake" not in answer:
        return answer
    if answer["mistake"] is None:
        raise Problem("broken", "the replay failed")
    raise Problem("no-history", "no document has ended within that time, so there is nothing to replay")
