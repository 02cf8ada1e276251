"""The service responds as its OpenAPI document says, to what fits the document and to much that does not.

`python -m chaos.http` sends 20,000 cases to a real server, as an operator and as a customer, right ones and wrong ones in turn:
no response may be a 5xx, and every response must have a status, a media type and a body that the document describes.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from math import ceil
from pathlib import Path
from typing import Any

import click
import httpx
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from fairlane import Queue
from fairlane.api import auth

CHECKS = [
    not_a_server_error, status_code_conformance, content_type_conformance, response_headers_conformance,
    response_schema_conformance,
]  # fmt: skip
OPEN_LIMITS = ("requests_a_second=1000000", "requests_burst=1000000", "wait_seconds=1")
SECONDS_EACH = 60
EACH = 50  # cases of one way before the next one has its turn
MODES = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
STREAM = "/v1/events"  # does not end: only its refusals are looked at


@contextmanager
def serving(folder: Path) -> Iterator[tuple[str, str, str]]:
    """A server of our own: its address, and the keys of an operator and a customer."""
    url = f"sqlite:///{folder}/queue.db"
    with Queue(url) as queue:
        operator, _ = auth.create(queue.engine, role="admin")
        customer, _ = auth.create(queue.engine, customer="acme")
    limits = [part for limit in OPEN_LIMITS for part in ("--limit", limit)]
    command = [sys.executable, "-m", "fairlane.cli", "serve", "--port", "0", "--no-work", "--json", "--url", url, *limits]
    with (folder / "log").open("w") as log, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["address"], operator, customer
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)


def storm(address: str, keys: dict[str, str], cases: int, start: int, advance: Callable[[], None]) -> Counter[str]:
    """At least so many cases over all operations, callers and ways; returns how often each status came."""
    schema = schemathesis.openapi.from_dict(httpx.get(f"{address}/v1/openapi.json", trust_env=False).json())
    schema.config.generation.update(with_security_parameters=False)  # else every wrong case shows a wrong key, and ends at 401
    operations: list[Any] = [operation.ok() for operation in schema.get_all_operations()]  # type: ignore[union-attr]
    known = _known(address, keys)
    ways = [
        (operation, who, mode)
        for operation in operations
        for who in keys
        for mode in MODES
        if mode is GenerationMode.POSITIVE or operation.query or operation.headers or operation.body
    ]  # any text is an id: where nothing else is asked for, nothing can be said wrongly
    statuses: Counter[str] = Counter()
    while ways and (missing := cases - statuses.total()) > 0:
        each = min(EACH, ceil(missing / len(ways)))
        for way in list(ways):
            operation, who, mode = way
            sent_before = statuses.total()
            _storm_one(operation, address, keys[who], mode, each, start, known, partial(_count, statuses, advance, who))
            if statuses.total() == sent_before:
                ways.remove(way)
        start += 1
    return statuses


def _known(address: str, keys: dict[str, str]) -> dict[str, list[str]]:
    """Ids of documents and batches that are there, for the routes that ask for one."""
    headers = {"Authorization": f"Bearer {keys['customer']}"}
    with httpx.Client(base_url=address, headers=headers, trust_env=False) as client:
        batches = [client.post("/v1/batches", json={"documents": [{"payload": number}] * 3}).json() for number in range(20)]
        ids = [document["id"] for batch in batches for document in batch["documents"]]
        for index, id in enumerate(ids):
            if index % 3:  # most have ended: whoever waits for the end of one need not
                client.delete(f"/v1/documents/{id}")
    return {"/v1/batches/{id}": [batch["id"] for batch in batches], "/v1/documents/{id}": ids}


def _count(statuses: Counter[str], advance: Callable[[], None], who: str, status: int) -> None:
    statuses[f"{who} {status}"] += 1
    advance()


def _storm_one(
    operation: Any,
    address: str,
    key: str,
    mode: GenerationMode,
    number: int,
    start: int,
    known: dict[str, list[str]],
    tell: Callable[[int], None],
) -> None:
    numbers = count()

    @seed(start)
    @settings(
        max_examples=number, deadline=None, database=None, phases=(Phase.generate,), suppress_health_check=list(HealthCheck)
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def check_case(case: Any) -> None:
        if operation.path == STREAM:
            case.headers = {"Last-Event-ID": "none"}
        fits = [ids for path, ids in known.items() if operation.path.startswith(path)]
        if fits and next(numbers) % 2:  # every second one asks for something that is there
            case.path_parameters = {"id": fits[0][next(numbers) % len(fits[0])]}
        response = case.call(base_url=address, headers={"Authorization": f"Bearer {key}"}, timeout=SECONDS_EACH)
        case.validate_response(response, checks=[check for check in CHECKS if not _is_quota(response, check)])
        tell(response.status_code)

    with suppress(Unsatisfiable):
        check_case()


def _is_quota(response: Any, check: Callable[..., Any]) -> bool:
    """Whether a check for failures of the server meets the quota of a customer, which a case before has made small."""
    return check is not_a_server_error and response.status_code == 507 and response.json()["type"] == "quota-full"


@click.command()
@click.option("--cases", default=20_000, show_default=True)
@click.option("--seed", "start", default=1, show_default=True)
def main(cases: int, start: int) -> None:
    """Send cases made from the OpenAPI document to a real server."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        tempfile.TemporaryDirectory(prefix="fairlane-chaos-") as folder,
        serving(Path(folder)) as (address, operator, customer),
        Progress(*columns, console=Console(stderr=True)) as progress,
    ):
        task = progress.add_task(f"cases, seed {start}", total=cases)
        statuses = storm(address, {"operator": operator, "customer": customer}, cases, start, lambda: progress.advance(task))
    if statuses.total() < cases:
        raise click.ClickException(f"only {statuses.total():,} of {cases:,} cases could be sent")
    click.echo(f"{statuses.total():,} cases, seed {start}: no 5xx but full quotas, every answer fits the document")
    click.echo(json.dumps(dict(sorted(statuses.items()))))


if __name__ == "__main__":
    main()
