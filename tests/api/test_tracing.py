"""Traces: a document is one trace, from its submission over HTTP to its ending in the worker, told to a real OTLP receiver."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane import Queue
from fairlane.queue import new_ids
from fairlane.tracing import exporters, open_spans
from fairlane.tracing.spans import Spans, root_of
from tests.docs.snippets import snippet
from tests.servers.otlp import Receiver

from .running import Server, until

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SECRET = "a payload that nobody may see"
WORKER = """
import fairlane

worker = fairlane.Worker({url!r}, slots=2, backoff=fairlane.Backoff(first=0.01))

@worker.handler("default", attempts=2)
def handle(document):
    if document.attempt == 1 and document.payload.get("fails"):
        raise ValueError("{secret}")

worker.run(until_empty=True)
with fairlane.Queue({url!r}) as queue:
    queue.submit("later", {{}})
worker.run(until_empty=True)
"""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


def work(url: str, folder: Path, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """A worker of somebody's own, in a process of its own, until the queue is empty; twice, as one may."""
    script = folder / "worker_of_mine.py"
    script.write_text(WORKER.format(url=url, secret=SECRET))
    command = [sys.executable, "-W", "error", str(script)]
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60, check=True)


def test_a_document_is_one_trace_from_submit_to_done(tmp_path: Path, receiver: Receiver) -> None:
    variables = receiver.variables | {"OTEL_BSP_SCHEDULE_DELAY": "600000"}  # so that what is told is told at the end
    server = Server(tmp_path, variables=variables)
    try:
        with server.client(server.key("acme")) as client:
            headers = {"traceparent": f"00-{TRACE}-{SPAN}-01", "Idempotency-Key": "the key of a sender"}
            body = {"payload": {"told": SECRET, "fails": True}}
            id = client.post("/v1/documents", json=body, headers=headers).json()["id"]
            assert client.post("/v1/documents", json=body, headers=headers).json()["repeated"]
        assert "the hook" not in work(server.url, tmp_path, variables).stderr
        assert server.queue.document(id).state == "done"
    finally:
        server.close()
    spans = receiver.of(id)
    assert [span.name for span in spans] == ["submit", "wait", "handle", "wait", "handle"]
    submit, first_wait, first, second_wait, second = spans
    assert {span.trace for span in spans} == {submit.trace}
    assert (submit.parent, {span.parent for span in spans[1:]}) == ("", {submit.id})
    assert len({span.id for span in spans}) == 5
    assert (submit.links, {span.service for span in spans}) == ([(TRACE, SPAN)], {"fairlane"})
    about = {"fairlane.document.id": id, "fairlane.customer.id": "acme", "fairlane.priority": 1}
    assert submit.attributes == about
    assert first_wait.attributes == about | {"fairlane.attempt": 1}
    assert first.attributes == about | {"fairlane.attempt": 1, "fairlane.outcome": "retried"}
    assert second_wait.attributes == about | {"fairlane.attempt": 2}
    assert second.attributes == about | {"fairlane.attempt": 2, "fairlane.outcome": "done"}
    assert [span.is_error for span in spans] == [False, False, True, False, False]
    assert (first_wait.end, second_wait.end) == (first.start, second.start)
    assert all(span.start <= span.end for span in spans)
    later = [span for span in receiver.spans if span.attributes["fairlane.customer.id"] == "later"]
    assert sorted(span.name for span in later) == ["handle", "wait"]  # of a document that did not come over HTTP
    assert SECRET.encode() not in receiver.bytes
    assert b"the key of a sender" not in receiver.bytes


def test_the_worker_of_the_service_shows_files_and_batches_too(tmp_path: Path, receiver: Receiver) -> None:
    variables = receiver.variables | {"OTEL_SERVICE_NAME": "papers"}
    collector = variables.pop("OTEL_EXPORTER_OTLP_ENDPOINT")
    block = snippet("docs/service.md", "OTEL_EXPORTER_OTLP_ENDPOINT=")
    setting, *command = shlex.split(block.replace("http://localhost:4318", collector))
    assert command == ["fairlane", "serve"]
    server = Server(tmp_path, work=True, variables=variables, prefix=("env", setting))
    try:
        with server.client(server.key("acme")) as client:
            headers = {"traceparent": f"00-{TRACE}-{SPAN}-00"}
            files = [("file", ("secret name.txt", b"one")), ("file", ("secret name.txt", b"two"))]
            batch = client.post("/v1/batches", files=files, headers=headers).json()
            ids = [document["id"] for document in batch["documents"]]
            headers = {"Content-Type": "text/plain", "traceparent": "00-not one-01"}
            ids.append(client.post("/v1/documents", content=b"three", headers=headers).json()["id"])
            names = ["submit", "wait", "handle"]
            until(lambda: all([span.name for span in receiver.of(id)] == names for id in ids), "every span")
    finally:
        server.close()
    assert len({span.trace for span in receiver.spans}) == 3
    assert {span.service for span in receiver.spans} == {"papers"}
    assert {span.attributes["fairlane.outcome"] for span in receiver.spans if span.name == "handle"} == {"done"}
    assert [receiver.of(id)[0].links for id in ids] == [[(TRACE, SPAN)], [(TRACE, SPAN)], []]
    assert b"secret name" not in receiver.bytes


@pytest.mark.parametrize("more", [{"OTEL_TRACES_EXPORTER": "none"}, {"OTEL_SDK_DISABLED": "true"}])
def test_nothing_is_sent_where_nobody_asked(tmp_path: Path, receiver: Receiver, more: dict[str, str]) -> None:
    server = Server(tmp_path, variables=receiver.variables | more)
    try:
        with server.client(server.key("acme")) as client:
            id = client.post("/v1/documents", json={"payload": {}}).json()["id"]
        work(server.url, tmp_path, receiver.variables | more)
        assert server.queue.document(id).state == "done"
    finally:
        server.close()
    assert receiver.spans == []


def test_without_an_exporter_nothing_of_it_is_imported(tmp_path: Path) -> None:
    script = "import sys, fairlane.worker; from fairlane.tracing import open_spans; " \
             "assert open_spans({}, print) is None; print([one for one in sys.modules if 'opentelemetry' in one])"  # fmt: skip
    ran = subprocess.run([sys.executable, "-c", script], env={}, capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout == "[]\n"


def test_without_its_packages_it_is_reported_and_nothing_breaks() -> None:
    script = "import sys; sys.modules['opentelemetry'] = None; from fairlane.tracing import open_spans; " \
             "print(open_spans({'OTEL_TRACES_EXPORTER': 'otlp'}, print))"  # fmt: skip
    ran = subprocess.run([sys.executable, "-c", script], env={}, capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.endswith('its packages are missing; run in the clone: pip install ".[otel]"\nNone\n')


def test_a_collector_that_is_not_there_stops_nothing(tmp_path: Path) -> None:
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_BSP_SCHEDULE_DELAY": "50"}
    server = Server(tmp_path, variables=variables)
    try:
        with server.client(server.key("acme")) as client:
            id = client.post("/v1/documents", json={"payload": {}}).json()["id"]
        work(server.url, tmp_path, variables)
        assert server.queue.document(id).state == "done"
    finally:
        assert server.stop() == 0
        server.queue.close()


@pytest.mark.parametrize(
    ("environment", "names"),
    [
        ({}, []),
        ({"OTEL_TRACES_EXPORTER": "console, otlp"}, ["console", "otlp"]),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, []),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, ["otlp"]),
        ({"OTEL_SERVICE_NAME": "x"}, []),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "True"}, []),
    ],
)
def test_an_exporter_is_asked_for_by_the_usual_variables(environment: dict[str, str], names: list[str]) -> None:
    assert exporters(environment) == names


@pytest.mark.parametrize(
    "environment",
    [{"OTEL_TRACES_EXPORTER": "pigeon"}, {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "smoke"}],
)
def test_an_exporter_that_is_not_there_is_reported(tmp_path: Path, environment: dict[str, str]) -> None:
    reasons: list[str] = []
    assert open_spans(environment, reasons.append) is None
    assert len(reasons) == 1
    queue = Queue(f"sqlite:///{tmp_path}/queue.db")
    queue.submit("acme", {})
    queue.close()
    assert "nothing is traced: OpenTelemetry is configured" in work(queue.url, tmp_path, environment).stderr


def test_a_share_of_documents_is_the_same_share_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.25")
    server, worker = Spans([], {}), Spans([], {})
    ids = new_ids(4000)
    sampled = [id for id in ids if worker.is_sampled(id)]
    assert sampled == [id for id in ids if server.is_sampled(id)]
    assert 800 < len(sampled) < 1200
    assert len({root_of(id).trace_id for id in ids}) == len({root_of(id).span_id for id in ids}) == 4000
